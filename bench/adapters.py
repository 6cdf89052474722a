"""What the adapters cost: four agents through ChatOpenJet and LiteLLM beside none, in one process.

    python -m bench.adapters [-m openjet-tiny] [--agents 4] [--tokens 256] [--rounds 5] [--json OUT]

engine     what `openjet bench` measures: streams read in threads, no adapter ("short")
langchain  ChatOpenJet.stream in threads, ChatOpenJet.astream in tasks of one event loop
litellm    litellm.completion and acompletion, streamed, in threads and in tasks
busy       the engine again while a thread of this process runs pure Python without a pause, and
           while another *process* does: both take a core, only the first takes the interpreter's
           lock. What the lock costs is the difference between the two. One engine thread, so that
           there are cores enough for both on a machine with two.

Every round measures all in turn, with prompts of the same size that nobody has asked before. A
figure is tokens of all agents after their first / seconds from the first agent's first piece to
the last one's end; medians over the rounds, and each round's ratio to `engine`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shlex
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import litellm

import litellm_openjet
from langchain_openjet import ChatOpenJet
from openjet_provider import Engine
from openjet_provider.bench.measure import Asker, together
from openjet_provider.bench.prompts import Prompts, functions
from openjet_provider.bench.record import describe
from openjet_provider.bench.scenarios import POEM

CONTEXT = 256
SAMPLING = {"temperature": 0.7, "top_p": 0.95, "top_k": 20}
BURN = "i = 0\nwhile True: i += 1"


@dataclass(frozen=True)
class Seen:
    """One agent's answer: when its first piece came, when it ended, and its tokens."""

    first: float
    ended: float
    tokens: int


@dataclass
class Bench:
    model: str
    agents: int
    tokens: int
    engine: Engine
    prompts: Prompts

    def talks(self, key: str) -> list[tuple[int, str]]:
        """A seed and a prompt for each agent."""
        keys = [f"{key} {agent}" for agent in range(self.agents)]
        return [(self.prompts.seed(k), f"{self.prompts.code(k, CONTEXT)}\n{POEM}") for k in keys]

    # ---- without an adapter ----

    def plain(self, key: str) -> list[Seen]:
        asker = Asker(self.engine, SAMPLING["temperature"])

        def job(seed: int, text: str) -> Callable[[], Seen]:
            def run() -> Seen:
                messages = [{"role": "user", "content": text}]
                answer = asker.ask(messages, self.tokens, seed, str(seed))
                tokens = answer.usage.completion_tokens
                return Seen(answer.started + answer.first_s, answer.ended, tokens)

            return run

        return together([job(*talk) for talk in self.talks(key)])

    # ---- LangChain ----

    def _llm(self, seed: int) -> ChatOpenJet:
        return ChatOpenJet(
            model=self.model,
            max_tokens=self.tokens,
            seed=seed,
            reasoning=False,
            client=str(seed),
            model_kwargs={"ignore_eos": True},
            **SAMPLING,
        )

    def langchain_threads(self, key: str) -> list[Seen]:
        def job(seed: int, text: str) -> Callable[[], Seen]:
            llm = self._llm(seed)
            return lambda: watched(llm.stream(text), _langchain_usage)

        return together([job(*talk) for talk in self.talks(key)])

    def langchain_tasks(self, key: str) -> list[Seen]:
        streams = [self._llm(seed).astream(text) for seed, text in self.talks(key)]
        return asyncio.run(gathered(streams, _langchain_usage))

    # ---- LiteLLM ----

    def _call(self, seed: int, text: str) -> dict[str, Any]:
        return {
            "model": f"openjet/{self.model}",
            "messages": [{"role": "user", "content": text}],
            "max_tokens": self.tokens,
            "seed": seed,
            "stream": True,
            "stream_options": {"include_usage": True},
            "enable_thinking": False,
            "ignore_eos": True,
            **SAMPLING,
        }

    def litellm_threads(self, key: str) -> list[Seen]:
        def job(seed: int, text: str) -> Callable[[], Seen]:
            call = self._call(seed, text)
            return lambda: watched(litellm.completion(**call), _litellm_usage)

        return together([job(*talk) for talk in self.talks(key)])

    def litellm_tasks(self, key: str) -> list[Seen]:
        async def run() -> list[Seen]:
            calls = [litellm.acompletion(**self._call(*talk)) for talk in self.talks(key)]
            return await gathered(await asyncio.gather(*calls), _litellm_usage)

        return asyncio.run(run())


