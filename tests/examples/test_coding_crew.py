"""The demo: four agents on openjet-tiny solve their tasks; the time they have is limited."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import time

import pytest

pytest.importorskip("langchain")
pytest.importorskip("langgraph")
pytest.importorskip("rich")


@pytest.fixture(scope="module")
def crew():
    from tests.conftest import ROOT

    spec = importlib.util.spec_from_file_location("coding_crew", ROOT / "examples/coding_crew.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["coding_crew"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["coding_crew"]


def test_agents_that_solve_nothing_are_a_failure(crew, root, tmp_path, monkeypatch, capsys):
    """The scripted engine says nothing at all: the result is that of the tests, not of words."""
    model = shutil.copy(root / "openjet_provider/data/openjet-tiny.gguf", tmp_path)
    monkeypatch.setenv("OPENJET_BACKEND", "scripted")
    assert crew.main(["--plain", "--model", model]) == 1
    assert "0 of 4 solved" in capsys.readouterr().out


def test_time_is_limited(crew, monkeypatch, capsys):
    start = time.monotonic()
    code = crew.main(["--plain", "--seconds", "0"])
    assert time.monotonic() - start < 100
    assert code in (0, 1)
    assert "solved" in capsys.readouterr().out


def test_four_agents_solve_their_tasks(root):
    done = subprocess.run(
        [sys.executable, "examples/coding_crew.py", "--plain", "--seconds", "500"],
        cwd=root,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{root}:{root}/integrations"},
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rows per step" in done.stdout
