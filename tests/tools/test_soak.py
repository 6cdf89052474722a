"""tools/soak.py records each part as soon as it is done, and says when all are there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import load_program

Record = Callable[[], dict[str, Any]]


@pytest.fixture
def soak(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool, with parts that take no time, on sources "a"."""
    module = load_program(root / "tools/soak.py")
    monkeypatch.setattr(module, "RECORD", tmp_path / "results" / "soak.json")
    monkeypatch.setattr(module, "output", lambda *command: "a")
    monkeypatch.setattr(module, "run", lambda part: {"command": part, "status": 0})
    return module


@pytest.fixture
def record(soak: ModuleType) -> Record:
    def read() -> dict[str, Any]:
        return json.loads(soak.RECORD.read_text())  # type: ignore[no-any-return]

    return read


def test_parts_add_up(soak: ModuleType, record: Record) -> None:
    assert soak.main(["--only", "cancels", "--only", "schedules"]) == 0
    assert list(record()["parts"]) == ["schedules", "cancels"]
    assert not record()["complete"]
    for part in soak.PARTS:
        soak.main(["--only", part])
    assert record()["complete"]
    assert list(record()["parts"]) == list(soak.PARTS)


def test_an_interrupted_run_leaves_what_was_done(
    soak: ModuleType, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(part: str) -> dict[str, Any]:
        if part == "cancels":
            raise KeyboardInterrupt
        return {"command": part, "status": 0}

    monkeypatch.setattr(soak, "run", run)
    with pytest.raises(KeyboardInterrupt):
        soak.main([])
    assert list(record()["parts"]) == ["schedules", "native-schedules"]
    assert not record()["complete"]


def test_a_failed_part_is_recorded_and_told(
    soak: ModuleType, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak, "run", lambda part: {"status": int(part == "cancels")})
    assert soak.main([]) == 1
    assert record()["parts"]["cancels"]["status"] == 1
    assert record()["complete"]


def test_parts_of_other_sources_do_not_count(
    soak: ModuleType, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of kernels leaves what ran none of them."""
    soak.main([])
    monkeypatch.setattr(soak, "output", lambda *command: "a" if command[-1] == "cpu" else "b")
    soak.main(["--only", "thread"])
    assert set(record()["parts"]) == {*soak.SINGLE, "thread"}
    assert record()["parts"]["thread"]["source_hash"] == "b"
    monkeypatch.setattr(soak, "output", lambda *command: "c")
    soak.main(["--only", "cancels"])
    assert list(record()["parts"]) == ["cancels"]


def test_every_test_is_in_one_part(root: Path, soak: ModuleType) -> None:
    """`others` leaves out what is a part of its own, by names that exist."""
    for tests in soak.SINGLE.values():
        for test in tests:
            file, _, name = test.partition("::")
            text = (root / file).read_text()
            assert f"def {name.partition('[')[0]}" in text
            assert f"--deselect={test}" in soak.PARTS["others"]
