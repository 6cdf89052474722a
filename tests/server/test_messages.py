"""Anthropic's interface: blocks in, blocks out, the order of its events, its errors."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from openjet_provider.chat.messages import normalise_messages
from openjet_provider.server.messages import MessagesBody, to_request
from tests.server.conftest import Connect, say
from tests.server.script import ANSWER, CONTEXT

PATH = "/v1/messages"
WEATHER = {
    "name": "get_weather",
    "description": "Weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


async def post(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    response = await client.post(PATH, json={"max_tokens": 500, **body})
    assert response.status_code == 200, response.text
    return response.json()  # type: ignore[no-any-return]


async def stream(client: httpx.AsyncClient, **body: Any) -> list[dict[str, Any]]:
    response = await client.post(PATH, json={"max_tokens": 500, "stream": True, **body})
    assert response.status_code == 200, response.text
    found = []
    for block in response.text.strip().split("\n\n"):
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


async def test_whole_answer(client: httpx.AsyncClient) -> None:
    body = await post(client, **say("Hello"))
    assert body["type"] == "message"
    assert body["role"] == "assistant"
    assert body["stop_reason"] == "end_turn"
    thinking, text = body["content"]
    assert thinking["thinking"] == "I should answer."
    assert thinking["signature"]
    assert text == {"type": "text", "text": ANSWER}


async def test_order_of_events(client: httpx.AsyncClient) -> None:
    found = await stream(client, **say("two cities"), tools=[WEATHER])
    kinds = [event["type"] for event in found if event["type"] != "ping"]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    blocks = [event for event in found if event["type"].startswith("content_block")]
    open_block = None
    for event in blocks:  # one block at a time, numbered from 0
        if event["type"] == "content_block_start":
            assert open_block is None
            open_block = event["index"]
        assert event["index"] == open_block
        if event["type"] == "content_block_stop":
            open_block = None
    started = [e["content_block"]["type"] for e in blocks if e["type"] == "content_block_start"]
    assert started == ["thinking", "text", "tool_use", "tool_use"]
    assert found[-2]["delta"]["stop_reason"] == "tool_use"
    assert found[0]["message"]["usage"]["input_tokens"] > 0
    assert found[-2]["usage"]["output_tokens"] > 0


async def test_stream_adds_up_to_the_whole(client: httpx.AsyncClient) -> None:
    asked = {**say("two cities"), "tools": [WEATHER]}
    whole = (await post(client, **asked))["content"]
    blocks: list[dict[str, Any]] = []
    for event in await stream(client, **asked):
        if event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "json": ""})
        if event["type"] == "content_block_delta":
            delta = event["delta"]
            key = "json" if "partial_json" in delta else next(k for k in delta if k != "type")
            blocks[-1][key] += delta.get(key, delta.get("partial_json"))
    for block, expected in zip(blocks, whole, strict=True):
        if block["type"] == "tool_use":
            assert json.loads(block["json"]) == expected["input"]
            assert block["name"] == expected["name"]
            assert block["id"] != expected["id"]
        else:
            del block["json"]
            assert block == expected


@pytest.mark.parametrize("interval", [0.0, 0.5], ids=["as they come", "at once"])
async def test_text_behind_a_call_is_a_block_of_its_own(connect: Connect, interval: float) -> None:
    """And the call stays whole, however many tokens come at once."""
    client = connect(interval=interval)
    found = await stream(client, **say("Look and say so"), tools=[WEATHER])
    starts = [event for event in found if event["type"] == "content_block_start"]
    kinds = {event["index"]: event["content_block"]["type"] for event in starts}
    assert list(kinds.values()) == ["thinking", "text", "tool_use", "text"]
    texts = dict.fromkeys(kinds, "")
    for event in found:
        if event["type"] == "content_block_delta" and event["delta"]["type"] != "signature_delta":
            kind, text = (event["delta"][key] for key in event["delta"])
            assert kind == {"tool_use": "input_json_delta"}.get(
                kinds[event["index"]], f"{kinds[event['index']]}_delta"
            )
            texts[event["index"]] += text
    assert texts == {0: "I should answer.", 1: "I look.", 2: '{"city": "Oslo"}', 3: "\nI looked."}


async def test_cached_tokens_are_counted_apart(client: httpx.AsyncClient) -> None:
    asked = say("A question " * 40)
    first = await post(client, **asked)
    again = await post(client, **asked)
    usage = again["usage"]
    assert usage["cache_read_input_tokens"] > 0
    total = usage["input_tokens"] + usage["cache_read_input_tokens"]
    assert total == sum(first["usage"][name] for name in usage if "input" in name)


def test_blocks_become_messages() -> None:
    """Results come first, in the order of the calls; the system's blocks are joined."""
    call_1 = {"type": "tool_use", "id": "t1", "name": "ls", "input": {"p": "/"}}
    call_2 = {"type": "tool_use", "id": "t2", "name": "ls", "input": {"p": "/x"}}
    failed = {"type": "tool_result", "tool_use_id": "t2", "is_error": True, "content": "no dir"}
    listed = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [{"type": "text", "text": "bin"}],
    }
    body = MessagesBody(
        max_tokens=8,
        system=[
            {"type": "text", "text": "x-anthropic-billing-header: cch=aaaaa;"},
            {"type": "text", "text": "S1"},
            {"type": "text", "text": "S2", "cache_control": {"type": "ephemeral"}},
        ],
        messages=[
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "R", "signature": "x"},
                    {"type": "text", "text": "T"},
                    call_1,
                    call_2,
                ],
            },
            {"role": "user", "content": [{"type": "text", "text": "note"}, failed, listed]},
        ],
    )
    system, go, answer, first, second, note = normalise_messages(to_request(body, None).messages)
    assert system == {"role": "system", "content": "S1\n\nS2"}
    assert go["content"] == "go"
    assert (answer["reasoning_content"], answer["content"]) == ("R", "T")
    assert [call["function"]["arguments"] for call in answer["tool_calls"]] == [
        {"p": "/"},
        {"p": "/x"},
    ]
    assert (first["role"], first["content"]) == ("tool", "bin")
    assert (second["role"], second["content"]) == ("tool", "no dir")
    assert note == {"role": "user", "content": "note"}


