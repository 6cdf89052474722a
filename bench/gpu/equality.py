"""The device gives the CPU backend's bits: steps of whole models, and the equality suites."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.gpu import files
from bench.gpu.record import Notes
from bench.gpu.setup import PAGE, ROOT, Setup, environment
from openjet_provider.errors import EngineLost, InvalidRequestError
from tests.native.engine_driver import Request
from tests.native.steps import Part, Stepper, open_stepper

BACKEND_SUITE = "tests/native/test_cuda_emulated.py"
ENGINE_SUITE = "tests/native/test_engine_schedules.py"


class Different(Exception):
    """Some bits are not the CPU's; the message says where."""


def compare(cpu: Stepper, gpu: Stepper, parts: Sequence[Part], what: str) -> None:
    """One step on both: equal results, logits, hidden rows and draft logits."""
    results, ours = cpu.step(parts), gpu.step(parts)
    rows = sum(len(part.certain) + len(part.drafts) for part in parts)
    for row in range(rows):
        for name in ("hidden", "logits"):
            expected, found = getattr(cpu, name)(row), getattr(gpu, name)(row)
            same = expected.view(np.uint32) == found.view(np.uint32)
            if not same.all():
                at = int(np.argmin(same))
                raise Different(
                    f"{what}, row {row}: {np.count_nonzero(~same)} of {same.size} values of"
                    f" {name} differ, the first at {at}: {found[at]!r}, not {expected[at]!r};"
                    f" largest difference {np.abs(found - expected).max()!r}"
                )
    for i, result in enumerate(results):
        for depth in range(len(result.drafts)):
            if not np.array_equal(cpu.draft_logits(i, depth), gpu.draft_logits(i, depth)):
                raise Different(f"{what}: logits of draft {depth} of conversation {i} differ")
    if results != ours:
        raise Different(f"{what}: {ours}, not {results}")


def micro(setup: Setup, notes: Notes) -> None:
    """One row, a prompt, drafts and a fold on the smallest model: the first whole steps."""
    path = files.micro(setup)
    with open_stepper(path, kv="q8_0", max_rows=64, mtp=1) as cpu, setup.stepper(path) as gpu:
        steps = {
            "one row": [Part(0, 0, [3], sampled=True)],
            "a prompt": [Part(0, 1, list(range(20)), sampled=True, n_draft=2)],
            "drafts, two conversations": [
                Part(0, 21, [5], [6, 7], sampled=True, n_draft=2),
                Part(1, 0, [1, 2, 3]),
            ],
            "a fold": [Part(0, 23, [8], fold=1, sampled=True)],
        }
        for name, parts in steps.items():
            compare(cpu, gpu, parts, name)
            notes[name] = "equal bits"