def _langchain_usage(chunk: Any) -> int:
    return int(chunk.usage_metadata["output_tokens"]) if chunk.usage_metadata else 0


def _litellm_usage(chunk: Any) -> int:
    usage = getattr(chunk, "usage", None)
    return int(usage.completion_tokens) if usage else 0


def watched(stream: Iterator[Any], usage: Callable[[Any], int]) -> Seen:
    first, tokens = 0.0, 0
    for chunk in stream:
        first = first or time.perf_counter()
        tokens = usage(chunk) or tokens
    return Seen(first, time.perf_counter(), tokens)


async def gathered(streams: list[AsyncIterator[Any]], usage: Callable[[Any], int]) -> list[Seen]:
    async def one(stream: AsyncIterator[Any]) -> Seen:
        first, tokens = 0.0, 0
        async for chunk in stream:
            first = first or time.perf_counter()
            tokens = usage(chunk) or tokens
        return Seen(first, time.perf_counter(), tokens)

    return await asyncio.gather(*[one(stream) for stream in streams])


def speed(seen: list[Seen]) -> float:
    begin, end = min(s.first for s in seen), max(s.ended for s in seen)
    return sum(s.tokens - 1 for s in seen) / (end - begin)


# ---- user code that is busy ----------------------------------------------------------------------


@contextlib.contextmanager
def busy_thread() -> Iterator[None]:
    """A thread of this process in pure Python: it wants the interpreter's lock all the time."""
    ended = threading.Event()

    def burn() -> None:
        i = 0
        while not ended.is_set():
            for _ in range(10_000):
                i += 1

    thread = threading.Thread(target=burn)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def busy_process() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", BURN])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def opened(options: argparse.Namespace, threads: int | None = None) -> tuple[Engine, Prompts]:
    engine = Engine(options.model, agents=options.agents, threads=threads)
    sample = "\n".join(functions("sample", 40))
    answer = Asker(engine, 0.0).ask([{"role": "user", "content": sample}], 8, 0, "warm-up")
    return engine, Prompts(options.seed, answer.usage.prompt_tokens / 40)


def adapters(options: argparse.Namespace) -> dict[str, list[float]]:
    """Tokens/s of each way by round."""
    engine, prompts = opened(options)
    with engine:
        bench = Bench(options.model, options.agents, options.tokens, engine, prompts)
        ways: dict[str, Callable[[str], list[Seen]]] = {
            "engine": bench.plain,
            "langchain, threads": bench.langchain_threads,
            "langchain, tasks": bench.langchain_tasks,
            "litellm, threads": bench.litellm_threads,
            "litellm, tasks": bench.litellm_tasks,
        }
        found: dict[str, list[float]] = {name: [] for name in ways}
        for round_ in range(-1, options.rounds):  # the first one warms everything up
            for name, way in ways.items():
                figure = speed(way(f"{name} {round_}"))
                if round_ >= 0:
                    found[name].append(figure)
    litellm_openjet.openjet_llm.close()
    return found


def busy(options: argparse.Namespace) -> dict[str, list[float]]:
    engine, prompts = opened(options, threads=1)
    with engine:
        bench = Bench(options.model, options.agents, options.tokens, engine, prompts)
        ways: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
            "engine, one thread": contextlib.nullcontext,
            "beside a busy process": busy_process,
            "beside busy Python": busy_thread,
        }
        found: dict[str, list[float]] = {name: [] for name in ways}
        for round_ in range(options.rounds):
            for name, company in ways.items():
                with company():
                    found[name].append(speed(bench.plain(f"{name} {round_}")))
    return found


def compared(found: dict[str, list[float]], against: str) -> dict[str, Any]:
    """Medians, and the median of each round's ratio to `against`."""
    base = found[against]
    return {
        name: {
            "tokens_per_second": [round(x, 1) for x in rounds],
            "median": round(statistics.median(rounds), 1),
            "ratio": round(statistics.median(a / b for a, b in zip(rounds, base, strict=True)), 3),
            "to": against,
        }
        for name, rounds in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-m", "--model", default="openjet-tiny")
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="OUT")
    options = parser.parse_args()
    found = describe() | {"command": shlex.join(["python", "-m", "bench.adapters", *sys.argv[1:]])}
    results = compared(adapters(options), "engine")
    lock = compared(busy(options), "beside a busy process")
    found |= {"results": results, "busy": lock, "load_after": os.getloadavg()[0]}
    for name, row in (results | lock).items():
        print(f"{name:24} {row['median']:8.1f} tokens/s  {row['ratio']:.3f} of {row['to']}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
