"""A server process: the socket, the engine, signals, and an end within a bound."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import uvicorn
from starlette.applications import Starlette

from openjet_provider.engine import Engine
from openjet_provider.errors import InvalidRequestError, OpenJetError
from openjet_provider.server.app import create_app
from openjet_provider.server.protocol import http_config
from openjet_provider.server.service import Service
from openjet_provider.server.settings import Settings

log = logging.getLogger("openjet_provider.server")

EXIT_LOST = 70  # EX_SOFTWARE: the engine has failed, a supervisor is to start the process again
_LOST_GRACE_S = 1.0  # for the error bodies to leave
_LOST_LIMIT_S = 4.0  # then the process ends, whatever still hangs
_STOP_GRACE_S = 2.0  # for ended streams to leave, after `Settings.drain`


def check_exposure(host: str, settings: Settings, unprotected: bool) -> None:
    """Raise InvalidRequestError for an address that others reach, without a key."""
    if settings.api_keys or unprotected or _is_loopback(host):
        return
    raise InvalidRequestError(
        f"--host {host} can be reached from other machines and no key is set; give --api-key KEY"
        " (or OPENJET_API_KEY), or --unprotected if the network is trusted"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises InvalidRequestError naming the address if it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(256)
    except OSError as error:
        listener.close()
        raise InvalidRequestError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --port"
        ) from error
    return listener


def serve(
    open_engine: Callable[[], Engine],
    listener: socket.socket,
    settings: Settings,
    ready: Callable[[Engine], None] = lambda engine: None,
) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. The listener is closed.

    open_engine: called in a thread; until it returns, requests are answered with 503.
    ready: called once requests are taken.
    """
    return asyncio.run(_Process(open_engine, listener, settings, ready).run())


class _Process:
    def __init__(
        self,
        open_engine: Callable[[], Engine],
        listener: socket.socket,
        settings: Settings,
        ready: Callable[[Engine], None],
    ) -> None:
        self._open_engine = open_engine
        self._listener = listener
        self._ready = ready
        self._settings = settings
        self._service = Service(settings, lost=self._lose)
        self._status = 0
        self._stopping: asyncio.Task[None] | None = None
        self._server = _Server(
            http_config(
                create_app(self._service, self._lifespan),
                lifespan="on",
                timeout_graceful_shutdown=int(settings.drain + _STOP_GRACE_S) + 1,
            )
        )

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        try:
            await self._server.serve([self._listener])
        finally:
            self._listener.close()
            if self._service.loaded is not None:
                await asyncio.to_thread(self._service.loaded.close)
        return self._status

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        loading = asyncio.ensure_future(self._load())
        yield
        if not loading.done():  # a model that is being read cannot be told to stop
            os._exit(self._status)
        await loading

    async def _load(self) -> None:
        """Open the engine beside the running server, which answers 503 until then."""
        try:
            engine = await asyncio.to_thread(self._open_engine)
        except OpenJetError as error:
            print(f"openjet: {error}", file=sys.stderr)
            self._status = 1
            self._server.should_exit = True
            return
        gc.freeze()  # the vocabulary lives as long as the process; looking it through takes 50 ms
        self._service.loaded = engine
        if not self._service.draining:
            self._ready(engine)

    def _stop(self, number: int) -> None:
        """A first signal lets running requests end; a second one does not."""
        if self._stopping is not None:
            os._exit(128 + number)  # as a shell reports a process that a signal ended
        self._stopping = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        await self._service.drain()
        self._server.should_exit = True

    def _lose(self) -> None:
        """The engine has failed: everybody is told, then the process ends."""
        log.error("the engine is lost; exiting with status %d", EXIT_LOST)
        self._status = EXIT_LOST
        self._service.draining = True
        timer = threading.Timer(_LOST_LIMIT_S, os._exit, (EXIT_LOST,))
        timer.daemon = True
        timer.start()
        asyncio.get_running_loop().call_later(_LOST_GRACE_S, os._exit, EXIT_LOST)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The process handles signals itself: uvicorn would raise them again at the end."""
        yield
