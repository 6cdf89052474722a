"""A recorded GPU run counts only for the native sources that it was made with, and only if every
check that the claim rests on has passed."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tool(root: Path, tree: Path) -> ModuleType:
    module = load("check", root / "tools/gpu_record_check.py")
    module.ROOT = tree  # type: ignore[attr-defined]
    return module


@pytest.fixture
def tree(root: Path, tmp_path: Path) -> Path:
    shutil.copy(root / "build.py", tmp_path)
    for name in ("native/step.cpp", "bench/results/cpu.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("[]")
    return tmp_path


def record(tool: ModuleType, tree: Path, **changes: Any) -> None:
    """A run in which everything passed, with `changes`."""
    sections = {name: {"status": "passed", "found": {}} for name in tool.NEEDED}
    run = {
        "card": "NVIDIA H200",
        "emulated": False,
        "source_hash": load("build_of_tree", tree / "build.py").source_hash(),
        "sections": sections | changes.pop("sections", {}),
        "goals": [{"measure": "ms", "goal": "<= 1", "measured": 2, "holds": False}],
        "failed": [],
    }
    (tree / "bench/results/h200.json").write_text(json.dumps(run | changes))


def told(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> list[str]:
    tool.main()
    return capsys.readouterr().out.splitlines()


def test_without_a_record(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(tool, capsys)[-1].startswith("not yet verified on a GPU (native/ ")


def test_a_record_of_these_sources(
    tool: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tool, tree)
    lines = told(tool, capsys)
    assert lines[-1].startswith("verified on a GPU")
    assert "these native sources; 8 of 8 needed checks passed; 1 goals missed" in lines[0]


def test_sources_that_changed_since(
    tool: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tool, tree)
    (tree / "native/step.cpp").write_text("int x;")
    lines = told(tool, capsys)
    assert "other native sources" in lines[0]
    assert lines[-1].startswith("not yet verified")


@pytest.mark.parametrize("status", ["failed", "out of time", "not run", "running"])
def test_a_needed_check_that_did_not_pass(
    tool: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str], status: str
) -> None:
    record(tool, tree, sections={"wide": {"status": status, "found": {}}})
    lines = told(tool, capsys)
    assert "not passed: wide" in lines[0]
    assert lines[-1].startswith("not yet verified")


def test_the_emulator_is_no_gpu(
    tool: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tool, tree, emulated=True)
    assert told(tool, capsys)[0].startswith("not yet verified")
