"""Engines whose answers are known: the real engine on the scripted backend, no mock of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from openjet_provider.engine import Engine, ScriptRule
from tests.waiting import wait_until_idle

# The chat format starts an answer inside the thinking.
THOUGHT = "I should answer.\n</think>\n\n"
CALL = (
    "<tool_call>\n<function=paint>\n<parameter=colour>\n{colour}\n</parameter>\n"
    "<parameter=coats>\n{coats}\n</parameter>\n</function>\n</tool_call>"
)
TWO_CALLS = CALL.format(colour="blue", coats=2) + "\n" + CALL.format(colour="red", coats=3)
ANSWER = "The wall is blue now."

PAINT = {
    "type": "function",
    "function": {
        "name": "paint",
        "description": "Paint the wall.",
        "parameters": {
            "type": "object",
            "properties": {"colour": {"type": "string"}, "coats": {"type": "integer"}},
            "required": ["colour", "coats"],
        },
    },
}

SCRIPT = (
    ScriptRule(match="two walls", reply=f"{THOUGHT}I paint both.\n\n{TWO_CALLS}<|im_end|>"),
    ScriptRule(match="one wall", reply=f"{THOUGHT}{CALL.format(colour='blue', coats=2)}<|im_end|>"),
    ScriptRule(match="slowly", reply=THOUGHT + "one two three four five " * 400, delay_s=0.02),
    ScriptRule(match="break down", reply=THOUGHT + ANSWER, fault_after=5),
    ScriptRule(match="many at once", reply=f"{THOUGHT}{ANSWER}<|im_end|>", per_step=4),
    ScriptRule(reply=f"{THOUGHT}{ANSWER}<|im_end|>"),
)

CONTEXT = 4096


def script_options(**more: Any) -> dict[str, Any]:
    """Engine options of the scripted engine; equal options share one engine."""
    return {"backend": "scripted", "script": SCRIPT, "context": CONTEXT, "agents": 8, **more}


@pytest.fixture
def scripted() -> Iterator[dict[str, Any]]:
    """Options of the scripted engine, which this keeps open for the test."""
    options = script_options()
    with Engine("openjet-tiny", **options):
        yield options


@pytest.fixture
def idle(scripted: dict[str, Any]) -> Callable[[], None]:
    """Waits until the engine runs nothing."""

    def wait() -> None:
        with Engine("openjet-tiny", **scripted) as engine:
            wait_until_idle(engine)

    return wait