def wide(setup: Setup, notes: Notes) -> None:
    """Every width of a step, then single rows around the edges of attention's splits."""
    path = files.wide(setup)
    sizes = setup.sizes
    last = max(sum(sizes.widths), max(sizes.edges)) + 64
    options: dict[str, Any] = {"n_slots": 1, "n_pages": -(-last // PAGE) + 1, "n_snapshots": 1}
    with (
        open_stepper(path, kv="q8_0", threads=0, max_rows=64, mtp=1, **options) as cpu,
        setup.stepper(path, **options) as gpu,
    ):
        compare_widths(cpu, gpu, sizes.widths, notes)
        for stepper in (cpu, gpu):
            stepper.reset(0)
        compare_edges(cpu, gpu, sizes.edges, notes)


def compare_widths(cpu: Stepper, gpu: Stepper, widths: Sequence[int], notes: Notes) -> None:
    position = 0
    for count, width in enumerate(widths, 1):
        compare(cpu, gpu, [prompt(cpu, position, width)], f"{width} rows at {position}")
        position += width
        if count % 8 == 0 or count == len(widths):
            notes["widths"] = f"{count} of {len(widths)} with equal bits, {position} rows"


def compare_edges(cpu: Stepper, gpu: Stepper, edges: Sequence[int], notes: Notes) -> None:
    """Reads up to each edge without comparing, then compares a row with two drafts."""
    position = 0
    for edge in sorted(edges):
        while position < edge:
            rows = min(64, edge - position)
            for stepper in (cpu, gpu):
                stepper.step([prompt(stepper, position, rows)], keep=False)
            position += rows
        part = Part(0, position, [7], [8, 9], sampled=True, n_draft=2)
        compare(cpu, gpu, [part], f"3 rows at {position}")
        position += 1
        notes["edges"] = f"equal bits to position {position + 1}"


def prompt(stepper: Stepper, position: int, rows: int) -> Part:
    """A piece of a prompt at `position`, whose last row is sampled."""
    ids = [(11 + 7 * (position + i)) % (stepper.n_vocab - 8) for i in range(rows)]
    return Part(0, position, ids, sampled=True)


def run_suite(setup: Setup, suite: str, choice: Sequence[str], **env: str) -> str:
    """pytest's last line about one suite on this device."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", suite, *choice]
    command += ["-o", "addopts=--import-mode=importlib"]  # plugins of other tests may be missing
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | setup.test_environment() | env,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise Different(f"{suite}: {done.stdout[-3000:]}{done.stderr[-1000:]}")
    return done.stdout.strip().splitlines()[-1]


def suite(setup: Setup, notes: Notes) -> None:
    """The backend's and the engine's equality suites, as they are, on this device."""
    sizes = setup.sizes
    notes["backend"] = run_suite(setup, BACKEND_SUITE, sizes.suite)
    notes["backend, graph"] = run_suite(
        setup, BACKEND_SUITE, sizes.suite, OPENJET_CUDA_STEP="graph"
    )
    notes["engine"] = run_suite(setup, ENGINE_SUITE, sizes.schedules)


def blocks(setup: Setup, notes: Notes) -> None:
    """The same bits on a grid that is clamped to other cards' numbers of blocks."""
    path = files.wide(setup)
    options: dict[str, Any] = {"n_slots": 1, "n_pages": 8, "n_snapshots": 1}
    with open_stepper(path, kv="q8_0", threads=0, max_rows=64, mtp=1, **options) as cpu:
        for count in setup.sizes.blocks:
            cpu.reset(0)
            with (
                environment(OPENJET_CUDA_BLOCKS=str(count)),
                setup.stepper(path, **options) as gpu,
            ):
                compare(cpu, gpu, [prompt(cpu, 0, 9)], f"{count} blocks")
                compare(cpu, gpu, [prompt(cpu, 9, 3)], f"{count} blocks")
            notes[f"{count} blocks"] = "equal bits"


def stress(setup: Setup, notes: Notes) -> None:
    """Random delays around every meeting of the blocks change nothing, over many steps."""
    path = files.micro(setup)
    rng = random.Random(5)
    steps = setup.sizes.stress_steps
    options: dict[str, Any] = {"n_slots": 2, "n_pages": 64}
    with (
        open_stepper(path, kv="q8_0", max_rows=64, mtp=1, **options) as cpu,
        environment(OPENJET_CUDA_STRESS="1"),
        setup.stepper(path, **options) as gpu,
    ):
        at = [0, 0]
        for step in range(1, steps + 1):
            slot = rng.randrange(2)
            if at[slot] > 1900:
                for stepper in (cpu, gpu):  # nothing is pending: the step before folded nothing
                    stepper.step([Part(slot, at[slot], [])], keep=False)
                    stepper.reset(slot)
                at[slot] = 0
            part = prompt(cpu, at[slot], rng.randint(1, 12))
            part.slot = slot
            part.drafts, part.n_draft = [1, 2][: rng.randint(0, 2)], rng.randint(0, 2)
            compare(cpu, gpu, [part], f"step {step}")
            at[slot] += len(part.certain)
            if step % 100 == 0 or step == steps:
                notes["steps"] = f"{step} with equal bits"


def faults(setup: Setup, notes: Notes) -> None:
    """Blocks that would not be resident are refused; a fault reaches every waiting request."""
    path = files.micro(setup)
    try:
        with environment(OPENJET_CUDA_BLOCKS="9999"), setup.stepper(path):
            raise RuntimeError("9,999 blocks were not refused")
    except InvalidRequestError as error:
        notes["too many blocks"] = str(error)
    with environment(OPENJET_CUDA_FAULT="4"), setup.engine(path, n_slots=2) as engine:
        answers = engine.run(*[Request([1, 2, 3 + i], max_tokens=50) for i in range(4)])
        ends = [answer.finish for answer in answers]
        notes["requests beside a fault"] = ends
        if ends != ["error"] * 4:
            raise RuntimeError("a request did not end with the step that was given up")
    with environment(OPENJET_CUDA_FAULT="1"), setup.stepper(path) as stepper:
        try:
            stepper.step([Part(0, 0, [1], sampled=True)])
            raise RuntimeError("a step that was given up has results")
        except EngineLost as error:
            notes["fault"] = str(error)
