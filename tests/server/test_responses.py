"""OpenAI's responses: the stateless part, as Codex uses it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from openjet_provider.server.responses_input import ResponsesBody, to_messages, to_request
from tests.server.conftest import Connect, events
from tests.server.script import ANSWER

PATH = "/v1/responses"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Weather of a city.",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


async def post(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    response = await client.post(PATH, json=body)
    assert response.status_code == 200, response.text
    return response.json()  # type: ignore[no-any-return]


async def stream(client: httpx.AsyncClient, **body: Any) -> list[dict[str, Any]]:
    response = await client.post(PATH, json={"stream": True, **body})
    assert response.status_code == 200, response.text
    return events(response.text)


def without_ids(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in items]


async def test_whole_answer(client: httpx.AsyncClient) -> None:
    body = await post(client, input="Hello", instructions="Be brief.")
    assert body["object"] == "response"
    assert body["status"] == "completed"
    reasoning, message = body["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "I should answer."}]
    assert message["content"][0]["text"] == ANSWER
    usage = body["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


async def test_order_of_events(client: httpx.AsyncClient) -> None:
    found = await stream(client, input="two cities", tools=[WEATHER])
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    kinds = [event["type"].removeprefix("response.") for event in found]
    assert kinds[:2] == ["created", "in_progress"]
    assert kinds[-1] == "completed"
    assert [kind for kind in kinds if "item" in kind] == [
        "output_item.added",
        "output_item.done",
    ] * 4
    filled = [kind for kind in kinds[2:-1] if "item" not in kind and not kind.endswith(".delta")]
    assert filled == [
        "content_part.added",
        "reasoning_text.done",
        "content_part.done",
        "content_part.added",
        "output_text.done",
        "content_part.done",
        "function_call_arguments.done",
        "function_call_arguments.done",
    ]
    done = [event["item"] for event in found if event["type"].endswith("output_item.done")]
    assert found[-1]["response"]["output"] == done


async def test_stream_adds_up_to_the_whole(client: httpx.AsyncClient) -> None:
    whole = await post(client, input="two cities", tools=[WEATHER])
    found = await stream(client, input="two cities", tools=[WEATHER])
    final = found[-1]["response"]
    assert without_ids(final["output"]) == without_ids(whole["output"])
    deltas: dict[str, str] = {}
    for event in found:
        if event["type"].endswith(".delta"):
            deltas[event["item_id"]] = deltas.get(event["item_id"], "") + event["delta"]
    for item in final["output"]:
        text = item.get("arguments") or item["content"][0]["text"]
        assert deltas[item["id"]] == text


@pytest.mark.parametrize("interval", [0.0, 0.5], ids=["as they come", "at once"])
async def test_text_behind_a_call_is_an_item_of_its_own(connect: Connect, interval: float) -> None:
    """And the call stays whole, however many tokens come at once."""
    found = await stream(connect(interval=interval), input="Look and say so", tools=[WEATHER])
    done = [event["item"] for event in found if event["type"].endswith("output_item.done")]
    assert [item["type"] for item in done] == ["reasoning", "message", "function_call", "message"]
    assert done[2]["arguments"] == '{"city": "Oslo"}'
    assert [item["content"][0]["text"] for item in done[1::2]] == ["I look.", "\nI looked."]


async def test_cut_off(client: httpx.AsyncClient) -> None:
    body = await post(client, input="Hello", max_output_tokens=3)
    assert body["status"] == "incomplete"
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}
    *_, last = await stream(client, input="Hello", max_output_tokens=3)
    assert last["type"] == "response.incomplete"


async def test_an_error_in_the_middle(client: httpx.AsyncClient) -> None:
    *_, last = await stream(client, input="slowly", timeout=0.2)
    assert last["type"] == "response.failed"
    assert last["response"]["error"]["code"] == "timeout"


def test_items_become_messages() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": '{"p": "/"}'}
    body = ResponsesBody(
        instructions="I",
        input=[
            {"role": "developer", "content": [{"type": "input_text", "text": "D"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "U"}]},
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "R"}]},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "A"}],
            },
            call,
            {"type": "function_call_output", "call_id": "c1", "output": "bin"},
            {"type": "web_search_call", "status": "completed"},
        ],
    )
    system, developer, user, answer, result = to_messages(body)
    assert system == {"role": "system", "content": "I"}
    assert developer["role"] == "developer"
    assert user["content"][0]["text"] == "U"
    assert answer["reasoning_content"] == "R"
    assert answer["content"] == [{"type": "output_text", "text": "A"}]
    assert answer["tool_calls"][0]["function"] == {"name": "ls", "arguments": '{"p": "/"}'}
    assert result == {"role": "tool", "tool_call_id": "c1", "content": "bin"}


def test_options_by_their_names_here() -> None:
    schema = {"type": "json_schema", "name": "r", "strict": True, "schema": {"type": "object"}}
    body = ResponsesBody(
        input="x",
        tools=[WEATHER, {"type": "web_search"}],
        tool_choice={"type": "function", "name": "get_weather"},
        parallel_tool_calls=False,
        reasoning={"effort": "low", "summary": "auto"},
        text={"format": schema, "verbosity": "low"},
        max_output_tokens=7,
    )
    request = to_request(body, "c")
    assert [tool["name"] for tool in request.tools] == ["get_weather"]
    assert request.tool_choice == {"type": "function", "function": {"name": "get_weather"}}
    assert request.parallel_tool_calls is False
    assert request.reasoning_effort == "low"
    assert request.response_format is not None
    assert request.response_format["json_schema"]["name"] == "r"
    assert request.max_tokens == 7


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "c"}, "conversation"),
        ({"background": True}, "background"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input"),
        ({"input": 7}, "input"),
        ({"tool_choice": {"type": "allowed_tools"}, "tools": [WEATHER]}, "tool_choice"),
    ],
)
async def test_refusals(client: httpx.AsyncClient, change: dict[str, Any], param: str) -> None:
    response = await client.post(PATH, json={"input": "Hello", **change})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
