"""The engine's deliberate roundings, for checks tighter than a tolerance against exact arithmetic.

Weights are always taken as stored. What an engine rounds beyond that is the activations of a
quantised matrix product (to int8) and the keys and values it keeps; over q8_0 keys and values also
the queries and the attention weights. All are off by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

TILE = 64  # positions whose weights are rounded together
FLOAT_TYPES = {GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16}


@dataclass(frozen=True)
class Rounding:
    """`activations`: "exact", or "int8" with one float32 scale per weight block (256 elements for
    K-quants and IQ4_XS, 32 for the others; float weights keep exact activations). `kv`: how
    attention's keys and values are stored: "exact", "f16" or "q8_0" (32 elements of a head). With
    "q8_0" queries are 15-bit integers with one scale per 32 elements, and so are the weights of 64
    positions times their values' scales, for every 32 elements."""

    activations: Literal["exact", "int8"] = "exact"
    kv: Literal["exact", "f16", "q8_0"] = "exact"

    def round_activations(self, x: np.ndarray, weight_type: GGMLQuantizationType) -> np.ndarray:
        if self.activations == "exact" or weight_type in FLOAT_TYPES:
            return x
        return _int8(x, GGML_QUANT_SIZES[weight_type][0])

    def round_kv(self, x: np.ndarray) -> np.ndarray:
        if self.kv == "f16":
            return x.astype(np.float16).astype(np.float64)
        return _q8_0(x) if self.kv == "q8_0" else x

    def round_queries(self, q: np.ndarray) -> np.ndarray:
        """Queries [..., d] that are scaled by 1 / sqrt(d)."""
        if self.kv != "q8_0":
            return q
        codes, scale = _code16(q.astype(np.float32).reshape(*q.shape[:-1], -1, 32))
        return (codes * scale).reshape(q.shape)

    def weighted_sum(
        self, weights: np.ndarray, values: np.ndarray, positions: np.ndarray
    ) -> np.ndarray:
        """weights [n, m] @ values [m, d] of these positions [m], ascending; values are rounded."""
        if self.kv != "q8_0":
            return np.asarray(weights @ values)
        out = np.zeros((len(weights), values.shape[1]))
        edges = np.flatnonzero(np.diff(positions // TILE)) + 1
        for tile in np.split(np.arange(len(positions)), edges):
            for group in range(0, values.shape[1], 32):
                codes, scales = _stored_codes(values[tile, group : group + 32])
                scaled = weights[:, tile].astype(np.float32) * scales.astype(np.float32)
                weight_codes, weight_scale = _code16(scaled)
                out[:, group : group + 32] += weight_scale * (weight_codes @ codes)
        return out


def _code16(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes -16256 to 16256 and their scale, float64, of float32 groups along the last axis."""
    largest = np.abs(groups).max(-1, keepdims=True)
    safe = np.maximum(largest, np.float32(1e-30))
    codes = np.rint(groups * (np.float32(16256) / safe)).astype(np.float64)
    scale = np.where(largest > np.float32(1e-30), largest / np.float32(16256), np.float32(0))
    return codes, scale.astype(np.float64)


def _stored_codes(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes [m, 32] and scales [m] of one group of q8_0-rounded values; the largest code is 127."""
    scales = np.abs(values).max(-1) / 127
    safe = np.where(scales > 0, scales, 1)
    return np.rint(values / safe[:, None]), scales


def _int8(x: np.ndarray, block: int) -> np.ndarray:
    """Codes are round-half-even(x * (127 / largest magnitude)), values code * (largest / 127), in
    float32 as the engine computes them."""
    groups = x.astype(np.float32).reshape(*x.shape[:-1], -1, block)
    largest = np.abs(groups).max(-1, keepdims=True)
    safe = np.maximum(largest, np.float32(1e-30))
    codes = np.rint(groups * (np.float32(127) / safe))
    scale = np.where(largest > np.float32(1e-30), largest / np.float32(127), np.float32(0))
    return (codes.astype(np.float64) * scale).reshape(x.shape)


def _q8_0(x: np.ndarray) -> np.ndarray:
    """32 elements share a float16 scale, largest magnitude / 127; codes are rounded against the
    scale as stored."""
    groups = x.astype(np.float32).reshape(*x.shape[:-1], -1, 32)
    largest = np.abs(groups).max(-1, keepdims=True)
    scale = (largest / np.float32(127)).astype(np.float16).astype(np.float32)
    factor = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    codes = np.rint(np.clip(groups * factor, -127, 127))
    return (codes.astype(np.float64) * scale).reshape(x.shape)
