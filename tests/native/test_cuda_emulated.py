"""The whole CUDA backend, its kernels run by the emulator, says what the CPU backend says, bit for
bit: logits, hidden rows, draft logits, tokens, drafts and log-probabilities of every step.

With OPENJET_TEST_GPU the same on a GPU (bench/gpu_check.sh).
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openjet_provider._native import Model, Native
from openjet_provider.errors import InvalidRequestError, ModelFileError
from tests.native.steps import CUDA, Part, Stepper, backend_options
from tests.reference.random_model import PRESETS, Shape, write_model

pytestmark = pytest.mark.timeout(1800)  # the first one waits for the compiler

GREEDY: dict[str, Any] = {}
SEEDED = {"temperature": 0.9, "top_k": 12, "top_p": 0.9, "seed": 7, "coupled": 1, "presence": 0.3}
FREE = {"temperature": 1.3, "min_p": 0.02, "seed": 3, "coupled": 0, "top_logprobs": 5}
SAMPLINGS = (GREEDY, SEEDED, FREE)


class Pair:
    """The same backend twice: on the CPU, and on the emulated device."""

    def __init__(self, path: Path, cuda: Native, **options: Any) -> None:
        options = {"kv": "q8_0", "max_rows": 64, "mtp": 1} | options
        self.cpu = Stepper(path, **options)
        self.cuda = Stepper(path, native=cuda, kind=CUDA, **options)

    def close(self) -> None:
        self.cpu.close()
        self.cuda.close()

    def step(self, parts: list[Part]) -> list[Any]:
        """Results of a step that both computed equally."""
        results = self.cpu.step(parts)
        assert self.cuda.step(parts) == results
        rows = sum(len(part.certain) + len(part.drafts) for part in parts)
        for row in range(rows):
            assert np.array_equal(self.cpu.hidden(row), self.cuda.hidden(row))
            assert np.array_equal(self.cpu.logits(row), self.cuda.logits(row))
        for i, result in enumerate(results):
            for token in range(len(result.tokens)):
                assert self.logprob(self.cpu, i, token) == self.logprob(self.cuda, i, token)
            for depth in range(len(result.drafts)):
                ours, theirs = (s.draft_logits(i, depth) for s in (self.cpu, self.cuda))
                assert np.array_equal(ours, theirs)
        return results

    @staticmethod
    def logprob(stepper: Stepper, part: int, token: int) -> tuple[Any, ...]:
        found = stepper.results[part].logprobs[token]
        n = found.n_top
        return found.logprob, list(found.top_ids[0:n]), list(found.top_logprobs[0:n])

    def both(self, method: str, *arguments: int) -> None:
        for stepper in (self.cpu, self.cuda):
            getattr(stepper, method)(*arguments)


@contextmanager
def pair(path: Path, cuda: Native, **options: Any) -> Iterator[Pair]:
    opened = Pair(path, cuda, **options)
    try:
        yield opened
    finally:
        opened.close()


@dataclass
class Agent:
    """A conversation that reads a prompt in chunks, then decodes with drafts."""

    slot: int
    prompt: list[int]
    sampling: dict[str, Any]
    history: list[int] = field(default_factory=list)  # tokens whose state is in the slot
    next_token: int | None = None
    drafts: list[int] = field(default_factory=list)
    accepted: int = 0  # drafts of the last step that may be folded

    def part(self, rng: random.Random, room: int) -> Part:
        unread = self.prompt[len(self.history) :] if self.next_token is None else []
        if unread:
            chunk = unread[: rng.randint(1, max(1, room))]
            ends = len(chunk) == len(unread)
            return Part(
                self.slot,
                len(self.history),
                chunk,
                sampled=ends,
                n_draft=rng.randint(0, 3) if ends else 0,
                sampling=self.sampling,
            )
        assert self.next_token is not None
        fold = self.accepted
        return Part(
            self.slot,
            len(self.history),
            [self.next_token],
            self.drafts[: rng.randint(0, 3)],
            fold=fold,
            sampled=True,
            n_draft=rng.randint(0, 4),
            sampling=self.sampling,
        )

    def take(self, part: Part, result: Any) -> None:
        self.history += list(part.certain)
        self.accepted = 0
        if result.tokens:
            self.accepted = len(result.tokens) - 1
            self.history += result.tokens[: self.accepted]
            self.next_token = result.tokens[-1]
            self.drafts = result.drafts


def run_agents(pair: Pair, n_steps: int, seed: int, prompt: int, rows: int) -> None:
    """Three conversations that start and pause at random, each with its own way of sampling."""
    rng = random.Random(seed)
    agents = [
        Agent(slot, [rng.randrange(500) for _ in range(prompt + 7 * slot)], sampling)
        for slot, sampling in enumerate(SAMPLINGS)
    ]
    for _ in range(n_steps):
        active = [agent for agent in agents if rng.random() < 0.8] or agents[:1]
        parts = [agent.part(rng, rows // len(active)) for agent in active]
        for agent, part, result in zip(active, parts, pair.step(parts), strict=True):
            agent.take(part, result)


@pytest.fixture(scope="module")
def micro(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Q4_K and Q6_K, as the 27B file."""
    path = tmp_path_factory.mktemp("emulated") / "micro.gguf"
    write_model(path, PRESETS["micro"], "q4_k_m", seed=4)
    return path


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every block type; two K segments in some matrices."""
    shape = Shape(256, 4, 2304, 2, 1, 2, 6, 512, tied=False)
    path = tmp_path_factory.mktemp("emulated") / "mixed.gguf"
    write_model(path, shape, "mixed", seed=6)
    return path


ON_GPU = bool(os.environ.get("OPENJET_TEST_GPU"))
emulated_only = pytest.mark.skipif(ON_GPU, reason="about the emulated device")


# What bench/gpu_check.sh wants of a GPU; on the emulator two blocks are enough to go wrong.
SETTINGS = {name: value for name, value in os.environ.items() if name.startswith("OPENJET_CUDA_")}


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (SETTINGS if ON_GPU else {"OPENJET_CUDA_BLOCKS": "2"}).items():
        monkeypatch.setenv(name, value)


def test_agents(micro: Path, cuda_library: Native) -> None:
    with pair(micro, cuda_library) as both:
        run_agents(both, n_steps=12, seed=1, prompt=12, rows=20)


def test_every_block_type(mixed: Path, cuda_library: Native) -> None:
    with pair(mixed, cuda_library) as both:
        run_agents(both, n_steps=4, seed=2, prompt=3, rows=9)


def test_control_build(micro: Path, cuda_library: Native, monkeypatch: pytest.MonkeyPatch) -> None:
    """One kernel a phase instead of one for all."""
    monkeypatch.setenv("OPENJET_CUDA_STEP", "graph")
    with pair(micro, cuda_library) as both:
        run_agents(both, n_steps=4, seed=3, prompt=4, rows=12)


@emulated_only
@pytest.mark.parametrize("ring", ["34", "180"])
def test_any_ring(
    ring: str, micro: Path, cuda_library: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The smallest ring of weights, one block of them a warp, and the largest of any card."""
    monkeypatch.setenv("OPENJET_CUDA_RING", ring)
    monkeypatch.setenv("OPENJET_CUDA_POLL", "relaxed")
    monkeypatch.setenv("OPENJET_CUDA_BLOCKS", "4")
    with pair(micro, cuda_library) as both:
        run_agents(both, n_steps=3, seed=5, prompt=5, rows=12)


