"""A recorded GPU run counts only for the native sources that it was made with."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest


def report(root: Path, tree: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What tools/gpu_record_check.py says about `tree`."""
    spec = importlib.util.spec_from_file_location("check", root / "tools/gpu_record_check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.ROOT = tree
    module.main()
    return capsys.readouterr().out


@pytest.fixture
def tree(root: Path, tmp_path: Path) -> Path:
    shutil.copy(root / "build.py", tmp_path)
    for name in ("native/step.cpp", "bench/results/cpu.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("[]")
    return tmp_path


def test_without_a_record(root: Path, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(root, tree, capsys).startswith("not yet verified on a GPU (native/ ")


@pytest.mark.parametrize("changed", [False, True])
def test_with_a_record(
    root: Path, tree: Path, capsys: pytest.CaptureFixture[str], changed: bool
) -> None:
    spec = importlib.util.spec_from_file_location("build_of_tree", tree / "build.py")
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    record = {"card": "H200", "source_hash": build.source_hash()}
    (tree / "bench/results/h200.json").write_text(json.dumps(record))
    if changed:
        (tree / "native/step.cpp").write_text("int x;")
    told = report(root, tree, capsys)
    assert ("other native sources" in told) is changed
    assert told.splitlines()[-1].startswith("not yet" if changed else "verified")
