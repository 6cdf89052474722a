"""OpenAI's chat endpoint: bodies, the order of a stream, tools, log-probabilities, errors."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from openjet_provider.engine import Engine, ScriptRule
from tests.server.conftest import Connect, events, say
from tests.server.script import ANSWER, CONTEXT, MODEL, OPTIONS, PING, THOUGHT, WEATHER

PATH = "/v1/chat/completions"


async def post(client: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    response = await client.post(PATH, json=body)
    assert response.status_code == 200, response.text
    return response.json()  # type: ignore[no-any-return]


async def stream(client: httpx.AsyncClient, body: dict[str, Any]) -> list[Any]:
    response = await client.post(PATH, json={**body, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return events(response.text)


def assembled(chunks: list[Any]) -> dict[str, Any]:
    """What a client puts together from the deltas."""
    out: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    for chunk in chunks:
        for choice in chunk["choices"] if chunk else ():
            delta = choice["delta"]
            for name in ("content", "reasoning_content"):
                out[name] += delta.get(name) or ""
            for piece in delta.get("tool_calls", ()):
                if piece["index"] == len(out["tool_calls"]):
                    out["tool_calls"].append({"name": piece["function"]["name"], "arguments": ""})
                out["tool_calls"][piece["index"]]["arguments"] += piece["function"]["arguments"]
            out["finish_reason"] = choice["finish_reason"]
    return out


async def test_whole_answer(client: httpx.AsyncClient) -> None:
    body = await post(client, say("Hello", model=MODEL))
    assert body["object"] == "chat.completion"
    assert body["model"] == MODEL
    (choice,) = body["choices"]
    assert choice["message"]["content"] == ANSWER
    assert choice["message"]["reasoning_content"] == "I should answer."
    assert choice["finish_reason"] == "stop"
    assert choice["logprobs"] is None
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] < usage["completion_tokens"]


async def test_second_turn_is_cached(client: httpx.AsyncClient) -> None:
    first = await post(client, say("A question " * 40))
    answer = first["choices"][0]["message"]
    messages = [*say("A question " * 40)["messages"], answer, *say("And now?")["messages"]]
    second = await post(client, {"messages": messages})
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= first["usage"]["prompt_tokens"]


async def test_order_of_a_stream(client: httpx.AsyncClient) -> None:
    chunks = await stream(client, say("Hello", stream_options={"include_usage": True}))
    *deltas, finish, usage, done = chunks
    assert deltas[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all("role" not in chunk["choices"][0]["delta"] for chunk in deltas[1:])
    assert finish["choices"] == [
        {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    ]
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] > 0
    assert all(chunk["usage"] is None for chunk in [*deltas, finish])
    assert done is None
    assert len({chunk["id"] for chunk in chunks[:-1]}) == 1
    assert {chunk["object"] for chunk in chunks[:-1]} == {"chat.completion.chunk"}


async def test_chunks_count_what_was_read_and_not_how_far_the_engine_got(connect: Connect) -> None:
    """It makes several tokens a step, also behind a stop string."""
    rule = ScriptRule(reply=f"{THOUGHT}one two STOP{' more' * 50}", per_step=8)
    options = {"include_usage": True, "continuous_usage_stats": True}
    with Engine(MODEL, **{**OPTIONS, "script": (rule,)}) as engine:
        body = say("Go", stop=["STOP"], stream_options=options)
        *deltas, finish, usage, _ = await stream(connect(engine), body)
    counts = [chunk["usage"]["completion_tokens"] for chunk in [*deltas, finish]]
    final = usage["usage"]
    assert assembled(deltas)["content"].strip() == "one two"
    assert counts == sorted(counts)
    assert counts[-1] == final["completion_tokens"]
    assert finish["usage"] == final


async def test_no_usage_unless_asked_for(client: httpx.AsyncClient) -> None:
    chunks = await stream(client, say("Hello"))
    assert all("usage" not in chunk and chunk["choices"] for chunk in chunks[:-1])


@pytest.mark.parametrize("text", ["Hello", "Weather in Oslo?", "two cities", "Alive?"])
async def test_stream_adds_up_to_the_whole(client: httpx.AsyncClient, text: str) -> None:
    body = say(text, tools=[WEATHER, PING])
    whole = (await post(client, body))["choices"][0]
    streamed = assembled(await stream(client, body))
    assert streamed["content"] == (whole["message"]["content"] or "")
    assert streamed["reasoning_content"] == whole["message"].get("reasoning_content", "")
    calls = [call["function"] for call in whole["message"].get("tool_calls", ())]
    assert streamed["tool_calls"] == calls
    assert streamed["finish_reason"] == whole["finish_reason"]


async def test_tool_call(client: httpx.AsyncClient) -> None:
    choice = (await post(client, say("Weather in Oslo?", tools=[WEATHER])))["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["reasoning_content"] == "Use the tool."
    (call,) = choice["message"]["tool_calls"]
    assert call["id"]
    assert call["type"] == "function"
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}


async def test_tool_deltas_name_a_call_once(client: httpx.AsyncClient) -> None:
    chunks = await stream(client, say("two cities", tools=[WEATHER]))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk and chunk["choices"]]
    pieces = [piece for delta in deltas for piece in delta.get("tool_calls", ())]
    first = [piece for piece in pieces if "id" in piece]
    assert [piece["index"] for piece in first] == [0, 1]
    assert len({piece["id"] for piece in first}) == 2
    for piece in first:
        assert piece["type"] == "function"
        assert piece["function"] == {"name": "get_weather", "arguments": ""}
    for piece in pieces:
        if piece not in first:
            assert piece.keys() == {"index", "function"}
            assert piece["function"].keys() == {"arguments"}


async def test_arguments_are_never_empty(client: httpx.AsyncClient) -> None:
    streamed = assembled(await stream(client, say("Alive?", tools=[PING])))
    assert streamed["tool_calls"] == [{"name": "ping", "arguments": "{}"}]


async def test_tool_choice_none_is_fine_without_tools(client: httpx.AsyncClient) -> None:
    body = await post(client, say("Hello", tool_choice="none"))
    assert body["choices"][0]["finish_reason"] == "stop"
    await post(client, say("Hello", tool_choice="auto"))


async def test_both_limits_are_limits(client: httpx.AsyncClient) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        body = await post(client, say("Hello", **{name: 3}))
        assert body["choices"][0]["finish_reason"] == "length"
        assert body["usage"]["completion_tokens"] == 3
    body = await post(client, say("Hello", max_tokens=9, max_completion_tokens=2))
    assert body["usage"]["completion_tokens"] == 2


async def test_a_limit_larger_than_the_context_is_clamped(client: httpx.AsyncClient) -> None:
    body = await post(client, say("Hello", max_tokens=CONTEXT * 2))
    assert body["choices"][0]["finish_reason"] == "stop"


async def test_stop_string(client: httpx.AsyncClient) -> None:
    body = say("Hello", stop=["is blue", "never"])
    assert (await post(client, body))["choices"][0]["message"]["content"] == "The wall "
    streamed = assembled(await stream(client, body))
    assert streamed["content"] == "The wall "
    assert streamed["finish_reason"] == "stop"


async def test_logprobs(client: httpx.AsyncClient) -> None:
    body = say("Hello", logprobs=True, top_logprobs=2)
    whole = (await post(client, body))["choices"][0]["logprobs"]["content"]
    chunks = await stream(client, body)
    streamed = [
        item
        for chunk in chunks
        if chunk and chunk["choices"][0]["logprobs"]
        for item in chunk["choices"][0]["logprobs"]["content"]
    ]
    assert streamed == whole
    assert "".join(item["token"] for item in whole).strip() == ANSWER
    assert whole[0].keys() == {"token", "logprob", "bytes", "top_logprobs"}


async def test_extras_of_other_servers(client: httpx.AsyncClient) -> None:
    body = say(
        "Hello",
        top_k=-1,
        min_p=0.1,
        repetition_penalty=1.1,
        logit_bias={"5": -1},
        chat_template_kwargs={"enable_thinking": False},
        reasoning_effort="high",
        metadata={"user_id": "u"},
        store=False,
        cache_breakpoint=True,
    )
    await post(client, body)


async def test_a_system_message_in_the_middle_and_parts(client: httpx.AsyncClient) -> None:
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": [{"type": "text", "text": "Old"}], "cache_breakpoint": True},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "system", "content": "12 tokens left"},
        {"role": "user", "content": "Hello"},
    ]
    await post(client, {"messages": messages})


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "Hello"}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"n": 2}, "n"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 2**40}, "max_tokens"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"reasoning_effort": "heroic"}, "reasoning_effort"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"stop_token_ids": [1]}, "stop_token_ids"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"stop": [""]}, "stop"),
    ],
)
async def test_refusals_name_the_field(
    client: httpx.AsyncClient, change: dict[str, Any], param: str
) -> None:
    response = await client.post(PATH, json={**say("Hello"), **change})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert error["message"]


async def test_context_overflow(client: httpx.AsyncClient) -> None:
    for body in (say("word " * 5000), say("word " * 5000, stream=True)):
        response = await client.post(PATH, json=body)
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["code"] == "context_length_exceeded"
        assert f"This model's maximum context length is {CONTEXT} tokens" in error["message"]


async def test_models_by_name_and_alias(connect: Connect) -> None:
    client = connect(aliases=("claude-*",))
    for name in (MODEL, f"openjet/{MODEL}", "claude-sonnet-9", None):
        assert (await client.post(PATH, json=say("Hello", model=name))).status_code == 200
    response = await client.post(PATH, json=say("Hello", model="gpt-9"))
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"
    assert MODEL in response.json()["error"]["message"]
