"""The parts of a qwen35 block in float64. Rows are tokens: x is [n, features] throughout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.reference.gguf_file import Tensor
from tests.reference.rounding import Rounding


class Linear:
    """y = W round(x) + b. Small weights stay dequantised; large ones are streamed on every call."""

    CACHED_ELEMENTS = 1 << 21

    def __init__(self, weight: Tensor, rounding: Rounding, bias: np.ndarray | None = None) -> None:
        self.weight = weight
        self.bias = bias
        self.rounding = rounding
        self.cached: np.ndarray | None = None

    def __call__(self, x: np.ndarray) -> np.ndarray:
        x = self.rounding.round_activations(x, self.weight.type)
        rows, columns = self.weight.shape
        if rows * columns <= self.CACHED_ELEMENTS:
            if self.cached is None:
                self.cached = self.weight.rows(slice(None))
            y = x @ self.cached.T
        else:
            y = np.empty((len(x), rows))
            for part, block in self.weight.blocks():
                y[:, part] = x @ block.T
        return y if self.bias is None else y + self.bias


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def l2_norm(x: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + eps)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -x))


def silu(x: np.ndarray) -> np.ndarray:
    return x * sigmoid(x)


def softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, x)


def rope(
    x: np.ndarray, positions: np.ndarray, dims: int, base: float, sections: Sequence[int]
) -> np.ndarray:
    """Rotates pairs (d, d + dims/2) of the first `dims` features of x [n, heads, head size].

    The model's multi-axis rope interleaves time, height and width over the pairs. Text has the same
    position on all three axes and 0 on the fourth, so pairs that fall to the fourth do not turn.
    """
    half = dims // 2
    pair = np.arange(half)
    sector = pair % sum(sections)
    axis = sector % 3
    turns = sector < 3 * np.asarray(sections)[axis]
    angle = positions[:, None] * np.where(turns, float(base) ** (-pair / half), 0)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    low, high, rest = x[..., :half], x[..., half:dims], x[..., dims:]
    return np.concatenate([low * cos - high * sin, low * sin + high * cos, rest], axis=-1)


def attend(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    visible: np.ndarray,
    positions: np.ndarray,
    rounding: Rounding,
) -> np.ndarray:
    """Softmax attention. q [n, heads, d]; k, v [m, kv heads, d] as stored, of these positions [m];
    visible [n, m] bool.

    Query head h reads kv head h // (heads / kv heads). Returns [n, heads, d].
    """
    _, heads, size = q.shape
    kv_heads = k.shape[1]
    out = np.empty_like(q)
    q = rounding.round_queries(q / np.sqrt(size))
    for head in range(heads):
        source = head // (heads // kv_heads)
        scores = np.where(visible, q[:, head] @ k[:, source].T, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        total = rounding.weighted_sum(weights, v[:, source], positions)
        out[:, head] = total / weights.sum(axis=-1, keepdims=True)
    return out


def causal_conv(u: np.ndarray, taps: np.ndarray, past: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Depthwise convolution over time: u [n, channels], taps [channels, width], the last tap being
    the current token's; past [width - 1, channels] are the raw inputs before u. Returns the output
    and the new past."""
    width = taps.shape[1]
    padded = np.concatenate([past, u])
    out = sum(padded[j : j + len(u)] * taps[:, j] for j in range(width))
    return np.asarray(out), padded[len(padded) - (width - 1) :]


def delta_rule(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    decay: np.ndarray,
    beta: np.ndarray,
    state: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The gated delta rule, token by token.

    q, k [n, heads, dk]; v [n, heads, dv]; decay (log, <= 0) and beta [n, heads];
    state [heads, dk, dv] before the first token. Returns outputs [n, heads, dv] and the new state.
    """
    out = np.empty_like(v)
    state = state.copy()
    for t in range(len(q)):
        state *= np.exp(decay[t])[:, None, None]
        read = np.matmul(k[t][:, None, :], state)[:, 0]
        delta = beta[t][:, None] * (v[t] - read)
        state += k[t][:, :, None] * delta[:, None, :]
        out[t] = np.matmul(q[t][:, None, :], state)[:, 0] / np.sqrt(q.shape[-1])
    return out, state
