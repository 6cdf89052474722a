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
from langchain_core.tools import StructuredTool
from langgraph.errors import GraphRecursionError
from rich.console import Console
from rich.live import Live
from rich.table import Table

from openjet_provider import ChatOpenJet, Engine, OpenJetError
from openjet_provider.tasks import SYSTEM_PROMPT, TASKS, Workspace

TURNS = 8  # model calls of one agent at most
MAX_TOKENS = 1024  # of one model call
CREW = TASKS[:4]


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
        tools = [StructuredTool.from_function(each) for each in self.workspace.tools]
        graph = create_agent(llm, tools, system_prompt=SYSTEM_PROMPT)
        try:
            for chunk, _ in graph.stream(
                {"messages": [("user", self.workspace.task.request)]},
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
        ThreadPoolExecutor(len(CREW)) as pool,
    ):
        agents = [Agent(Workspace(task, Path(folder) / task.name)) for task in CREW]
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
