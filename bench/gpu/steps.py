"""The time of a step beside the bytes that it must move, and where the time goes."""

from __future__ import annotations

import json
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gpu import files
from bench.gpu.record import Notes
from bench.gpu.setup import PAGE, ROOT, Setup, environment
from openjet_provider._native import Model
from openjet_provider.errors import InvalidRequestError
from tests.native.steps import Part, Stepper, backend_options

STATE_PASSES = 2  # a recurrent state is read and written once a step


@dataclass(frozen=True)
class StepBytes:
    """What a step of one model must move."""

    main: int  # weights of the layers and the output head
    mtp: int  # of the MTP block, without a head
    head: int  # of the output head
    vocabulary: int
    state: int  # of one conversation
    position: int  # keys and values of one position

    @classmethod
    def of(cls, tensors: Sequence[tuple[str, int]], vocabulary: int, plan: Any) -> StepBytes:
        """From (name, bytes) of the file's tensors and an oj_memory_plan."""
        sizes = dict(tensors)
        block = 1 + max(int(name.split(".")[1]) for name in sizes if name.startswith("blk."))
        mtp = f"blk.{block - 1}."
        tied = "output.weight" not in sizes
        main = [
            size
            for name, size in sizes.items()
            if not name.startswith(mtp) and (tied or name != "token_embd.weight")
        ]
        return cls(
            main=sum(main),
            mtp=sum(size for name, size in sizes.items() if name.startswith(mtp)),
            head=sizes["token_embd.weight" if tied else "output.weight"],
            vocabulary=vocabulary,
            state=plan.state_bytes,
            position=plan.page_bytes // PAGE,
        )

    def step(self, agents: int, draft_passes: int, context: int, head_rows: int) -> int:
        """Bytes of one step of so many conversations, each with `context` positions."""
        head = self.head * (head_rows or self.vocabulary) // self.vocabulary
        return (
            self.main
            + draft_passes * (self.mtp + head)
            + agents * (STATE_PASSES * self.state + context * self.position)
        )


def step_bytes(setup: Setup, path: Path) -> StepBytes:
    native = setup.native()
    model = Model(native, path)
    plan = native.ffi.new("oj_memory_plan *")
    options = native.ffi.new(
        "oj_backend_options *", backend_options(kind=1, kv="q8_0", max_rows=64, mtp=1)
    )
    native.call("oj_backend_memory", model.handle, options, plan)
    tensors = [(name, size) for name, _, _, _, size in model.tensors()]
    found = StepBytes.of(tensors, model.info.n_vocab, plan)
    model.close()
    return found


def warm_up(setup: Setup, stepper: Stepper) -> None:
    end = time.monotonic() + setup.sizes.warm_seconds
    while time.monotonic() < end:
        stepper.step([Part(0, 0, [1], sampled=True)], keep=False)


def decode_ms(stepper: Stepper, agents: int, drafts: int, position: int, n: int) -> float:
    """Median milliseconds of steps in which every agent verifies `drafts` drafts, of which it took
    one over from the step before, and drafts as many anew."""
    at, fold, times = position, 0, []
    for _ in range(n + 2):
        parts = [
            Part(slot, at, [11 + slot], [7] * drafts, fold=fold, sampled=True, n_draft=drafts)
            for slot in range(agents)
        ]
        stepper.step(parts, keep=False)
        times.append(stepper.step_seconds * 1e3)
        fold = min(1, drafts)
        at += 1 + fold
    return round(statistics.median(times[2:]), 3)


def prompt_ms(stepper: Stepper, position: int, n: int) -> float:
    """Median milliseconds of a step of 64 prompt rows of one agent."""
    times = []
    for i in range(n + 1):
        at = position + i % 2 * 64
        ids = [(5 * k + at) % (stepper.n_vocab - 8) for k in range(64)]
        stepper.step([Part(0, at, ids)], keep=False)
        times.append(stepper.step_seconds * 1e3)
    return round(statistics.median(times[1:]), 3)


