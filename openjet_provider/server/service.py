"""The engine as endpoints use it: monitored, counted and bounded turns. Event loop only."""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from openjet_provider._core import EngineStats
from openjet_provider.chat.prompt import Prompt
from openjet_provider.chat.types import ChatDelta, ChatRequest, ChatResult
from openjet_provider.engine import COUNTED_CONTEXTS
from openjet_provider.errors import EngineLost, OpenJetError
from openjet_provider.generation import RequestStats
from openjet_provider.gpu import Gpus
from openjet_provider.server.errors import ApiError, unavailable
from openjet_provider.server.metrics import Metrics
from openjet_provider.server.monitor import Conversation, Monitor, task_line
from openjet_provider.server.settings import Settings
from openjet_provider.server.slot_table import Slots
from openjet_provider.server.text import prompt_tokens, start_text

if TYPE_CHECKING:
    from openjet_provider.chat.session import ChatStream
    from openjet_provider.engine import Engine
    from openjet_provider.server.text import TextStream

    Stream = ChatStream | TextStream


class Turn:
    """A stream that the monitor sees. Iterate it to its end for `result`; leaving cancels it."""

    def __init__(self, service: Service, stream: Stream, endpoint: str, seen: Conversation) -> None:
        self._service = service
        self.stream = stream
        self._endpoint = endpoint
        self._seen = seen
        self._stopped: ApiError | None = None
        self._ended = False
        self.result: ChatResult | None = None

    @property
    def stats(self) -> RequestStats:
        """Counts and times so far."""
        return self.stream.stats

    async def deltas(self) -> AsyncIterator[ChatDelta]:
        """What is generated, as it comes; raises what ends the turn early."""
        outcome = "disconnected"
        try:
            async for delta in self.stream:
                self._seen.observe(delta)
                yield delta
            if self._stopped is not None:
                raise self._stopped
            self.result = await self.stream.aresult()
            outcome = self.result.finish_reason
        except (OpenJetError, ApiError) as error:
            outcome = type(error).__name__
            if isinstance(error, EngineLost):
                self._service.lose()
            raise
        finally:
            self._end(outcome)

    async def finish(self) -> ChatResult:
        """Wait for the whole turn."""
        async for _ in self.deltas():
            pass
        assert self.result is not None
        return self.result

    def stop(self, error: ApiError) -> None:
        """End the turn with this error at the next step."""
        self._stopped = error
        self.stream.cancel()

    def abandon(self) -> None:
        """End a turn whose client has gone. Idempotent."""
        self._end("disconnected")

    def _end(self, outcome: str) -> None:
        if not self._ended:
            self._ended = True
            self.stream.cancel()
            self._service.ended(self, self._endpoint, self._seen, outcome)


