"""Prompt reuse in a replayed trace of agents: tool calls over many turns, a shared system prompt,
thinking that the template drops later, a sub-agent in between. On the scripted backend."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.native.engine_driver import Driver, Request, Rule
from tests.native.steps import SCRIPTED

START, END, THINK, UNTHINK = 500, 501, 502, 503
USER, TOOL, ASSISTANT = 504, 505, 506
REPLY = [*range(60), UNTHINK, *range(100, 140), END]


class Agent:
    """A conversation that is rendered to tokens as a chat template does."""

    def __init__(self, system: list[int], seed: int) -> None:
        self.random = random.Random(seed)
        self.system = system
        self.messages: list[tuple[int, list[int]]] = []

    def text(self, n: int) -> list[int]:
        return [self.random.randrange(400) for _ in range(n)]

    def add(self, role: int, content: list[int]) -> None:
        self.messages.append((role, content))

    def prompt(self) -> tuple[list[int], list[int]]:
        """Tokens and boundaries; thinking is kept only after the last user message."""
        tokens = list(self.system)
        boundaries = [len(tokens)]
        last_user = max(i for i, (role, _) in enumerate(self.messages) if role == USER)
        for i, (role, content) in enumerate(self.messages):
            if role == ASSISTANT and i < last_user:
                content = content[content.index(UNTHINK) + 1 :]
            elif role == ASSISTANT:
                content = [THINK, *content]
            tokens += [START, role, *content] + ([] if role == ASSISTANT else [END])
            boundaries.append(len(tokens))
        return [*tokens, START, ASSISTANT, THINK], boundaries


class Meter:
    """Reusable and reused prompt tokens, from token ids and from what the engine read."""

    def __init__(self, engine: Driver) -> None:
        self.engine = engine
        self.seen: list[list[int]] = []
        self.reusable = self.reused = 0

    def turn(self, agents: list[Agent]) -> None:
        asked = []
        for agent in agents:
            tokens, boundaries = agent.prompt()
            request = Request(tokens, max_tokens=200, boundaries=boundaries, ignore_eos=False)
            asked.append((agent, tokens, self.engine.submit(request)))
        new = []
        for agent, tokens, id_ in asked:
            answer = self.engine.wait(id_)[0]
            self.reusable += max((common(tokens, old) for old in self.seen + new), default=0)
            self.reused += answer.stats["cached_tokens"]
            agent.add(ASSISTANT, answer.tokens)
            new.append(tokens + answer.tokens)
        self.seen += new


def common(a: list[int], b: list[int]) -> int:
    n = min(len(a), len(b))
    return next((i for i in range(n) if a[i] != b[i]), n)


def test_agents_reuse_what_they_have_in_common(library: Any, micro_model: Path) -> None:
    """At least 95 % of the reusable prompt tokens are no rows of a forward."""
    system = Agent([], 0).text(3000)
    agents = [Agent(system, seed) for seed in range(1, 5)]
    helper = Agent(Agent([], 9).text(800), 10)
    with Driver(
        library,
        micro_model,
        kind=SCRIPTED,
        script=[Rule([], REPLY[:-1], per_step=3)],
        draft=4,
        context=16384,
        n_pages=1024,
        n_snapshots=24,
        max_rows=512,
    ) as engine:
        meter = Meter(engine)
        for turn in range(10):
            for agent in agents:
                role = USER if turn in (0, 5) else TOOL
                agent.add(role, agent.text(agent.random.randrange(50, 300)))
            meter.turn(agents)
            if turn == 3:  # a sub-agent works while its parent waits
                helper.add(USER, helper.text(100))
                for _ in range(3):
                    meter.turn([helper])
                    helper.add(TOOL, helper.text(100))
        first = 4 * len(agents[0].prompt()[0])
        assert meter.reusable > 5 * first, "the trace has much to reuse"
        assert 0.95 * meter.reusable <= meter.reused <= meter.reusable
        stats = engine.stats()
        read = sum(len(a.prompt()[0]) for a in agents)
        assert stats["prompt_rows"] < 2 * read + 4 * 3000


def test_a_shared_prompt_is_read_once(library: Any, micro_model: Path) -> None:
    """By agents that ask for it at the same time, and stored once."""
    system = Agent([], 0).text(2000)
    with Driver(
        library, micro_model, kind=SCRIPTED, context=4096, n_pages=200, max_rows=128
    ) as engine:
        requests = [
            Request([*system, *Agent([], seed).text(30)], boundaries=[2000], max_tokens=1)
            for seed in range(1, 5)
        ]
        engine.run(*requests)
        stats = engine.stats()
        assert stats["rows"] <= 2000 + 4 * 31 + 128
        assert stats["pages_cached"] <= 2000 // 64 + 4 * 3 + 1
