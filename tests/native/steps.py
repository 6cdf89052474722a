"""Drives a backend one step at a time through the C interface, for tests and benchmarks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from openjet_provider._native import Model, Native, load

CPU, CUDA, SCRIPTED = 0, 1, 2  # oj_backend_kind
MAX_DRAFTS = 8
NEUTRAL_SAMPLING = {"temperature": 0, "top_p": 1, "repetition": 1, "coupled": 1}
CODECS = {"q8_0": 0, "f16": 1, "f32": 2}


@dataclass
class Result:
    """What a step said about one conversation."""

    tokens: list[int]
    drafts: list[int]


@dataclass
class Part:
    """One conversation's part of a step: `certain` tokens, then `drafts`."""

    slot: int
    pos: int
    certain: Sequence[int]
    drafts: Sequence[int] = ()
    fold: int = 0
    sampled: bool = False
    n_draft: int = 0
    pages: Sequence[int] | None = None  # default: a range of its own for every slot
    sampling: dict[str, Any] = field(default_factory=dict)
    allowed: Sequence[int] | None = None  # the ids that the (one) chosen token may be


def backend_options(**options: Any) -> dict[str, Any]:
    """oj_backend_options' fields: a small backend's, changed by `options`; `kv` names a codec."""
    return {
        "kind": CPU,
        "threads": 2,
        "kv_codec": CODECS[options.pop("kv", "f32")],
        "n_slots": 4,
        "n_pages": 64,
        "n_snapshots": 2,
        "max_rows": 128,
        "mtp": 0,
    } | options


def memory_plan(path: Path, **options: Any) -> dict[str, int]:
    """oj_memory_plan of a CPU backend with these `backend_options`."""
    native = load("cpu")
    model = Model(native, path)
    plan = native.ffi.new("oj_memory_plan *")
    packed = native.ffi.new("oj_backend_options *", backend_options(**options))
    native.call("oj_backend_memory", model.handle, packed, plan)
    model.close()
    return {name: getattr(plan, name) for name in dir(plan)}


