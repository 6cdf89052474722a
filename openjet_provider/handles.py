"""The engine handles an adapter holds, opened when first asked for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from openjet_provider.errors import InvalidRequestError
from openjet_provider.models import default_model

if TYPE_CHECKING:
    from openjet_provider.engine import Engine
    from openjet_provider.remote import RemoteEngine


def server_url(base_url: str | None) -> str | None:
    """The server to attach to: what was given, else OPENJET_BASE_URL."""
    return base_url or os.environ.get("OPENJET_BASE_URL") or None


@dataclass(frozen=True)
class _Place:
    """Where an engine is: in this process, or on a server, which has options of its own."""

    model: str | None
    options: dict[str, Any]
    server: str | None
    api_key: str | None

    def open(self) -> Engine | RemoteEngine:
        if self.server is not None:
            from openjet_provider.remote import RemoteEngine

            return RemoteEngine(self.server, self.model, api_key=self.api_key)
        from openjet_provider.engine import Engine

        try:
            return Engine(self.model, **self.options)
        except TypeError as error:  # a name that Engine does not have
            raise InvalidRequestError(f"engine_options: {error}") from error


def _place(
    model: str | None,
    options: Mapping[str, Any] | None,
    base_url: str | None,
    api_key: str | None,
) -> _Place:
    if server := server_url(base_url):
        return _Place(model, {}, server, api_key)
    return _Place(model or default_model(), dict(options or {}), None, None)


class Handles:
    """One engine per model and options, kept until `close` or until nobody holds this. Any thread.

    A copy shares the handles, a pickle starts without any.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[tuple[_Place, Engine | RemoteEngine]] = []
        # At exit the engines close themselves.
        weakref.finalize(self, _close_later, self._open).atexit = False

    def get(
        self,
        model: str | None,
        options: Mapping[str, Any] | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
    ) -> Engine | RemoteEngine:
        """The engine of a model (None: the default one, or the server's). Blocks while it opens.

        options: keyword arguments of Engine, for one in this process. base_url: a server to attach
        to instead (None: OPENJET_BASE_URL, if set); api_key is for it. Raises what Engine and
        RemoteEngine raise.
        """
        place = _place(model, options, base_url, api_key)
        if engine := self._find(place):
            return engine
        with self._lock:
            if engine := self._find(place):
                return engine
            engine = place.open()
            self._open.append((place, engine))
            return engine

    async def aget(
        self,
        model: str | None,
        options: Mapping[str, Any] | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
    ) -> Engine | RemoteEngine:
        """`get` without blocking the event loop."""
        if engine := self._find(_place(model, options, base_url, api_key)):
            return engine
        return await asyncio.to_thread(self.get, model, options, base_url, api_key)

    def close(self) -> None:
        """Give every handle back; the last user's frees the model. `get` opens again."""
        with self._lock:
            closing = self._open.copy()
            self._open.clear()
        _close(closing)

    def _find(self, place: _Place) -> Engine | RemoteEngine | None:
        for known, engine in self._open.copy():
            if known == place:
                return engine
        return None

    def __deepcopy__(self, memo: dict[int, Any]) -> Handles:
        return self

    def __reduce__(self) -> tuple[type[Handles], tuple[()]]:
        return Handles, ()


def _close(engines: list[tuple[_Place, Engine | RemoteEngine]]) -> None:
    for _, engine in engines:
        engine.close()


def _close_later(engines: list[tuple[_Place, Engine | RemoteEngine]]) -> None:
    """In a thread of its own: the garbage collector calls this wherever it runs, and that may be
    inside a lock that closing needs, or in the thread that closing waits for."""
    if engines:
        with contextlib.suppress(RuntimeError):  # the interpreter ends
            threading.Thread(target=_close, args=(engines,), name="openjet-close").start()
