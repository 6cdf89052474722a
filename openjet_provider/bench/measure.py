"""One request as its client sees it, and several at once."""

from __future__ import annotations

import itertools
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any, NoReturn, TypeVar

from openjet_provider.agents import ChatEngine
from openjet_provider.chat.stream import TurnStream
from openjet_provider.chat.types import ChatDelta, ChatRequest, Sampling, Usage
from openjet_provider.errors import BackendUnavailableError

T = TypeVar("T")

TIMEOUT_S = 3600.0
_START_S = 60.0  # for all threads to be there
_ONE_STEP_S = 5e-5  # tokens that are closer are of one step
_DISTURBED = 0.05  # of a pause, spent waiting for cores
Messages = list[dict[str, Any]]


@dataclass
class Answer:
    """Times are of time.perf_counter(). `arrivals`: when a piece of the answer came, and its
    characters. `steps`: when the engine had a token or several, if it tells. `waits`: now and
    then, how long its threads had waited for cores by then; none where that is not known."""

    started: float
    ended: float = 0.0
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    text: str = ""
    drafted: int = 0
    accepted: int = 0
    steps: list[float] = field(default_factory=list)
    waits: list[tuple[float, float]] = field(default_factory=list)

    @property
    def first_s(self) -> float:
        """Seconds from sending the request to the first piece."""
        return (self.arrivals[0][0] if self.arrivals else self.ended) - self.started

    @property
    def decode_s(self) -> float:
        """Seconds from the first piece to the end."""
        return self.ended - self.started - self.first_s

    @property
    def decode_speed(self) -> float:
        """Tokens per second after the first piece."""
        return (self.usage.completion_tokens - 1) / max(self.decode_s, 1e-9)

    @property
    def visible(self) -> bool:
        """Whether it came in pieces of text, between which there are times."""
        return len(self.arrivals) > 1

    @property
    def characters(self) -> int:
        return sum(size for _, size in self.arrivals)

    def gaps(self, since: float = 0.0, until: float = float("inf")) -> list[float]:
        """Seconds between pieces, of those that touch the window."""
        return _gaps([at for at, _ in self.arrivals], since, until)

    def step_gaps(self, since: float = 0.0, until: float = float("inf")) -> list[float]:
        """The same between steps of the engine, whenever their tokens came."""
        return _gaps(self.steps, since, until)

    def undisturbed(self, since: float = 0.0, until: float = float("inf")) -> list[float]:
        """Those of step_gaps() for which the engine had its cores: around them its threads waited
        for less than a twentieth of it."""
        at = [moment for moment, _ in self.waits]
        found = []
        for a, b in itertools.pairwise(self.steps):
            before, after = bisect_right(at, a) - 1, bisect_left(at, b)
            if b <= since or a >= until or before < 0 or after == len(at):
                continue
            if self.waits[after][1] - self.waits[before][1] < _DISTURBED * (b - a):
                found.append(b - a)
        return found

    def take_steps(self, token_times: Sequence[float]) -> None:
        """Tokens of one step are taken for one."""
        for at in token_times:
            if not self.steps or at - self.steps[-1] > _ONE_STEP_S:
                self.steps.append(at)

    def characters_between(self, since: float, until: float) -> int:
        return sum(size for at, size in self.arrivals if since < at <= until)


@dataclass(frozen=True)
class Asker:
    """Sends the requests of a run: answers of a fixed length, no thinking, seeded sampling."""

    engine: ChatEngine
    temperature: float

    def ask(self, messages: Messages, tokens: int, seed: int, client: str) -> Answer:
        """One answer of `tokens` tokens."""
        answer = Answer(time.perf_counter())
        self._receive(answer, self.start(messages, tokens, seed, client))
        return answer

    def start(self, messages: Messages, tokens: int, seed: int, client: str) -> TurnStream[Any]:
        """A request that was sent."""
        sampling = Sampling(temperature=self.temperature, top_p=0.95, top_k=20, seed=seed)
        return self.engine.chat(
            ChatRequest(
                messages=messages,
                sampling=sampling,
                max_tokens=tokens,
                ignore_eos=True,
                chat_template_kwargs={"enable_thinking": False},
                timeout=TIMEOUT_S,
                client=client,
            )
        )

    def _receive(self, answer: Answer, stream: TurnStream[Any]) -> None:
        for delta in stream:
            note(answer, delta)
        answer.ended = time.perf_counter()
        answer.take_steps(stream.token_times)
        result, stats = stream.result(), stream.stats
        if not result.usage.completion_tokens:
            raise BackendUnavailableError(
                "the server does not report token counts (`usage` in its stream), without which no"
                " speed can be told"
            )
        answer.usage, answer.text = result.usage, result.content or ""
        answer.drafted, answer.accepted = sum(stats.drafted), sum(stats.accepted)


def _gaps(times: Sequence[float], since: float, until: float) -> list[float]:
    return [b - a for a, b in itertools.pairwise(times) if b > since and a < until]


def note(answer: Answer, delta: ChatDelta) -> None:
    """A piece has come."""
    text = delta.reasoning + delta.content
    size = len(text) + sum(len(piece.arguments) for piece in delta.tool_calls)
    if size:
        answer.arrivals.append((time.perf_counter(), size))


def together(jobs: Sequence[Callable[[], T]]) -> list[T]:
    """Run each in a thread of its own, all starting at once; their results, or the first error.

    Nobody waits for the others after an error or Ctrl-C: they end with their engine.
    """
    barrier = threading.Barrier(len(jobs))
    ended: SimpleQueue[tuple[int, Callable[[], T]]] = SimpleQueue()

    def start(index: int, job: Callable[[], T]) -> None:
        try:
            barrier.wait(_START_S)
            value = job()
            ended.put((index, lambda: value))
        except BaseException as error:
            ended.put((index, partial(_raise, error)))

    for index, job in enumerate(jobs):
        threading.Thread(target=start, args=(index, job), daemon=True).start()
    outcomes = (ended.get() for _ in jobs)
    found = {index: outcome() for index, outcome in outcomes}
    return [found[index] for index in range(len(jobs))]


def _raise(error: BaseException) -> NoReturn:
    raise error