def test_options_by_their_names_here() -> None:
    body = MessagesBody(
        max_tokens=8,
        messages=say("x")["messages"],
        tools=[WEATHER, {"type": "web_search_20250305", "name": "web_search"}],
        tool_choice={"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True},
        thinking={"type": "enabled", "budget_tokens": 100},
        output_config={"effort": "high"},
        stop_sequences=["END"],
        metadata={"user_id": "u"},
    )
    request = to_request(body, "u")
    assert [tool["name"] for tool in request.tools] == ["get_weather"]
    assert request.tool_choice == {"type": "function", "function": {"name": "get_weather"}}
    assert request.parallel_tool_calls is False
    assert request.enable_thinking is True
    assert request.thinking_budget == 100
    assert request.reasoning_effort == "high"
    assert request.stop == ["END"]
    assert request.client == "u"


async def test_a_stop_sequence_is_named(client: httpx.AsyncClient) -> None:
    asked = {**say("Hello"), "stop_sequences": ["never", " is blue"]}
    body = await post(client, **asked)
    assert body["content"][-1]["text"] == "The wall"
    assert (body["stop_reason"], body["stop_sequence"]) == ("stop_sequence", " is blue")
    assert (await stream(client, **asked))[-2]["delta"]["stop_sequence"] == " is blue"


async def test_no_thinking(client: httpx.AsyncClient) -> None:
    count = (await client.post(f"{PATH}/count_tokens", json=say("Hello"))).json()
    off = {**say("Hello"), "thinking": {"type": "disabled"}}
    without = (await client.post(f"{PATH}/count_tokens", json=off)).json()
    assert without["input_tokens"] > count["input_tokens"]  # the thinking is opened and closed


async def test_an_answer_is_continued(client: httpx.AsyncClient) -> None:
    messages = [*say("Hello")["messages"], {"role": "assistant", "content": "2+2="}]
    body = await post(client, messages=messages)
    assert body["content"][0]["text"] == "4. And 3+3=6."


async def test_count_tokens(client: httpx.AsyncClient) -> None:
    asked = {**say("Hello"), "system": "Be brief.", "tools": [WEATHER]}
    count = (await client.post(f"{PATH}/count_tokens", json=asked)).json()["input_tokens"]
    usage = (await post(client, **asked))["usage"]
    assert count == usage["input_tokens"] + usage["cache_read_input_tokens"]


async def test_a_line_that_changes_with_every_request_costs_nothing(
    client: httpx.AsyncClient,
) -> None:
    def system(mark: str) -> list[dict[str, str]]:
        head = f"x-anthropic-billing-header: cc_version=1.0; cch={mark};"
        return [{"type": "text", "text": head}, {"type": "text", "text": "An agent. " * 40}]

    await post(client, **say("Hello"), system=system("aaaaa"))
    second = await post(client, **say("Hello"), system=system("bbbbb"))
    assert second["usage"]["cache_read_input_tokens"] > second["usage"]["input_tokens"]


async def test_that_line_can_be_kept(connect: Connect) -> None:
    asked = say("Hello", system="x-anthropic-billing-header: cch=aaaaa;\nAn agent.")
    counts = []
    for kept in (False, True):
        client = connect(keep_billing_header=kept)
        response = await client.post(f"{PATH}/count_tokens", json=asked)
        counts.append(response.json()["input_tokens"])
        usage = (await post(client, **asked))["usage"]
        assert counts[-1] == usage["input_tokens"] + usage["cache_read_input_tokens"]
    assert counts[1] > counts[0]


async def test_errors_have_this_interfaces_shape(
    client: httpx.AsyncClient, connect: Connect
) -> None:
    too_long = await client.post(PATH, json=say("word " * 5000, max_tokens=5))
    assert too_long.status_code == 400
    error = too_long.json()
    assert error["type"] == "error"
    assert error["error"]["type"] == "invalid_request_error"
    assert f"tokens > {CONTEXT} maximum" in error["error"]["message"]
    assert "prompt is too long" in error["error"]["message"]
    expected = {
        "not_found_error": client.post(PATH, json=say("x", model="gpt-9", max_tokens=5)),
        "authentication_error": connect(api_keys=("k",)).post(PATH, json=say("x")),
        "request_too_large": connect(max_body=5).post(PATH, json=say("x")),
        "overloaded_error": connect(served=None).post(PATH, json=say("x")),
        "timeout_error": client.post(PATH, json=say("slowly", timeout=0.1)),
    }
    for kind, response in expected.items():
        assert (await response).json()["error"]["type"] == kind
    *_, last = await stream(client, **say("slowly"), timeout=0.2)
    assert last["type"] == "error"
