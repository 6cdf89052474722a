"""Engines on the bundled model: really computing, or saying what a script says."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from openjet_provider.chat.types import ChatRequest
from openjet_provider.engine import Engine, ScriptRule

TINY = "openjet-tiny"


def ask(text: str = "Hello!", **options: object) -> ChatRequest:
    """A request with one user message; thinking off, so that a script's reply is its content."""
    options.setdefault("enable_thinking", False)
    return ChatRequest(messages=[{"role": "user", "content": text}], **options)  # type: ignore[arg-type]


@pytest.fixture
def scripted() -> Iterator[Callable[..., Engine]]:
    """Opens scripted engines and closes them after the test."""
    opened: list[Engine] = []

    def open_engine(*rules: ScriptRule, **options: object) -> Engine:
        opened.append(Engine(TINY, backend="scripted", script=rules, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_engine
    for engine in opened:
        engine.close()


@pytest.fixture
def tiny() -> Iterator[Engine]:
    """The bundled model on the CPU."""
    with Engine(TINY, backend="cpu") as engine:
        yield engine
