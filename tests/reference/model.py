"""The qwen35 forward pass and its MTP head in float64, one sequence at a time."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.reference.gguf_file import GGUFFile
from tests.reference.layers import (
    Linear,
    attend,
    causal_conv,
    delta_rule,
    l2_norm,
    rms_norm,
    rope,
    sigmoid,
    silu,
    softplus,
)
from tests.reference.rounding import Rounding

REQUIRED = object()


@dataclass(frozen=True)
class Config:
    """Shapes of a model, from metadata with the format's defaults."""

    layers: int  # without MTP blocks
    mtp_layers: int
    hidden: int
    eps: float
    heads: tuple[int, ...]  # per block, MTP included
    kv_heads: tuple[int, ...]
    head_size: int
    recurrent: tuple[bool, ...]
    rope_dims: int
    rope_base: float
    rope_sections: tuple[int, ...]
    conv_width: int
    key_heads: int
    value_heads: int
    state_size: int

    @classmethod
    def from_metadata(cls, metadata: dict[str, Any]) -> Config:
        def get(key: str, default: Any = REQUIRED) -> Any:
            value = metadata.get("qwen35." + key, default)
            if value is REQUIRED:
                raise ValueError(f"missing metadata key qwen35.{key}")
            return value

        def per_block(value: Any) -> tuple[int, ...]:
            return tuple(value) if isinstance(value, list) else (value,) * blocks

        architecture = metadata["general.architecture"]
        if architecture != "qwen35":
            raise ValueError(f"architecture {architecture!r}, expected 'qwen35'")
        blocks, mtp = get("block_count"), get("nextn_predict_layers", 0)
        heads = per_block(get("attention.head_count", 0))
        head_size = get("attention.key_length", get("embedding_length") // max(heads))
        if get("attention.value_length", head_size) != head_size:
            raise ValueError("key and value heads of different sizes are not in this family")
        if get("rope.scaling.factor", 0.0) not in (0.0, 1.0):
            raise ValueError("rope scaling is not in this family")
        interval = get("full_attention_interval", 4)
        by_interval = [i < blocks - mtp and (i + 1) % interval != 0 for i in range(blocks)]
        sections = (*get("rope.dimension_sections"), 0)[:4]
        return cls(
            layers=blocks - mtp,
            mtp_layers=mtp,
            hidden=get("embedding_length"),
            eps=get("attention.layer_norm_rms_epsilon"),
            heads=heads,
            kv_heads=per_block(get("attention.head_count_kv", list(heads))),
            head_size=head_size,
            recurrent=tuple(get("attention.recurrent_layers", by_interval)),
            rope_dims=get("rope.dimension_count", head_size),
            rope_base=get("rope.freq_base", 1e4),
            rope_sections=sections,
            conv_width=get("ssm.conv_kernel"),
            key_heads=get("ssm.group_count"),
            value_heads=get("ssm.time_step_rank"),
            state_size=get("ssm.state_size"),
        )


@dataclass
class KVCache:
    """Keys and values of one attention block: [m, kv heads, head size], and their positions."""

    keys: np.ndarray
    values: np.ndarray
    positions: np.ndarray

    def append(self, keys: np.ndarray, values: np.ndarray, positions: np.ndarray) -> None:
        self.keys = np.concatenate([self.keys, keys])
        self.values = np.concatenate([self.values, values])
        self.positions = np.concatenate([self.positions, positions])


@dataclass
class State:
    """Everything a sequence remembers, by block index. `position` is the next token's."""

    position: int = 0
    kv: dict[int, KVCache] = field(default_factory=dict)
    conv: dict[int, np.ndarray] = field(default_factory=dict)  # [width - 1, channels], raw inputs
    delta: dict[int, np.ndarray] = field(default_factory=dict)  # [value heads, dk, dv]

    def copy(self) -> State:
        return copy.deepcopy(self)


class ReferenceModel:
    """A loaded file. Stateless between calls: pass a State to continue a sequence."""

    def __init__(self, file: GGUFFile, rounding: Rounding) -> None:
        self.config = Config.from_metadata(file.metadata)
        self.rounding = rounding
        self.tensors = file.tensors
        self._linears: dict[str, Linear] = {}
        self._vectors: dict[str, np.ndarray] = {}

    @classmethod
    def load(cls, path: str | Path, rounding: Rounding | None = None) -> ReferenceModel:
        return cls(GGUFFile(path), rounding or Rounding())

    def forward(
        self, tokens: Sequence[int], state: State | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Logits [n, vocabulary] and post-norm hidden rows [n, hidden], float64; advances state."""
        hidden = self.hidden(tokens, state)
        return self.logits(hidden), hidden

    def hidden(self, tokens: Sequence[int], state: State | None = None) -> np.ndarray:
        """The rows that feed the LM head (after output_norm), [n, hidden]."""
        state = State() if state is None else state
        positions = state.position + np.arange(len(tokens))
        x = self.tensors["token_embd.weight"].rows(np.asarray(tokens))
        for block in range(self.config.layers):
            x = self._block(block, x, positions, state)
        state.position += len(tokens)
        return self._norm("output_norm.weight", x)

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        return self._head()(hidden)

    def mtp(
        self, tokens: Sequence[int], hidden: np.ndarray, pos: int, state: State
    ) -> tuple[np.ndarray, np.ndarray]:
        """The MTP head over rows at positions pos, pos+1, ...

        Row i holds token x_p at p = pos + i and hidden[i], the post-norm hidden row of position
        p - 1 (zeros where there is none). Keys and values join state's cache of the MTP block.
        Returns logits for x_{p+1} and y [n, hidden], which feeds a chained next step as `hidden`.
        """
        if not self.config.mtp_layers:
            raise ValueError("this file has no MTP block")
        block = self.config.layers
        name = f"blk.{block}.nextn."
        embed = self.tensors.get(name + "embed_tokens.weight", self.tensors["token_embd.weight"])
        e = self._norm(name + "enorm.weight", embed.rows(np.asarray(tokens)))
        h = self._norm(name + "hnorm.weight", hidden)
        x = self._linear(name + "eh_proj")(np.concatenate([e, h], axis=-1))
        x = self._block(block, x, pos + np.arange(len(tokens)), state)
        own_norm = name + "shared_head_norm.weight"
        y = self._norm(own_norm if own_norm in self.tensors else "output_norm.weight", x)
        own_head = name + "shared_head_head"
        head = self._linear(own_head) if own_head + ".weight" in self.tensors else self._head()
        return head(y), y

    def draft(self, token: int, hidden: np.ndarray, pos: int, state: State, n: int) -> list[int]:
        """n greedy drafts after `token` at position pos, chained; hidden [hidden] is that of
        position pos - 1. The drafts' keys and values stay in state's MTP cache."""
        drafts: list[int] = []
        row = hidden[None]
        for i in range(n):
            logits, row = self.mtp([token], row, pos + i, state)
            token = int(logits[0].argmax())
            drafts.append(token)
        return drafts

    def _block(self, block: int, x: np.ndarray, positions: np.ndarray, state: State) -> np.ndarray:
        name = f"blk.{block}."
        h = self._norm(name + "attn_norm.weight", x)
        if self.config.recurrent[block]:
            x = x + self._delta_net(block, h, state)
        else:
            x = x + self._attention(block, h, positions, state)
        h = self._norm(name + "post_attention_norm.weight", x)
        gated = silu(self._linear(name + "ffn_gate")(h)) * self._linear(name + "ffn_up")(h)
        return x + self._linear(name + "ffn_down")(gated)

    def _attention(
        self, block: int, h: np.ndarray, positions: np.ndarray, state: State
    ) -> np.ndarray:
        config, name, n = self.config, f"blk.{block}.", len(h)
        heads, kv_heads, size = config.heads[block], config.kv_heads[block], config.head_size
        query_rows, kv_rows = 2 * heads * size, kv_heads * size
        if name + "attn_qkv.weight" in self.tensors:
            fused = self._linear(name + "attn_qkv")(h)
            qg, k, v = np.split(fused, [query_rows, query_rows + kv_rows], axis=-1)
        else:
            qg, k, v = (self._linear(name + part)(h) for part in ("attn_q", "attn_k", "attn_v"))
        # Each head's rows are its query followed by its output gate.
        q, gate = np.split(qg.reshape(n, heads, 2 * size), 2, axis=-1)
        k, v = k.reshape(n, kv_heads, size), v.reshape(n, kv_heads, size)
        turn = (positions, config.rope_dims, config.rope_base, config.rope_sections)
        q = rope(self._norm(name + "attn_q_norm.weight", q), *turn)
        k = rope(self._norm(name + "attn_k_norm.weight", k), *turn)

        empty = np.empty((0, kv_heads, size))
        cache = state.kv.setdefault(block, KVCache(empty, empty, np.empty(0, dtype=np.int64)))
        cache.append(self.rounding.round_kv(k), self.rounding.round_kv(v), positions)
        visible = cache.positions[None, :] <= positions[:, None]
        out = attend(q, cache.keys, cache.values, visible, cache.positions, self.rounding)
        return self._linear(name + "attn_output")((out * sigmoid(gate)).reshape(n, heads * size))

    def _delta_net(self, block: int, h: np.ndarray, state: State) -> np.ndarray:
        config, name, n = self.config, f"blk.{block}.", len(h)
        keys, values, size = config.key_heads, config.value_heads, config.state_size
        taps = self._vector(name + "ssm_conv1d.weight")

        u = self._linear(name + "attn_qkv")(h)
        past = state.conv.get(block, np.zeros((config.conv_width - 1, u.shape[1])))
        y, state.conv[block] = causal_conv(u, taps, past)
        q, k, v = np.split(silu(y), [keys * size, 2 * keys * size], axis=-1)
        q = l2_norm(q.reshape(n, keys, size), config.eps)
        k = l2_norm(k.reshape(n, keys, size), config.eps)
        v = v.reshape(n, values, size)
        # Value heads are stored tiled: value head j belongs to key head j mod keys.
        q, k = np.tile(q, (1, values // keys, 1)), np.tile(k, (1, values // keys, 1))

        beta = sigmoid(self._linear(name + "ssm_beta")(h))
        alpha = self._linear(name + "ssm_alpha")(h)
        # ssm_a is stored as -exp(A_log).
        decay = self._vector(name + "ssm_a") * softplus(alpha + self._vector(name + "ssm_dt.bias"))
        before = state.delta.get(block, np.zeros((values, size, size)))
        out, state.delta[block] = delta_rule(q, k, v, decay, beta, before)

        z = self._linear(name + "attn_gate")(h).reshape(n, values, size)
        out = self._norm(name + "ssm_norm.weight", out) * silu(z)
        return self._linear(name + "ssm_out")(out.reshape(n, values * size))

    def _norm(self, name: str, x: np.ndarray) -> np.ndarray:
        return rms_norm(x, self._vector(name), self.config.eps)

    def _head(self) -> Linear:
        tied = "output.weight" not in self.tensors
        return self._linear("token_embd" if tied else "output")

    def _vector(self, name: str) -> np.ndarray:
        if name not in self._vectors:
            tensor = self.tensors[name]
            self._vectors[name] = tensor.rows(slice(None)).reshape(tensor.shape)
        return self._vectors[name]

    def _linear(self, name: str) -> Linear:
        if name not in self._linears:
            bias = self._vector(name + ".bias") if name + ".bias" in self.tensors else None
            self._linears[name] = Linear(self.tensors[name + ".weight"], self.rounding, bias)
        return self._linears[name]
