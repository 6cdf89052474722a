"""Tasks for agents: they are right, and what a model wrote runs within limits."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from openjet_provider import tasks
from openjet_provider.tasks import SHOWN, TASKS, Task, Workspace
from tests.waiting import is_alive, wait_until

RIGHT = "def triple(n):\n    return 3 * n"
WRONG = "def triple(n):\n    return 2 * n"

SOLUTIONS = {
    "total_even_cubes": "(a): return sum(x ** 3 for x in a if x % 2 == 0)",
    "letter_shift": "(a, n): return ''.join("
    "chr((ord(c) - 97 + n) % 26 + 97) if 'a' <= c <= 'z' else c for c in a)",
    "in_groups_of": "(a, n): return [a[i : i + n] for i in range(0, len(a), n)]",
    "squares_of_sevens": "(a): return [x * x for x in a if x % 7 == 0]",
    "count_vowels_of": "(a): return sum(c in 'aeiouAEIOU' for c in a)",
    "greatest_divisor": "(a, b): return __import__('math').gcd(a, b)",
    "without_repeats": "(a): return list(dict.fromkeys(a))",
    "words_longer_than_four": "(a): return [w for w in a.split() if len(w) > 4]",
}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    task = Task("triple", "Triple it.", ("assert triple(2) == 6", "assert triple(0) == 0"))
    return Workspace(task, tmp_path / "work")


def test_right_code_passes(workspace: Workspace) -> None:
    workspace.store_code("triple.py", RIGHT)
    assert workspace.list_code() == "test_triple.py\ntriple.py"
    assert "return 3 * n" in workspace.read_code("triple.py")
    assert workspace.run_all() == "2 tests passed"
    assert workspace.solved()


def test_wrong_code_fails_with_the_line_that_failed(workspace: Workspace) -> None:
    workspace.store_code("triple.py", WRONG)
    assert "assert triple(2) == 6" in workspace.run_all()
    assert not workspace.solved()


def test_weakened_tests_do_not_count(workspace: Workspace) -> None:
    workspace.store_code("test_triple.py", "print('2 tests passed')")
    assert workspace.run_all() == "2 tests passed"
    assert not workspace.solved()


@pytest.mark.parametrize("path", ["../outside.py", "/tmp/outside.py", "a/../../outside.py"])
def test_paths_outside_the_folder_are_refused(workspace: Workspace, path: str) -> None:
    assert "is outside the folder" in workspace.store_code(path, "x")
    assert "is outside the folder" in workspace.read_code(path)
    assert not (workspace.folder.parent / "outside.py").exists()


@pytest.mark.parametrize("path", [".", "no.py", "a\0b", "x" * 5000])
def test_what_cannot_be_read_is_said(workspace: Workspace, path: str) -> None:
    assert workspace.read_code(path).startswith("Error: ")


@pytest.mark.parametrize(
    ("code", "limits", "says"),
    [
        ("while True:\n    pass", {"TEST_SECONDS": 1, "WAIT_SECONDS": 90}, "stopped after 1 sec"),
        ("import time\ntime.sleep(600)", {"WAIT_SECONDS": 2}, "stopped after 2 seconds"),
        ("x = 'a' * (1 << 31)", {"WAIT_SECONDS": 90}, "MemoryError"),
        ("while True:\n    print('a' * 10000)", {"WAIT_SECONDS": 90}, "too much output"),
    ],
    ids=["busy", "asleep", "memory", "output"],
)
def test_runaway_code_is_stopped(
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    limits: dict[str, int],
    says: str,
) -> None:
    for name, seconds in limits.items():
        monkeypatch.setattr(tasks, name, seconds)
    workspace.store_code("triple.py", code)
    start = time.monotonic()
    output = workspace.run_all()
    assert time.monotonic() - start < 100
    assert says in output
    assert len(output) <= SHOWN


def test_code_that_waits_for_a_processor_is_not_stopped(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "TEST_SECONDS", 1)
    workspace.store_code("triple.py", f"import time\ntime.sleep(1.5)\n{RIGHT}")
    assert workspace.run_all() == "2 tests passed"


def test_processes_that_the_code_started_end_with_it(workspace: Workspace) -> None:
    workspace.store_code(
        "triple.py",
        "import subprocess\n"
        "print('pid', subprocess.Popen(['sleep', '601']).pid)\n"
        "def triple(n): return 3 * n",
    )
    pid = int(workspace.run_all().split("pid ")[1].split()[0])
    wait_until(lambda: not is_alive(pid))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_tasks_are_right(task: Task, tmp_path: Path) -> None:
    """Each is solved by what it asks for, and not by an empty file."""
    workspace = Workspace(task, tmp_path / task.name)
    assert not workspace.solved()
    (workspace.folder / task.file).write_text(f"def {task.name}{SOLUTIONS[task.name]}\n")
    assert workspace.solved()
