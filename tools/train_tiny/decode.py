"""Token-by-token decoding of many sequences in lockstep, for evaluation.

The recurrence here is the plain one (one token at a time), so agreement with the training
model is also a check of the chunked form. On a GPU one step is captured as a CUDA graph.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .model import Attention, DeltaNet, TinyModel


class StepDecoder:
    """`batch` sequences of at most `length` tokens; every call starts afresh."""

    def __init__(self, model: TinyModel, batch: int, length: int, end: int) -> None:
        self.model, self.batch, self.length, self.end = model, batch, length, end
        self.device = model.token_embd.weight.device
        s = model.shape
        empty = {"device": self.device, "dtype": torch.float32}
        self.state: list[tuple[Tensor, Tensor]] = []
        for block in model.blk:
            if isinstance(block.mixer, Attention):
                shape = (batch, length, s.kv_heads, s.head_dim)
                self.state.append((torch.zeros(shape, **empty), torch.zeros(shape, **empty)))
            else:
                conv = torch.zeros(batch, s.conv_kernel - 1, s.conv_channels, **empty)
                memory = torch.zeros(batch, s.ssm_v_heads, s.ssm_head_dim, s.ssm_head_dim, **empty)
                self.state.append((conv, memory))
        self.tokens = torch.zeros(batch, length + 1, dtype=torch.long, device=self.device)
        self.prompt_length = torch.zeros(batch, dtype=torch.long, device=self.device)
        self.at = torch.zeros((), dtype=torch.long, device=self.device)
        self.finished = torch.zeros(batch, dtype=torch.bool, device=self.device)
        self.temperature = torch.zeros((), device=self.device)
        self.visible = length  # cache entries that attention reads
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}

    @torch.no_grad()
    def generate(
        self, prompts: list[list[int]], limit: int, temperature: float = 0.0
    ) -> list[list[int]]:
        """Continuations of at most `limit` tokens, each ending with the end token if it came."""
        if len(prompts) > self.batch or max(map(len, prompts)) + limit > self.length:
            raise ValueError("the decoder is too small for these prompts")
        self._reset(prompts, temperature)
        last = max(map(len, prompts)) + limit
        self.visible = min(self.length, -(-last // 512) * 512)
        for count in range(last - 1):
            self._advance()
            if count % 64 == 63 and bool(self.finished[: len(prompts)].all()):
                break
        rows = self.tokens[: len(prompts)].tolist()
        continuations = []
        for row, prompt in zip(rows, prompts, strict=True):
            text = row[len(prompt) : min(len(prompt) + limit, int(self.at) + 1)]
            continuations.append(text[: text.index(self.end) + 1] if self.end in text else text)
        return continuations

    def _reset(self, prompts: list[list[int]], temperature: float) -> None:
        for a, b in self.state:
            a.zero_()
            b.zero_()
        self.tokens.fill_(self.end)
        self.prompt_length.fill_(1)
        for i, prompt in enumerate(prompts):
            self.tokens[i, : len(prompt)] = torch.tensor(prompt)
            self.prompt_length[i] = len(prompt)
        self.at.zero_()
        self.finished.zero_()
        self.temperature.fill_(temperature)

    def _advance(self) -> None:
        if self.device.type != "cuda":
            self._step()
            return
        if self.visible not in self.graphs:
            self.graphs[self.visible] = self._capture()
        self.graphs[self.visible].replay()

    def _capture(self) -> torch.cuda.CUDAGraph:
        """One step as a graph; the buffers it runs over while capturing are put back."""
        saved = [x.clone() for x in self._buffers()]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        for buffer, value in zip(self._buffers(), saved, strict=True):
            buffer.copy_(value)
        return graph

    def _buffers(self) -> list[Tensor]:
        return [self.tokens, self.at, self.finished, *[x for pair in self.state for x in pair]]

    def _step(self) -> None:
        """Read token `at` of every sequence, then keep or choose token `at` + 1."""
        model = self.model
        x = model.token_embd(self.tokens.index_select(1, self.at[None]))
        for block, state in zip(model.blk, self.state, strict=True):
            h = block.attn_norm(x)
            if isinstance(block.mixer, Attention):
                mixed = self._attention(block.mixer, h, state)
            else:
                mixed = self._delta(block.mixer, h, state)
            x = block.feed_forward(x + mixed)
        logits = model.logits(model.output_norm(x))[:, 0]
        noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-9, 1 - 1e-7)))
        chosen = (logits + self.temperature * noise).argmax(-1)
        self.at += 1
        given = self.tokens.index_select(1, self.at[None])[:, 0]
        in_prompt = self.at < self.prompt_length
        following = torch.where(in_prompt, given, chosen)
        self.tokens.index_copy_(1, self.at[None], following[:, None])
        self.finished |= ~in_prompt & (following == self.end)

    def _attention(self, mixer: Attention, h: Tensor, cache: tuple[Tensor, Tensor]) -> Tensor:
        positions = self.at.expand(self.batch, 1)
        q, gate, k, v = mixer.project(h, positions)
        cache[0].index_copy_(1, self.at[None], k)
        cache[1].index_copy_(1, self.at[None], v)
        keys, values = cache[0][:, : self.visible], cache[1][:, : self.visible]
        grouped = q[:, 0].unflatten(1, (keys.shape[2], -1)) * q.shape[-1] ** -0.5
        scores = torch.einsum("bkgd,btkd->bkgt", grouped, keys)
        hidden = torch.arange(self.visible, device=self.device) > self.at
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        out = torch.einsum("bkgt,btkd->bkgd", weights, values).flatten(1)[:, None]
        return mixer.attn_output(out * gate.sigmoid())

    def _delta(self, mixer: DeltaNet, h: Tensor, state: tuple[Tensor, Tensor]) -> Tensor:
        conv, memory = state
        window = torch.cat([conv, mixer.attn_qkv(h)], 1)
        conv.copy_(window[:, 1:])
        mixed = torch.einsum("btc,ct->bc", window, mixer.ssm_conv1d)[:, None]
        q, k, v = (x[:, 0] for x in mixer.heads(mixed))
        groups = v.shape[1] // k.shape[1]
        q, k = q.repeat(1, groups, 1) * q.shape[-1] ** -0.5, k.repeat(1, groups, 1)
        g, beta = (x[:, 0] for x in mixer.gates(h))
        memory.mul_(g.exp()[..., None, None])
        delta = beta[..., None] * (v - torch.einsum("bhkv,bhk->bhv", memory, k))
        memory.add_(k[..., :, None] * delta[..., None, :])
        out = torch.einsum("bhkv,bhk->bhv", memory, q)
        return mixer.finish(out[:, None], h)


@torch.no_grad()
def acceptance(
    model: TinyModel, sequences: list[tuple[list[int], int]], temperature: float, steps: int = 3
) -> list[float]:
    """Share of draft chains accepted up to each position, over generated tokens.

    sequences: (token ids, index of the first generated token). At temperature 0 a draft counts
    if it is the model's own choice; at temperature 1 its chance under rejection sampling counts.
    Entry d is the probability that drafts 1..d+1 are all accepted.
    """
    hits, total = [0.0] * steps, 0
    device = model.token_embd.weight.device
    for ids, first in sequences:
        padded = ids + [0] * (-len(ids) % 64)
        tokens = torch.tensor([padded], device=device)
        positions = torch.arange(len(padded), device=device)[None]
        hidden = model(tokens, positions)
        drafts = model.draft(hidden, tokens, positions, steps)
        # A chain that starts after token t-1 drafts tokens t+1, t+2, ... (t itself is sampled).
        if first >= len(ids) - steps:
            continue
        starts = torch.arange(first, len(ids) - steps, device=device)
        alive = torch.ones(len(starts), device=device)
        for d in range(steps):
            at = starts + d
            p = functional.softmax(model.logits(hidden[0, at]), -1)
            q = functional.softmax(model.logits(drafts[d][0, at]), -1)
            actual = tokens[0, at + 1][:, None]
            if temperature == 0:
                alive = alive * (q.argmax(-1) == p.argmax(-1))
                hits[d] += float(alive.sum())
            else:
                hits[d] += float((alive * torch.minimum(p, q).sum(-1)).sum())
                ratio = (q.gather(1, actual) / p.gather(1, actual)).clamp(max=1.0)[:, 0]
                alive = alive * ratio
        total += len(starts)
    return [h / max(1, total) for h in hits]
