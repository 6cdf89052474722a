"""The live page at `/` and the stream of statistics that feeds it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from openjet_provider import __version__
from openjet_provider.server.errors import refused
from openjet_provider.server.http import json_response, unless_gone
from openjet_provider.server.service import Service
from openjet_provider.server.shapes import event

_PAGE = Path(__file__).parent / "page"
_SHORTEST_S, _LONGEST_S = 0.1, 60.0
_NOTICE_S = 0.25  # how soon a stream notices that the server stops

# The page needs nothing from anywhere else, and may not be framed.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self';"
    " img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


def snapshot(service: Service) -> dict[str, Any]:
    """The engine's counters, its conversations and the GPUs. Raises ApiError without an engine."""
    engine, counters = service.engine, service.engine_stats()
    return {
        "version": __version__,
        "model": engine.model_name,
        "backend": engine.backend,
        "context": engine.context,
        "agents": engine.agents,
        "uptime_s": round(service.uptime_s, 3),
        "engine": asdict(counters) if counters else None,
        "conversations": [seen.snapshot(service.settings.private) for seen in service.monitor],
        "gpus": service.gpus.read(),
    }


async def stats(request: Request) -> Response:
    """One snapshot, for scripts and monitors."""
    return json_response(snapshot(request.app.state.service))


async def stats_stream(request: Request) -> Response:
    """A snapshot every `interval` seconds (query; default 1) until the client leaves."""
    text = request.query_params.get("interval", "1")
    try:
        interval = float(text)
    except ValueError:
        interval = 0.0
    if not _SHORTEST_S <= interval <= _LONGEST_S:
        raise refused(
            f"interval={text[:40]!r}: give seconds from {_SHORTEST_S} to {_LONGEST_S:.0f}",
            "interval",
        )
    service: Service = request.app.state.service
    return _Snapshots(service, interval, snapshot(service))


class _Snapshots(Response):
    """Ends with its client, with the server, or when the client takes nothing any more."""

    def __init__(self, service: Service, interval: float, first: dict[str, Any]) -> None:
        super().__init__(media_type="text/event-stream")
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-cache"
        self.headers["x-accel-buffering"] = "no"
        self._service = service
        self._interval = interval
        self._first = first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(ClientDisconnect, asyncio.TimeoutError):
            await unless_gone(Request(scope, receive), self._pump(send))

    async def _pump(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        value = self._first
        while True:
            message = {"type": "http.response.body", "body": event(value), "more_body": True}
            await asyncio.wait_for(send(message), self._service.settings.write_timeout)
            until = time.monotonic() + self._interval
            while (left := until - time.monotonic()) > 0 and not self._service.draining:
                await asyncio.sleep(min(left, _NOTICE_S))
            if self._service.draining:
                break
            value = snapshot(self._service)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def page(_: Request) -> Response:
    """The page. It holds nothing of the server's; what it shows it asks for, with a key."""
    return _file("index.html", "text/html")


async def script(_: Request) -> Response:
    """The page's script."""
    return _file("monitor.js", "text/javascript")


def _file(name: str, media: str) -> Response:
    headers = {
        "content-security-policy": _POLICY,
        "x-content-type-options": "nosniff",
        "cache-control": "no-cache",
    }
    return Response(_read(name), media_type=media, headers=headers)


@functools.cache
def _read(name: str) -> bytes:
    return (_PAGE / name).read_bytes()
