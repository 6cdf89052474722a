"""The engine's answers as LiteLLM's responses and stream chunks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from litellm.types.utils import (
    ChatCompletionMessageToolCall,
    ChatCompletionTokenLogprob,
    Choices,
    CompletionTokensDetailsWrapper,
    Delta,
    Function,
    Message,
    ModelResponse,
    ModelResponseStream,
    PromptTokensDetailsWrapper,
    StreamingChoices,
    Usage,
)
from litellm.types.utils import ChoiceLogprobs as Logprobs

from litellm_openjet.errors import litellm_errors
from openjet_provider.chat.types import (
    ChatDelta,
    ChatResult,
    FinishReason,
    TokenLogprob,
    ToolCallDelta,
)
from openjet_provider.chat.types import Usage as TokenCounts

if TYPE_CHECKING:
    from openjet_provider.chat.stream import TurnStream

# LiteLLM spends much time on every chunk: what arrives within this time, up to this many deltas,
# travels as one.
COALESCE_S = 0.04
COALESCE_DELTAS = 8


def fill_response(response: ModelResponse, result: ChatResult, model: str) -> ModelResponse:
    """`response` with the finished turn in it."""
    calls = [
        ChatCompletionMessageToolCall(
            id=call.id,
            type="function",
            function=Function(name=call.name, arguments=call.arguments),
        )
        for call in result.tool_calls
    ]
    message = Message(
        role="assistant",
        content=result.content,
        reasoning_content=result.reasoning,
        tool_calls=calls or None,
    )
    choice = Choices(
        index=0,
        finish_reason=_finish(result.finish_reason),
        message=message,
        logprobs=_logprobs(result.logprobs),
    )
    response.choices = [choice]
    response.model = model
    response.usage = _usage(result.usage)
    return response


class ChunkStream:
    """The chunks of one turn, for `for` or for `async for`, in the order in which LiteLLM keeps
    the usage: content, then a chunk with the usage, then an empty one with the finish reason.

    Closing it, dropping it and cancelling the task that reads it end the request.
    """

    def __init__(self, stream: TurnStream[Any], model: str, response: ModelResponse) -> None:
        self._stream = stream
        self._model = model
        self._id, self._created = response.id, response.created
        self._deltas: Any = None  # the stream's iterator, sync or async by who asks
        self._held: list[ChatDelta] = []
        self._flushed = float("-inf")
        self._ready: deque[ModelResponseStream] = deque()
        self._ended = False

    def __iter__(self) -> ChunkStream:
        return self

    def __next__(self) -> ModelResponseStream:
        while not self._ready:
            if self._ended:
                raise StopIteration
            with self._guard():
                self._deltas = self._deltas or iter(self._stream)
                try:
                    self._add(next(self._deltas))
                except StopIteration:
                    self._end(self._stream.result())
        return self._ready.popleft()

    def __aiter__(self) -> ChunkStream:
        return self

    async def __anext__(self) -> ModelResponseStream:
        while not self._ready:
            if self._ended:
                raise StopAsyncIteration
            with self._guard():
                self._deltas = self._deltas or aiter(self._stream)
                try:
                    self._add(await anext(self._deltas))
                except StopAsyncIteration:
                    self._end(await self._stream.aresult())
        return self._ready.popleft()

    def close(self) -> None:
        self._stream.cancel()

    async def aclose(self) -> None:
        self._stream.cancel()

    def __del__(self) -> None:
        self._stream.cancel()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Whatever goes wrong, a cancelled task included, ends the request and the stream."""
        try:
            with litellm_errors(self._model):
                yield
        except BaseException:
            self._ended = True
            self._stream.cancel()
            raise

    def _add(self, delta: ChatDelta) -> None:
        # A flush brings thinking, then text, then calls: what comes behind a later one stays there.
        text = bool(delta.reasoning or delta.content)
        if any(
            (text and held.tool_calls) or (delta.reasoning and held.content) for held in self._held
        ):
            self._flush()
        self._held.append(delta)
        now = time.monotonic()
        if len(self._held) >= COALESCE_DELTAS or now - self._flushed >= COALESCE_S:
            self._flush()
            self._flushed = now

    def _end(self, result: ChatResult) -> None:
        self._ended = True
        self._flush()
        self._put({"content": ""}, usage=_usage(result.usage))
        self._put({}, finish_reason=_finish(result.finish_reason))

    def _flush(self) -> None:
        held, self._held = self._held, []
        if reasoning := "".join(delta.reasoning for delta in held):
            self._put({"reasoning_content": reasoning})
        content = "".join(delta.content for delta in held)
        logprobs = [item for delta in held for item in delta.logprobs]
        if content or logprobs:
            self._put({"content": content}, logprobs=_logprobs(logprobs))
        calls = _joined(piece for delta in held for piece in delta.tool_calls)
        if calls:
            self._put({"tool_calls": calls})

    def _put(
        self,
        delta: dict[str, Any],
        *,
        finish_reason: str | None = None,
        logprobs: Logprobs | None = None,
        usage: Usage | None = None,
    ) -> None:
        choice = StreamingChoices(
            index=0, delta=Delta(**delta), finish_reason=finish_reason, logprobs=logprobs
        )
        fields = {} if usage is None else {"usage": usage}
        self._ready.append(
            ModelResponseStream(
                id=self._id,
                created=self._created,
                model=self._model,
                choices=[choice],
                **fields,
            )
        )


def _joined(pieces: Iterable[ToolCallDelta]) -> list[dict[str, Any]]:
    """Consecutive pieces of one call as one; id and name stand in the call's first."""
    joined: list[dict[str, Any]] = []
    for piece in pieces:
        if not joined or joined[-1]["index"] != piece.index:
            function = {"name": piece.name, "arguments": ""}
            joined.append(
                {"index": piece.index, "id": piece.id, "type": "function", "function": function}
            )
        joined[-1]["function"]["arguments"] += piece.arguments
    return joined


def _finish(reason: FinishReason) -> str:
    return "stop" if reason == "cancelled" else reason


def _usage(counts: TokenCounts) -> Usage:
    return Usage(
        prompt_tokens=counts.prompt_tokens,
        completion_tokens=counts.completion_tokens,
        total_tokens=counts.prompt_tokens + counts.completion_tokens,
        prompt_tokens_details=PromptTokensDetailsWrapper(cached_tokens=counts.cached_tokens),
        completion_tokens_details=CompletionTokensDetailsWrapper(
            reasoning_tokens=counts.reasoning_tokens,
            text_tokens=counts.completion_tokens - counts.reasoning_tokens,
        ),
    )


def _logprobs(items: Sequence[TokenLogprob]) -> Logprobs | None:
    def entry(token: str, utf8: bytes, logprob: float) -> dict[str, Any]:
        return {"token": token, "bytes": list(utf8), "logprob": logprob}

    if not items:
        return None
    return Logprobs(
        content=[
            ChatCompletionTokenLogprob(
                **entry(item.token, item.utf8, item.logprob),
                top_logprobs=[entry(*alternative) for alternative in item.top],
            )
            for item in items
        ]
    )
