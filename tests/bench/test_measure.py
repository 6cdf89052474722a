"""The arithmetic of one answer, on times that are known."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from openjet_provider import Engine
from openjet_provider.bench.cores import CoreWaits
from openjet_provider.bench.measure import Answer, together
from openjet_provider.bench.record import table
from openjet_provider.bench.scenarios import Numbers
from openjet_provider.chat.types import Usage


@pytest.fixture
def answer() -> Answer:
    """Sent at 10; pieces at 12, 13, 13.5 and 16; 21 tokens; ended at 17."""
    arrivals = [(12.0, 5), (13.0, 10), (13.5, 5), (16.0, 20)]
    return Answer(10.0, 17.0, arrivals, Usage(100, 21, 60))


def test_times_and_speeds(answer: Answer) -> None:
    assert answer.first_s == 2
    assert answer.decode_s == 5
    assert answer.decode_speed == 4
    assert answer.characters == 40


def test_pauses(answer: Answer) -> None:
    assert answer.gaps() == [1, 0.5, 2.5]
    assert answer.gaps(13.2, 13.4) == [0.5]  # the one that goes on at that time
    assert answer.gaps(14, 15) == [2.5]
    assert answer.gaps(12.5, 14) == [1, 0.5, 2.5]
    assert answer.gaps(16.5, 17) == []


def test_pauses_between_steps(answer: Answer) -> None:
    assert answer.step_gaps() == []  # the engine does not tell
    answer.take_steps([11.0, 11.00001, 12.5, 12.50002, 12.50003, 15.5])
    assert answer.step_gaps() == [1.5, 3]  # tokens of one step are one
    assert answer.step_gaps(12.6, 13) == [3]


def test_undisturbed_steps(answer: Answer) -> None:
    """A step counts where the engine's threads had their cores from the piece before it to the one
    behind it."""
    answer.take_steps([11.9, 12.9, 13.4, 15.9])
    answer.waits = [(12.0, 1.0), (13.0, 1.01), (13.5, 1.01), (16.0, 1.5)]
    assert answer.undisturbed() == pytest.approx([0.5])  # before 12, nothing is known
    answer.take_steps([16.9])
    answer.waits.insert(0, (11.0, 0.99))
    answer.waits.append((17.0, 1.5))
    assert answer.undisturbed() == pytest.approx([1.0, 0.5])
    assert answer.undisturbed(13.1, 20) == pytest.approx([0.5])


def test_waits_of_the_engines_threads() -> None:
    """They grow; without an engine they are not known."""
    assert CoreWaits().seconds() is None
    with Engine("openjet-tiny", backend="cpu"):
        waits = CoreWaits()
        first, second = waits.seconds(), waits.seconds()
        assert first is not None
        assert second is not None
        assert 0 < first <= second


@pytest.mark.parametrize("schedstat", [None, "0 0 0\n", "5000\n", "what\n"])
def test_a_machine_that_does_not_tell_waits(
    schedstat: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has not had its cores free: that is not known, and the report says so."""
    monkeypatch.setattr("openjet_provider.bench.cores._TASKS", tmp_path)
    task = tmp_path / "1"
    task.mkdir()
    (task / "comm").write_text("openjet-step\n")
    if schedstat:
        (task / "schedstat").write_text(schedstat)
    assert CoreWaits().seconds() is None
    numbers = Numbers()
    numbers.not_known("beside", "with its cores free", "%")
    assert "not known" in table(numbers.summary()).splitlines()[1]
    numbers.add("beside", "with its cores free", "%", 50.0)
    numbers.not_known("beside", "with its cores free", "%")
    assert "not known" not in table(numbers.summary())


def test_characters_of_a_window(answer: Answer) -> None:
    assert answer.characters_between(12, 13.5) == 15
    assert answer.characters_between(14, 15) == 0


def test_an_answer_without_text_has_no_pieces() -> None:
    silent = Answer(10.0, 17.0, [], Usage(100, 21, 60))
    assert not silent.visible
    assert silent.first_s == 7


def test_all_start_at_once() -> None:
    everybody = threading.Barrier(8)
    assert sorted(together([lambda: everybody.wait(60)] * 8)) == list(range(8))


def test_the_first_error_is_raised() -> None:
    def fail() -> None:
        raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        together([lambda: None, fail])


def test_an_error_waits_for_nobody() -> None:
    """Nor does Ctrl-C: answers that still run end with their engine."""
    released = threading.Event()

    def fail() -> None:
        raise KeyboardInterrupt

    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        together([lambda: released.wait(100), fail])
    released.set()
    assert time.perf_counter() - start < 90


def test_results_keep_the_order_of_their_jobs() -> None:
    turn = threading.Event()
    assert together([lambda: turn.wait(60), lambda: turn.set() or "second"]) == [True, "second"]


def test_median_and_spread() -> None:
    numbers = Numbers()
    numbers.add("one", "first token", "s", 3.0, 1.0)
    numbers.add("one", "first token", "s", 8.0)
    numbers.add("one", "nothing", "s")
    assert numbers.summary() == {
        "one": {
            "first token": {
                "unit": "s",
                "median": 3.0,
                "min": 1.0,
                "max": 8.0,
                "samples": [3.0, 1.0, 8.0],
            }
        }
    }
    assert table(numbers.summary()).splitlines()[1].split() == "one first token 3 1 8 s".split()
