"""What is measured. A scenario takes a round's number and adds samples to numbers with names."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openjet_provider.agents import Agent
from openjet_provider.bench.cores import CoreWaits
from openjet_provider.bench.measure import Answer, Asker, Messages, note, together
from openjet_provider.bench.prompts import Prompts
from openjet_provider.chat.types import Sampling
from openjet_provider.errors import EngineLost
from openjet_provider.tasks import SYSTEM_PROMPT, TASKS, Workspace

_FIRST_ANSWER = 16  # tokens of the answer before a follow-up
_ENOUGH = 16  # pieces that the agent beside a long prompt has written before it comes
_STALL_S = 2.0  # how long one waits for a piece after the long prompt was read

# Small models write text here and no calls, large ones do not end soon, and little of it is in the
# prompt: drafts get no help from the task.
POEM = "Write a long poem about this module."
FOLLOW_UP = "Write another long poem about it."


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """agents; tokens of a short and of a long context, and of an answer."""

    agents: int
    short: int
    context: int
    answer: int


class Numbers:
    """Samples by name of scenario and number."""

    def __init__(self) -> None:
        self._samples: dict[str, dict[str, tuple[str, list[float]]]] = {}

    def add(self, scenario: str, name: str, unit: str, *samples: float) -> None:
        if samples:
            numbers = self._samples.setdefault(scenario, {})
            numbers.setdefault(name, (unit, []))[1].extend(samples)

    def not_known(self, scenario: str, name: str, unit: str) -> None:
        """A number that this machine does not tell, unless another round has it."""
        self._samples.setdefault(scenario, {}).setdefault(name, (unit, []))

    def summary(self) -> dict[str, dict[str, Any]]:
        """Median and spread of each number, beside all samples; None where none is known."""
        return {
            scenario: {name: _summary(*number) for name, number in numbers.items()}
            for scenario, numbers in self._samples.items()
        }


def _summary(unit: str, samples: list[float]) -> dict[str, Any]:
    return {
        "unit": unit,
        "median": statistics.median(samples) if samples else None,
        "min": min(samples, default=None),
        "max": max(samples, default=None),
        "samples": samples,
    }


@dataclass
class Bench:
    """One run over its rounds."""

    asker: Asker
    prompts: Prompts
    sizes: Sizes
    numbers: Numbers = field(default_factory=Numbers)

    def one(self, round_: int) -> None:
        """One agent alone, short context."""
        key = f"one {round_}"
        answer = self._ask(key, self._poem(key, self.sizes.short))
        self._first("one", [answer])
        self._speeds("one", [answer])

    def short(self, round_: int) -> None:
        """All agents at once, a short context each."""
        keys = self._keys("short", round_)
        poems = [self._poem(key, self.sizes.short) for key in keys]
        answers = self._ask_all(keys, poems, self.sizes.answer)
        self._first("short", answers)
        self._speeds("short", answers)

    def long(self, round_: int) -> None:
        """All agents at once, a long context each; then a follow-up of each, all at once."""
        keys = self._keys("long", round_)
        talks = [self._poem(key, self.sizes.context) for key in keys]
        answers = self._ask_all(keys, talks, _FIRST_ANSWER)
        self._first("long", answers)
        self._read("long", answers)
        for talk, answer in zip(talks, answers, strict=True):
            talk.append({"role": "assistant", "content": answer.text})
            talk.append({"role": "user", "content": FOLLOW_UP})
        answers = self._ask_all(keys, talks, self.sizes.answer)
        self._first("follow_up", answers)
        self._cached("follow_up", answers)
        self._speeds("follow_up", answers)

    def beside(self, round_: int) -> None:
        """One agent writes while the long prompt of another is read."""
        key = f"beside {round_}"
        messages = self._poem(key, self.sizes.short)
        alone = self._ask(key, messages)
        writer = _Writer(self.asker, messages, self.prompts.seed(key), self.sizes.context)
        reader_key = f"beside {round_} reader"
        long_prompt = self._poem(reader_key, self.sizes.context)
        with writer:
            asked = time.perf_counter()
            reader = self._ask(reader_key, long_prompt, 2)
            first = asked + reader.first_s
            writer.wait_for_piece_after(first)
        if not (alone.visible and writer.answer.visible and reader.arrivals):
            self.numbers.add("beside", "answers without text", "", 1)
            return
        per_character = alone.usage.completion_tokens / max(alone.characters, 1)
        seen = writer.answer
        last = min(first, seen.ended)  # it may have come to its end before
        tokens = seen.characters_between(asked, last) * per_character
        add = self.numbers.add
        add("beside", "alone", "tokens/s", alone.decode_speed)
        add("beside", "beside the prompt", "tokens/s", tokens / max(last - asked, 1e-9))
        self._pauses("", "gaps", alone.gaps(), seen.gaps(asked, last))
        ordinary, steps = alone.step_gaps(), seen.step_gaps(asked, last)
        self._pauses("engine: ", "steps", ordinary, steps)
        share = "engine: pauses with its cores free"
        if steps and not seen.waits:
            self.numbers.not_known("beside", share, "%")
        elif steps:
            calm = seen.undisturbed(asked, last)
            add("beside", share, "%", 100 * len(calm) / len(steps))
            if calm:
                name = "engine: longest of them in ordinary steps"
                add("beside", name, "", max(calm) / statistics.median(ordinary))
        add("beside", "first token of the long prompt", "s", reader.first_s)
        add("beside", "covered", "%", 100 * (last - asked) / (first - asked))

    def _pauses(self, of: str, what: str, alone: list[float], beside: list[float]) -> None:
        """Pauses of the agent that writes, as it sees them and as its engine makes them."""
        if not alone:
            return
        ordinary = max(statistics.median(alone), 1e-9)
        beside = beside or [0.0]
        median = statistics.median(beside) / ordinary
        add = self.numbers.add
        add("beside", f"{of}ordinary pause", "s", ordinary)
        add("beside", f"{of}longest pause alone", "s", max(alone))
        add("beside", f"{of}longest pause beside", "s", max(beside))
        add("beside", f"{of}median pause in ordinary {what}", "", median)
        add("beside", f"{of}longest pause in ordinary {what}", "", max(beside) / ordinary)
        add("beside", f"{of}longest alone in ordinary {what}", "", max(alone) / ordinary)

    def shared(self, round_: int) -> None:
        """All agents at once, behind one long system prompt."""
        keys = self._keys("shared", round_)
        system = self.prompts.code(f"shared {round_}", self.sizes.context)
        talks: list[Messages] = [
            [
                {"role": "system", "content": system},
                {"role": "user", "content": self.prompts.code(key, 64) + "\n" + POEM},
            ]
            for key in keys
        ]
        answers = self._ask_all(keys, talks, self.sizes.answer)
        self._first("shared", answers)
        self._cached("shared", answers)
        self._speeds("shared", answers)

    def crew(self, round_: int) -> None:
        """Agents that write code, run its tests and go on, with the pauses that the tools take."""
        count = min(self.sizes.agents, len(TASKS))
        # New to the server but for the tools, which the chat format puts before it.
        system = f"Crew {self.prompts.seed(f'crew {round_}')}.\n{SYSTEM_PROMPT}"
        # After Ctrl-C a tool may still write there.
        with tempfile.TemporaryDirectory(
            prefix="openjet-bench-", ignore_cleanup_errors=True
        ) as folder:
            agents = [
                Agent(
                    self.asker.engine,
                    Workspace(task, Path(folder) / task.name),
                    sampling=Sampling(temperature=0.0),
                    system=system,
                )
                for task in TASKS[:count]
            ]
            start = time.perf_counter()
            together([agent.run for agent in agents])
            seconds = time.perf_counter() - start
            solved = sum(agent.workspace.solved() for agent in agents)
        if failed := [agent.outcome for agent in agents if agent.outcome.startswith("failed")]:
            raise EngineLost(f"an agent of the crew {failed[0]}")
        turns = [turn for agent in agents for turn in agent.turns]
        prompt = sum(turn.usage.prompt_tokens for turn in turns)
        cached = sum(turn.usage.cached_tokens for turn in turns)
        tokens = sum(turn.usage.completion_tokens for turn in turns)
        add = self.numbers.add
        add("crew", "all done", "s", seconds)
        add("crew", "total", "tokens/s", tokens / seconds)
        add("crew", "first token", "s", *(turn.first_s for turn in turns))
        add("crew", "cached", "%", 100 * cached / prompt)
        add("crew", "in tools", "s", *(agent.tool_seconds for agent in agents))
        add("crew", "solved", f"of {count}", solved)

    # ---- asking ----------------------------------------------------------------------------------

    def _keys(self, scenario: str, round_: int) -> list[str]:
        return [f"{scenario} {round_} {agent}" for agent in range(self.sizes.agents)]

    def _poem(self, key: str, tokens: int) -> Messages:
        return [{"role": "user", "content": self.prompts.code(key, tokens) + "\n" + POEM}]

    def _ask(self, key: str, messages: Messages, tokens: int | None = None) -> Answer:
        tokens = tokens or self.sizes.answer
        return self.asker.ask(messages, tokens, self.prompts.seed(key), key)

    def _ask_all(self, keys: Sequence[str], talks: list[Messages], tokens: int) -> list[Answer]:
        def job(key: str, talk: Messages) -> Callable[[], Answer]:
            return lambda: self._ask(key, talk, tokens)

        return together([job(key, talk) for key, talk in zip(keys, talks, strict=True)])

    # ---- numbers ---------------------------------------------------------------------------------

    def _first(self, scenario: str, answers: list[Answer]) -> None:
        seen = [answer for answer in answers if answer.arrivals]
        if len(seen) < len(answers):
            self.numbers.add(scenario, "answers without text", "", len(answers) - len(seen))
        self.numbers.add(scenario, "first token", "s", *(answer.first_s for answer in seen))
        prompts = (answer.usage.prompt_tokens for answer in answers)
        self.numbers.add(scenario, "prompt", "tokens", *prompts)

    def _speeds(self, scenario: str, answers: list[Answer]) -> None:
        speeds = [answer.decode_speed for answer in answers if answer.visible]
        self.numbers.add(scenario, "decode, each", "tokens/s", *speeds)
        if len(speeds) == len(answers) > 1:
            begin = min(answer.started + answer.first_s for answer in answers)
            end = max(answer.ended for answer in answers)
            tokens = sum(answer.usage.completion_tokens - 1 for answer in answers)
            self.numbers.add(scenario, "decode, all", "tokens/s", tokens / (end - begin))
        if drafted := sum(answer.drafted for answer in answers):
            accepted = sum(answer.accepted for answer in answers)
            self.numbers.add(scenario, "drafted", "tokens", drafted)
            self.numbers.add(scenario, "drafts accepted", "%", 100 * accepted / drafted)

    def _read(self, scenario: str, answers: list[Answer]) -> None:
        tokens = sum(a.usage.prompt_tokens - a.usage.cached_tokens for a in answers)
        begin = min(answer.started for answer in answers)
        last = max(answer.started + answer.first_s for answer in answers)
        self.numbers.add(scenario, "prompts read", "tokens/s", tokens / (last - begin))
        self._cached(scenario, answers)

    def _cached(self, scenario: str, answers: list[Answer]) -> None:
        cached = sum(answer.usage.cached_tokens for answer in answers)
        prompt = sum(answer.usage.prompt_tokens for answer in answers)
        self.numbers.add(scenario, "cached", "%", 100 * cached / max(prompt, 1))


class _Writer:
    """An agent that writes until the `with` block ends; entered once it is well under way."""

    def __init__(self, asker: Asker, messages: Messages, seed: int, tokens: int) -> None:
        self.answer = Answer(time.perf_counter())
        self._cores = CoreWaits()
        self._stream = asker.start(messages, tokens, seed, "writer")
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._receive, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: self._pieces() >= _ENOUGH or self.answer.ended)

    def __exit__(self, *_: object) -> None:
        self._stream.cancel()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def wait_for_piece_after(self, moment: float) -> None:
        """So that a pause that still goes on is seen to its end, within a bound."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.answer.ended or self.answer.arrivals[-1][0] > moment, _STALL_S
            )

    def _pieces(self) -> int:
        return len(self.answer.arrivals)

    def _receive(self) -> None:
        try:
            for delta in self._stream:
                with self._changed:
                    note(self.answer, delta)
                    waits = self._cores.seconds()
                    if waits is not None:
                        self.answer.waits.append((time.perf_counter(), waits))
                    self._changed.notify_all()
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self.answer.ended = time.perf_counter()
                self.answer.take_steps(self._stream.token_times)
                self._changed.notify_all()


SCENARIOS: dict[str, Callable[[Bench, int], None]] = {
    "one": Bench.one,
    "short": Bench.short,
    "long": Bench.long,
    "beside": Bench.beside,
    "shared": Bench.shared,
    "crew": Bench.crew,
}
