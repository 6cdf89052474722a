"""A turn being received: what engines in this process and on a server have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from openjet_provider.chat.types import ChatDelta, ChatResult
from openjet_provider.errors import InvalidRequestError
from openjet_provider.generation import Inbox, RequestStats

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class TurnStream(ABC, Generic[T]):
    """Iterate it for deltas, in a thread or a task, or take the result.

    One consumer; `cancel` from any thread. Leaving the `with` block or the iteration early cancels.
    """

    def __init__(self, inbox: Inbox[T], conversation: str) -> None:
        """conversation: the same for every turn of one conversation."""
        self.conversation = conversation
        #: Seconds between what a task is given: what comes closer is given together.
        self.interval = 0.0
        self._inbox = inbox
        self._result: ChatResult | None = None

    @abstractmethod
    def _deltas(self, items: Sequence[T]) -> Iterable[ChatDelta]:
        """What these items add; none at all are the end, at which `_result` is to be set. Each is
        made when it is asked for: until then the state is that of the one before."""

    @property
    @abstractmethod
    def thinking(self) -> bool:
        """Whether the last delta ended inside the model's thinking."""

    @property
    def token_times(self) -> Sequence[float]:
        """When the engine had each token, by time.perf_counter(); empty where it does not tell."""
        return ()

    @property
    def stats(self) -> RequestStats:
        """Counts and times so far."""
        return self._inbox.stats

    def cancel(self) -> None:
        """End the turn at the next step; what came so far stays. Idempotent."""
        self._inbox.cancel()

    def __iter__(self) -> Iterator[ChatDelta]:
        try:
            while self._result is None:
                yield from self._deltas(self._inbox.take())
        finally:
            self.cancel()

    async def __aiter__(self) -> AsyncIterator[ChatDelta]:
        try:
            while self._result is None:
                for delta in self._deltas(await self._inbox.atake(self.interval)):
                    yield delta
        finally:
            self.cancel()

    def result(self) -> ChatResult:
        """Wait for the end and return the whole turn."""
        for _ in self:
            pass
        return self._finished()

    async def aresult(self) -> ChatResult:
        """`result` without blocking the event loop."""
        async for _ in self:
            pass
        return self._finished()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    def _finished(self) -> ChatResult:
        if self._result is None:
            raise InvalidRequestError("the stream was left before its end; take result() instead")
        return self._result
