"""A server on the scripted engine, with agents in known states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from openjet_provider.chat.types import ChatRequest
from openjet_provider.engine import Engine, ScriptRule
from openjet_provider.remote import RemoteEngine
from openjet_provider.server.background import serving
from openjet_provider.server.settings import Settings

CALL = "<tool_call>\n<function=ping>\n</function>\n</tool_call>"
PING: dict[str, Any] = {"type": "function", "function": {"name": "ping", "parameters": {}}}
SCRIPT = (
    ScriptRule(match="ping", reply=f"I ping.\n</think>\n\n{CALL}"),
    ScriptRule(match="slowly", reply="</think>\n\n" + "one two three " * 600, delay_s=0.1),
    ScriptRule(reply="I answer.\n</think>\n\nDone."),
)


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with Engine("openjet-tiny", backend="scripted", script=SCRIPT, context=4096) as opened:
        yield opened


@pytest.fixture
def url(engine: Engine) -> Iterator[str]:
    """A server that nobody has asked for anything yet."""
    with serving(engine, Settings(drain=0)) as found:
        yield found


@pytest.fixture
def remote(url: str) -> Iterator[RemoteEngine]:
    with RemoteEngine(url) as attached:
        yield attached


def ask(engine: RemoteEngine, text: str, client: str, **more: Any) -> Any:
    """A started turn."""
    messages = [{"role": "user", "content": text}]
    return engine.chat(
        ChatRequest(
            messages=messages, tools=[PING] if text == "ping" else (), client=client, **more
        )
    )


@pytest.fixture
def agents(remote: RemoteEngine) -> Iterator[None]:
    """`writer` writes slowly, `caller` has called a tool, `hostile` tries to leave its cell."""
    ask(remote, "ping", "caller").result()
    ask(remote, "Hi \x1b[31m<b>bold</b> [red]", "hostile").result()
    with ask(remote, "slowly, please", "writer") as stream:
        deltas = iter(stream)
        while "three" not in next(deltas).content:
            pass
        next(deltas)  # two make a speed
        yield
