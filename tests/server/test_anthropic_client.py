"""The official `anthropic` client against a running server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.conftest import say
from tests.server.script import MODEL
from tests.server.test_messages import WEATHER

anthropic = pytest.importorskip("anthropic")


@pytest.fixture
def sdk(url: str) -> Iterator[Any]:
    with anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0) as client:
        yield client


def test_messages(sdk: Any) -> None:
    answer = sdk.messages.create(model=MODEL, max_tokens=500, **say("Hello"))
    assert [block.type for block in answer.content] == ["thinking", "text"]
    counted = sdk.messages.count_tokens(model=MODEL, **say("Hello"))
    assert counted.input_tokens == answer.usage.input_tokens + answer.usage.cache_read_input_tokens


def test_streams_a_tool_call_and_sends_the_result(sdk: Any) -> None:
    asked = say("Weather in Oslo?", model=MODEL, max_tokens=500, tools=[WEATHER])
    with sdk.messages.stream(**asked) as stream:
        kinds = {event.type for event in stream}
        answer = stream.get_final_message()
    assert {"thinking", "content_block_stop", "message_stop"} <= kinds
    call = answer.content[-1]
    assert (call.name, call.input) == ("get_weather", {"city": "Oslo"})
    assert answer.stop_reason == "tool_use"
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "Rain."}
    messages = [
        *asked["messages"],
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [result]},
    ]
    second = sdk.messages.create(**{**asked, "messages": messages})
    assert second.usage.cache_read_input_tokens > second.usage.input_tokens


def test_errors(sdk: Any) -> None:
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        sdk.messages.create(model=MODEL, max_tokens=5, **say("word " * 5000))
    with pytest.raises(anthropic.NotFoundError):
        sdk.messages.create(model="other", max_tokens=5, **say("x"))
