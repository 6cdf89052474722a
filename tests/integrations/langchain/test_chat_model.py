"""ChatOpenJet on the scripted engine: what users of a LangChain chat model rely on."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import pytest

pytest.importorskip("langchain_core")

from langchain_core import exceptions as langchain
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import ConfigurableField
from pydantic import BaseModel, ValidationError

from langchain_openjet import ChatOpenJet
from openjet_provider import errors
from openjet_provider.engine import Engine, ScriptRule
from tests.integrations.conftest import ANSWER, CALL, CONTEXT, PAINT, THOUGHT, script_options
from tests.waiting import BEFORE_THE_END_S, until, wait_until


@pytest.fixture
def llm(scripted):
    model = ChatOpenJet(model="openjet-tiny", engine_options=scripted)
    yield model
    model.close()


def add(chunks):
    full = None
    for chunk in chunks:
        full = chunk if full is None else full + chunk
    return full


# -- construction --


def test_the_constructor_does_no_work():
    """No file is looked for, nothing is loaded: agents build models in passing."""
    start = time.process_time()
    for _ in range(50):
        ChatOpenJet(model="/nowhere/none.gguf", temperature=0, max_tokens=5)
    assert (time.process_time() - start) / 50 < 20e-3


def test_other_frameworks_names_are_accepted():
    llm = ChatOpenJet(
        model_name="openjet-tiny",
        max_completion_tokens=7,
        stop_sequences=["x"],
        request_timeout=3,
        api_key="secret",
    )
    assert (llm.model, llm.max_tokens, llm.stop, llm.timeout) == ("openjet-tiny", 7, ["x"], 3.0)
    assert "secret" not in repr(llm)


def test_an_unknown_field_is_refused():
    with pytest.raises(ValidationError, match="temprature"):
        ChatOpenJet(temprature=0)


def test_model_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("OPENJET_MODEL", "openjet-tiny")
    assert ChatOpenJet()._get_ls_params()["ls_model_name"] == "openjet-tiny"


def test_copies_and_pickles_work(llm):
    assert copy.deepcopy(llm).invoke("Hi").content == ANSWER
    assert pickle.loads(pickle.dumps(ChatOpenJet(model="openjet-tiny", seed=1))).seed == 1


def test_fields_can_be_configured_at_run_time(llm):
    configurable = llm.configurable_fields(max_tokens=ConfigurableField(id="max_tokens"))
    message = configurable.with_config({"configurable": {"max_tokens": 2}}).invoke("Hi")
    assert message.usage_metadata["output_tokens"] == 2


# -- answers --


def test_invoke(llm):
    message = llm.invoke("Hi")
    assert message.content == ANSWER
    assert message.additional_kwargs["reasoning_content"] == "I should answer."
    assert [b["type"] for b in message.content_blocks] == ["reasoning", "text"]
    assert message.response_metadata["model_name"] == "openjet-tiny"
    assert message.response_metadata["finish_reason"] == "stop"
    usage = message.usage_metadata
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert 0 < usage["output_token_details"]["reasoning"] < usage["output_tokens"]


def test_cached_tokens_are_reported(llm):
    question = "Hi there. " * 50
    llm.invoke(question)
    assert llm.invoke(question).usage_metadata["input_token_details"]["cache_read"] > 0


@pytest.mark.parametrize("question", ["Hi", "many at once", "one wall", "two walls"])
async def test_all_four_ways_say_the_same(llm, question):
    tools = llm.bind_tools([PAINT])
    answers = [
        tools.invoke(question),
        await tools.ainvoke(question),
        add(tools.stream(question)),
        add([chunk async for chunk in tools.astream(question)]),
    ]
    for answer in answers:
        assert answer.content == answers[0].content
        assert [(c["name"], c["args"]) for c in answer.tool_calls] == [
            (c["name"], c["args"]) for c in answers[0].tool_calls
        ]
        assert answer.additional_kwargs == answers[0].additional_kwargs
        assert answer.usage_metadata["output_tokens"] == answers[0].usage_metadata["output_tokens"]
        assert answer.response_metadata["finish_reason"] in ("stop", "tool_calls")


def test_one_chunk_has_the_usage_and_the_last_one_closes(llm):
    chunks = list(llm.stream("slowly", max_tokens=20))
    assert len(chunks) > 1
    assert [c.usage_metadata is not None for c in chunks].count(True) == 1
    assert [c.chunk_position for c in chunks].index("last") == len(chunks) - 1


@pytest.mark.parametrize("version", ["v0", "v1"])
def test_parallel_calls(scripted, version):
    llm = ChatOpenJet(model="openjet-tiny", engine_options=scripted, output_version=version)
    tools = llm.bind_tools([PAINT])
    for message in (tools.invoke("two walls"), add(tools.stream("two walls"))):
        assert [c["args"] for c in message.tool_calls] == [
            {"colour": "blue", "coats": 2},
            {"colour": "red", "coats": 3},
        ]
        assert all(call["id"] for call in message.tool_calls)
        assert message.text == "I paint both."
        kinds = [block["type"] for block in message.content_blocks]
        assert kinds == ["reasoning", "text", "tool_call", "tool_call"]
    llm.close()


def test_a_tool_round_trip(llm):
    tools = llm.bind_tools([PAINT])
    history = [HumanMessage("one wall")]
    history.append(tools.invoke(history))
    call = history[-1].tool_calls[0]
    history.append(ToolMessage("done", tool_call_id=call["id"]))
    assert isinstance(tools.invoke(history), AIMessage)


def test_stop_and_max_tokens(llm):
    assert llm.invoke("Hi", stop=[]).content == ANSWER
    assert llm.invoke("Hi", stop=["wall"]).content == "The "
    assert llm.bind(stop=["wall"]).invoke("Hi").content == "The "
    message = llm.invoke("Hi", max_tokens=3)
    assert message.response_metadata["finish_reason"] == "length"
    assert message.usage_metadata["output_tokens"] == 3


def test_log_probabilities(llm):
    content = llm.invoke("Hi", logprobs=True, top_logprobs=2).response_metadata["logprobs"]
    assert "".join(item["token"] for item in content["content"]).strip() == ANSWER
    assert add(llm.stream("Hi", logprobs=True)).response_metadata["logprobs"]["content"]


def test_another_model_for_one_call(llm, root):
    path = str(root / "openjet_provider" / "data" / "openjet-tiny.gguf")
    message = llm.invoke("Hi", model=path)
    assert message.response_metadata["model_name"] == "openjet-tiny"
    assert llm._get_ls_params(model=path)["ls_model_name"] == path


def test_callbacks_get_tokens(llm):
    class Seen(BaseCallbackHandler):
        text = ""

        def on_llm_new_token(self, token, **_):
            self.text += token if isinstance(token, str) else ""

    seen = Seen()
    streaming = llm.model_copy(update={"streaming": True})
    streaming.model_fields_set.add("streaming")
    streaming.invoke("Hi", {"callbacks": [seen]})
    assert seen.text == ANSWER


def test_the_cache_tells_options_apart(scripted):
    cache = InMemoryCache()
    one = ChatOpenJet(model="openjet-tiny", engine_options=scripted, cache=cache, max_tokens=2)
    two = ChatOpenJet(model="openjet-tiny", engine_options=scripted, cache=cache)
    assert one.invoke("Hi").content != two.invoke("Hi").content
    assert two.invoke("Hi").content == ANSWER
    for name in ("temperature", "seed", "top_k", "reasoning", "thinking_budget", "logit_bias"):
        value = {3: 1.0} if name == "logit_bias" else 1
        assert ChatOpenJet(**{name: value})._get_llm_string() != ChatOpenJet()._get_llm_string()


# -- tokens, profile --


def test_token_counts_are_the_models_own(llm, scripted):
    messages = [HumanMessage("Paint it.")]
    count = llm.get_num_tokens_from_messages(messages)
    assert count == llm.invoke(messages).usage_metadata["input_tokens"]
    assert llm.get_num_tokens_from_messages(messages, tools=[PAINT]) > count + 20
    assert llm.get_num_tokens("Paint it.") == len(llm.get_token_ids("Paint it.")) < count


def test_the_profile_has_the_configured_context(llm):
    assert ChatOpenJet(engine_options={"context": 8192}).profile["max_input_tokens"] == 8192
    assert llm.profile["max_input_tokens"] == CONTEXT
    unknown = ChatOpenJet(model="openjet-tiny")
    assert "max_input_tokens" not in unknown.profile


# -- several at once --


def test_threads_share_one_engine_and_its_steps(scripted):
    """They join one that writes all the time."""
    models = [ChatOpenJet(model="openjet-tiny", engine_options=scripted) for _ in range(5)]
    writing = models[0].stream("slowly")
    next(writing)
    with Engine("openjet-tiny", **scripted) as engine, ThreadPoolExecutor(4) as pool:
        before = engine.stats()
        answers = list(pool.map(lambda m: m.invoke("slowly", max_tokens=60).content, models[1:]))
        after = engine.stats()
    assert len(set(answers)) == 1
    assert after.shared_steps - before.shared_steps > 20
    writing.close()
    for model in models:
        model.close()


async def test_tasks_share_steps_and_leave_the_loop_free(llm, scripted):
    """This task looks on while they are answered."""
    with Engine("openjet-tiny", **scripted) as engine:
        before = engine.stats()
        asked = [asyncio.create_task(llm.ainvoke("slowly", max_tokens=400)) for _ in range(4)]
        await until(lambda: engine.stats().running == 4, BEFORE_THE_END_S)
        shared = engine.stats().shared_steps
        await until(lambda: engine.stats().shared_steps > shared + 20, BEFORE_THE_END_S)
        answers = await asyncio.gather(*asked)
    assert before.running == 0
    assert len({answer.content for answer in answers}) == 1


def test_one_model_serves_many_event_loops(llm):
    for _ in range(3):
        assert asyncio.run(llm.ainvoke("Hi")).content == ANSWER


# -- ending early --


def test_closing_a_stream_ends_the_request(llm, idle):
    stream = llm.stream("slowly")
    next(stream)
    stream.close()
    idle()


async def test_leaving_an_async_stream_ends_the_request(llm, idle):
    stream = llm.astream("slowly")
    await anext(stream)
    await stream.aclose()
    await asyncio.to_thread(idle)


@pytest.mark.parametrize("way", ["ainvoke", "astream"])
async def test_cancelling_a_task_ends_the_request(llm, idle, way):
    async def run():
        if way == "ainvoke":
            await llm.ainvoke("slowly")
        async for _ in llm.astream("slowly"):
            pass

    task = asyncio.create_task(run())
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(idle)


async def test_a_watcher_sees_and_ends_requests(scripted, idle):
    streams = []
    llm = ChatOpenJet(model="openjet-tiny", engine_options=scripted, watch=streams.append)
    llm.invoke("Hi")
    await llm.ainvoke("Hi")
    assert [stream.stats.generated > 0 for stream in streams] == [True, True]
    task = asyncio.create_task(llm.ainvoke("slowly"))
    await until(lambda: len(streams) == 3 and streams[2].stats.generated)
    streams[2].cancel()
    assert (await task).response_metadata["finish_reason"] == "cancelled"
    llm.close()


# -- errors --


def test_a_prompt_that_does_not_fit(llm):
    with pytest.raises(langchain.ContextOverflowError) as caught:
        llm.invoke("word " * 2 * CONTEXT)
    assert isinstance(caught.value, errors.ContextOverflowError)
    assert caught.value.context == CONTEXT
    assert caught.value.prompt_tokens > CONTEXT


async def test_a_timeout_ends_the_request(llm, idle):
    for call in (llm.invoke, lambda *a, **k: list(llm.stream(*a, **k))):
        with pytest.raises(langchain.ModelTimeoutError) as caught:
            call("slowly", timeout=0.1)
        assert isinstance(caught.value, errors.RequestTimeoutError)
    with pytest.raises(langchain.ModelTimeoutError):
        await llm.ainvoke("slowly", timeout=0.1)
    idle()


def test_a_full_queue(idle):
    options = script_options(agents=1, max_queue=1, max_queue_client=1)
    llm = ChatOpenJet(
        model="openjet-tiny", engine_options={**options, "script": options["script"][:3]}
    )
    streams = [llm.stream("slowly", client=f"c{i}") for i in range(2)]
    try:
        next(streams[0])
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(next, streams[1])
            engine = llm._engine(None)
            wait_until(lambda: engine.stats().waiting, BEFORE_THE_END_S)
            with pytest.raises(langchain.ModelRateLimitError):
                llm.invoke("slowly", client="c3")
            streams[0].close()
            waiting.result(timeout=60)
    finally:
        for stream in streams:
            stream.close()
        llm.close()


def test_an_engine_that_fails():
    options = script_options(context=2048)
    options["script"] = options["script"][3:4]
    llm = ChatOpenJet(model="openjet-tiny", engine_options=options)
    with pytest.raises(errors.EngineLost):
        llm.invoke("break down")
    llm.close()


def test_a_model_that_is_not_there():
    with pytest.raises(langchain.ModelNotFoundError, match="openjet pull"):
        ChatOpenJet(model="none-such").invoke("Hi")
    with pytest.raises(FileNotFoundError):
        ChatOpenJet(model="none-such").invoke("Hi")


def test_bad_options_are_named(llm):
    for name, value in (("temperature", -1), ("top_p", 3), ("n", 2), ("max_tokenz", 5)):
        with pytest.raises(langchain.ModelInvalidRequestError, match=name):
            llm.invoke("Hi", **{name: value})
    with pytest.raises(langchain.ModelInvalidRequestError, match="agentz"):
        ChatOpenJet(model="openjet-tiny", engine_options={"agentz": 1}).invoke("Hi")


def test_a_server_that_is_not_there(llm, nowhere, monkeypatch):
    with pytest.raises(errors.BackendUnavailableError, match="openjet serve"):
        ChatOpenJet(base_url=nowhere).invoke("Hi")
    monkeypatch.setenv("OPENJET_BASE_URL", nowhere)
    with pytest.raises(errors.BackendUnavailableError, match="openjet serve"):
        ChatOpenJet(model="openjet-tiny").invoke("Hi")


# -- constrained output --


class Wall(BaseModel):
    """A wall."""

    colour: Literal["blue", "green"]
    coats: int


PAINTED = {"colour": "blue", "coats": 2}


@pytest.mark.parametrize("choice", ["any", True, "required", "paint"])
def test_a_call_can_be_forced(llm, choice):
    (call,) = llm.bind_tools([PAINT], tool_choice=choice).invoke("one wall").tool_calls
    assert (call["name"], call["args"]) == ("paint", PAINTED)


def test_a_choice_of_nothing_forces_nothing(llm):
    for choice in ("auto", None, False):
        assert llm.bind_tools([PAINT], tool_choice=choice).invoke("Hi").content == ANSWER
    assert not llm.bind_tools([PAINT], tool_choice="none").invoke("one wall").tool_calls
    with pytest.raises(ValueError, match="plaster"):
        llm.bind_tools([PAINT], tool_choice="plaster")


def test_one_call_a_turn(llm):
    both = llm.bind_tools([PAINT]).invoke("two walls")
    one = llm.bind_tools([PAINT], parallel_tool_calls=False).invoke("two walls")
    assert (len(both.tool_calls), len(one.tool_calls)) == (2, 1)


@pytest.mark.parametrize("method", ["json_schema", "json_mode", "function_calling"])
def test_answers_take_a_given_shape(method):
    reply = json.dumps(PAINTED)
    if method == "function_calling":
        reply = CALL.format(**PAINTED).replace("paint", "Wall")
    rule = ScriptRule(reply=f"{THOUGHT}{reply}")
    options = script_options(script=(rule,))
    with contextlib.closing(ChatOpenJet(model="openjet-tiny", engine_options=options)) as llm:
        wall = llm.with_structured_output(Wall, method=method).invoke("Which wall?")
    assert wall == Wall(**PAINTED)


def test_a_schema_that_cannot_be_enforced_is_refused_with_the_reason(llm):
    schema = {
        "title": "x",
        "description": "x",
        "type": "object",
        "properties": {"a": {"type": "object", "not": {}}},
    }
    with pytest.raises(langchain.ModelInvalidRequestError, match="Unimplemented keys"):
        llm.with_structured_output(schema).invoke("Hi")
