"""The demo: four agents on openjet-tiny solve their tasks; the time they have is limited."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time

import pytest

from tests.conftest import ROOT, load_program

pytest.importorskip("langchain")
pytest.importorskip("langgraph")
pytest.importorskip("rich")


@pytest.fixture(scope="module")
def crew():
    return load_program(ROOT / "examples/coding_crew.py")


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
