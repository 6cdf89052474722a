"""What the native tests share: the built library and a small random model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from openjet_provider._native import Native, load, open_library
from tests.reference.random_model import PRESETS, write_model

# The CUDA library that tests run on: a path, or 1 for the package's (bench/gpu_check.py).
TESTED = os.environ.get("OPENJET_TEST_GPU")


def tested_library(wanted: str) -> Native:
    return load("cuda") if wanted == "1" else open_library("cuda", Path(wanted))


@pytest.fixture(scope="session")
def library() -> Any:
    """(ffi, lib) of the library whose engine is tested: the CPU's, or OPENJET_TEST_GPU's."""
    native = tested_library(TESTED) if TESTED else load("cpu")
    return native.ffi, native.lib


@pytest.fixture(scope="session")
def cuda_library() -> Native:
    """The CUDA library whose kernels run on the host, or the one of OPENJET_TEST_GPU."""
    if TESTED:
        return tested_library(TESTED)
    root = Path(__file__).resolve().parents[2]
    out = root / "build" / "tests" / "emulated"
    command = [sys.executable, str(root / "build.py"), "--emulate", "--out", str(out)]
    built = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return open_library("cuda", out / "libopenjet_cuda_emulated.so")


@pytest.fixture(scope="session")
def micro_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hidden 256, 4 layers, MTP head, 512 tokens; random weights."""
    path = tmp_path_factory.mktemp("models") / "micro.gguf"
    write_model(path, PRESETS["micro"], "q8_0")
    return path
