"""The official `openai` client against a running server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.server.script import ANSWER, CONTEXT, MODEL, WEATHER
from tests.server.test_responses import WEATHER as FLAT_WEATHER

openai = pytest.importorskip("openai")

HELLO = [{"role": "user", "content": "Hello"}]
OSLO = [{"role": "user", "content": "Weather in Oslo?"}]


@pytest.fixture
def sdk(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client:
        yield client


def test_chat(sdk: openai.OpenAI) -> None:
    answer = sdk.chat.completions.create(model=MODEL, messages=HELLO)
    assert answer.choices[0].message.content == ANSWER
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0
    assert answer._request_id.startswith("req_")


def test_streamed_tool_call(sdk: openai.OpenAI) -> None:
    with sdk.chat.completions.stream(
        model=MODEL, messages=OSLO, tools=[WEATHER], stream_options={"include_usage": True}
    ) as stream:
        kinds = {event.type for event in stream}
        answer = stream.get_final_completion()
    assert "tool_calls.function.arguments.done" in kinds
    (call,) = answer.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Oslo"}
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.usage.total_tokens > 0


def test_tool_results_go_back(sdk: openai.OpenAI) -> None:
    first = sdk.chat.completions.create(model=MODEL, messages=OSLO, tools=[WEATHER])
    call = first.choices[0].message.tool_calls[0]
    result = {"role": "tool", "tool_call_id": call.id, "content": "Rain."}
    messages = [*OSLO, first.choices[0].message, result]
    second = sdk.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER])
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens


def test_completions(sdk: openai.OpenAI) -> None:
    answer = sdk.completions.create(model=MODEL, prompt="2+2=", max_tokens=2, logprobs=1)
    assert answer.choices[0].text == "4."
    assert len(answer.choices[0].logprobs.tokens) == 2


def test_models(sdk: openai.OpenAI) -> None:
    (model,) = sdk.models.list()
    assert model.max_model_len == CONTEXT
    assert sdk.models.retrieve(MODEL).id == MODEL


def test_errors_are_the_clients_own(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "word " * 5000}]
        )
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError):
        sdk.chat.completions.create(model="other", messages=HELLO)
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.chat.completions.with_raw_response.create(model=MODEL, messages=HELLO, n=2)
    assert caught.value.param == "n"


def test_an_error_in_the_middle_of_a_stream(sdk: openai.OpenAI) -> None:
    stream = sdk.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "slowly"}],
        stream=True,
        extra_body={"timeout": 0.2},
    )
    with pytest.raises(openai.APIError, match="timeout"):
        for _ in stream:
            pass


def test_responses(sdk: openai.OpenAI) -> None:
    assert sdk.responses.create(model=MODEL, input="Hello").output_text == ANSWER
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.responses.create(model=MODEL, input="word " * 5000)
    assert caught.value.code == "context_length_exceeded"


def test_responses_stream_a_tool_call_and_take_the_result(sdk: openai.OpenAI) -> None:
    asked = {
        "model": MODEL,
        "tools": [FLAT_WEATHER],
        "store": False,
        "instructions": "Help. " * 30,
    }
    first = [{"role": "user", "content": "Weather in Oslo?"}]
    with sdk.responses.stream(input=first, **asked) as stream:
        kinds = [event.type for event in stream]
        answer = stream.get_final_response()
    assert kinds[-1] == "response.completed"
    call = answer.output[-1]
    assert json.loads(call.arguments) == {"city": "Oslo"}
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."}
    sent = [*first, *(item.model_dump(exclude_none=True) for item in answer.output), result]
    second = sdk.responses.create(input=sent, **asked)
    assert second.usage.input_tokens_details.cached_tokens >= answer.usage.input_tokens