class Stepper:
    """A backend over the model file at `path`; see `backend_options`. Closed by
    `open_stepper`."""

    def __init__(self, path: Path, native: Native | None = None, **options: Any) -> None:
        settings = backend_options(**options)
        self.native = native or load("cuda" if settings["kind"] == CUDA else "cpu")
        self.ffi = self.native.ffi
        self.model = Model(self.native, path)
        self.slot_pages = settings["n_pages"] // max(1, settings["n_slots"])
        self.n_vocab, self.n_embd = self.model.info.n_vocab, self.model.info.n_embd
        out = self.ffi.new("oj_backend **")
        self.native.call(
            "oj_backend_open",
            self.model.handle,
            self.ffi.new("oj_backend_options *", settings),
            out,
        )
        self.handle = out[0]

    def close(self) -> None:
        self.native.lib.oj_backend_close(self.handle)
        self.model.close()

    def step(self, parts: Sequence[Part], keep: bool = True) -> list[Result]:
        new = self.ffi.new
        alive: list[Any] = []  # what the plan points to
        seqs = new("oj_seq[]", max(1, len(parts)))
        rows: list[int] = []
        for seq, part in zip(seqs, parts, strict=False):
            pages = part.pages
            if pages is None:
                pages = range(part.slot * self.slot_pages, (part.slot + 1) * self.slot_pages)
            sampling = new("oj_sampling *", NEUTRAL_SAMPLING | part.sampling)
            page_array = new("int32_t[]", list(pages))
            alive += [sampling, page_array]
            seq.slot, seq.pos, seq.fold = part.slot, part.pos, part.fold
            seq.first_row, seq.n_certain = len(rows), len(part.certain)
            seq.n_rows = len(part.certain) + len(part.drafts)
            seq.n_sampled = 1 + len(part.drafts) if part.sampled else 0
            seq.n_draft, seq.n_pages = part.n_draft, len(page_array)
            seq.pages, seq.sampling = page_array, sampling
            if part.allowed is not None:
                mask = np.zeros(-(-self.n_vocab // 32) * 32, np.uint8)
                mask[list(part.allowed)] = 1
                bits = new("uint32_t[]", np.packbits(mask, bitorder="little").view("<u4").tolist())
                alive += [bits, new("uint32_t *[]", [bits])]
                seq.masks = alive[-1]
            rows += [*part.certain, *part.drafts]
        tokens = new("int32_t[]", rows or [0])
        plan = new("oj_plan *", [tokens, len(rows), len(parts), seqs, int(keep)])
        results = new("oj_seq_result[]", max(1, len(parts)))
        start = time.perf_counter()
        self.native.call("oj_backend_step", self.handle, plan, results)
        self.step_seconds = time.perf_counter() - start
        self.results = results  # of the last step, as the interface has them
        return [
            Result(list(r.tokens[0 : r.n_tokens]), list(r.drafts[0 : r.n_drafts]))
            for r in results[0 : len(parts)]
        ]

    def logits(self, row: int) -> np.ndarray:
        """Logits [n_vocab] of a row of the last step."""
        return self._read(0, row, self.n_vocab)

    def draft_logits(self, part: int, depth: int) -> np.ndarray:
        return self._read(1, part * MAX_DRAFTS + depth, self.n_vocab)

    def hidden(self, row: int) -> np.ndarray:
        """Post-norm hidden [n_embd] of a row of the last step."""
        return self._read(2, row, self.n_embd)

    def forward(self, tokens: Sequence[int], chunk: int = 128) -> tuple[np.ndarray, np.ndarray]:
        """Logits [n, n_vocab] and post-norm hidden [n, n_embd] of a prompt read into the empty
        slot 0, `chunk` rows a step."""
        self.reset(0)
        logits, hidden = [], []
        for start in range(0, len(tokens), chunk):
            part = tokens[start : start + chunk]
            self.step([Part(0, start, part)])
            logits += [self.logits(r) for r in range(len(part))]
            hidden += [self.hidden(r) for r in range(len(part))]
        return np.stack(logits), np.stack(hidden)

    def prefill(self, tokens: Sequence[int], chunk: int = 128) -> np.ndarray:
        """The logits of `forward`."""
        return self.forward(tokens, chunk)[0]

    def reset(self, slot: int) -> None:
        self.native.call("oj_backend_reset", self.handle, slot)

    def save(self, slot: int, snapshot: int) -> None:
        self.native.call("oj_backend_save", self.handle, slot, snapshot)

    def load(self, snapshot: int, slot: int) -> None:
        self.native.call("oj_backend_load", self.handle, snapshot, slot)

    def copy_page(self, source: int, target: int) -> None:
        self.native.call("oj_backend_copy_page", self.handle, source, target)

    def _read(self, which: int, index: int, size: int) -> np.ndarray:
        out = np.empty(size, np.float32)
        pointer = self.ffi.cast("float *", out.ctypes.data)
        self.native.call("oj_backend_read", self.handle, which, index, pointer)
        return out


@contextmanager
def open_stepper(path: Path, isa: str | None = None, **options: Any) -> Iterator[Stepper]:
    """A Stepper; `isa` forces an instruction set (portable, avx2, avx512)."""
    before = os.environ.pop("OPENJET_CPU_ISA", None)
    if isa is not None:
        os.environ["OPENJET_CPU_ISA"] = isa
    try:
        stepper = Stepper(path, **options)
    finally:
        os.environ.pop("OPENJET_CPU_ISA", None)
        if before is not None:
            os.environ["OPENJET_CPU_ISA"] = before
    try:
        yield stepper
    finally:
        stepper.close()


def supported_isas() -> list[str]:
    """Instruction sets this machine can run, portable first."""
    flags = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    isas = ["portable"]
    if {"avx2", "fma", "f16c"} <= set(flags):
        isas.append("avx2")
        if {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"} <= set(flags):
            isas.append("avx512")
    return isas
