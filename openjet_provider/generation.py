"""One request's tokens as the engine makes them, for threads and for asyncio tasks."""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

from openjet_provider.errors import (
    ConstraintError,
    EngineClosedError,
    EngineLost,
    RequestTimeoutError,
)

T = TypeVar("T")

Finish = Literal["stop", "stop_string", "length", "cancelled", "deadline", "error", "constraint"]


# By source (MTP head, prompt lookup) and place in the step's block of drafts.
DraftCounts = tuple[tuple[int, ...], tuple[int, ...]]


class Token(NamedTuple):
    """A generated token.

    keep: leading bytes of its text that belong to the output, -1 for all (a stop string cut it).
    logprob: natural log, before temperature and filters; top: the likeliest alternatives.
    at_s: seconds from submission until the engine had it.
    """

    id: int
    keep: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    at_s: float = 0.0


@dataclass(frozen=True)
class RequestStats:
    """A request so far; times in seconds from submission, None before they happened.

    prompt_read counts prompt tokens done, cached ones included. drafted_at counts drafts that were
    verified by source and place in the block, accepted_at those that were right with all before.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    prompt_read: int = 0
    generated: int = 0
    drafted_at: DraftCounts = ((), ())
    accepted_at: DraftCounts = ((), ())
    queued_s: float = 0.0
    first_token_s: float | None = None
    total_s: float = 0.0

    @property
    def drafted(self) -> tuple[int, int]:
        """Drafts verified, by source: (MTP head, prompt lookup)."""
        return sum(self.drafted_at[0]), sum(self.drafted_at[1])

    @property
    def accepted(self) -> tuple[int, int]:
        """Drafts accepted, by source."""
        return sum(self.accepted_at[0]), sum(self.accepted_at[1])

    @property
    def tokens_per_second(self) -> float:
        """Decode speed: tokens after the first, over the time since it."""
        if self.first_token_s is None or self.generated < 2:
            return 0.0
        return (self.generated - 1) / max(self.total_s - self.first_token_s, 1e-9)


class Waiter(NamedTuple):
    """A task that waits for its request; cancel: of the request, if the task's loop is closed."""

    loop: asyncio.AbstractEventLoop
    woken: asyncio.Future[None]
    cancel: Callable[[], None]


def wake(waiters: Iterable[Waiter]) -> None:
    """Wake tasks from another thread, all of a loop at once: loops run once a step, not once for
    each of its requests."""
    loops: dict[asyncio.AbstractEventLoop, list[Waiter]] = {}
    for waiter in waiters:
        loops.setdefault(waiter.loop, []).append(waiter)
    for loop, its in loops.items():
        try:
            loop.call_soon_threadsafe(_wake, its)
        except RuntimeError:  # the loop was closed: nobody will ever take these
            for waiter in its:
                waiter.cancel()


def _wake(waiters: Iterable[Waiter]) -> None:
    for waiter in waiters:
        if not waiter.woken.done():
            waiter.woken.set_result(None)


class Inbox(Generic[T]):
    """What arrives for one request, put in by another thread. One consumer at a time, a thread or a
    task; `cancel` from any.

    `take()` and `atake()` wait for more and return an empty list at the end; they raise what
    `deliver` was given as an error, RequestTimeoutError past the request's deadline, EngineLost
    when the backend failed and EngineClosedError in a forked child.
    """

    def __init__(self, prompt_tokens: int, cancel: Callable[[], None]) -> None:
        self.stats = RequestStats(prompt_tokens=prompt_tokens)
        self.finish: Finish | None = None
        self._cancel = cancel
        self._cancelled = False
        self._items: list[T] = []
        self._error: Exception | None = None
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._waiter: Waiter | None = None
        self._taken_at = -math.inf

    def cancel(self) -> None:
        """End the request at the next step. Does nothing once it has ended or been cancelled."""
        if self.finish is None and not self._cancelled:
            self._cancelled = True
            self._cancel()

    def take(self) -> list[T]:
        """Wait for more (blocking)."""
        self._check_process()
        with self._changed:
            while not self._ready():
                self._changed.wait()
        return self._drain()

    async def atake(self, interval: float = 0.0) -> list[T]:
        """Wait for more without blocking the event loop. interval: seconds for which to collect
        what comes sooner than half of it after the last time."""
        self._check_process()
        loop = asyncio.get_running_loop()
        while True:
            with self._changed:
                if self._ready():
                    break
                woken: asyncio.Future[None] = loop.create_future()
                self._waiter = Waiter(loop, woken, self.cancel)
            await woken
        early = self._taken_at + interval - loop.time()
        if early > interval / 2 and self.finish is None:
            await asyncio.sleep(early)
        self._taken_at = loop.time()
        return self._drain()

    def _check_process(self) -> None:
        if self._pid != os.getpid():  # nothing arrives here any more
            raise EngineClosedError(
                f"this request belongs to process {self._pid}, from which this one was forked"
            )

    def _ready(self) -> bool:
        return bool(self._items) or self.finish is not None

    def _drain(self) -> list[T]:
        with self._changed:
            items, self._items = self._items, []
            finish = self.finish
        if items:
            return items
        if self._error is not None:
            raise self._error
        if finish == "deadline":
            raise RequestTimeoutError(
                f"the request's timeout passed after {self.stats.total_s:.1f} s and"
                f" {self.stats.generated} tokens; raise timeout= or lower max_tokens="
            )
        if finish == "constraint":
            raise ConstraintError("the masks of the constrained output did not come in time")
        if finish == "error":
            raise EngineLost("the backend failed; restart this process to go on")
        return []

    def deliver(
        self,
        items: list[T],
        stats: RequestStats,
        finish: Finish | None,
        error: Exception | None = None,
    ) -> list[Waiter]:
        """Called by the thread that receives; whom it is to `wake`."""
        with self._changed:
            self._items += items
            self.stats = stats
            self.finish, self._error = finish, error
            if not self._ready():
                return []
            self._changed.notify_all()
            waiter, self._waiter = self._waiter, None
        return [] if waiter is None else [waiter]


class Generation(Inbox[Token]):
    """The tokens of one request, as the core's pump thread receives them.

    conversation: the prompt's tokens and those generated so far. times: of each generated one, when
    the engine had it, by time.perf_counter().
    """

    def __init__(self, prompt: Sequence[int], cancel: Callable[[], None]) -> None:
        super().__init__(len(prompt), cancel)
        self.conversation = array("i", prompt)
        self.times = array("d")
        self._submitted = time.perf_counter()

    def deliver(
        self,
        items: list[Token],
        stats: RequestStats,
        finish: Finish | None,
        error: Exception | None = None,
    ) -> list[Waiter]:
        """Called by the thread that receives; whom it is to `wake`."""
        self.conversation.extend([token.id for token in items])
        self.times.extend([self._submitted + token.at_s for token in items])
        return super().deliver(items, stats, finish, error)
