"""Four coding agents at once on one engine: LangGraph agents, real tools, real test runs.

    python examples/coding_crew.py                        # openjet-tiny (bundled), on the CPU
    python examples/coding_crew.py --model qwen3.8-27b    # the model the engine is made for
    python examples/coding_crew.py --model /path/to/file.gguf

Each agent gets a small programming task and a folder of its own. It writes a file with a tool, runs
the tests with a tool, reads what failed and tries again. All four share one model, one system
prompt and the engine's steps; the table at the end says how much.

CAREFUL: this program runs code that a model wrote. It does so in a temporary folder and in a
process with limits on time, memory and file size, but with your permissions: for models that you
do not trust use a container.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk, ToolMessage
from langchain_core.tools import BaseTool, ToolException, tool
from langgraph.errors import GraphRecursionError
from rich.console import Console
from rich.live import Live
from rich.table import Table

from openjet_provider import ChatOpenJet, Engine, OpenJetError

TURNS = 8  # model calls of one agent at most
MAX_TOKENS = 1024  # of one model call
TEST_SECONDS = 5
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
    request: str
    tests: tuple[str, ...]

    @property
    def file(self) -> str:
        return f"{self.name}.py"

    @property
    def test_file(self) -> str:
        return f"test_{self.name}.py"

    def test_code(self) -> str:
        lines = [f"from {self.name} import {self.name}", "", *self.tests]
        return "\n".join([*lines, f"print('{len(self.tests)} tests passed')", ""])


TASKS = (
    Task(
        "total_even_cubes",
        "Write a function total_even_cubes(numbers) that adds up the cubes of the even numbers it"
        " is given.",
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
)


# ---- the tools ---------------------------------------------------------------------------------

# Runs in a process of its own: limits first, then the tests.
GUARD = f"""\
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_CPU, ({TEST_SECONDS}, {TEST_SECONDS}))
resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
resource.setrlimit(resource.RLIMIT_FSIZE, ({MOST_OUTPUT}, {MOST_OUTPUT}))
sys.path.insert(0, "")
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def run_limited(folder: Path, file: str) -> tuple[bool, str]:
    """Run a file of the folder; whether it succeeded, and its output. Never waits long."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            [sys.executable, "-I", "-B", "-c", GUARD, file],
            cwd=folder,
            env={"PATH": os.defpath},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(TEST_SECONDS)
            ending = "" if code >= 0 else f"ended by {signal.Signals(-code).name}"
        except subprocess.TimeoutExpired:
            code, ending = 1, f"stopped after {TEST_SECONDS} seconds"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if output.seek(0, os.SEEK_END) >= MOST_OUTPUT:
            ending = "stopped: too much output"
        output.seek(0)
        lines = [line for line in output.read().splitlines() if "<frozen" not in line]
    return code == 0, "\n".join([*lines, ending])[-SHOWN:].strip()


@dataclass
class Workspace:
    """A task's folder and what an agent may do in it."""

    task: Task
    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self._put_tests()

    def _put_tests(self) -> None:
        (self.folder / self.task.test_file).write_text(self.task.test_code())

    def _inside(self, path: str) -> Path:
        found = (self.folder / path).resolve()
        if not found.is_relative_to(self.folder.resolve()):
            raise ToolException(f"{path} is outside the folder")
        return found

    def solved(self) -> bool:
        """Whether the tests pass: the real ones, whatever the agent did to its copy."""
        self._put_tests()
        return run_limited(self.folder, self.task.test_file)[0]

    def tools(self) -> list[BaseTool]:
        @tool
        def store_code(path: str, content: str) -> str:
            """Save source code under a path, replacing what was there."""
            file = self._inside(path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content if content.endswith("\n") else content + "\n")
            return f"Wrote {path}."

        @tool
        def read_code(path: str) -> str:
            """Return the source code under a path."""
            file = self._inside(path)
            if not file.is_file():
                raise ToolException(f"there is no file {path}")
            return file.read_text(errors="replace")[:SHOWN]

        @tool
        def list_code() -> str:
            """Name every file of your folder."""
            files = (str(p.relative_to(self.folder)) for p in self.folder.rglob("*") if p.is_file())
            return "\n".join(sorted(files))

        @tool
        def run_all() -> str:
            """Run the unit tests of your task and return what they print."""
            return run_limited(self.folder, self.task.test_file)[1]

        tools: list[BaseTool] = [store_code, read_code, list_code, run_all]
        for each in tools:
            each.handle_tool_error = lambda error: f"Error: {error}"
        return tools


