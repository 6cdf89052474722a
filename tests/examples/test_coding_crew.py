"""The demo: its tools keep their limits, and four agents on openjet-tiny solve their tasks."""

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

from langchain_core.tools import ToolException


@pytest.fixture(scope="module")
def crew():
    from tests.conftest import ROOT

    spec = importlib.util.spec_from_file_location("coding_crew", ROOT / "examples/coding_crew.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["coding_crew"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["coding_crew"]


RIGHT = "def triple(n):\n    return 3 * n"


@pytest.fixture
def workspace(crew, tmp_path):
    task = crew.Task("triple", "Triple it.", ("assert triple(2) == 6", "assert triple(0) == 0"))
    return crew.Workspace(task, tmp_path / "work")


@pytest.fixture
def tools(workspace):
    return {tool.name: tool for tool in workspace.tools()}


def write(tools, content, path="triple.py"):
    return tools["store_code"].invoke({"path": path, "content": content})


def test_right_code_passes(workspace, tools):
    write(tools, RIGHT)
    assert tools["list_code"].invoke({}) == "test_triple.py\ntriple.py"
    assert "return 3 * n" in tools["read_code"].invoke({"path": "triple.py"})
    assert tools["run_all"].invoke({}) == "2 tests passed"
    assert workspace.solved()


def test_wrong_code_fails_with_the_line_that_failed(workspace, tools):
    write(tools, "def triple(n):\n    return 2 * n")
    assert "assert triple(2) == 6" in tools["run_all"].invoke({})
    assert not workspace.solved()


def test_weakened_tests_do_not_count(workspace, tools):
    write(tools, "print('2 tests passed')", "test_triple.py")
    assert tools["run_all"].invoke({}) == "2 tests passed"
    assert not workspace.solved()


@pytest.mark.parametrize("path", ["../outside.py", "/tmp/outside.py", "a/../../outside.py"])
def test_paths_outside_the_folder_are_refused(workspace, tools, path):
    with pytest.raises(ToolException, match="outside"):
        workspace._inside(path)
    assert write(tools, "x", path).startswith("Error")
    assert not (workspace.folder.parent / "outside.py").exists()


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("while True:\n    pass", "stopped after"),
        ("import time\ntime.sleep(60)", "stopped after"),
        ("x = 'a' * (1 << 31)", "MemoryError"),
        ("while True:\n    print('a' * 10000)", "too much output"),
    ],
    ids=["busy", "asleep", "memory", "output"],
)
def test_runaway_code_is_stopped(crew, workspace, tools, monkeypatch, code, says):
    monkeypatch.setattr(crew, "TEST_SECONDS", 1)
    write(tools, code)
    start = time.monotonic()
    output = tools["run_all"].invoke({})
    assert time.monotonic() - start < 10
    assert says in output
    assert len(output) <= crew.SHOWN


def test_processes_that_the_code_started_end_with_it(workspace, tools):
    write(
        tools,
        "import subprocess\n"
        "print('pid', subprocess.Popen(['sleep', '61']).pid)\n"
        "def triple(n): return 3 * n",
    )
    output = tools["run_all"].invoke({})
    pid = int(output.split("pid ")[1].split()[0])
    deadline = time.monotonic() + 5
    while _alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_tasks_are_right(crew, tmp_path):
    """Each is solved by what it asks for, and not by an empty file."""
    solutions = {
        "total_even_cubes": "(a): return sum(x ** 3 for x in a if x % 2 == 0)",
        "letter_shift": "(a, n): return ''.join("
        "chr((ord(c) - 97 + n) % 26 + 97) if 'a' <= c <= 'z' else c for c in a)",
        "in_groups_of": "(a, n): return [a[i : i + n] for i in range(0, len(a), n)]",
        "squares_of_sevens": "(a): return [x * x for x in a if x % 7 == 0]",
    }
    for task in crew.TASKS:
        workspace = crew.Workspace(task, tmp_path / task.name)
        assert not workspace.solved()
        (workspace.folder / task.file).write_text(f"def {task.name}{solutions[task.name]}\n")
        assert workspace.solved()


def test_agents_that_solve_nothing_are_a_failure(crew, root, tmp_path, monkeypatch, capsys):
    """The scripted engine says nothing at all: the result is that of the tests, not of words."""
    model = shutil.copy(root / "openjet_provider/data/openjet-tiny.gguf", tmp_path)
    monkeypatch.setenv("OPENJET_BACKEND", "scripted")
    assert crew.main(["--plain", "--model", model]) == 1
    assert "0 of 4 solved" in capsys.readouterr().out


def test_time_is_limited(crew, monkeypatch, capsys):
    start = time.monotonic()
    code = crew.main(["--plain", "--seconds", "0"])
    assert time.monotonic() - start < 30
    assert code in (0, 1)
    assert "solved" in capsys.readouterr().out


def test_four_agents_solve_their_tasks(root):
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "examples/coding_crew.py", "--plain"],
        cwd=root,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{root}:{root}/integrations"},
        capture_output=True,
        text=True,
        timeout=115,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.monotonic() - start < 115
    assert "rows per step" in done.stdout
