"""Servers whose answers are known: the real application on the scripted engine."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest

from openjet_provider.engine import Engine
from openjet_provider.server.app import create_app
from openjet_provider.server.background import in_thread
from openjet_provider.server.service import Service
from openjet_provider.server.settings import Settings
from tests.server.script import MODEL, OPTIONS
from tests.waiting import wait_until_idle


def say(text: str, **more: Any) -> dict[str, Any]:
    """The body of a chat request with one user message."""
    return {"messages": [{"role": "user", "content": text}], **more}


def events(text: str) -> list[Any]:
    """The data of a whole event stream; [DONE] as None."""
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    return [None if line == "[DONE]" else json.loads(line) for line in lines]


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with Engine(MODEL, **OPTIONS, state_dir=tmp_path_factory.mktemp("states")) as opened:
        yield opened


Connect = Callable[..., httpx.AsyncClient]


@pytest.fixture
async def connect(engine: Engine) -> AsyncIterator[Connect]:
    """Makes clients of applications with these settings, without a socket."""
    async with contextlib.AsyncExitStack() as stack:

        def make(served: Engine | None = engine, **settings: Any) -> httpx.AsyncClient:
            app = create_app(Service(Settings(**settings), served))
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            client = httpx.AsyncClient(transport=transport, base_url="http://server")
            stack.push_async_callback(client.aclose)
            return client

        yield make


@pytest.fixture
def client(connect: Connect) -> httpx.AsyncClient:
    """A client of a server with default settings."""
    return connect()


@contextlib.contextmanager
def live(served: Engine, **settings: Any) -> Iterator[str]:
    """A server on a free loopback port, in a thread; its URL."""
    app = create_app(Service(Settings(**settings), served))
    with in_thread(app) as found:
        yield found


@pytest.fixture(scope="session")
def url(engine: Engine) -> Iterator[str]:
    """The URL of a server with default settings."""
    with live(engine) as found:
        yield found


@pytest.fixture
def idle(engine: Engine) -> Callable[[], None]:
    """Waits until the engine runs nothing."""
    return lambda: wait_until_idle(engine)
