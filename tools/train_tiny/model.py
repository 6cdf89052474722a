"""openjet-tiny in torch: the qwen35 architecture with its MTP block.

Parameters carry the names of the GGUF tensors, and are stored in the form GGUF files have them
(norm weights as they multiply, V heads in tiled order), so that export is a copy.
The one exception is `ssm_a`: the file holds -exp(a_log).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from .delta import CHUNK, gated_delta_rule
from .shape import Shape


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return wide * scale * self.weight


def linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=0.5 / math.sqrt(inputs))
    return layer


def rotate(x: Tensor, positions: Tensor, shape: Shape) -> Tensor:
    """Rotary embedding of the first rope_dims of each head; x [B, T, H, D], positions [B, T]."""
    half = shape.rope_dims // 2
    wide = torch.promote_types(x.dtype, torch.float32)
    steps = torch.arange(half, device=x.device, dtype=torch.float64) / half
    frequency = (shape.rope_base**-steps).to(wide)
    angle = positions[..., None].to(wide) * frequency
    cos, sin = angle.cos()[:, :, None], angle.sin()[:, :, None]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest.to(wide)], -1)


class Attention(nn.Module):
    """Gated attention: q and gate interleaved per head, q/k norm, partial rotary embedding."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        width = shape.heads * shape.head_dim
        self.attn_q = linear(shape.hidden, 2 * width)
        self.attn_k = linear(shape.hidden, shape.kv_heads * shape.head_dim)
        self.attn_v = linear(shape.hidden, shape.kv_heads * shape.head_dim)
        self.attn_q_norm = RMSNorm(shape.head_dim, shape.eps)
        self.attn_k_norm = RMSNorm(shape.head_dim, shape.eps)
        self.attn_output = linear(width, shape.hidden)

    def project(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(q [B, T, H, D], gate [B, T, H*D], k and v [B, T, Hkv, D])."""
        s = self.shape
        packed = self.attn_q(x).unflatten(-1, (s.heads, 2, s.head_dim))
        k = self.attn_k(x).unflatten(-1, (s.kv_heads, s.head_dim))
        v = self.attn_v(x).unflatten(-1, (s.kv_heads, s.head_dim))
        q = rotate(self.attn_q_norm(packed[..., 0, :]), positions, s)
        k = rotate(self.attn_k_norm(k), positions, s)
        return q.to(v.dtype), packed[..., 1, :].flatten(-2), k.to(v.dtype), v

    def attend(self, q: Tensor, gate: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """q [B, T, H, D], k and v [B, S, Hkv, D], mask [B, 1, T, S] (true = visible)."""
        groups = self.shape.heads // self.shape.kv_heads
        k = k.repeat_interleave(groups, 2).transpose(1, 2)
        v = v.repeat_interleave(groups, 2).transpose(1, 2)
        out = functional.scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=mask)
        return self.attn_output(out.transpose(1, 2).flatten(-2) * gate.sigmoid())

    def forward(self, x: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        q, gate, k, v = self.project(x, positions)
        return self.attend(q, gate, k, v, mask)


class DeltaNet(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.attn_qkv = linear(shape.hidden, shape.conv_channels)
        self.attn_gate = linear(shape.hidden, shape.ssm_inner)
        self.ssm_alpha = linear(shape.hidden, shape.ssm_v_heads)
        self.ssm_beta = linear(shape.hidden, shape.ssm_v_heads)
        taps = torch.randn(shape.conv_channels, shape.conv_kernel) * 0.2
        taps[:, -1] += 1.0
        self.ssm_conv1d = nn.Parameter(taps)
        heads = torch.arange(shape.ssm_v_heads) / max(1, shape.ssm_v_heads - 1)
        self.a_log = nn.Parameter(heads * 2.5 - 1.0)
        self.ssm_dt = nn.Parameter(torch.full((shape.ssm_v_heads,), -3.0))
        self.ssm_norm = RMSNorm(shape.ssm_head_dim, shape.eps)
        self.ssm_out = linear(shape.ssm_inner, shape.hidden)

    def gates(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(log decay g, write strength beta), both [..., Hv] in at least float32."""
        alpha, beta = self.ssm_alpha(x), self.ssm_beta(x)
        wide = torch.promote_types(alpha.dtype, torch.float32)
        g = -self.a_log.exp() * functional.softplus(alpha.to(wide) + self.ssm_dt)
        return g, beta.to(wide).sigmoid()

    def heads(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k (unit length) and v heads out of the convolution's output u [B, T, C]."""
        s = self.shape
        keys = s.ssm_k_heads * s.ssm_head_dim
        q, k, v = functional.silu(u).split([keys, keys, s.ssm_inner], -1)

        def unit(x: Tensor) -> Tensor:
            x = x.unflatten(-1, (s.ssm_k_heads, s.ssm_head_dim))
            wide = x.to(torch.promote_types(x.dtype, torch.float32))
            return (wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + s.eps)).to(x.dtype)

        return unit(q), unit(k), v.unflatten(-1, (s.ssm_v_heads, s.ssm_head_dim))

    def finish(self, out: Tensor, x: Tensor) -> Tensor:
        z = self.attn_gate(x).unflatten(-1, (self.shape.ssm_v_heads, self.shape.ssm_head_dim))
        return self.ssm_out((self.ssm_norm(out) * functional.silu(z)).flatten(-2))

    def forward(self, x: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        u, taps = self.attn_qkv(x), self.ssm_conv1d
        mixed = u * taps[:, -1].to(u.dtype)
        for back in range(1, self.shape.conv_kernel):
            shifted = functional.pad(u, (0, 0, back, 0))[:, : u.shape[1]]
            seen = (positions >= back)[..., None].to(u.dtype)
            mixed = mixed + shifted * seen * taps[:, -1 - back].to(u.dtype)
        g, beta = self.gates(x)
        reset = positions[:, ::CHUNK] == 0
        return self.finish(gated_delta_rule(*self.heads(mixed), g, beta, reset), x)


class Block(nn.Module):
    def __init__(self, shape: Shape, attention: bool) -> None:
        super().__init__()
        self.attn_norm = RMSNorm(shape.hidden, shape.eps)
        self.mixer: Attention | DeltaNet = Attention(shape) if attention else DeltaNet(shape)
        self.post_attention_norm = RMSNorm(shape.hidden, shape.eps)
        self.ffn_gate = linear(shape.hidden, shape.ffn)
        self.ffn_up = linear(shape.hidden, shape.ffn)
        self.ffn_down = linear(shape.ffn, shape.hidden)

    def feed_forward(self, x: Tensor) -> Tensor:
        h = self.post_attention_norm(x)
        return x + self.ffn_down(functional.silu(self.ffn_gate(h)) * self.ffn_up(h))

    def forward(self, x: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        return self.feed_forward(x + self.mixer(self.attn_norm(x), positions, mask))


class MTP(nn.Module):
    """The multi-token-prediction block: from the hidden state of position p-1 and the token at p,
    the logits of the token at p+1; chained by feeding its own output back."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.enorm = RMSNorm(shape.hidden, shape.eps)
        self.hnorm = RMSNorm(shape.hidden, shape.eps)
        self.eh_proj = linear(2 * shape.hidden, shape.hidden)
        self.block = Block(shape, attention=True)
        self.shared_head_norm = RMSNorm(shape.hidden, shape.eps)

    def forward(
        self, hidden: Tensor, embedded: Tensor, positions: Tensor, mask: Tensor, steps: int
    ) -> list[Tensor]:
        """Hidden states of `steps` chained drafts for every position, each [B, T, H].

        `hidden` is the main model's output-normed state shifted by one, `embedded` the token
        embeddings. Draft d at index t predicts the token after position t when the last d-1
        tokens up to t were themselves drafts: it sees the plain entries of all earlier tokens and
        the chained entries of the drafted ones, as a serving engine does.
        """
        outputs: list[Tensor] = []
        keys: list[Tensor] = []
        values: list[Tensor] = []
        length = hidden.shape[1]
        attention = self.block.mixer
        assert isinstance(attention, Attention)
        for step in range(steps):
            merged = torch.cat([self.enorm(embedded), self.hnorm(hidden)], -1)
            x = self.eh_proj(merged)
            q, gate, k, v = attention.project(self.block.attn_norm(x), positions)
            keys.append(k)
            values.append(v)
            mixed = attention.attend(
                q, gate, torch.cat(keys, 1), torch.cat(values, 1), chained_mask(mask, step)
            )
            y = self.shared_head_norm(self.block.feed_forward(x + mixed))
            outputs.append(y)
            hidden = functional.pad(y, (0, 0, 1, 0))[:, :length]
        return outputs


def chained_mask(mask: Tensor, step: int) -> Tensor:
    """Visible keys of draft `step` (0-based) for mask [B, 1, T, T] -> [B, 1, T, (step+1) T].

    Key group 0 holds the plain entries, visible up to `step` tokens back; group i holds the
    entries of the i-th chained draft, visible exactly at distance step - i.
    """
    if step == 0:
        return mask
    length = mask.shape[-1]
    index = torch.arange(length, device=mask.device)
    distance = index[:, None] - index[None, :]
    groups = [mask & (distance >= step)]
    groups += [mask & (distance == step - i) for i in range(1, step + 1)]
    return torch.cat(groups, -1)


class TinyModel(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.vocab, shape.hidden)
        nn.init.normal_(self.token_embd.weight, std=0.02)
        self.blk = nn.ModuleList(Block(shape, shape.is_attention(i)) for i in range(shape.layers))
        self.output_norm = RMSNorm(shape.hidden, shape.eps)
        self.nextn = MTP(shape)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Output-normed hidden states [B, T, H]; documents start where positions are 0."""
        mask = document_mask(positions)
        x = self.token_embd(tokens)
        for block in self.blk:
            x = block(x, positions, mask)
        return self.output_norm(x)

    def draft(self, hidden: Tensor, tokens: Tensor, positions: Tensor, steps: int) -> list[Tensor]:
        """Hidden states of the chained drafts; entry d-1 at t predicts token t+1 having drafted
        the tokens after t-d+1."""
        shifted = functional.pad(hidden, (0, 0, 1, 0))[:, : hidden.shape[1]]
        shifted = shifted * (positions > 0)[..., None]
        mask = document_mask(positions)
        return self.nextn(shifted, self.token_embd(tokens), positions, mask, steps)

    def logits(self, hidden: Tensor) -> Tensor:
        return functional.linear(hidden, self.token_embd.weight)


def document_mask(positions: Tensor) -> Tensor:
    """Causal mask [B, 1, T, T] that keeps documents of one row apart."""
    document = (positions == 0).cumsum(-1)
    index = torch.arange(positions.shape[1], device=positions.device)
    causal = index[:, None] >= index[None, :]
    return (causal & (document[:, :, None] == document[:, None, :]))[:, None]
