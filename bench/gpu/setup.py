"""What is checked: the device's library, the sizes and the files; the same for every section."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from openjet_provider._native import Native, load, open_library
from tests.native.engine_driver import Driver
from tests.native.steps import CUDA, Stepper
from tests.reference.random_model import PRESETS, Shape

ROOT = Path(__file__).resolve().parents[2]
PAGE = 64
MICRO = PRESETS["micro"]
SHAPE_27B = Shape(5120, 64, 17408, 24, 4, 16, 48, 248_320, tied=False, context=262_144)
WIDE_27B = Shape(5120, 4, 17408, 24, 4, 16, 48, 248_320, tied=False, context=262_144)
NARROW = Shape(256, 4, 2304, 2, 1, 2, 6, 512, tied=False, context=32_768)  # two K segments


@dataclass(frozen=True)
class Sizes:
    """How much of everything: FULL on a GPU, SMALL on the emulator, which runs every line."""

    wide: Shape
    large: Shape
    phases: tuple[str, ...]  # test programs of native/tests
    widths: tuple[int, ...]  # rows of the steps that must have equal logits
    edges: tuple[int, ...]  # positions around which single rows are compared
    rows: dict[int, tuple[int, int]]  # rows of a timed step: (agents, drafts of each)
    depths: dict[str, int]  # contexts of timed steps, positions
    warm_seconds: float  # of steps before timed ones: a card is slower in its first second
    steps: int  # timed ones, of which the median counts
    stress_steps: int
    blocks: tuple[int, ...]  # the grid is clamped to so many
    variants: tuple[tuple[str, str], ...]  # variables of docs/kernel.md that may pay
    draft_head: int  # rows of the reduced head
    prompt: int  # tokens of the long prompt
    agents: int  # that go on with long contexts
    context: int  # tokens of each agent before its follow-up
    new: int  # tokens of the follow-up
    decode: int  # tokens of an agent's answer whose speed counts
    plan: dict[str, int]  # options of the memory plan
    oracle_texts: int
    oracle_tokens: int  # of each text
    suite: tuple[str, ...]  # pytest's arguments that choose the equality suite's tests
    schedules: tuple[str, ...]  # and of the engine's


FULL = Sizes(
    wide=WIDE_27B,
    large=SHAPE_27B,
    phases=("phase", "sample", "delta", "attention", "gemm"),
    widths=tuple(range(1, 65)),
    edges=(255, 256, 257, 4095, 4096, 4097, 4100),
    rows={1: (1, 0), 3: (1, 2), 12: (4, 2), 24: (8, 2)},
    depths={"short": 256, "23K": 23_000},
    warm_seconds=2,
    steps=24,
    stress_steps=1000,
    blocks=(82, 128, 132),
    variants=(
        *(("OPENJET_CUDA_RING", kb) for kb in ("34", "72", "132", "180")),
        ("OPENJET_CUDA_POLL", "relaxed"),
    ),
    draft_head=40_960,
    prompt=20_000,
    agents=4,
    context=23_000,
    new=50,
    decode=200,
    plan={"n_slots": 8, "n_pages": -(-132_000 // PAGE), "n_snapshots": 16},
    oracle_texts=4,
    oracle_tokens=1024,
    suite=("-m", "slow or not slow"),
    schedules=("-m", "slow or not slow"),
)
SMALL = Sizes(
    wide=NARROW,
    large=MICRO,
    phases=("phase", "delta"),
    widths=(1, 3),
    edges=(7, 8),
    rows={1: (1, 0), 3: (1, 2)},
    depths={"short": 8},
    warm_seconds=0,
    steps=1,
    stress_steps=2,
    blocks=(1, 3),
    variants=(("OPENJET_CUDA_RING", "34"), ("OPENJET_CUDA_POLL", "relaxed")),
    draft_head=300,
    prompt=20,
    agents=2,
    context=20,
    new=3,
    decode=3,
    plan={"n_slots": 2, "n_pages": 8, "n_snapshots": 2},
    oracle_texts=1,
    oracle_tokens=9,
    suite=("-k", "test_control_build"),
    schedules=("--collect-only",),
)


@dataclass(frozen=True)
class Setup:
    """One run's settings, which its sections are given as JSON."""

    files: str  # folder for models
    programs: str  # folder of the test programs (build.py --gpu-tests, or --tests if emulated)
    library: str | None = None  # of CUDA; None: the package's
    peer: str | None = None  # folder with llama.cpp's programs
    small: bool = False
    emulated: bool = False

    @classmethod
    def from_json(cls, text: str) -> Setup:
        return cls(**json.loads(text))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def sizes(self) -> Sizes:
        return SMALL if self.small else FULL

    def native(self) -> Native:
        """The library whose CUDA backend is checked."""
        return load("cuda") if self.library is None else open_library("cuda", Path(self.library))

    def file(self, name: str) -> Path:
        folder = Path(self.files)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / name

    @contextmanager
    def stepper(self, path: Path, **options: Any) -> Iterator[Stepper]:
        """The backend on the device, q8_0 pages."""
        settings = {"kind": CUDA, "kv": "q8_0", "max_rows": 64, "mtp": 1} | options
        stepper = Stepper(path, native=self.native(), **settings)
        try:
            yield stepper
        finally:
            stepper.close()

    def engine(self, path: Path, **options: Any) -> Driver:
        """An engine on the device."""
        native = self.native()
        return Driver((native.ffi, native.lib), path, kind=CUDA, **options)

    def test_environment(self) -> dict[str, str]:
        """What makes the tests run on this device."""
        return {"OPENJET_TEST_GPU": self.library or "1"}


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Variables of the environment, for as long as a backend is opened."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
