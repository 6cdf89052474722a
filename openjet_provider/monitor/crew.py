"""Agents to look at: a server in this process, and agents that work on small tasks through it."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openjet_provider.agents import Agent
from openjet_provider.engine import Engine
from openjet_provider.errors import InvalidRequestError
from openjet_provider.monitor.source import Sample, Source
from openjet_provider.remote import RemoteEngine
from openjet_provider.server.background import serving
from openjet_provider.tasks import TASKS, Workspace


@dataclass
class Crew:
    """Agents at work on the server at `url`."""

    url: str
    agents: list[Agent]
    _running: list[Future[None]]
    _started: float = field(default_factory=time.monotonic)

    @property
    def done(self) -> bool:
        """Whether every agent has ended."""
        return all(each.done() for each in self._running)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._started

    def stop(self) -> None:
        """End them at the next token."""
        for agent in self.agents:
            agent.stop()

    def report(self, sample: Sample) -> dict[str, Any]:
        """What came of it; to be called once `done`, with the statistics of the end."""
        results = [_result(agent) for agent in self.agents]
        return {
            "model": sample["model"],
            "backend": sample["backend"],
            "seconds": round(self.seconds, 3),
            "solved": sum(result["solved"] for result in results),
            "of": len(results),
            "tasks": results,
            "engine": sample["engine"],
        }


def _result(agent: Agent) -> dict[str, Any]:
    usage = [turn.usage for turn in agent.turns]
    return {
        "task": agent.name,
        "solved": agent.workspace.solved(),
        "outcome": agent.outcome,
        "turns": len(usage),
        "tokens": sum(each.completion_tokens for each in usage),
        "prompt_tokens": sum(each.prompt_tokens for each in usage),
        "cached_tokens": sum(each.cached_tokens for each in usage),
    }


def check_count(count: int) -> None:
    """Raise InvalidRequestError for a number of agents that there are no tasks for."""
    if not 1 <= count <= len(TASKS):
        raise InvalidRequestError(f"--run {count}: give 1 to {len(TASKS)} agents, one per task")


@contextlib.contextmanager
def working(model: str | None, count: int, **options: Any) -> Iterator[Crew]:
    """Start a server of `model` and `count` agents with a task each; end them at the exit."""
    check_count(count)
    with (
        Engine(model, agents=count, **options) as engine,
        serving(engine) as url,
        RemoteEngine(url) as attached,
        tempfile.TemporaryDirectory(prefix="openjet-crew-") as folder,
        ThreadPoolExecutor(count) as pool,
    ):
        spaces = [Workspace(task, Path(folder) / task.name) for task in TASKS[:count]]
        agents = [Agent(attached, space) for space in spaces]
        crew = Crew(url, agents, [pool.submit(agent.run) for agent in agents])
        try:
            yield crew
        finally:
            crew.stop()


def watch(crew: Crew, source: Source, seconds: float, show: Callable[[Sample], None]) -> Sample:
    """Show statistics until the agents have ended, or `seconds` have passed; the last ones."""
    while not crew.done:
        if crew.seconds > seconds:
            crew.stop()
        show(source.read())
        time.sleep(0.2)
    return source.read()
