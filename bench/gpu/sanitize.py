"""compute-sanitizer over a few steps of the smallest model.

python -m bench.gpu.sanitize SETUP    (what it watches)
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

from bench.gpu import files
from bench.gpu.record import Notes, NotRun
from bench.gpu.setup import ROOT, Setup
from tests.native.steps import Part

TOOL = "compute-sanitizer"
CUDA_BIN = "/usr/local/cuda/bin"
CHECKS = ("memcheck", "racecheck")
# Enough to wait for each other; under the tool a meeting of all would take longer than it may.
BLOCKS = "4"


def find_tool() -> str | None:
    return shutil.which(TOOL) or shutil.which(TOOL, path=CUDA_BIN)


def section(setup: Setup, notes: Notes) -> None:
    tool = find_tool()
    if tool is None:
        raise NotRun(f"no {TOOL} on PATH or in {CUDA_BIN}")
    files.micro(setup)
    for check in CHECKS:
        notes[check] = run(tool, check, setup)
    dirty = [name for name in CHECKS if not str(notes.found[name]).startswith(("clean", "not run"))]
    if dirty:
        raise RuntimeError(f"{' and '.join(dirty)} found errors")


def run(tool: str, check: str, setup: Setup) -> str:
    """`clean`, `not run: ...` or what was found."""
    command = [tool, "--tool", check, sys.executable, "-m", "bench.gpu.sanitize", setup.to_json()]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | {"OPENJET_CUDA_BLOCKS": BLOCKS},
            capture_output=True,
            text=True,
            timeout=120,
        )
    except subprocess.TimeoutExpired:
        return "not run: took longer than 120 s"
    return verdict(done.stdout + done.stderr)


def verdict(said: str) -> str:
    """What the tool's output means; the steps must have come to their end."""
    summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", said)
    if not summary:
        return f"not run: {said.strip()[-500:]}"
    errors = re.match(r"(\d+)", summary[-1])
    if errors is None or int(errors[1]) > 0:
        first = re.search(r"========= (?:Error|Warning|Invalid|Race|Program hit).*", said)
        return f"{summary[-1]}; {first[0] if first else said[-500:]}"
    if "steps done" not in said:
        return f"not run: the steps did not end: {said.strip()[-500:]}"
    return f"clean: {summary[-1]}"


def watched(setup: Setup) -> None:
    with setup.stepper(files.micro(setup)) as stepper:
        stepper.step([Part(0, 0, list(range(20)), sampled=True, n_draft=2)])
        stepper.step([Part(0, 20, [5], [6, 7], sampled=True, n_draft=2), Part(1, 0, [1, 2, 3])])
        stepper.step([Part(0, 22, [8], fold=1, sampled=True)])
    print("steps done", flush=True)


if __name__ == "__main__":
    watched(Setup.from_json(sys.argv[1]))
