"""What a GPU must show before its numbers count: equal bits with the CPU backend on every path, a
sanitizer run, and the time of a step beside the card's own read bandwidth. See gpu_check.sh."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.native.steps import CUDA, Part, Stepper
from tests.reference import random_model
from tests.reference.random_model import Shape, Spec, write_model

ROOT = Path(__file__).resolve().parent.parent
EQUALITY = "tests/native/test_cuda_emulated.py"
SHAPE_27B = Shape(5120, 64, 17408, 24, 4, 16, 48, 248_320, tied=False, context=262_144)
WIDE = Shape(5120, 4, 17408, 24, 4, 16, 48, 248_320, tied=False, context=262_144)
ROWS = {1: (1, 0), 3: (1, 2), 12: (4, 2), 24: (8, 2)}  # rows: agents, drafts of each
WIDTHS = (1, 2, 3, 7, 8, 9, 12, 16, 17, 24, 25, 31, 33, 48, 57, 64)
DEPTHS = {"short": 256, "23K": 23_000}


class Check:
    """Runs parts within a time limit and keeps what they said."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds
        self.record: dict[str, Any] = {}
        self.failed: list[str] = []

    def left(self) -> float:
        return self.end - time.monotonic()

    def part(self, name: str, run: Any, least: float = 10) -> None:
        """Run one part; what it raises is recorded and the others go on."""
        if self.left() < least:
            self.record[name] = "not run: out of time"
            print(f"{name}: not run, out of time", flush=True)
            return
        start = time.monotonic()
        try:
            self.record[name] = run()
        except Exception as error:  # recorded, and the exit status says so
            self.record[name] = f"failed: {error}"
            self.failed.append(name)
        took = time.monotonic() - start
        print(f"{name}: {json.dumps(self.record[name])[:2000]} ({took:.0f} s)", flush=True)


def output(*command: str, timeout: float = 60) -> str:
    return subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=timeout
    ).stdout.strip()


@contextmanager
def environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def card() -> dict[str, str]:
    query = "name,driver_version,memory.total,compute_cap"
    found = output("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader").splitlines()[0]
    name, driver, memory, capability = (item.strip() for item in found.split(","))
    return {"card": name, "driver": driver, "memory": memory, "capability": capability}


def build(capability: str) -> str:
    arch = capability.replace(".", "")
    with environment(OPENJET_CUDA="1", OPENJET_CUDA_ARCHS=arch):
        output(sys.executable, "build.py", timeout=560)
    return f"sm_{arch}"


def equality(limit: float, **env: str) -> str:
    """The equality suite of the emulated device, on the GPU."""
    command = [sys.executable, "-m", "pytest", "-q", EQUALITY, "-m", "slow or not slow", "-x"]
    with environment(OPENJET_TEST_GPU="1", **env):
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=limit,
        )
    if done.returncode != 0:
        raise RuntimeError(done.stdout[-3000:] + done.stderr[-1000:])
    return done.stdout.strip().splitlines()[-1]


TENSOR_BYTES = random_model.tensor_bytes


def tiled(spec: Spec, seed: int) -> Any:
    """As random_model.tensor_bytes, of which large tensors repeat the first rows."""
    rows = spec.shape[0]
    if len(spec.shape) == 1 or rows <= 256 or spec.std == 0:
        return TENSOR_BYTES(spec, seed)
    few = replace(spec, shape=(256, *spec.shape[1:]))
    data = TENSOR_BYTES(few, seed).reshape(256, -1)
    return np.resize(data, (rows, data.shape[1]))


def write_large(path: Path, shape: Shape) -> Path:
    if not path.exists():
        random_model.tensor_bytes = tiled
        write_model(path, shape, "q4_k_m", seed=1)
        random_model.tensor_bytes = TENSOR_BYTES
    return path


def same_bits(path: Path) -> str:
    """Every width, and rows around the split edges, on 4 layers of the 27B's widths."""
    options = {"kv": "q8_0", "max_rows": 64, "n_slots": 2, "n_pages": 70, "mtp": 1}
    cpu = Stepper(path, threads=0, **options)
    gpu = Stepper(path, kind=CUDA, **options)
    compared = position = 0
    try:
        for width in (*WIDTHS, 64, 1, 1, 1, *[64] * 3):
            tokens = [(position + 7 * i) % 248_000 for i in range(width)]
            part = Part(0, position, tokens, sampled=True, n_draft=2)
            if cpu.step([part]) != gpu.step([part]):
                raise RuntimeError(f"tokens differ at position {position}, {width} rows")
            for row in range(width):
                if not np.array_equal(cpu.logits(row), gpu.logits(row)):
                    raise RuntimeError(f"logits differ at position {position + row}, {width} rows")
            position += width
            compared += width
    finally:
        cpu.close()
        gpu.close()
    return f"{compared} rows with equal logits, to position {position}"


def read_bandwidth() -> float:
    """GB/s of reading, by the reduction of a large array."""
    import torch

    data = torch.zeros(4 << 30, dtype=torch.uint8, device="cuda").view(torch.float32)
    best = 0.0
    for _ in range(6):
        torch.cuda.synchronize()
        start = time.perf_counter()
        data.sum()
        torch.cuda.synchronize()
        best = max(best, data.numel() * 4 / (time.perf_counter() - start) / 1e9)
    return round(best, 1)


