"""Requests in, JSON and event streams out; what guards them. No model, no interface's shapes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openjet_provider.chat.types import ChatDelta, ChatResult
from openjet_provider.errors import OpenJetError
from openjet_provider.server.errors import ApiError, busy, describe, refused, to_json
from openjet_provider.server.service import Turn
from openjet_provider.server.settings import Settings

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

# For probes and browsers, which send no key; the page asks for one.
_OPEN_PATHS = ("/health", "/", "/monitor.js")
CLIENT_CLOSED = 499
# How pydantic names the branches of a union, in the place of an error.
_BRANCH = re.compile(r"[-\[]|^(str|int|float|bool|dict|list)$")
# A client that is still sending sees no answer, so a body that is too large is read to its end if
# it is no larger than this many allowed ones.
_READ_ANYWAY = 4


class EventWriter(Protocol):
    """Turns a turn into one interface's server-sent events. Each method may give nothing."""

    keep_alive: bytes

    def start(self) -> bytes: ...

    def delta(self, delta: ChatDelta) -> bytes: ...

    def end(self, result: ChatResult) -> bytes: ...

    def failed(self, error: ApiError) -> bytes: ...


def json_response(value: Any, status: int = 200) -> Response:
    """A JSON response."""
    return Response(to_json(value), status, media_type="application/json")


def error_response(error: ApiError, path: str) -> Response:
    """An error in the shape of the path's interface."""
    response = json_response(error.body(path), error.status)
    response.headers.update(error.headers)
    return response


async def read_body(request: Request, model: type[M], settings: Settings) -> M:
    """The JSON body as `model`. Raises ApiError for one that is too large, too slow or wrong."""
    most = settings.max_body
    if _declared(request.headers) > _READ_ANYWAY * most:
        raise _too_large(most)
    raw, size = bytearray(), 0
    try:
        async with _limit(settings.read_timeout):
            async for piece in request.stream():
                size += len(piece)
                if size > _READ_ANYWAY * most:
                    break
                if size <= most:
                    raw += piece
    except asyncio.TimeoutError:
        raise ApiError(
            408, "the request's body did not arrive in time", code="timeout", close=True
        ) from None
    if size > most:
        raise _too_large(most)
    try:
        return model.model_validate_json(bytes(raw))
    except ValidationError as error:
        raise _invalid(error) from None


def _declared(headers: Headers) -> int:
    length = headers.get("content-length", "")
    return int(length[:20]) if length.isdecimal() else 0


@contextlib.asynccontextmanager
async def _limit(seconds: float) -> AsyncIterator[None]:
    """asyncio.timeout, which Python 3.10 does not have."""
    task = asyncio.current_task()
    assert task is not None
    late = False

    def expire() -> None:
        nonlocal late
        late = True
        task.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, expire)
    try:
        yield
    except asyncio.CancelledError:
        if late:
            raise asyncio.TimeoutError from None
        raise
    finally:
        timer.cancel()


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413,
        f"the request is larger than {limit:,} bytes, the limit of this server (--max-body)",
        code="request_too_large",
        close=True,
    )


def _invalid(error: ValidationError) -> ApiError:
    # Of a union every branch has its say; the one that understood most got furthest.
    found = error.errors(include_url=False, include_input=False)
    most = max(found, key=lambda each: len(each["loc"]))
    path = [str(part) for part in most["loc"] if not _BRANCH.search(str(part))]
    where = ".".join(path)
    if most["type"] == "json_invalid":
        return refused(f"the body is not valid JSON: {most['msg']}")
    message = most["msg"].removeprefix("Value error, ")
    return refused(f"{where}: {message}" if where else message, path[0] if path else None)


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled when the client goes away first."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request.receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """A turn as server-sent events. The turn ends with its client; silence is filled with
    keep-alive comments; a client that takes nothing for `write_timeout` is one that has gone."""

    def __init__(self, turn: Turn, writer: EventWriter, settings: Settings) -> None:
        super().__init__(media_type="text/event-stream")
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-cache"
        self.headers["x-accel-buffering"] = "no"  # proxies must pass events on at once
        self._turn = turn
        self._writer = writer
        self._settings = settings
        self._sending_since: float | None = None
        self._last_sent = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pump = asyncio.ensure_future(self._pump(send))
        beside = (
            asyncio.ensure_future(_disconnected(receive)),
            asyncio.ensure_future(self._keep_alive(send)),
        )
        try:
            await asyncio.wait((pump, *beside), return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                pump.result()
        finally:
            self._turn.abandon()  # first: whatever is waited for can be interrupted again
            for task in (pump, *beside):
                task.cancel()
            await asyncio.gather(pump, *beside, return_exceptions=True)

    async def _pump(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        await self._send(send, self._writer.start())
        try:
            async for delta in self._turn.deltas():
                await self._send(send, self._writer.delta(delta))
            assert self._turn.result is not None
            await self._send(send, self._writer.end(self._turn.result))
        except Exception as error:
            if isinstance(error, OSError) and not isinstance(error, OpenJetError):
                return  # the connection broke
            await self._send(send, self._writer.failed(describe(error)))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, events: bytes) -> None:
        if not events:
            return
        self._sending_since = self._last_sent = time.monotonic()
        await send({"type": "http.response.body", "body": events, "more_body": True})
        self._sending_since = None

    async def _keep_alive(self, send: Send) -> None:
        """Returns when the client does not take what it is sent."""
        while True:
            await asyncio.sleep(self._settings.keep_alive / 4)
            now = time.monotonic()
            if self._sending_since is not None:
                if now - self._sending_since > self._settings.write_timeout:
                    return
            elif now - self._last_sent > self._settings.keep_alive * 0.7:
                await self._send(send, self._writer.keep_alive)


class Guard:
    """Around everything: limits, browsers' origins, keys; a request id on every response."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{secrets.token_hex(12)}"

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        self._open += 1
        try:
            try:
                self._check(scope)
            except ApiError as error:
                await error_response(error, scope["path"])(scope, receive, send_with_id)
                return
            await self._app(scope, receive, send_with_id)
        finally:
            self._open -= 1

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if scope["path"] not in _OPEN_PATHS:
            if self._open > self._settings.max_requests:
                raise busy(f"{self._settings.max_requests} requests are open; try again later")
            _check_origin(headers, self._settings.origins)
            scope["openjet.key"] = _check_key(headers, self._settings.api_keys)


def _check_origin(headers: Headers, allowed: Sequence[str]) -> None:
    """A web page of somebody else must not use this server behind its visitor's back: browsers
    name the page, and send simple requests without asking."""
    origin = headers.get("origin")
    if origin is None or "*" in allowed or origin in allowed:
        return
    if urlsplit(origin).netloc != headers.get("host"):
        raise ApiError(
            403,
            f"web pages of {origin} may not use this server; start it with --cors {origin}",
            code="origin_not_allowed",
        )


def _check_key(headers: Headers, keys: Sequence[str]) -> str | None:
    """The name of the caller whose key it is, where keys tell callers apart."""
    if not keys:
        return None
    given = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
    found = [hmac.compare_digest(given.encode(), key.encode()) for key in keys]
    if not any(found):
        what = "Incorrect API key provided" if given else "You didn't provide an API key"
        raise ApiError(
            401,
            f"{what}. This server asks for one: send it as `Authorization: Bearer KEY` or as"
            " `x-api-key: KEY`",
            code="invalid_api_key",
        )
    return _key_name(given) if len(keys) > 1 else None


def _key_name(key: str) -> str:
    return "key-" + hashlib.blake2b(key.encode(), digest_size=4).hexdigest()