class Service:
    """What all endpoints share: one engine, its monitor and its metrics.

    lost: called once, when the engine has failed for good.
    """

    def __init__(
        self,
        settings: Settings,
        engine: Engine | None = None,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.loaded = engine
        self.monitor = Monitor()
        self.metrics = Metrics(self.engine_stats)
        self.gpus = Gpus()
        self.slots = Slots()
        self.started = time.time()
        self._since = time.monotonic()
        self.draining = False
        self._lost: Callable[[], None] | None = lost
        self._turns: set[Turn] = set()

    @property
    def engine(self) -> Engine:
        """Raises ApiError while the model is loading or the server stops."""
        if self.draining:
            raise unavailable("the server is shutting down", "shutting_down")
        if self.loaded is None:
            raise unavailable("the model is still loading; try again", "loading")
        return self.loaded

    @property
    def uptime_s(self) -> float:
        """Seconds since the start, whatever happens to the clock."""
        return time.monotonic() - self._since

    def engine_stats(self) -> EngineStats | None:
        """Counters of the engine; None while there is none."""
        try:
            return None if self.loaded is None else self.loaded.stats()
        except OpenJetError:
            return None

    def check_model(self, name: str | None) -> str:
        """The served model's name. Raises ApiError (404) if `name` is another one's."""
        served = self.engine.model_name
        patterns = (served, f"openjet/{served}", *self.settings.aliases)
        if name and not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            asked = name if len(name) <= 200 else f"{name[:200]}..."
            raise ApiError(
                404,
                f"The model '{asked}' does not exist: this server serves '{served}'. Ask for that"
                f" name, or start the server with --alias '{asked}'",
                param="model",
                code="model_not_found",
            )
        return served

    async def prompt(self, request: ChatRequest) -> Prompt:
        """The prompt that a chat would have. Raises InvalidRequestError."""
        return await asyncio.to_thread(self.engine.format.prompt, self._as_told(request))

    async def chat(self, request: ChatRequest, endpoint: str) -> Turn:
        """Start a turn. Raises what can be known before anything is generated."""
        request = replace(self._as_told(request), timeout=self.bounded(request.timeout))
        with self._lost_noticed():
            stream = await self.engine.achat(request)
        return self._turn(stream, endpoint, request.client, task_line(request.messages))

    async def complete(
        self,
        prompt: str | Sequence[int],
        options: ChatRequest,
        stop_tokens: Sequence[int],
        endpoint: str,
    ) -> Turn:
        """Start a continuation of text or token ids; `options` are a request without messages."""
        engine = self.engine
        options = replace(options, timeout=self.bounded(options.timeout))
        most = COUNTED_CONTEXTS * engine.context
        tokens = await asyncio.to_thread(prompt_tokens, engine.format.tokenizer, prompt, most)
        with self._lost_noticed():
            stream = start_text(engine, tokens, options, stop_tokens)
        task = prompt[:80] if isinstance(prompt, str) else f"{len(prompt)} tokens"
        return self._turn(stream, endpoint, options.client, task)

    def _as_told(self, request: ChatRequest) -> ChatRequest:
        """With what the operator decides about prompts."""
        return replace(request, keep_billing_header=self.settings.keep_billing_header)

    def _turn(self, stream: Stream, endpoint: str, client: str | None, task: str) -> Turn:
        """A started stream, under the monitor's eyes from now on."""
        stream.interval = self.settings.interval
        seen = self.monitor.begin(stream.conversation, client, task, lambda: stream.stats)
        turn = Turn(self, stream, endpoint, seen)
        assert self.loaded is not None
        self.slots.begin(stream, self.loaded.agents)
        self._turns.add(turn)
        return turn

    def ended(self, turn: Turn, endpoint: str, seen: Conversation, outcome: str) -> None:
        """A turn is over, whatever ended it."""
        self._turns.discard(turn)
        self.slots.end(turn.stream)
        stats = turn.stats
        if turn.result is not None:  # the engine may have gone on behind a stop string
            stats = replace(stats, generated=turn.result.usage.completion_tokens)
        seen.end(outcome, stats)
        self.metrics.finished(endpoint, outcome, stats)

    def bounded(self, timeout: float | None) -> float:
        """The seconds a request may run."""
        longest = self.settings.request_timeout
        return longest if timeout is None else min(timeout, longest)

    async def drain(self) -> None:
        """Take no more requests; let the running ones end, or end them after `settings.drain`."""
        self.draining = True
        deadline = time.monotonic() + self.settings.drain
        while self._turns and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        for turn in list(self._turns):
            turn.stop(unavailable("the server is shutting down", "shutting_down"))

    def lose(self) -> None:
        """The engine has failed for good."""
        lost, self._lost = self._lost, None
        if lost is not None:
            lost()

    @contextlib.contextmanager
    def _lost_noticed(self) -> Iterator[None]:
        try:
            yield
        except EngineLost:
            self.lose()
            raise


def client_name(
    headers: Mapping[str, str],
    user: str | None,
    metadata: Mapping[str, Any] | None,
    key: str | None,
) -> str | None:
    """Who asks: the header, the body's `user`, its `metadata.user_id`, the key; None leaves it to
    the conversation. Cleaned, because it is shown on terminals and sent to the engine."""
    named = (headers.get("x-openjet-client"), user, (metadata or {}).get("user_id"), key)
    for name in named:
        if isinstance(name, str) and (text := _printable(name)):
            return text
    return None


def _printable(name: str) -> str:
    clean = name.encode("utf-8", "replace").decode()
    return "".join(char for char in clean if char.isprintable())[:64]
