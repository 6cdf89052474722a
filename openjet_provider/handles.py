"""The engine handles an adapter holds, opened when first asked for."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from openjet_provider.errors import InvalidRequestError
from openjet_provider.models import default_model

if TYPE_CHECKING:
    from openjet_provider.engine import Engine


def server_url(base_url: str | None) -> str | None:
    """The server to attach to: what was given, else OPENJET_BASE_URL."""
    return base_url or os.environ.get("OPENJET_BASE_URL") or None


class Handles:
    """One engine per model and options, kept until `close`. Any thread.

    A copy shares the handles, a pickle starts without any.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[tuple[str, dict[str, Any], Engine]] = []

    def get(
        self,
        model: str | None,
        options: Mapping[str, Any] | None = None,
        base_url: str | None = None,
    ) -> Engine:
        """The engine of a model (None: the default one). Blocks while it opens.

        options: keyword arguments of Engine. Raises what Engine raises, and InvalidRequestError if
        a server is asked for.
        """
        if server := server_url(base_url):
            raise InvalidRequestError(
                f"base_url={server!r}: attaching to a server is not available in this version;"
                " leave base_url and OPENJET_BASE_URL unset to run the model in this process"
            )
        model, options = model or default_model(), dict(options or {})
        if engine := self._find(model, options):
            return engine
        from openjet_provider.engine import Engine

        with self._lock:
            if engine := self._find(model, options):
                return engine
            try:
                engine = Engine(model, **options)
            except TypeError as error:  # a name that Engine does not have
                raise InvalidRequestError(f"engine_options: {error}") from error
            self._open = [*self._open, (model, options, engine)]
            return engine

    async def aget(
        self,
        model: str | None,
        options: Mapping[str, Any] | None = None,
        base_url: str | None = None,
    ) -> Engine:
        """`get` without blocking the event loop."""
        if engine := self._find(model or default_model(), dict(options or {})):
            return engine
        return await asyncio.to_thread(self.get, model, options, base_url)

    def close(self) -> None:
        """Give every handle back; the last user's frees the model. `get` opens again."""
        with self._lock:
            closing, self._open = self._open, []
        for _, _, engine in closing:
            engine.close()

    def _find(self, model: str, options: dict[str, Any]) -> Engine | None:
        for name, used, engine in self._open:
            if name == model and used == options:
                return engine
        return None

    def __deepcopy__(self, memo: dict[int, Any]) -> Handles:
        return self

    def __reduce__(self) -> tuple[type[Handles], tuple[()]]:
        return Handles, ()