class Timer:
    """One plan, run again and again through the C interface."""

    def __init__(self, stepper: Stepper, rows: int, position: int) -> None:
        self.stepper = stepper
        agents, drafts = ROWS[rows]
        self.parts = [
            Part(slot, position, [11 + slot], [7] * drafts, sampled=True, n_draft=drafts)
            for slot in range(agents)
        ]

    def milliseconds(self, n: int) -> float:
        times = []
        for _ in range(n + 2):
            self.stepper.step(self.parts, keep=False)
            times.append(self.stepper.step_seconds * 1e3)
        return round(statistics.median(times[2:]), 3)


def timings(path: Path, n: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    pages = 23_064 // 64
    stepper = Stepper(
        path,
        kind=CUDA,
        kv="q8_0",
        max_rows=64,
        n_slots=8,
        n_pages=8 * (pages + 1),
        mtp=1,
        draft_head_rows=40_960,
    )
    try:
        for rows in ROWS:
            for depth, position in DEPTHS.items():
                found[f"{rows} rows, {depth}"] = Timer(stepper, rows, position).milliseconds(n)
        tokens = [(5 * i) % 248_000 for i in range(64)]
        times = []
        for i in range(8):
            stepper.step([Part(0, 64 * i, tokens)], keep=False)
            times.append(stepper.step_seconds * 1e3)
        found["64 prompt rows, short"] = round(statistics.median(times[2:]), 3)
    finally:
        stepper.close()
    return found


def sanitizer(folder: Path, limit: float) -> dict[str, str]:
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(tool).exists():
        return {"all": "not run: no compute-sanitizer"}
    found = {}
    for check in ("memcheck", "racecheck"):
        command = [tool, "--tool", check, sys.executable, "-m", "bench.gpu_check", "--small"]
        try:
            done = subprocess.run(
                [*command, "--files", str(folder)],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=limit / 2,
            )
            said = re.findall(r"(?:ERROR SUMMARY|RACECHECK SUMMARY).*", done.stdout + done.stderr)
            found[check] = said[-1] if said else f"not run: {(done.stdout + done.stderr)[-300:]}"
        except subprocess.TimeoutExpired:
            found[check] = "not run: out of time"
    return found


def small_steps(folder: Path) -> None:
    """Two layers, a few steps with drafts: what the sanitizers watch."""
    path = folder / "small.gguf"
    if not path.exists():
        write_model(path, Shape(256, 4, 512, 4, 2, 2, 4, 512, tied=True), "q4_k_m")
    stepper = Stepper(path, kind=CUDA, kv="q8_0", max_rows=64, mtp=1)
    stepper.step([Part(0, 0, list(range(20)), sampled=True, n_draft=2)])
    stepper.step([Part(0, 20, [5], [6, 7], sampled=True, n_draft=2), Part(1, 0, [1, 2, 3])])
    stepper.step([Part(0, 22, [8], fold=1)])
    stepper.close()


def main() -> int:
    parser = argparse.ArgumentParser("gpu_check.sh")
    parser.add_argument("--seconds", type=float, default=440, help="time for everything")
    parser.add_argument("--skip-build", action="store_true")
    parser.add_argument("--files", type=Path, default=Path("/tmp/openjet-gpu-check"))
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--small", action="store_true", help="only what the sanitizers watch")
    args = parser.parse_args()
    args.files.mkdir(parents=True, exist_ok=True)
    if args.small:
        small_steps(args.files)
        return 0

    check = Check(args.seconds)
    about = card()
    check.record |= about
    check.record |= {
        "source_hash": output(sys.executable, "build.py", "--hash"),
        "date": time.strftime("%Y-%m-%d"),
        "host": f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}",
        "command": "bench/gpu_check.sh " + " ".join(sys.argv[1:]),
    }
    if not args.skip_build:
        check.part("build", lambda: build(about["capability"]))
    check.part("equality", lambda: equality(120))
    check.part("equality, graph", lambda: equality(60, OPENJET_CUDA_STEP="graph"))
    check.part("equality, stress", lambda: equality(60, OPENJET_CUDA_STRESS="1"))
    for blocks in ("82", "128", "132"):
        check.part(
            f"equality, {blocks} blocks", lambda b=blocks: equality(60, OPENJET_CUDA_BLOCKS=b)
        )
    wide, large = args.files / "wide.gguf", args.files / "27b.gguf"
    check.part("4 layers of the 27B", lambda: same_bits(write_large(wide, WIDE)), 40)
    check.part("read GB/s", read_bandwidth)
    check.part("27B file", lambda: write_large(large, SHAPE_27B).stat().st_size, 60)
    check.part("ms a step", lambda: timings(large, 20), 40)

    def control() -> dict[str, Any]:
        with environment(OPENJET_CUDA_STEP="graph"):
            return timings(large, 10)

    check.part("ms a step, graph", control, 30)
    check.part("sanitizer", lambda: sanitizer(args.files, min(100, check.left())), 20)
    check.record["failed"] = check.failed
    args.out.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^a-z0-9]+", "-", about["card"].lower()).strip("-")
    target = args.out / f"{name}.json"
    target.write_text(json.dumps(check.record, indent=2) + "\n")
    print(f"{target}: {'FAILED: ' + ', '.join(check.failed) if check.failed else 'all passed'}")
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
