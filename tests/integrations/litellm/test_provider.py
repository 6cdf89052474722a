"""`openjet/<model>` in LiteLLM on the scripted engine: shapes, streams, usage, errors."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

pytest.importorskip("litellm")

import litellm

import litellm_openjet
from litellm_openjet import openjet_llm
from openjet_provider.engine import Engine, ScriptRule
from tests.integrations.conftest import ANSWER, CALL, CONTEXT, PAINT, THOUGHT, script_options

# Pydantic warns about LiteLLM's own types.
pytestmark = pytest.mark.filterwarnings("ignore:::pydantic", "ignore:::litellm")

MODEL = "openjet/openjet-tiny"


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """LiteLLM's settings are global; every test starts and leaves with its own."""
    monkeypatch.setattr(litellm, "drop_params", False)
    monkeypatch.setattr(litellm, "suppress_debug_info", True)
    monkeypatch.setattr(litellm, "custom_provider_map", [])
    litellm_openjet.register()
    yield
    openjet_llm.close()


@pytest.fixture
def ask(scripted):
    """The arguments of a call."""

    def arguments(text="Hi", **more):
        messages = [{"role": "user", "content": text}]
        return {"model": MODEL, "messages": messages, "engine_options": scripted, **more}

    return arguments


def texts(chunks):
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


# -- registration --


def test_registering_again_changes_nothing():
    litellm_openjet.register()
    assert [item["provider"] for item in litellm.custom_provider_map] == ["openjet"]
    assert litellm.get_llm_provider(MODEL)[:2] == ("openjet-tiny", "openjet")
    assert "tools" in litellm.get_supported_openai_params(MODEL)


def test_other_providers_are_left_alone(monkeypatch):
    other = {"provider": "other", "custom_handler": object()}
    monkeypatch.setattr(litellm, "custom_provider_map", [other])
    litellm_openjet.register()
    assert other in litellm.custom_provider_map
    assert len(litellm.custom_provider_map) == 2


def test_the_model_map_knows_the_models(ask):
    assert litellm.supports_function_calling(MODEL)
    assert litellm.supports_reasoning(MODEL)
    assert litellm.supports_response_schema(MODEL)
    litellm.completion(**ask())
    assert litellm.get_model_info(MODEL)["max_input_tokens"] == CONTEXT