def options_for(setup: Setup, head_rows: int) -> dict[str, int]:
    sizes = setup.sizes
    agents = max(agents for agents, _ in sizes.rows.values())
    pages = -(-(max(sizes.depths.values()) + 3 * sizes.steps + 192) // PAGE)
    return {
        "n_slots": agents,
        "n_pages": agents * pages,
        "n_snapshots": 1,
        "draft_head_rows": head_rows,
    }


def time_rows(setup: Setup, notes: Notes, rows: Sequence[int], depths: Sequence[str]) -> None:
    """Notes `ROWS rows, DEPTH` for each, with the reduced draft head."""
    sizes = setup.sizes
    path = files.large(setup)
    with setup.stepper(path, **options_for(setup, sizes.draft_head)) as stepper:
        warm_up(setup, stepper)
        notes.say("opened")
        for row in rows:
            agents, drafts = sizes.rows[row]
            for depth in depths:
                ms = decode_ms(stepper, agents, drafts, sizes.depths[depth], sizes.steps)
                notes[f"{row} rows, {depth}"] = ms


def persistent(setup: Setup, notes: Notes) -> None:
    """Milliseconds of a step by rows and context, and of one with prompt rows."""
    sizes = setup.sizes
    path = files.large(setup)
    moved = step_bytes(setup, path)
    notes["bytes"] = {
        f"{row} rows, {depth}": moved.step(agents, drafts, context, sizes.draft_head)
        for row, (agents, drafts) in sizes.rows.items()
        for depth, context in sizes.depths.items()
    }
    with setup.stepper(path, **options_for(setup, sizes.draft_head)) as stepper:
        warm_up(setup, stepper)
        notes.say("opened")
        for row, (agents, drafts) in sizes.rows.items():
            for depth, position in sizes.depths.items():
                ms = decode_ms(stepper, agents, drafts, position, sizes.steps)
                notes[f"{row} rows, {depth}"] = ms
        for depth, position in sizes.depths.items():
            notes[f"64 prompt rows, {depth}"] = prompt_ms(
                stepper, position, max(1, sizes.steps // 3)
            )


def control(setup: Setup, notes: Notes) -> None:
    """The same steps as one launch a phase in a CUDA graph."""
    with environment(OPENJET_CUDA_STEP="graph"):
        time_rows(setup, notes, list(setup.sizes.rows), list(setup.sizes.depths)[:1])


def draft_passes(setup: Setup, notes: Notes) -> None:
    """What the draft passes cost, with the reduced and the full head: steps of 3 rows with and
    without them."""
    sizes = setup.sizes
    path = files.large(setup)
    position = min(sizes.depths.values())
    moved = step_bytes(setup, path)
    for name, head_rows in (("reduced head", sizes.draft_head), ("full head", 0)):
        with setup.stepper(path, **options_for(setup, head_rows)) as stepper:
            warm_up(setup, stepper)
            ms = decode_ms(stepper, 1, 2, position, sizes.steps)
            without = undrafted_ms(stepper, position, sizes.steps)
        notes[name] = {
            "3 rows + 2 passes ms": ms,
            "3 rows ms": without,
            "ms a pass": round((ms - without) / 2, 3),
            "bytes": moved.step(1, 2, position, head_rows),
        }


def undrafted_ms(stepper: Stepper, position: int, n: int) -> float:
    times = []
    for i in range(n + 2):
        part = Part(0, position + 2 * i, [11], [7, 7], fold=min(i, 1), sampled=True)
        stepper.step([part], keep=False)
        times.append(stepper.step_seconds * 1e3)
    return round(statistics.median(times[2:]), 3)


def clamped(setup: Setup, notes: Notes) -> None:
    """The same steps on as many blocks as other cards have multiprocessors."""
    sizes = setup.sizes
    for blocks in sizes.blocks:
        with environment(OPENJET_CUDA_BLOCKS=str(blocks)):
            path = files.large(setup)
            with setup.stepper(path, **options_for(setup, sizes.draft_head)) as stepper:
                warm_up(setup, stepper)
                for row, (agents, drafts) in sizes.rows.items():
                    position = min(sizes.depths.values())
                    ms = decode_ms(stepper, agents, drafts, position, sizes.steps)
                    notes[f"{blocks} blocks, {row} rows"] = ms


def variants(setup: Setup, notes: Notes) -> None:
    """The same steps with each way of streaming and waiting that the environment offers."""
    sizes = setup.sizes
    path = files.large(setup)
    position = min(sizes.depths.values())
    for name, value in sizes.variants:
        try:
            with (
                environment(**{name: value}),
                setup.stepper(path, **options_for(setup, sizes.draft_head)) as stepper,
            ):
                warm_up(setup, stepper)
                for row, (agents, drafts) in sizes.rows.items():
                    ms = decode_ms(stepper, agents, drafts, position, sizes.steps)
                    notes[f"{name}={value}, {row} rows"] = ms
        except InvalidRequestError as error:
            notes[f"{name}={value}"] = f"refused: {error}"


# ---- where a step's time goes ----


def phase_names() -> list[str]:
    """The names of PhaseKind in order."""
    text = (ROOT / "native" / "cuda" / "phase.h").read_text()
    body = text.partition("enum class PhaseKind")[2].partition("{")[2].partition("};")[0]
    return re.findall(r"^\s*(\w+),", body, re.MULTILINE)


def phase_table(steps: Sequence[Any], names: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of (phase, visits, us, share, GB/s) of a step: for every kind of phase the median over
    `steps` of its sum; `steps` are lines of OPENJET_CUDA_TIMES of one shape."""
    sums: list[dict[int, list[float]]] = []
    for step in steps:
        kinds: dict[int, list[float]] = defaultdict(lambda: [0, 0, 0])
        for kind, ns, moved in step["phases"]:
            kinds[kind] = [kinds[kind][0] + 1, kinds[kind][1] + ns, kinds[kind][2] + moved]
        sums.append(kinds)
    total = statistics.median(sum(v[1] for v in kinds.values()) for kinds in sums)
    table = []
    for kind in sorted(sums[0]):
        ns = statistics.median(kinds[kind][1] for kinds in sums)
        visits, _, moved = sums[0][kind]
        table.append(
            {
                "phase": names[kind],
                "visits": visits,
                "us": round(ns / 1e3, 1),
                "share": round(ns / total, 3) if total else 0,
                "GB/s": round(moved / ns, 1) if ns else 0,
            }
        )
    return sorted(table, key=lambda row: -row["us"])


def phase_times(setup: Setup, notes: Notes) -> None:
    """Microseconds of a step by kind of phase, its meeting included."""
    sizes = setup.sizes
    path = files.large(setup)
    times = setup.file("times.jsonl")
    position = min(sizes.depths.values())
    names = phase_names()
    with (
        environment(OPENJET_CUDA_TIMES=str(times)),
        setup.stepper(path, **options_for(setup, sizes.draft_head)) as stepper,
    ):
        warm_up(setup, stepper)
        for row, (agents, drafts) in sizes.rows.items():
            times.unlink(missing_ok=True)
            decode_ms(stepper, agents, drafts, position, sizes.steps)
            note_table(notes, f"{row} rows", times, names)
        times.unlink(missing_ok=True)
        prompt_ms(stepper, position, max(1, sizes.steps // 3))
        note_table(notes, "64 prompt rows", times, names)


def note_table(notes: Notes, name: str, times: Path, names: Sequence[str]) -> None:
    lines = [json.loads(line) for line in times.read_text().splitlines()][1:]
    lines = [line for line in lines if len(line["phases"]) == len(lines[-1]["phases"])]
    table = phase_table(lines, names)
    kernel = round(sum(row["us"] for row in table) / 1e3, 3)
    notes[name] = {"kernel ms": kernel, "phases": table}
    notes.say(f"{'phase':14} {'visits':>6} {'us':>9} {'share':>6} {'GB/s':>7}")
    for row in table:
        notes.say(
            f"{row['phase']:14} {row['visits']:6} {row['us']:9.1f} {row['share']:6.1%}"
            f" {row['GB/s']:7.0f}"
        )