def test_splits_and_waves(
    micro: Path, cuda_library: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk over a split edge that takes two waves; rows at 255, 256 and 257 see both."""
    monkeypatch.setenv("OPENJET_CUDA_PARTIALS", "1")
    with pair(micro, cuda_library, n_pages=8, n_slots=1, mtp=0) as both:
        prompt = [(11 * i) % 500 for i in range(259)]
        for start in range(0, 192, 64):
            both.step([Part(0, start, prompt[start : start + 64])])
        both.step([Part(0, 192, prompt[192:255])])
        both.step([Part(0, 255, prompt[255:259], sampled=True)])


def test_folds_snapshots_and_pages(micro: Path, cuda_library: Native) -> None:
    """A fold without rows, a state saved and loaded into another slot, a page copied on write, and
    the bytes of both elsewhere and back."""
    with pair(micro, cuda_library) as both:
        both.step([Part(0, 0, list(range(30)))])
        both.step([Part(0, 30, [77], [5, 6, 7], sampled=True, n_draft=2)])
        both.step([Part(0, 33, [], fold=2)])
        both.both("save", 0, 1)
        both.both("load", 1, 2)
        both.both("copy_page", 0, 40)
        both.step([Part(2, 33, [8, 9], sampled=True, pages=[40], n_draft=1)])
        move_state(both.cpu)
        move_state(both.cuda)
        both.step([Part(3, 33, [8, 9], sampled=True, pages=[41], n_draft=1)])
        both.step([Part(0, 33, [9], [4], sampled=True)])
        with pytest.raises(InvalidRequestError, match="pending"):
            both.cuda.save(0, 0)


def move_state(stepper: Stepper) -> None:
    """Snapshot 1 and page 40 leave the backend and come back as slot 3's and page 41."""
    ffi, call = stepper.ffi, stepper.native.call
    layout = ffi.new("oj_state_format *")
    call("oj_backend_state_format", stepper.handle, layout)
    page = ffi.new("uint8_t[]", layout.page_bytes)
    snapshot = ffi.new("uint8_t[]", layout.snapshot_bytes)
    call("oj_backend_export_page", stepper.handle, 40, page)
    call("oj_backend_export_snapshot", stepper.handle, 1, snapshot)
    call("oj_backend_import_page", stepper.handle, 41, page)
    call("oj_backend_import_snapshot", stepper.handle, 0, snapshot)
    stepper.load(0, 3)


@emulated_only
def test_refusals(micro: Path, cuda_library: Native, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many rows a step, a codec without kernels, more blocks than are resident."""

    def refused(kind: type[Exception], match: str, **options: Any) -> None:
        with pytest.raises(kind, match=match):
            Stepper(micro, native=cuda_library, **{"kind": CUDA, "max_rows": 64, **options})

    refused(InvalidRequestError, "at most 64 rows", max_rows=65)
    refused(ModelFileError, "not in f32", kv="f32")
    refused(ModelFileError, "device 0", device=3, kv="q8_0")
    monkeypatch.setenv("OPENJET_CUDA_BLOCKS", "999")
    refused(InvalidRequestError, "keeps 1 to 4 blocks", kv="q8_0")
    monkeypatch.setenv("OPENJET_CUDA_RING", "33")
    refused(InvalidRequestError, "room for 34 to 200 KB", kv="q8_0")
    monkeypatch.setenv("OPENJET_CUDA_POLL", "often")
    refused(InvalidRequestError, "acquire or relaxed", kv="q8_0")


@emulated_only
def test_memory_plan(micro: Path, cuda_library: Native) -> None:
    """Snapshots and token embeddings are the host's; free memory is the device's."""
    model = Model(cuda_library, micro)
    options = backend_options(kind=CUDA, kv="q8_0", max_rows=64, mtp=1, n_snapshots=10)
    plan = cuda_library.ffi.new("oj_memory_plan *")
    packed = cuda_library.ffi.new("oj_backend_options *", options)
    cuda_library.call("oj_backend_memory", model.handle, packed, plan)
    assert plan.available == 1 << 36
    assert plan.snapshots == 10 * plan.state_bytes
    assert 0 < plan.host - plan.snapshots < plan.weights
    model.close()


@pytest.mark.slow
@pytest.mark.parametrize("kv", ["q8_0", "f16"])
@pytest.mark.parametrize("blocks", ["1", "3", "4"])
def test_agents_on_any_grid(
    kv: str, blocks: str, micro: Path, cuda_library: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENJET_CUDA_BLOCKS", blocks)
    with pair(micro, cuda_library, kv=kv) as both:
        run_agents(both, n_steps=20, seed=int(blocks), prompt=40, rows=64)


@pytest.mark.slow
def test_every_block_type_at_every_width(mixed: Path, cuda_library: Native) -> None:
    """1 to 64 rows: every number of column groups, full and ragged."""
    with pair(mixed, cuda_library, n_slots=1, n_pages=16, mtp=0) as both:
        position = 0
        for rows in (1, 7, 8, 9, 16, 17, 24, 25, 33, 57, 64):
            both.step([Part(0, position, [(position + 3 * i) % 500 for i in range(rows)])])
            position += rows


@pytest.mark.slow
def test_reduced_draft_head(tmp_path: Path, cuda_library: Native) -> None:
    """Grouped heads, and drafts from a part of the vocabulary."""
    shape = Shape(256, 4, 512, 6, 1, 16, 48, 4096, tied=False)
    path = tmp_path / "grouped.gguf"
    write_model(path, shape, "q4_k_m", seed=5)
    with pair(path, cuda_library, draft_head_rows=700) as both:
        run_agents(both, n_steps=8, seed=4, prompt=10, rows=20)
