"""Random-weight model files, written where they are needed: the 27B's shape in about 15 s."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.gpu.record import Notes
from bench.gpu.setup import MICRO, Setup
from tests.reference.random_model import Shape, Spec, tensor_bytes, write_model
from tests.reference.vocabulary import NORMAL, UNUSED, Vocabulary, small_vocabulary

_TILE_ROWS = 256


def _tiled(spec: Spec, seed: int) -> np.ndarray:
    """As tensor_bytes(), but large tensors repeat their first rows."""
    if len(spec.shape) == 1 or spec.shape[0] <= _TILE_ROWS or spec.std == 0:
        return tensor_bytes(spec, seed)
    few = replace(spec, shape=(_TILE_ROWS, *spec.shape[1:]))
    data = tensor_bytes(few, seed).reshape(_TILE_ROWS, -1)
    return np.resize(data, (spec.shape[0], data.shape[1]))


def _full_vocabulary(size: int) -> Vocabulary:
    """Without unused tokens, which a reduced draft head would leave out: it has all its rows."""
    vocabulary = small_vocabulary(size)
    types = [NORMAL if kind == UNUSED else kind for kind in vocabulary.types]
    return replace(vocabulary, types=types)


def write(path: Path, shape: Shape, tiled: bool = False) -> Path:
    """The file at `path`, written unless it is there."""
    if path.exists():
        return path
    part = path.with_suffix(".part")
    data_of = _tiled if tiled else None
    vocabulary = _full_vocabulary(shape.vocabulary)
    write_model(part, shape, "q4_k_m", seed=1, vocabulary=vocabulary, data_of=data_of)
    part.replace(path)
    return path


def micro(setup: Setup) -> Path:
    return write(setup.file("micro.gguf"), MICRO)


def wide(setup: Setup) -> Path:
    return write(setup.file("wide.gguf"), setup.sizes.wide)


def large(setup: Setup) -> Path:
    return write(setup.file("large-all-tokens.gguf"), setup.sizes.large, tiled=True)


def section(setup: Setup, notes: Notes) -> None:
    """Write the large file before anything that is timed needs it."""
    notes["bytes"] = large(setup).stat().st_size