# ---- the agents --------------------------------------------------------------------------------


@dataclass
class Agent:
    """One agent: runs in a thread of its own; the view reads it while it runs."""

    workspace: Workspace
    streams: list[Any] = field(default_factory=list)  # of every model call, the latest last
    calling: str = ""  # the tool whose call is being written
    tool: str = ""  # the tool that runs now
    text: str = ""
    outcome: str = ""
    stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        return self.workspace.task.name

    def run(self, model: str | None, temperature: float) -> None:
        """Work until the agent says it is done, or a limit is reached."""
        llm = ChatOpenJet(
            model=model,
            temperature=temperature,
            max_tokens=MAX_TOKENS,
            client=self.name,
            watch=self.streams.append,
        )
        graph = create_agent(llm, self.workspace.tools(), system_prompt=SYSTEM_PROMPT)
        task = self.workspace.task
        request = f"{task.request} Put it into {task.file}. The tests are in {task.test_file}."
        try:
            for chunk, _ in graph.stream(
                {"messages": [("user", request)]},
                {"recursion_limit": 2 * TURNS + 1},
                stream_mode="messages",
            ):
                self._show(chunk)
                if self.stopped.is_set():
                    break
            self.outcome = "out of time" if self.stopped.is_set() else "finished"
        except GraphRecursionError:
            self.outcome = f"gave up after {TURNS} turns"
        except OpenJetError as error:
            self.outcome = f"failed: {error}"

    def stop(self) -> None:
        self.stopped.set()
        for stream in self.streams[-1:]:
            stream.cancel()

    def _show(self, message: Any) -> None:
        if isinstance(message, ToolMessage):
            self.tool, self.text = "", f"{message.name}: {message.text}"
        elif isinstance(message, AIMessageChunk):
            thought = str(message.additional_kwargs.get("reasoning_content", ""))
            for call in message.tool_call_chunks:
                self.calling = call["name"] or self.calling
                thought += call["args"] or ""
            self.text = (self.text + thought + str(message.text))[-400:]
            if message.chunk_position == "last":
                self.tool, self.calling = self.calling, ""

    @property
    def state(self) -> str:
        if self.outcome:
            return self.outcome
        if not self.streams:
            return "starting"
        if self.tool:
            return f"tool {self.tool}"
        stream = self.streams[-1]
        stats = stream.stats
        if not stats.generated:
            return f"reading the prompt, {100 * stats.prompt_read // stats.prompt_tokens} %"
        return "thinking" if stream.thinking else "writing"

    @property
    def context(self) -> int:
        """Tokens of its conversation so far."""
        stats = [stream.stats for stream in self.streams[-1:]]
        return sum(s.prompt_tokens + s.generated for s in stats)

    def total(self, counter: str) -> int:
        return sum(getattr(stream.stats, counter) for stream in self.streams)

    @property
    def tokens_per_second(self) -> float:
        """While it was decoding."""
        stats = [s.stats for s in self.streams if s.stats.first_token_s is not None]
        seconds = sum(s.total_s - s.first_token_s for s in stats)
        return sum(s.generated - 1 for s in stats) / seconds if seconds > 0 else 0.0


# ---- what is shown -----------------------------------------------------------------------------


