"""Small programming tasks for agents, and the folder with limits in which they are worked on.

CAREFUL: running a task's tests runs code that a model wrote. It runs in the task's folder and in a
process with limits on time, memory and file size, but with your permissions: for models that you
do not trust use a container.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec

P = ParamSpec("P")

TEST_SECONDS = 5  # of the processor: what a test says must not depend on the machine's load
WAIT_SECONDS = 30  # of the clock
MOST_OUTPUT = 1 << 20  # bytes
SHOWN = 1500  # characters of a tool's output that the model gets to see

SYSTEM_PROMPT = """\
You are a careful Python programmer in a small crew. You work alone in a folder of your own.
Write the solution into the file you are told to, then run the tests. If a test fails, read the
message, correct the file and run the tests again. When all tests pass, say so in one sentence.
Use only the standard library and keep the code short."""


@dataclass(frozen=True)
class Task:
    """A function to write: its file is `<name>.py`. `tests` are assertions about it."""

    name: str
    what: str
    tests: tuple[str, ...]

    @property
    def file(self) -> str:
        return f"{self.name}.py"

    @property
    def test_file(self) -> str:
        return f"test_{self.name}.py"

    @property
    def request(self) -> str:
        """What the agent is asked."""
        return f"{self.what} Put it into {self.file}. The tests are in {self.test_file}."

    def test_code(self) -> str:
        lines = [f"from {self.name} import {self.name}", "", *self.tests]
        return "\n".join([*lines, f"print('{len(self.tests)} tests passed')", ""])


TASKS = (
    Task(
        "total_even_cubes",
        "Write a function total_even_cubes(numbers) that returns the sum of the cubes of the"
        " even numbers in a list.",
        (
            "assert total_even_cubes([1, 2, 3, 4]) == 72",
            "assert total_even_cubes([]) == 0",
            "assert total_even_cubes([-2, 5]) == -8",
        ),
    ),
    Task(
        "letter_shift",
        "Write a function letter_shift(text, n) that shifts every lowercase letter by n places in"
        " the alphabet.",
        (
            "assert letter_shift('abc', 2) == 'cde'",
            "assert letter_shift('xyz', 3) == 'abc'",
            "assert letter_shift('Two 2', 1) == 'Txp 2'",
        ),
    ),
    Task(
        "in_groups_of",
        "Write a function in_groups_of(items, size) that cuts a list into pieces of the given"
        " size.",
        (
            "assert in_groups_of([1, 2, 3, 4], 2) == [[1, 2], [3, 4]]",
            "assert in_groups_of([1, 2, 3], 2) == [[1, 2], [3]]",
            "assert in_groups_of([], 4) == []",
        ),
    ),
    Task(
        "squares_of_sevens",
        "Write a function squares_of_sevens(numbers) that returns the squares of the numbers"
        " divisible by 7.",
        (
            "assert squares_of_sevens([7, 8, 14]) == [49, 196]",
            "assert squares_of_sevens([1, 2, 3]) == []",
            "assert squares_of_sevens([0, -7]) == [0, 49]",
        ),
    ),
    Task(
        "count_vowels_of",
        "Write a function count_vowels_of(text) that counts the vowels in a text.",
        (
            "assert count_vowels_of('banana') == 3",
            "assert count_vowels_of('xyz') == 0",
            "assert count_vowels_of('AEiou') == 5",
        ),
    ),
    Task(
        "greatest_divisor",
        "Write a function greatest_divisor(a, b) that returns the greatest common divisor of two"
        " integers.",
        (
            "assert greatest_divisor(12, 18) == 6",
            "assert greatest_divisor(7, 5) == 1",
            "assert greatest_divisor(10, 10) == 10",
        ),
    ),
    Task(
        "without_repeats",
        "Write a function without_repeats(items) that returns the list without duplicates, keeping"
        " the order.",
        (
            "assert without_repeats([1, 2, 1, 3]) == [1, 2, 3]",
            "assert without_repeats([]) == []",
            "assert without_repeats(['b', 'a', 'b']) == ['b', 'a']",
        ),
    ),
    Task(
        "words_longer_than_four",
        "Write a function words_longer_than_four(text) that returns a list of the words longer than"
        " 4 characters in a text.",
        (
            "assert words_longer_than_four('a small bird singing') == ['small', 'singing']",
            "assert words_longer_than_four('') == []",
            "assert words_longer_than_four('four') == []",
        ),
    ),
)

# Runs in a process of its own: limits first, then the tests.
_GUARD = """\
import resource, runpy, sys
seconds, size = int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
sys.path.insert(0, "")
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def run_limited(folder: Path, file: str) -> tuple[bool, str]:
    """Run a file of the folder; whether it succeeded, and its output. Never waits long."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        guard = [sys.executable, "-I", "-B", "-c", _GUARD]
        process = subprocess.Popen(
            [*guard, file, str(TEST_SECONDS), str(MOST_OUTPUT)],
            cwd=folder,
            env={"PATH": os.defpath},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(WAIT_SECONDS)
            ending = "" if code >= 0 else f"ended by {signal.Signals(-code).name}"
            if code == -signal.SIGXCPU:
                ending = f"stopped after {TEST_SECONDS} seconds"
        except subprocess.TimeoutExpired:
            code, ending = 1, f"stopped after {WAIT_SECONDS} seconds"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if output.seek(0, os.SEEK_END) >= MOST_OUTPUT:
            ending = "stopped: too much output"
        output.seek(0)
        lines = [line for line in output.read().splitlines() if "<frozen" not in line]
    return code == 0, "\n".join([*lines, ending])[-SHOWN:].strip()


def _refusals_told(tool: Callable[P, str]) -> Callable[P, str]:
    """What a tool cannot do is something for the model to read."""

    @functools.wraps(tool)
    def told(*args: P.args, **kwargs: P.kwargs) -> str:
        try:
            return tool(*args, **kwargs)
        except (OSError, ValueError) as error:
            return f"Error: {error}"

    return told


@dataclass
class Workspace:
    """A task's folder and what an agent may do in it."""

    task: Task
    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self._put_tests()

    @property
    def tools(self) -> tuple[Callable[..., str], ...]:
        """Functions for the agent; their docstrings describe them to the model."""
        return (self.store_code, self.read_code, self.list_code, self.run_all)

    @_refusals_told
    def store_code(self, path: str, content: str) -> str:
        """Save source code under a path, replacing what was there."""
        file = self._inside(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if content.endswith("\n") else content + "\n")
        return f"Wrote {path}."

    @_refusals_told
    def read_code(self, path: str) -> str:
        """Return the source code under a path."""
        file = self._inside(path)
        if not file.is_file():
            raise ValueError(f"there is no file {path}")
        return file.read_text(errors="replace")[:SHOWN]

    def list_code(self) -> str:
        """Name every file of your folder."""
        files = (str(p.relative_to(self.folder)) for p in self.folder.rglob("*") if p.is_file())
        return "\n".join(sorted(files))

    def run_all(self) -> str:
        """Run the unit tests of your task and return what they print."""
        return run_limited(self.folder, self.task.test_file)[1]

    def solved(self) -> bool:
        """Whether the tests pass: the real ones, whatever the agent did to its copy."""
        self._put_tests()
        return run_limited(self.folder, self.task.test_file)[0]

    def _put_tests(self) -> None:
        (self.folder / self.task.test_file).write_text(self.task.test_code())

    def _inside(self, path: str) -> Path:
        found = (self.folder / path).resolve()
        if not found.is_relative_to(self.folder.resolve()):
            raise ValueError(f"{path} is outside the folder")
        return found
