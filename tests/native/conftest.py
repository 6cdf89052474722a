"""What the native tests share: the built library and a small random model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openjet_provider._native import load
from tests.reference.random_model import PRESETS, write_model


@pytest.fixture(scope="session")
def library() -> Any:
    """(ffi, lib) of the CPU library."""
    native = load("cpu")
    return native.ffi, native.lib


@pytest.fixture(scope="session")
def micro_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hidden 256, 4 layers, MTP head, 512 tokens; random weights."""
    path = tmp_path_factory.mktemp("models") / "micro.gguf"
    write_model(path, PRESETS["micro"], "q8_0")
    return path
