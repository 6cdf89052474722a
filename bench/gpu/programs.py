"""The test programs of native/tests/ that run kernels: what a launch and a meeting do, then every
phase alone on given inputs beside the CPU's kernels."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from bench.gpu.record import Notes, NotRun
from bench.gpu.setup import Setup


def run(setup: Setup, name: str) -> list[str]:
    """What native/tests/cuda_NAME_test.cpp prints."""
    program = Path(setup.programs) / f"cuda_{name}_test"
    if not program.exists():
        raise NotRun(f"{program} is not built (build.py --gpu-tests --out {setup.programs})")
    done = subprocess.run([program], capture_output=True, text=True)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()
        raise RuntimeError(f"{program.name} ended with {done.returncode}: {said[-2000:]}")
    return done.stdout.splitlines()


def launch(setup: Setup, notes: Notes) -> None:
    """A launch, a meeting of all blocks and its time, a refusal, the memory's read bandwidth."""
    for line in run(setup, "device"):
        if line.startswith("{"):
            for name, value in json.loads(line).items():
                notes[name] = value


def phases(setup: Setup, notes: Notes) -> None:
    """Every kind of phase alone gives the CPU's bits."""
    failed = []
    for name in setup.sizes.phases:
        started = time.monotonic()
        try:
            run(setup, name)
            notes[name] = f"the CPU's bits, {time.monotonic() - started:.1f} s"
        except RuntimeError as error:
            notes[name] = f"failed: {error}"
            failed.append(name)
    if failed:
        raise RuntimeError(f"not passed: {', '.join(failed)}")