def test_the_model_map_follows_an_engine_that_is_opened_again():
    for context in (CONTEXT, CONTEXT // 2):
        options = script_options(context=context)
        litellm.completion(MODEL, [{"role": "user", "content": "Hi"}], engine_options=options)
        assert litellm.get_model_info(MODEL)["max_input_tokens"] == context
        openjet_llm.close()


# -- answers --


def test_completion(ask):
    response = litellm.completion(**ask())
    message = response.choices[0].message
    assert message.content == ANSWER
    assert message.reasoning_content == "I should answer."
    assert response.choices[0].finish_reason == "stop"
    assert response.model == "openjet-tiny"
    usage = response.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 < usage.completion_tokens_details.reasoning_tokens < usage.completion_tokens
    assert litellm.completion_cost(response, custom_llm_provider="openjet") == 0.0


async def test_all_four_ways_say_the_same(ask):
    for text in ("Hi", "many at once", "one wall", "two walls"):
        call = ask(text, tools=[PAINT])
        messages = [call["messages"]] * 2
        plain = litellm.completion(**call)
        streamed = list(litellm.completion(**call, stream=True))
        astreamed = [c async for c in await litellm.acompletion(**call, stream=True)]
        answers = [
            plain,
            await litellm.acompletion(**call),
            litellm.stream_chunk_builder(streamed, messages=messages[0]),
            litellm.stream_chunk_builder(astreamed, messages=messages[1]),
        ]
        for answer in answers:
            ours, theirs = answer.choices[0], plain.choices[0]
            assert (ours.message.content or "") == (theirs.message.content or "")
            assert ours.message.reasoning_content == theirs.message.reasoning_content
            assert ours.finish_reason == theirs.finish_reason
            assert calls(ours.message) == calls(theirs.message)
            assert answer.usage.completion_tokens == plain.usage.completion_tokens
            assert answer.usage.prompt_tokens == plain.usage.prompt_tokens


def calls(message):
    return [
        (call.function.name, json.loads(call.function.arguments))
        for call in message.tool_calls or []
    ]


def test_parallel_calls(ask):
    message = litellm.completion(**ask("two walls", tools=[PAINT])).choices[0].message
    assert calls(message) == [
        ("paint", {"colour": "blue", "coats": 2}),
        ("paint", {"colour": "red", "coats": 3}),
    ]
    assert len({call.id for call in message.tool_calls}) == 2


def test_a_tool_round_trip_without_content(ask):
    """LiteLLM removes an assistant's `content: None`; callers add keys of their own."""
    answer = litellm.completion(**ask("one wall", tools=[PAINT])).choices[0].message
    call = ask("one wall", tools=[PAINT])
    call["messages"][0]["cache_breakpoint"] = True
    call["messages"] += [
        answer.model_dump(),
        {"role": "tool", "tool_call_id": answer.tool_calls[0].id, "content": "done"},
    ]
    assert litellm.completion(**call).choices


def test_streamed_usage_survives(ask):
    """In OpenAI's order LiteLLM loses the usage and invents one with its own tokenizer."""
    expected = litellm.completion(**ask()).usage
    chunks = list(litellm.completion(**ask(), stream=True, stream_options={"include_usage": True}))
    reported = [c.usage for c in chunks if getattr(c, "usage", None)]
    assert len(reported) == 1
    assert reported[0].completion_tokens == expected.completion_tokens
    assert reported[0].prompt_tokens == expected.prompt_tokens
    assert reported[0].completion_tokens_details.reasoning_tokens > 0
    assert reported[0].prompt_tokens_details.cached_tokens is not None
    assert texts(chunks) == ANSWER


def test_deltas_are_coalesced_but_the_first_is_not_held_back(ask, monkeypatch):
    """LiteLLM spends about a millisecond on a chunk."""
    monkeypatch.setattr("litellm_openjet.responses.COALESCE_S", 3600)  # by number alone
    start = time.perf_counter()
    stream = litellm.completion(**ask("slowly", max_tokens=120), stream=True)
    next(stream)
    assert time.perf_counter() - start < 60
    assert len(list(stream)) < 60


def test_text_behind_a_call_stays_behind_it(ask, monkeypatch):
    """Also where all of it travels as one."""
    monkeypatch.setattr("litellm_openjet.responses.COALESCE_S", 3600)
    monkeypatch.setattr("litellm_openjet.responses.COALESCE_DELTAS", 3600)
    paint = CALL.format(colour="blue", coats=2)
    script = (ScriptRule(reply=f"{THOUGHT}I paint.\n{paint}\nIt is blue."),)
    call = ask(tools=[PAINT], engine_options=script_options(script=script))
    found = []
    for chunk in litellm.completion(**call, stream=True):
        delta = chunk.choices[0].delta
        found += [name for name in ("content", "tool_calls") if getattr(delta, name, None)]
    assert found == ["content", "tool_calls", "content"]


def test_stop_and_limits(ask):
    assert litellm.completion(**ask(stop="wall")).choices[0].message.content == "The "
    assert litellm.completion(**ask(stop=["wall"])).choices[0].message.content == "The "
    response = litellm.completion(**ask(max_completion_tokens=3))
    assert response.choices[0].finish_reason == "length"
    assert response.usage.completion_tokens == 3


def test_our_own_options(ask):
    for more in (
        {"enable_thinking": True, "top_k": 3, "min_p": 0.1, "seed": 4},
        {"extra_body": {"top_k": 3, "chat_template_kwargs": {"preserve_thinking": False}}},
        {"reasoning_effort": "low", "allowed_openai_params": ["reasoning_effort"]},
        {"logit_bias": {"5": -1}, "parallel_tool_calls": True, "user": "kim"},
        {"extra_headers": {"X-OpenJet-Client": "kim"}},
    ):
        assert litellm.completion(**ask(**more)).choices[0].message.content == ANSWER


def test_log_probabilities(ask):
    response = litellm.completion(**ask(logprobs=True, top_logprobs=1))
    content = response.choices[0].logprobs.content
    assert "".join(item.token for item in content).strip() == ANSWER
    chunks = list(litellm.completion(**ask(logprobs=True), stream=True))
    assert any(getattr(c.choices[0], "logprobs", None) for c in chunks)


def test_a_router_and_the_responses_bridge(ask, scripted):
    deployment = {
        "model_name": "tiny",
        "litellm_params": {"model": MODEL, "engine_options": scripted},
    }
    router = litellm.Router(model_list=[deployment, dict(deployment)], num_retries=0)
    answer = router.completion(model="tiny", messages=ask()["messages"])
    assert answer.choices[0].message.content == ANSWER
    bridged = litellm.responses(model=MODEL, input="Hi", engine_options=scripted)
    assert [item.type for item in bridged.output] == ["reasoning", "message"]


# -- several at once --


async def test_threads_and_tasks_share_steps(ask, scripted):
    call = ask("slowly", max_tokens=200)
    with Engine("openjet-tiny", **scripted) as engine:
        before = engine.stats()
        with ThreadPoolExecutor(4) as pool:
            threads = [
                asyncio.get_running_loop().run_in_executor(pool, lambda: litellm.completion(**call))
                for _ in range(4)
            ]
            tasks = [litellm.acompletion(**call) for _ in range(4)]
            answers = await asyncio.gather(*threads, *tasks)
        after = engine.stats()
    assert len({answer.choices[0].message.content for answer in answers}) == 1
    assert after.shared_steps > before.shared_steps


# -- ending early --


def test_closing_and_dropping_a_stream_ends_the_request(ask, idle):
    stream = litellm.completion(**ask("slowly"), stream=True)
    next(stream)
    stream.close()
    idle()
    never_read = litellm.completion(**ask("slowly"), stream=True)
    del never_read
    gc.collect()
    idle()


async def test_leaving_and_cancelling_async_streams_ends_the_request(ask, idle):
    stream = await litellm.acompletion(**ask("slowly"), stream=True)
    await anext(stream)
    await stream.aclose()
    await asyncio.to_thread(idle)

    async def run(streaming):
        answer = await litellm.acompletion(**ask("slowly"), stream=streaming)
        async for _ in answer:
            pass

    for streaming in (True, False):
        task = asyncio.create_task(run(streaming))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(idle)


# -- errors: LiteLLM's own classes, at the call --


async def both_ways(call, error, match=None):
    """The same error from all four methods, before the first chunk."""
    for more in ({}, {"stream": True}):
        with pytest.raises(error, match=match):
            litellm.completion(**call, **more)
        with pytest.raises(error, match=match):
            await litellm.acompletion(**call, **more)


async def test_a_prompt_that_does_not_fit(ask):
    await both_ways(ask("word " * 2 * CONTEXT), litellm.ContextWindowExceededError)


async def test_bad_options_are_named(ask):
    await both_ways(ask(temperature=-1), litellm.BadRequestError, "temperature")
    await both_ways(ask(mistyped=1), litellm.BadRequestError, "mistyped")
    await both_ways(ask(n=2), litellm.BadRequestError, "n=2")


def test_unknown_options_are_dropped_where_that_is_asked_for(ask):
    assert litellm.completion(**ask(mistyped=1, drop_params=True)).choices


async def test_a_model_that_is_not_there(ask):
    call = ask() | {"model": "openjet/none-such", "engine_options": {}}
    await both_ways(call, litellm.NotFoundError, "openjet pull")


async def test_a_server_that_is_not_there(ask, nowhere):
    call = ask(api_base=nowhere)
    await both_ways(call, litellm.ServiceUnavailableError, "openjet serve")


def test_a_call_can_be_forced(ask):
    named = {"type": "function", "function": {"name": "paint"}}
    for choice in ("required", named):
        answer = litellm.completion(**ask("one wall", tools=[PAINT], tool_choice=choice))
        (call,) = answer.choices[0].message.tool_calls
        assert json.loads(call.function.arguments) == {"colour": "blue", "coats": 2}


async def test_a_schema_that_cannot_be_enforced_is_refused_with_the_reason(ask):
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}}
    call = ask(response_format=schema)
    await both_ways(call, litellm.BadRequestError, "Unimplemented keys")


