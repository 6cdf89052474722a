"""Device memory that the plan for a card of 24 GB takes: free memory before and after another
process opens it, its context and scratch included.

    python -m bench.gpu.memory SETUP    (the other process: opens, says so, waits for its input)
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.gpu import files
from bench.gpu.record import Notes
from bench.gpu.setup import ROOT, Setup
from openjet_provider._native import Model
from tests.native.steps import CUDA, Part, backend_options


def plan_options(setup: Setup) -> dict[str, Any]:
    return {"max_rows": 64, "mtp": 1, "draft_head_rows": setup.sizes.draft_head} | setup.sizes.plan


def plan(setup: Setup, path: Path, **changed: int) -> Any:
    """oj_memory_plan of the file; its `available` is what is free now."""
    native = setup.native()
    model = Model(native, path)
    found = native.ffi.new("oj_memory_plan *")
    options = backend_options(kind=CUDA, kv="q8_0", **(plan_options(setup) | changed))
    native.call(
        "oj_backend_memory", model.handle, native.ffi.new("oj_backend_options *", options), found
    )
    model.close()
    return found


def section(setup: Setup, notes: Notes) -> None:
    path = files.large(setup)
    planned = plan(setup, path)
    parts = {name: getattr(planned, name) for name in ("weights", "states", "pages", "scratch")}
    host = planned.host
    notes["planned"] = parts | {
        "host": host,
        "device": sum(parts.values()) + planned.snapshots - host,
    }
    before = plan(setup, path).available
    command = [sys.executable, "-m", "bench.gpu.memory", setup.to_json()]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            if holder.stdout.readline().strip() != "open":
                raise RuntimeError("the other process did not open the model")
            notes["device bytes"] = before - plan(setup, path).available
        finally:
            holder.stdin.close()


def hold(setup: Setup) -> None:
    with setup.stepper(files.large(setup), **plan_options(setup)) as stepper:
        stepper.step([Part(0, 0, [1], sampled=True, n_draft=2)], keep=False)
        print("open", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    hold(Setup.from_json(sys.argv[1]))
