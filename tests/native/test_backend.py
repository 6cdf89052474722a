"""The rules of a backend besides its numbers: states with drafts pending, memory, threads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from openjet_provider.errors import InvalidRequestError
from tests.native.steps import CPU, MAX_DRAFTS, SCRIPTED, Part, Stepper, memory_plan, open_stepper
from tests.reference.random_model import PRESETS, write_model

ROOT = Path(__file__).resolve().parents[2]
LIMIT = """
import resource, sys
from pathlib import Path
from openjet_provider.errors import OutOfMemoryError
from tests.native.steps import Part, Stepper

def limit(spare):
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + spare, used + spare))
"""


def run_limited(script: str, path: Path) -> str:
    """What a process prints that may limit its address space; it ends by itself, unharmed."""
    done = subprocess.run(
        [sys.executable, "-c", LIMIT + script, path],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr}"
    return done.stdout


ACTIONS: dict[str, Callable[[Stepper], None]] = {
    "reset": lambda stepper: stepper.reset(0),
    "save": lambda stepper: stepper.save(0, 0),
    "load": lambda stepper: stepper.load(1, 0),
}


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
@pytest.mark.parametrize("kind", [CPU, SCRIPTED], ids=["cpu", "scripted"])
def test_a_slot_with_drafts_pending_is_left_alone(
    kind: int, action: Callable[[Stepper], None], micro_model: Path
) -> None:
    """Not reset, saved or loaded into until a step has folded its drafts or dropped them."""
    with open_stepper(micro_model, kind=kind, threads=1) as stepper:
        keep = kind == CPU
        stepper.step([Part(0, 0, [5, 6, 7], [8, 9], sampled=True)], keep)
        with pytest.raises(InvalidRequestError, match="draft rows"):
            action(stepper)
        stepper.step([Part(0, 4, [], fold=1)], keep)
        action(stepper)


def test_more_threads_than_the_system_gives(micro_model: Path) -> None:
    """An error that names the way out, and the threads already started end."""
    printed = run_limited(
        """
limit(200 << 20)
try:
    Stepper(Path(sys.argv[1]), threads=64)
except OutOfMemoryError as error:
    print(error)
""",
        micro_model,
    )
    assert "cannot start 64 threads" in printed
    assert "lower threads=" in printed


def test_memory_that_runs_out_inside_a_step(tmp_path: Path) -> None:
    """Choosing and drafting tokens over 65,536 ids: what they need is there from the start or is
    asked for where its lack is an error, never where it ends the process."""
    path = tmp_path / "vocabulary.gguf"
    write_model(path, replace(PRESETS["micro"], vocabulary=65_536), "q4_0")
    printed = run_limited(
        """
stepper = Stepper(Path(sys.argv[1]), mtp=1, n_slots=2)
stepper.step([Part(slot, 0, [5, 6, 7]) for slot in range(2)])
limit(0)
greedy = stepper.step([Part(slot, 3, [8], sampled=True, n_draft=1) for slot in range(2)], False)
print("greedy", len(greedy[0].drafts))
try:
    drawn = {"temperature": 1.0, "coupled": 0}
    last = {"sampled": True, "n_draft": 1, "sampling": drawn}
    stepper.step([Part(slot, 4, [9], **last) for slot in range(2)], False)
except OutOfMemoryError as error:
    print(error)
""",
        path,
    )
    assert "greedy 1" in printed
    assert "draft distributions" in printed


def test_without_drafts_the_mtp_block_takes_no_memory(micro_model: Path) -> None:
    with_mtp, without = memory_plan(micro_model, mtp=1), memory_plan(micro_model, mtp=0)
    assert without["weights"] < with_mtp["weights"]
    assert without["pages"] < with_mtp["pages"]


def test_the_memory_plan_counts_what_choosing_tokens_takes(micro_model: Path) -> None:
    """A row of scores and one of ids for each thread; drawn drafts of each slot."""
    n_vocab = PRESETS["micro"].vocabulary
    one, three = (memory_plan(micro_model, threads=n)["scratch"] for n in (1, 3))
    assert three - one >= 2 * 8 * n_vocab
    without, with_mtp = (memory_plan(micro_model, mtp=n)["scratch"] for n in (0, 1))
    assert with_mtp - without == 4 * MAX_DRAFTS * 4 * n_vocab  # n_slots is 4, a float 4 bytes