@pytest.mark.parametrize("timeout", [0.15, httpx.Timeout(0.15)], ids=["number", "httpx"])
async def test_timeouts_are_kept(ask, idle, timeout):
    """LiteLLM leaves them to the handler."""
    call = ask("slowly", timeout=timeout)
    with pytest.raises(litellm.Timeout):
        litellm.completion(**call)
    with pytest.raises(litellm.Timeout):
        await litellm.acompletion(**call)
    with pytest.raises(litellm.Timeout):
        list(litellm.completion(**call, stream=True))
    with pytest.raises(litellm.Timeout):
        async for _ in await litellm.acompletion(**call, stream=True):
            pass
    await asyncio.to_thread(idle)


def test_a_full_queue(ask):
    options = script_options(agents=1, max_queue=1, max_queue_client=1)
    options["script"] = options["script"][2:3]
    call = ask("slowly", engine_options=options)
    first = litellm.completion(**call, client="a", stream=True)
    next(first)
    second = litellm.completion(**call, client="b", stream=True)
    with pytest.raises(litellm.RateLimitError):
        litellm.completion(**call, client="c")
    first.close()
    second.close()


def test_an_engine_that_fails(ask):
    options = script_options()
    options["script"] = options["script"][3:4]
    with pytest.raises(litellm.ServiceUnavailableError):
        litellm.completion(**ask("break down", engine_options=options))
