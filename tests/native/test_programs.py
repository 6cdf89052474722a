"""Every program of native/tests passes; with --sanitize, under that sanitizer too."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = sorted(path.stem for path in (ROOT / "native" / "tests").glob("*.cpp"))


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest) -> Path:
    """The folder of the compiled programs."""
    sanitizer = request.config.getoption("--sanitize")
    out = ROOT / "build" / "tests" / (sanitizer or "plain")
    command = [sys.executable, str(ROOT / "build.py"), "--tests", "--out", str(out)]
    if sanitizer:
        command += ["--sanitize", sanitizer]
    built = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return out


def run(program: Path, *arguments: str) -> None:
    done = subprocess.run(
        [program, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (
        f"{program} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    )


@pytest.mark.timeout(1800)  # the first one waits for the compiler
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_passes(programs: Path, name: str) -> None:
    run(programs / name)


@pytest.mark.soak  # minutes of the compiler
@pytest.mark.timeout(1800)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on PATH")
def test_programs_for_a_gpu_compile(tmp_path: Path) -> None:
    """What the emulator runs here is what bench/gpu_check.sh runs on a card."""
    command = [sys.executable, str(ROOT / "build.py"), "--gpu-tests", "--out", str(tmp_path)]
    env = os.environ | {"OPENJET_CUDA_ARCHS": "90"}
    built = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env
    )
    assert built.returncode == 0, built.stderr
    assert len(list(tmp_path.iterdir())) == 6


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "arguments", [["--schedules", "2000"], ["--cancels", "1800"]], ids=["schedules", "cancels"]
)
def test_engine_for_long(programs: Path, arguments: list[str]) -> None:
    run(programs / "engine_test", *arguments)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "arguments", [["--exhaustive"], ["openjet_provider/data/openjet-tiny.gguf"]]
)
def test_damaged_model_files(programs: Path, arguments: list[str]) -> None:
    run(programs / "gguf_check", *arguments)