def live_table(agents: list[Agent]) -> Table:
    table = Table(expand=True)
    for title, options in (
        ("agent", {"no_wrap": True}),
        ("state", {"no_wrap": True, "min_width": 24}),
        ("context", {"justify": "right"}),
        ("tokens/s", {"justify": "right"}),
        ("latest", {"no_wrap": True, "ratio": 1}),
    ):
        table.add_column(title, **options)  # type: ignore[arg-type]
    for agent in agents:
        latest = " ".join(agent.text.split())[-70:]
        speed = f"{agent.tokens_per_second:.0f}"
        table.add_row(agent.name, agent.state, str(agent.context), speed, latest, end_section=True)
    return table


@contextlib.contextmanager
def view(agents: list[Agent], console: Console, plain: bool) -> Iterator[Any]:
    """A function to call now and then: redraws the table, or prints a line for each new state."""
    if not plain:
        with Live(
            console=console, get_renderable=lambda: live_table(agents), auto_refresh=False
        ) as live:
            yield live.refresh
        return
    shown: dict[str, str] = {}

    def lines() -> None:
        for agent in agents:
            state = agent.state.partition(",")[0]
            if shown.get(agent.name) != state:
                shown[agent.name] = state
                print(f"{agent.name}: {state} ({agent.context} tokens of context)", flush=True)

    yield lines


def summary(agents: list[Agent], solved: list[bool], engine: Engine, seconds: float) -> Table:
    stats = engine.stats()
    table = Table(title=f"{engine.model_name}, {seconds:.1f} s")
    for title in ("task", "solved", "turns", "tokens", "tokens/s", "prompt tokens", "reused"):
        left = title in ("task", "solved")
        table.add_column(title, justify="left" if left else "right", no_wrap=True)
    for agent, ok in zip(agents, solved, strict=True):
        prompt, cached = agent.total("prompt_tokens"), agent.total("cached_tokens")
        table.add_row(
            agent.name,
            "yes" if ok else f"no ({agent.outcome})",
            str(len(agent.streams)),
            str(agent.total("generated")),
            f"{agent.tokens_per_second:.0f}",
            str(prompt),
            f"{100 * cached / prompt:.0f} %" if prompt else "-",
        )
    steps = max(stats.steps, 1)
    table.caption = (
        f"{sum(solved)} of {len(solved)} solved. {stats.rows / steps:.1f} rows per step;"
        f" {100 * stats.shared_steps / steps:.0f} % of {stats.steps} steps served several agents;"
        f" {stats.generated / max(seconds, 1e-9):.0f} tokens/s in all."
    )
    return table


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Four coding agents at once on one engine.")
    parser.add_argument("--model", default="openjet-tiny", help="a name or a GGUF file")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=100, help="stop the agents then")
    parser.add_argument("--plain", action="store_true", help="lines instead of a live table")
    options = parser.parse_args(arguments)
    console = Console() if sys.stdout.isatty() else Console(width=120)
    start = time.monotonic()
    with (
        Engine(options.model) as engine,
        tempfile.TemporaryDirectory(prefix="coding-crew-") as folder,
        ThreadPoolExecutor(len(TASKS)) as pool,
    ):
        agents = [Agent(Workspace(task, Path(folder) / task.name)) for task in TASKS]
        running = [pool.submit(agent.run, options.model, options.temperature) for agent in agents]
        with view(agents, console, options.plain or not console.is_terminal) as refresh:
            watch(running, agents, start + options.seconds, refresh)
        seconds = time.monotonic() - start
        solved = [agent.workspace.solved() for agent in agents]
        console.print(summary(agents, solved, engine, seconds))
    return 0 if 2 * sum(solved) >= len(solved) else 1


def watch(running: list[Future[None]], agents: list[Agent], deadline: float, refresh: Any) -> None:
    """Refresh the view until every agent has ended; past the deadline, end them."""
    left = set(running)
    while left:
        left = wait(left, timeout=0.15).not_done
        refresh()
        if time.monotonic() > deadline:
            for agent in agents:
                agent.stop()
    for future in running:
        future.result()


if __name__ == "__main__":
    sys.exit(main())
