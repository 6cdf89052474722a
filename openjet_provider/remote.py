"""The engine of a running `openjet serve`, with the interface of Engine as far as chats need it.

with RemoteEngine("http://127.0.0.1:18080") as engine:
    print(engine.chat(request).result().content)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import httpx
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt

from openjet_provider.chat.stream import TurnStream
from openjet_provider.chat.types import (
    ChatDelta,
    ChatRequest,
    ChatResult,
    FinishReason,
    Sampling,
    TokenLogprob,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from openjet_provider.errors import (
    BackendUnavailableError,
    ContextOverflowError,
    EngineBusyError,
    EngineClosedError,
    EngineLost,
    InvalidRequestError,
    ModelNotFoundError,
    OpenJetError,
    RequestTimeoutError,
)
from openjet_provider.generation import Finish, Inbox, RequestStats, wake

T = TypeVar("T")
Chunk = dict[str, Any]

_CONNECT_S = 10.0
_SILENCE_S = 60.0  # servers send a keep-alive comment long before
_ATTEMPTS = 4
_LONGEST_WAIT_S = 8.0

_SAMPLING = tuple(field.name for field in fields(Sampling))
_OPTIONS = (
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "max_tokens",
    "enable_thinking",
    "reasoning_effort",
    "preserve_thinking",
    "thinking_budget",
    "timeout",
)
_OVERFLOW = re.compile(r"maximum context length is (\d+) tokens.*?resulted in (\d+) tokens")


class RemoteEngine:
    """A connection to one server. Every method may be called from any thread.

    Args:
        base_url: the server, with or without `/v1`.
        model: a name the server knows; None takes the one it serves.
        api_key: sent as a bearer token; None takes OPENJET_API_KEY.
        silence_s: how long the server may say nothing; `openjet serve` fills silences.

    Raises BackendUnavailableError if nobody answers, ModelNotFoundError for a model that is not
    served there. Before the server has accepted a request, refused connections and busy answers are
    tried again a few times; a request that was accepted is never sent twice.
    """

    backend = "remote"

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        *,
        api_key: str | None = None,
        silence_s: float = _SILENCE_S,
    ) -> None:
        self.url = base_url.rstrip("/").removesuffix("/v1")
        self._key = api_key or os.environ.get("OPENJET_API_KEY")
        self._pid = os.getpid()
        self._closed = False
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers={"authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=httpx.Timeout(silence_s, connect=_CONNECT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=16),
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="openjet-remote", daemon=True
        )
        self._thread.start()
        try:
            found = self._wait(self._describe(model))
        except BaseException:
            self.close()
            raise
        self.model_name: str = found["id"]
        self.context: int = found.get("max_model_len") or 0  # other servers may not say

    def chat(self, request: ChatRequest) -> RemoteStream:
        """Start one turn. Returns once the server has queued it, so that what it refuses is raised
        here and not in the stream."""
        return self._wait(self._start(request))

    async def achat(self, request: ChatRequest) -> RemoteStream:
        """`chat` without blocking the event loop."""
        return await asyncio.wrap_future(self._submit(self._start(request)))

    def count_tokens(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> int:
        """Tokens of the prompt these messages and tools make, generation prompt included."""
        body = {"messages": list(messages), "tools": list(tools) or None}
        return int(self._wait(self._json("POST", "/tokenize", body))["count"])

    def tokenize(self, text: str) -> list[int]:
        """The model's token ids of plain text."""
        body = {"prompt": text, "add_special_tokens": False}
        return list(self._wait(self._json("POST", "/tokenize", body))["tokens"])

    def close(self) -> None:
        """End what runs and close the connections. Idempotent."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop)
        self._thread.join(_CONNECT_S)
        if not self._thread.is_alive():
            self._loop.close()

    def __enter__(self) -> RemoteEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteEngine {self.url}{' (closed)' if self._closed else ''}>"

    def _submit(self, work: Coroutine[Any, Any, T]) -> Any:
        if self._closed or self._pid != os.getpid():
            work.close()
            raise EngineClosedError(
                f"this connection to {self.url} is closed or belongs to the process this one was"
                " forked from; open a new one"
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        future = self._submit(work)
        try:
            result: T = future.result()
        except BaseException:  # Ctrl-C above all
            future.cancel()
            raise
        return result

    async def _shut(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._http.aclose()
        self._loop.stop()

    async def _describe(self, model: str | None) -> Chunk:
        if model is not None:
            return await self._json("GET", f"/v1/models/{model}")
        found: Chunk = (await self._json("GET", "/v1/models"))["data"][0]
        return found

    async def _json(self, method: str, path: str, body: Chunk | None = None) -> Chunk:
        response = await self._accepted(method, path, body)
        found: Chunk = json.loads(await response.aread())
        return found

    async def _start(self, request: ChatRequest) -> RemoteStream:
        headers = {} if request.client is None else {"x-openjet-client": _header(request.client)}
        body = {**_body(request), "model": self.model_name}
        response = await self._accepted("POST", "/v1/chat/completions", body, headers)
        reading: list[asyncio.Task[None]] = []

        def cancel() -> None:
            with contextlib.suppress(RuntimeError):  # closed: nothing runs any more
                self._loop.call_soon_threadsafe(reading[0].cancel)

        inbox: Inbox[Chunk] = Inbox(0, cancel)
        reading.append(asyncio.ensure_future(_read(response, inbox)))
        await asyncio.sleep(0)  # a task that is cancelled before it began would deliver no end
        return RemoteStream(inbox)

    async def _accepted(
        self, method: str, path: str, body: Chunk | None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """A response whose body is still to be read; raises what the server refused."""
        retrying = AsyncRetrying(
            stop=stop_after_attempt(_ATTEMPTS),
            retry=retry_if_exception(_may_be_sent_again),
            wait=_pause,
            reraise=True,
        )
        try:
            return await retrying(self._send, method, path, body, headers)
        except _Refused as refused:
            raise _error(refused.said, refused.status) from None

    async def _send(
        self, method: str, path: str, body: Chunk | None, headers: Mapping[str, str] | None
    ) -> httpx.Response:
        content = None if body is None else json.dumps(body, default=str).encode()
        request = self._http.build_request(method, path, content=content, headers=headers)
        try:
            response = await self._http.send(request, stream=True)
            if response.status_code == 200:
                return response
            await response.aread()
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise _Unreachable(self.url, error) from error
        raise _Refused(response)


class RemoteStream(TurnStream[Chunk]):
    """A turn being generated by a server. Raises what the server says went wrong, and
    BackendUnavailableError when the connection breaks."""

    def __init__(self, inbox: Inbox[Chunk]) -> None:
        super().__init__(inbox, "")
        self._thinking = False
        self._texts: dict[str, list[str]] = {"content": [], "reasoning_content": []}
        self._calls: list[ToolCall] = []
        self._logprobs: list[TokenLogprob] = []
        self._finish: FinishReason | None = None
        self._usage: Chunk = {}

    @property
    def thinking(self) -> bool:
        """Whether the last delta ended inside the model's thinking."""
        return self._thinking

    def _deltas(self, chunks: Sequence[Chunk]) -> Iterator[ChatDelta]:
        if not chunks:
            self._result = self._whole()
        for chunk in chunks:
            self._usage = chunk.get("usage") or self._usage
            for choice in chunk["choices"]:
                self._finish = choice["finish_reason"] or self._finish
                if (delta := self._delta(choice)) != ChatDelta():
                    yield delta

    def _delta(self, choice: Chunk) -> ChatDelta:
        delta = choice["delta"]
        reasoning, content = (delta.get(name) or "" for name in ("reasoning_content", "content"))
        self._texts["reasoning_content"].append(reasoning)
        self._texts["content"].append(content)
        pieces = tuple(self._piece(piece) for piece in delta.get("tool_calls") or ())
        if reasoning or content or pieces:
            self._thinking = not content and not pieces
        logprobs = tuple(map(_logprob, (choice.get("logprobs") or {}).get("content") or ()))
        self._logprobs += logprobs
        return ChatDelta(reasoning, content, pieces, logprobs)

    def _piece(self, piece: Chunk) -> ToolCallDelta:
        function = piece["function"]
        if (name := function.get("name")) is not None:
            self._calls.append(ToolCall(piece["id"], name, ""))
        call = self._calls[piece["index"]]
        added = replace(call, arguments=call.arguments + function["arguments"])
        self._calls[piece["index"]] = added
        return ToolCallDelta(piece["index"], piece.get("id"), name, function["arguments"])

    def _whole(self) -> ChatResult:
        finish: FinishReason = self._finish or "cancelled"
        return ChatResult(
            content="".join(self._texts["content"]) or None,
            reasoning="".join(self._texts["reasoning_content"]) or None,
            tool_calls=tuple(self._calls),
            finish_reason=finish,
            usage=_usage(self._usage),
            logprobs=tuple(self._logprobs),
        )


