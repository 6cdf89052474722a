"""A recorded GPU run counts only for the native sources that it was made with, and only if every
check that the claim rests on has passed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import load_program


@pytest.fixture
def tool(root: Path, tree: Path) -> ModuleType:
    module = load_program(root / "tools/gpu_record_check.py")
    module.ROOT = tree  # type: ignore[attr-defined]
    return module


@pytest.fixture
def tree(root: Path, tmp_path: Path) -> Path:
    shutil.copy(root / "build.py", tmp_path)
    for name in ("native/step.cpp", "bench/results/cpu.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("[]")
    return tmp_path


def record(tree: Path, **changes: Any) -> None:
    """A run in which everything passed, with `changes`."""
    run: dict[str, Any] = {
        "card": "NVIDIA H200",
        "emulated": False,
        "source_hash": load_program(tree / "build.py").source_hash(),
        "goals": [{"measure": "ms", "goal": "<= 1", "measured": 2, "holds": False}],
        "failed": [],
        "unproven": [],
    }
    (tree / "bench/results/h200.json").write_text(json.dumps(run | changes))


def recorded_by_the_build(tree: Path) -> list[str]:
    """The GPUs that the build's own record names for users."""
    build = load_program(tree / "build.py")
    runs: list[str] = build.gpu_runs(build.source_hash())
    return runs


def told(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> list[str]:
    tool.main()
    return capsys.readouterr().out.splitlines()


def test_without_a_record(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(tool, capsys)[-1].startswith("not yet verified on a GPU (native/ ")


def test_a_record_of_these_sources(
    tool: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tree)
    lines = told(tool, capsys)
    assert lines[-1].startswith("verified on a GPU")
    assert "these native sources; 1 goals missed" in lines[0]
    assert recorded_by_the_build(tree) == ["NVIDIA H200"]


def test_sources_that_changed_since(
    tool: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tree)
    (tree / "native/step.cpp").write_text("int x;")
    lines = told(tool, capsys)
    assert "other native sources" in lines[0]
    assert lines[-1].startswith("not yet verified")


def test_what_changed_since_is_told_where_the_commit_is_at_hand(
    tool: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def git(*arguments: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        command = ["git", *who, *arguments]
        return subprocess.run(command, cwd=tree, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    for name in ("native/cpu/gemm.cpp", "native/tests/a.cpp"):
        (tree / name).parent.mkdir()
        (tree / name).write_text("")
    git("add", ".")
    git("commit", "-q", "-m", "all")
    record(tree, commit=git("rev-parse", "--short", "HEAD").strip())
    for name in ("native/cpu/gemm.cpp", "native/tests/a.cpp"):
        (tree / name).write_text("int x;")
    assert "; changed since: native/cpu; 1 goals missed" in told(tool, capsys)[0]


def test_a_needed_check_that_did_not_pass(
    tool: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tree, unproven=["wide"])
    lines = told(tool, capsys)
    assert "not passed: wide" in lines[0]
    assert lines[-1].startswith("not yet verified")
    assert recorded_by_the_build(tree) == []


def test_the_emulator_is_no_gpu(
    tool: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tree, emulated=True)
    assert told(tool, capsys)[0].startswith("not yet verified")
