"""What agents feel, measured on the engine itself: prompts alone and beside a decoding agent,
follow-ups on long contexts, and what the engine adds to a step."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.gpu import files
from bench.gpu.record import Notes
from bench.gpu.setup import PAGE, Setup
from tests.native.engine_driver import Driver, Request

DRAFT = 2
BEFORE = 16  # tokens that an agent has written when the long prompt comes
ROUNDS = 3  # of follow-ups


def text(length: int, seed: int, vocabulary: int) -> list[int]:
    """Tokens that no other seed's begin with."""
    return [(seed * 7919 + 31 * i + i * i % 17) % (vocabulary - 16) for i in range(length)]


class Watch:
    """Polls an engine and keeps when each request's tokens came."""

    def __init__(self, engine: Driver) -> None:
        self.engine = engine
        self.times: dict[int, list[float]] = {}

    def until(self, done: Callable[[], bool], limit: float = 600) -> None:
        end = time.monotonic() + limit
        while not done():
            if time.monotonic() > end:
                raise TimeoutError(f"the engine did not come that far in {limit} s")
            self.engine.poll(100)
            now = time.perf_counter()
            for id_, answer in self.engine.answers.items():
                seen = self.times.setdefault(id_, [])
                seen += [now] * (len(answer.tokens) - len(seen))

    def tokens(self, id_: int) -> int:
        return len(self.engine.answers[id_].tokens)

    def ended(self, id_: int) -> bool:
        return bool(self.engine.answers[id_].finish)


def longest_gap(times: list[float]) -> float:
    """Seconds; tokens of one step come together."""
    return max((b - a for a, b in itertools.pairwise(times)), default=0.0)


def open_engine(setup: Setup, path: Path, context: int) -> Driver:
    """Room for all agents' conversations of `context` positions."""
    agents = setup.sizes.agents
    return setup.engine(
        path,
        context=context,
        n_slots=agents,
        n_pages=(agents + 1) * -(-context // PAGE),
        n_snapshots=4 * agents,
        draft=DRAFT,
        draft_head_rows=setup.sizes.draft_head,
    )


def vocabulary(engine: Driver) -> int:
    info = engine.ffi.new("oj_model_info *")
    engine.lib.oj_model_get_info(engine.model, info)
    return int(info.n_vocab)


def prompts(setup: Setup, notes: Notes) -> None:
    """A long prompt alone, then beside an agent that decodes."""
    sizes = setup.sizes
    with open_engine(setup, files.large(setup), sizes.prompt + 256) as engine:
        size = vocabulary(engine)
        alone = engine.run(Request(text(sizes.prompt, 1, size), max_tokens=1))[0].stats
        read_alone = alone["first_token_us"] / 1e6
        notes["prompt alone"] = {
            "tokens": sizes.prompt,
            "seconds": round(read_alone, 3),
            "tokens/s": round(sizes.prompt / read_alone, 1),
        }
        undisturbed = decode_alone(engine, sizes.decode, size)
        notes["agent alone"] = undisturbed
        watch = Watch(engine)
        writer = engine.submit(Request(text(64, 3, size), max_tokens=sizes.prompt))
        watch.until(lambda: watch.tokens(writer) >= min(BEFORE, sizes.decode))
        start = time.perf_counter()
        reader = engine.submit(Request(text(sizes.prompt, 4, size), max_tokens=1))
        watch.until(lambda: watch.ended(reader))
        window = time.perf_counter() - start
        covered = not watch.ended(writer)
        engine.lib.oj_cancel(engine.engine, writer)
        engine.wait(writer)
        times = [at for at in watch.times[writer] if at >= start]
        beside = len(times) / window
        read = engine.answers[reader].stats["first_token_us"] / 1e6
        notes["agent beside the prompt"] = {
            "tokens/s": round(beside, 1),
            "kept": round(beside / undisturbed["tokens/s"], 3),
            "longest pause ms": round(1e3 * longest_gap([start, *times]), 1),
            "decoded all the time": covered,
        }
        notes["prompt beside the agent"] = {
            "seconds": round(read, 3),
            "times alone": round(read / read_alone, 3),
        }


def decode_alone(engine: Driver, tokens: int, size: int) -> dict[str, Any]:
    watch = Watch(engine)
    writer = engine.submit(Request(text(64, 2, size), max_tokens=tokens + 1))
    watch.until(lambda: watch.ended(writer))
    times = watch.times[writer]
    return {
        "tokens/s": round((len(times) - 1) / max(1e-9, times[-1] - times[0]), 1),
        "longest pause ms": round(1e3 * longest_gap(times), 1),
    }


def follow_ups(setup: Setup, notes: Notes) -> None:
    """First token of a short follow-up of all agents at once, each on a long context of its own."""
    sizes = setup.sizes
    room = sizes.context + (ROUNDS + 1) * (sizes.new + 8) + 64
    with open_engine(setup, files.large(setup), room) as engine:
        size = vocabulary(engine)
        histories = [text(sizes.context, 10 + agent, size) for agent in range(sizes.agents)]
        started = time.perf_counter()
        answers = engine.run(*[Request(history, max_tokens=4) for history in histories])
        notes["contexts read"] = {
            "tokens/s": round(sizes.agents * sizes.context / (time.perf_counter() - started), 1)
        }
        firsts: list[float] = []
        for turn in range(ROUNDS):
            for agent, answer in enumerate(answers):
                histories[agent] += [*answer.tokens, *text(sizes.new, 50 + turn, size)]
            answers = engine.run(*[Request(history, max_tokens=4) for history in histories])
            cached = min(answer.stats["cached_tokens"] for answer in answers)
            if cached < sizes.context - PAGE:
                raise RuntimeError(f"a follow-up had only {cached} tokens cached")
            firsts += [answer.stats["first_token_us"] / 1e3 for answer in answers]
            notes["first token ms"] = {
                "median": round(statistics.median(firsts), 2),
                "worst": round(max(firsts), 2),
                "follow-ups": len(firsts),
            }


def overhead(setup: Setup, notes: Notes) -> None:
    """The time of a step of decoding agents as the engine runs it: what lies between two steps."""
    sizes = setup.sizes
    most = 16 * sizes.decode  # more than anybody writes while the last one's prompt is read
    with open_engine(setup, files.large(setup), most + 128) as engine:
        size = vocabulary(engine)
        watch = Watch(engine)
        ids = [
            engine.submit(Request(text(64, 90 + agent, size), max_tokens=most))
            for agent in range(sizes.agents)
        ]

        def somebody(tokens: int) -> bool:
            return any(watch.tokens(id_) >= tokens or watch.ended(id_) for id_ in ids)

        watch.until(lambda: all(watch.tokens(id_) > 0 for id_ in ids))
        before, start = engine.stats(), time.perf_counter()
        end = max(watch.tokens(id_) for id_ in ids) + sizes.decode
        watch.until(lambda: somebody(end))
        after, seconds = engine.stats(), time.perf_counter() - start
        for id_ in ids:
            engine.lib.oj_cancel(engine.engine, id_)
        engine.wait(*ids)
        steps = max(1, after["steps"] - before["steps"])
        inside = (after["step_us"] - before["step_us"]) / steps / 1e3
        notes[f"{sizes.agents} agents"] = {
            "ms a step": round(1e3 * seconds / steps, 3),
            "ms in the backend": round(inside, 3),
            "rows a step": round((after["rows"] - before["rows"]) / steps, 2),
            "tokens/s": round((after["generated"] - before["generated"]) / seconds, 1),
        }