async def _read(response: httpx.Response, inbox: Inbox[Chunk]) -> None:
    """Hand over chunks as they come; ends with the server's last one, or by being cancelled."""
    started = time.monotonic()
    stats = inbox.stats
    finish: Finish = "error"
    error: Exception | None = BackendUnavailableError(
        "the server closed the connection before the answer was complete"
    )
    try:
        async for chunk in _chunks(response):
            stats = _stats(stats, chunk, time.monotonic() - started)
            wake(inbox.deliver([chunk], stats, None))
        finish, error = "stop", None
    except asyncio.CancelledError:
        finish, error = "cancelled", None
    except httpx.HTTPError as broken:
        error = BackendUnavailableError(f"the connection to the server broke: {broken!r}")
    except OpenJetError as said:
        error = said
    finally:
        # The end goes first: another cancel may interrupt whatever is waited for.
        wake(inbox.deliver([], stats, finish, error))
        await asyncio.shield(response.aclose())


async def _chunks(response: httpx.Response) -> AsyncIterator[Chunk]:
    async for line in response.aiter_lines():
        if not line.startswith("data: "):
            continue  # keep-alive comments, blank lines
        data = line.removeprefix("data: ")
        if data == "[DONE]":
            return
        chunk: Chunk = json.loads(data)
        if "error" in chunk:
            raise _error(chunk["error"], 500)
        yield chunk
    raise BackendUnavailableError("the server closed the connection before the answer was complete")


