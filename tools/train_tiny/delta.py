"""The gated delta rule in its chunked form, for training.

Inside a chunk of 64 tokens everything is matrix products; between chunks a state S (K x V) is
carried by a scan, which is a Triton kernel on the GPU and a plain loop elsewhere.
Documents start at chunk boundaries, so a reset is a flag per chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU installations of torch come without Triton
    triton = None

CHUNK = 64
_BLOCK_V = 32  # value columns a Triton program carries


def gated_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, reset: Tensor
) -> Tensor:
    """DeltaNet outputs [B, T, Hv, D] for q, k [B, T, Hk, D], v [B, T, Hv, D].

    g [B, T, Hv] is the log decay, beta [B, T, Hv] the write strength, reset [B, T/64] tells which
    chunks start from a zero state. V head j reads Q/K head j mod Hk (the order of GGUF files).
    T must be a multiple of 64. g and beta must be at least float32.
    """
    batch, length, v_heads, dim = v.shape
    chunks, groups = length // CHUNK, v_heads // k.shape[2]

    def split(x: Tensor) -> Tensor:  # [B, T, H, ...] -> [B, H, N, C, ...]
        return x.reshape(batch, chunks, CHUNK, *x.shape[2:]).movedim(3, 1)

    q, k, v, g, beta = split(q) * dim**-0.5, split(k), split(v), split(g), split(beta)
    total = g.cumsum(-1)
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=v.device).tril()
    difference = total[..., :, None] - total[..., None, :]
    decay = difference.masked_fill(~lower, float("-inf")).exp()

    def tile(x: Tensor) -> Tensor:
        return x.repeat(1, groups, *[1] * (x.dim() - 2))

    kk, qk = tile(k @ k.transpose(-1, -2)), tile(q @ k.transpose(-1, -2))
    q, k = tile(q), tile(k)
    mix = (beta[..., None] * kk * decay).tril(-1)
    inverse = invert_unit_lower(mix).to(v.dtype)
    u = inverse @ (beta[..., None] * v).to(v.dtype)
    w = inverse @ ((beta * total.exp())[..., None] * k).to(v.dtype)

    keep = 1.0 - reset.to(g.dtype)
    keep = torch.cat([keep[:, 1:], torch.ones_like(keep[:, :1])], 1)[:, None, :]
    last = total[..., -1]
    k_decayed = (k * ((last[..., None] - total).exp() * keep[..., None])[..., None]).to(v.dtype)
    v_new, states = chunk_scan(w, u, k_decayed, last.exp() * keep)
    out = (q * total.exp()[..., None]).to(v.dtype) @ states.to(v.dtype)
    out = out + (qk * decay).to(v.dtype) @ v_new
    return out.movedim(1, 3).reshape(batch, length, v_heads, dim)


def invert_unit_lower(a: Tensor) -> Tensor:
    """(I + a)^-1 for strictly lower triangular a [..., 64, 64].

    16 x 16 diagonal blocks by a product of powers (short enough to stay accurate), merged upward.
    Always in the precision of `a`: with repeated keys the powers cancel, which bfloat16 turns
    into infinities.
    """
    with torch.autocast(a.device.type, enabled=False):
        return _invert_unit_lower(a)


def _invert_unit_lower(a: Tensor) -> Tensor:
    size = 16
    eye = torch.eye(size, dtype=a.dtype, device=a.device)
    blocks = [a[..., i : i + size, i : i + size] for i in range(0, CHUNK, size)]
    d = torch.stack(blocks, -3)
    inverse, power = eye - d, d
    for _ in range(3):
        power = power @ power
        inverse = inverse @ (eye + power)
    parts = list(inverse.unbind(-3))
    while len(parts) > 1:
        merged = []
        for i in range(0, len(parts), 2):
            top, bottom = parts[i], parts[i + 1]
            row = (i + 1) * size
            corner = -bottom @ a[..., row : row + size, row - size : row] @ top
            upper = torch.cat([top, torch.zeros_like(top)], -1)
            merged.append(torch.cat([upper, torch.cat([corner, bottom], -1)], -2))
        parts, size = merged, size * 2
    return parts[0]


@torch.library.custom_op("openjet_tiny::chunk_scan", mutates_args=())
def chunk_scan(w: Tensor, u: Tensor, k: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """Carry the state over chunks: returns (v_new [B, H, N, C, V], states [B, H, N, K, V]).

    states[c] is the state before chunk c; v_new[c] = u[c] - w[c] states[c];
    states[c+1] = decay[c] states[c] + k[c]^T v_new[c].
    """
    batch, heads, chunks, size, width = u.shape
    wide = torch.promote_types(u.dtype, torch.float32)
    states = torch.empty(batch, heads, chunks, w.shape[-1], width, dtype=wide, device=u.device)
    v_new = torch.empty_like(u)
    if u.is_cuda and u.dtype == torch.bfloat16:
        w, u, k, decay = w.contiguous(), u.contiguous(), k.contiguous(), decay.contiguous()
        _scan_forward[(batch * heads, width // _BLOCK_V)](
            w, u, k, decay, v_new, states, chunks, size, w.shape[-1], width, _BLOCK_V, num_warps=4
        )
        return v_new, states
    state = torch.zeros_like(states[:, :, 0])
    for c in range(chunks):
        states[:, :, c] = state
        v_new[:, :, c] = u[:, :, c] - w[:, :, c] @ state.to(w.dtype)
        update = k[:, :, c].transpose(-1, -2) @ v_new[:, :, c]
        state = decay[:, :, c, None, None] * state + update
    return v_new, states


@chunk_scan.register_fake
def _(w: Tensor, u: Tensor, k: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    batch, heads, chunks, _, width = u.shape
    wide = torch.promote_types(u.dtype, torch.float32)
    states = u.new_empty(batch, heads, chunks, w.shape[-1], width, dtype=wide)
    return torch.empty_like(u), states


@torch.library.custom_op("openjet_tiny::chunk_scan_backward", mutates_args=())
def chunk_scan_backward(
    w: Tensor, k: Tensor, decay: Tensor, d_v: Tensor, d_states: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients flowing back through the scan: (d_v_new total, gradient of each chunk's end
    state)."""
    batch, heads, chunks, size, width = d_v.shape
    d_total, d_end = torch.empty_like(d_v), torch.empty_like(d_states)
    if d_v.is_cuda and d_v.dtype == torch.bfloat16:
        _scan_backward[(batch * heads, width // _BLOCK_V)](
            w, k, decay, d_v, d_states, d_total, d_end,
            chunks, size, w.shape[-1], width, _BLOCK_V, num_warps=4,
        )  # fmt: skip
        return d_total, d_end
    state = torch.zeros_like(d_states[:, :, 0])
    for c in reversed(range(chunks)):
        d_end[:, :, c] = state
        total = d_v[:, :, c] + k[:, :, c] @ state.to(k.dtype)
        d_total[:, :, c] = total
        state = decay[:, :, c, None, None] * state + d_states[:, :, c]
        state = state - w[:, :, c].transpose(-1, -2) @ total
    return d_total, d_end


@chunk_scan_backward.register_fake
def _(w: Tensor, k: Tensor, decay: Tensor, d_v: Tensor, d_states: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(d_v), torch.empty_like(d_states)


def _save_for_backward(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    w, _, k, decay = inputs
    ctx.save_for_backward(w, k, decay, *output)


def _backward(ctx, d_v: Tensor, d_states: Tensor):  # type: ignore[no-untyped-def]
    w, k, decay, v_new, states = ctx.saved_tensors
    w, k, decay = w.contiguous(), k.contiguous(), decay.contiguous()
    d_total, d_end = chunk_scan_backward(w, k, decay, d_v.contiguous(), d_states.contiguous())
    d_w = -(d_total @ states.to(w.dtype).transpose(-1, -2))
    d_k = v_new @ d_end.to(k.dtype).transpose(-1, -2)
    d_decay = (states * d_end).sum((-1, -2))
    return d_w, d_total, d_k, d_decay


chunk_scan.register_autograd(_backward, setup_context=_save_for_backward)

if triton is not None:

    @triton.jit
    def _scan_forward(
        w_ptr, u_ptr, k_ptr, decay_ptr, v_ptr, s_ptr,
        chunks, C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        head = tl.program_id(0).to(tl.int64)
        cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
        tokens, keys = tl.arange(0, C)[:, None], tl.arange(0, K)
        state = tl.zeros([K, BLOCK], tl.float32)
        for c in range(chunks):
            at = head * chunks + c
            tl.store(s_ptr + at * K * V + keys[:, None] * V + cols, state)
            w = tl.load(w_ptr + at * C * K + tokens * K + keys[None, :])
            k = tl.load(k_ptr + at * C * K + tokens * K + keys[None, :])
            u = tl.load(u_ptr + at * C * V + tokens * V + cols)
            v = (u - tl.dot(w, state.to(w.dtype))).to(w.dtype)
            tl.store(v_ptr + at * C * V + tokens * V + cols, v)
            state = state * tl.load(decay_ptr + at) + tl.dot(tl.trans(k), v)

    @triton.jit
    def _scan_backward(
        w_ptr, k_ptr, decay_ptr, dv_ptr, ds_ptr, total_ptr, end_ptr,
        chunks, C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        head = tl.program_id(0).to(tl.int64)
        cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
        tokens, keys = tl.arange(0, C)[:, None], tl.arange(0, K)
        state = tl.zeros([K, BLOCK], tl.float32)
        for step in range(chunks):
            at = head * chunks + (chunks - 1 - step)
            tl.store(end_ptr + at * K * V + keys[:, None] * V + cols, state)
            w = tl.load(w_ptr + at * C * K + tokens * K + keys[None, :])
            k = tl.load(k_ptr + at * C * K + tokens * K + keys[None, :])
            dv = tl.load(dv_ptr + at * C * V + tokens * V + cols)
            total = (dv + tl.dot(k, state.to(k.dtype))).to(k.dtype)
            tl.store(total_ptr + at * C * V + tokens * V + cols, total)
            ds = tl.load(ds_ptr + at * K * V + keys[:, None] * V + cols)
            state = state * tl.load(decay_ptr + at) + ds - tl.dot(tl.trans(w), total)
