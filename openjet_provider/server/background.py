"""A server in a thread of this process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

import uvicorn
from starlette.applications import Starlette

from openjet_provider.engine import Engine
from openjet_provider.server.app import create_app
from openjet_provider.server.protocol import http_config
from openjet_provider.server.run import bind
from openjet_provider.server.service import Service
from openjet_provider.server.settings import Settings

_END_S = 10.0


@contextlib.contextmanager
def in_thread(app: Starlette) -> Iterator[str]:
    """Run an application on a free loopback port; gives the URL. Requests that still run at the end
    are ended."""
    listener = bind("127.0.0.1", 0)
    server = uvicorn.Server(http_config(app, timeout_graceful_shutdown=1))
    thread = threading.Thread(
        target=lambda: asyncio.run(server.serve([listener])), name="openjet-server", daemon=True
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(_END_S)
        listener.close()


@contextlib.contextmanager
def serving(engine: Engine, settings: Settings | None = None) -> Iterator[str]:
    """Serve an engine, which stays the caller's; gives the URL."""
    service = Service(settings or Settings(), engine)
    with in_thread(create_app(service)) as url:
        try:
            yield url
        finally:
            service.draining = True  # streams of statistics end