def _stats(stats: RequestStats, chunk: Chunk, elapsed: float) -> RequestStats:
    usage = _usage(chunk.get("usage") or {})
    if not usage.completion_tokens:
        return replace(stats, total_s=elapsed)
    return replace(
        stats,
        prompt_tokens=usage.prompt_tokens,
        prompt_read=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        generated=usage.completion_tokens,
        first_token_s=elapsed if stats.first_token_s is None else stats.first_token_s,
        total_s=elapsed,
    )


def _usage(usage: Chunk) -> Usage:
    return Usage(
        prompt_tokens=usage.get("prompt_tokens", 0),
        completion_tokens=usage.get("completion_tokens", 0),
        cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0),
        reasoning_tokens=(usage.get("completion_tokens_details") or {}).get("reasoning_tokens", 0),
    )


def _logprob(entry: Chunk) -> TokenLogprob:
    top = tuple((e["token"], bytes(e["bytes"]), e["logprob"]) for e in entry["top_logprobs"])
    return TokenLogprob(entry["token"], bytes(entry["bytes"]), entry["logprob"], top)


def _body(request: ChatRequest) -> Chunk:
    """The request as the server's JSON body."""
    body: Chunk = {name: getattr(request, name) for name in _OPTIONS}
    body |= {name: getattr(request.sampling, name) for name in _SAMPLING}
    body["messages"] = list(request.messages)
    body["tools"] = list(request.tools) or None
    body["stop"] = list(request.stop) or None
    body["ignore_eos"] = request.ignore_eos or None
    body["chat_template_kwargs"] = dict(request.chat_template_kwargs) or None
    body["continue_final_message"] = request.continue_final_message or None
    body["logit_bias"] = {str(k): v for k, v in request.sampling.logit_bias.items()} or None
    if request.top_logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    body["stream"] = True
    body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    return {name: value for name, value in body.items() if value is not None}


def _header(client: str) -> str:
    return client.encode("ascii", "replace").decode()


class _Unreachable(BackendUnavailableError):
    """Nobody answered, or the connection broke before an answer began."""

    def __init__(self, url: str, cause: Exception) -> None:
        super().__init__(
            f"no answer from the server at {url} ({type(cause).__name__}: {cause}); start it with"
            " `openjet serve`, or unset base_url and OPENJET_BASE_URL"
        )
        # Only then is it certain that nothing was generated.
        self.sent_nothing = isinstance(cause, (httpx.ConnectError, httpx.ConnectTimeout))


class _Refused(Exception):
    """A response other than 200, read."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(f"HTTP {response.status_code}")
        self.status = response.status_code
        self.retry_after = response.headers.get("retry-after", "")
        try:
            self.said = response.json()["error"]
        except (ValueError, KeyError, TypeError):
            self.said = {"message": f"HTTP {response.status_code}: {response.text[:200]}"}


def _may_be_sent_again(error: BaseException) -> bool:
    """Only what cannot have been generated: no connection, or a server that was busy."""
    if isinstance(error, _Refused):
        return error.status in (429, 503)
    return isinstance(error, _Unreachable) and error.sent_nothing


def _pause(attempt: RetryCallState) -> float:
    """What the server asks for, else twice as long each time; some of it by chance."""
    error = attempt.outcome.exception() if attempt.outcome else None
    asked = error.retry_after if isinstance(error, _Refused) else ""
    seconds = float(asked) if asked.isdigit() else 0.1 * 2.0**attempt.attempt_number
    return min(seconds, _LONGEST_WAIT_S) * random.uniform(0.8, 1.2)


def _error(said: Chunk, status: int) -> OpenJetError:
    """What the server says went wrong, as the engine itself would have raised it."""
    message, code = str(said.get("message")), said.get("code")
    if code == "context_length_exceeded":
        numbers = _OVERFLOW.search(message)
        context, prompt = map(int, numbers.groups()) if numbers else (0, 0)
        return ContextOverflowError(message, prompt, context)
    if code == "model_not_found":
        return ModelNotFoundError(message)
    if code == "engine_lost":
        return EngineLost(message)
    if code == "timeout":
        return RequestTimeoutError(message)
    if status in (401, 403):
        return InvalidRequestError(f"{message} (api_key=, or OPENJET_API_KEY)")
    if status == 429:
        return EngineBusyError(message)
    if status < 500:
        return InvalidRequestError(message)
    return BackendUnavailableError(message)
