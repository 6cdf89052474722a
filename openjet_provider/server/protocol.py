"""uvicorn's HTTP, with bounds on what a client may leave unfinished."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from openjet_provider.server.errors import refused, to_json


class BoundedProtocol(H11Protocol):
    """Ends connections whose client does not finish a request's head, or takes no answer."""

    head_timeout = 60.0  # seconds from the connection, or from what follows a response

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        if self.transport.get_write_buffer_size():  # closing would wait until it is taken
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """To what is no HTTP, in the shape of the other errors."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # in the middle of an answer
            self.transport.abort()
            return
        body = to_json(refused(f"{msg.rstrip('.')}: it is not valid HTTP/1.1").body("/"))
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        response = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        for event in (response, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Answering as HTTP is all there is to it."""

    def _watch(self) -> None:
        """The time runs while no request is being answered."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()
        elif self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(self.head_timeout, self._expire)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()


def http_config(app: ASGIApp, **more: Any) -> uvicorn.Config:
    """How the application is served, in a process of its own or in a thread."""
    return uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        **more,
    )
