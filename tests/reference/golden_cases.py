"""Which random models the committed golden logits are of. Shared by their maker and their test."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tests.reference.random_model import PRESETS, RECIPES, Shape, tensor_bytes, tensor_specs

GOLDENS = Path(__file__).parent.parent / "goldens"
LOGITS = GOLDENS / "logits.npz"
TOKENS = [int(t) for t in np.random.PCG64(7).random_raw(96) % 500]
POSITIONS = [0, 1, 18, 63, 95]  # the rows that are kept
DRAFTS = 3


@dataclass(frozen=True)
class Case:
    name: str
    shape: Shape
    types: str
    seed: int

    @property
    def is_float(self) -> bool:
        return self.types in ("f32", "f16", "bf16")

    def digest(self) -> str:
        """SHA-256 of all tensor data, so that a changed writer is told apart from a wrong model."""
        hasher = hashlib.sha256()
        for spec in tensor_specs(self.shape, self.types):
            hasher.update(tensor_bytes(spec, self.seed).tobytes())
        return hasher.hexdigest()


MICRO = PRESETS["micro"]
CASES = [
    *(Case(f"micro-{types}", MICRO, types, 1) for types in RECIPES),
    Case("untied-f32", PRESETS["micro_untied"], "f32", 2),
    Case("untied-q4_k_m", PRESETS["micro_untied"], "q4_k_m", 2),
    Case("fused-f32", replace(MICRO, fused_qkv=True), "f32", 3),
    Case("no-mtp-f32", replace(MICRO, mtp=False), "f32", 3),
    Case("grouped-f32", replace(PRESETS["grouped"], vocabulary=512), "f32", 4),
]
