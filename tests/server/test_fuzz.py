"""Whatever JSON comes: an answer or a 4xx in the interface's shape, and the server lives on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openjet_provider.engine import Engine
from openjet_provider.server.openapi import OPERATIONS
from tests.server.conftest import live
from tests.server.script import WEATHER
from tests.waiting import wait_until_idle

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["user", "assistant", "system", "tool", "auto", "none", "function", "text"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
PART = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(
            ["text", "thinking", "tool_use", "tool_result", "image_url", "input_text", "refusal"]
        )
        | JSON,
        **dict.fromkeys(("text", "thinking", "id", "name", "input", "content"), JSON),
        "tool_use_id": JSON,
    },
)
CALL = st.fixed_dictionaries(
    {},
    optional={
        "id": JSON,
        "function": st.fixed_dictionaries({}, optional={"name": JSON, "arguments": JSON}) | JSON,
    },
)
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["user", "assistant", "system", "tool", "developer"]) | JSON,
        "type": st.sampled_from(["message", "function_call", "function_call_output", "reasoning"]),
        "content": st.text(max_size=8) | st.lists(PART, max_size=3) | JSON,
        "tool_calls": st.lists(CALL, max_size=2) | JSON,
        **dict.fromkeys(
            ("tool_call_id", "reasoning_content", "name", "output", "call_id", "prefix"), JSON
        ),
    },
)
# What a field holds when it is not just anything.
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "messages": st.lists(MESSAGE, min_size=1, max_size=3),
    "input": st.text(max_size=8) | st.lists(MESSAGE, min_size=1, max_size=3),
    "prompt": st.text(max_size=8) | st.lists(st.integers(0, 7000), max_size=4),
    "tokens": st.lists(st.integers(0, 7000), max_size=4),
    "tools": st.lists(st.just(WEATHER) | PART, max_size=2),
    "max_tokens": st.integers(1, 5),
    "max_output_tokens": st.integers(1, 5),
    "max_completion_tokens": st.integers(1, 5),
    "stream": st.booleans(),
    "model": st.none(),
    "n": st.just(1),
    "best_of": st.just(1),
    "timeout": st.just(5),
}


def bodies(fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Bodies with the interface's fields: usually sensible, sometimes anything."""
    required = [name for name in fields if name in ("messages", "input", "prompt", "tokens")]
    made = {
        name: LIKELY[name] if name in LIKELY and name in required else LIKELY.get(name, JSON) | JSON
        for name in fields
    }
    return st.fixed_dictionaries(
        {name: made[name] for name in required},
        optional={name: value for name, value in made.items() if name not in required},
    )


@pytest.fixture(scope="module")
def client(engine: Engine) -> Iterator[httpx.Client]:
    with live(engine, request_timeout=5) as url, httpx.Client(base_url=url, timeout=60) as made:
        yield made


@pytest.mark.parametrize(
    "operation", [op for op in OPERATIONS if op.body], ids=lambda operation: operation.path
)
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_body(client: httpx.Client, operation: Any, data: st.DataObject) -> None:
    body = data.draw(bodies(operation.body.model_fields) | JSON)
    response = client.post(operation.path, json=body)
    assert response.status_code < 500, response.text
    if response.status_code != 200:
        error = response.json()["error"]
        assert error["message"]
        assert error["type"]
    elif "event-stream" in response.headers["content-type"]:
        assert "internal error" not in response.text


def test_afterwards_all_is_well(client: httpx.Client, engine: Engine) -> None:
    wait_until_idle(engine)
    hello = {"messages": [{"role": "user", "content": "Hello"}]}
    assert client.post("/v1/chat/completions", json=hello).status_code == 200
