"""`openjet/...` beside LiteLLM's own OpenAI provider talking to `openjet serve`: one engine, the
same requests, the same shapes back."""

from __future__ import annotations

import json
import warnings

import pytest

pytest.importorskip("litellm")
pytest.importorskip("uvicorn")

import litellm

import litellm_openjet
from litellm_openjet import openjet_llm
from openjet_provider.engine import Engine
from tests.integrations.conftest import CONTEXT, PAINT, script_options
from tests.server.conftest import live

pytestmark = pytest.mark.filterwarnings("ignore:::pydantic", "ignore:::litellm")

MODES = ("plain", "async", "streamed", "async streamed")


@pytest.fixture(scope="module")
def url():
    with Engine("openjet-tiny", **script_options()) as engine, live(engine) as found:
        yield found


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setattr(litellm, "suppress_debug_info", True)
    monkeypatch.setattr(litellm, "drop_params", False)
    litellm_openjet.register()
    yield
    openjet_llm.close()


def ways(url, openjet_base=False):
    """The two providers; `openjet` in this process, or attached to the same server."""
    here = {"api_base": url} if openjet_base else {"engine_options": script_options()}
    return {
        "openai": {"model": "openai/openjet-tiny", "api_base": f"{url}/v1", "api_key": "any"},
        "openjet": {"model": "openjet/openjet-tiny", **here},
    }


def messages(text, *more):
    return [{"role": "user", "content": text}, *more]


async def call(mode, **arguments):
    """One answer; a streamed one as (chunks, the answer LiteLLM builds of them)."""
    if mode == "plain":
        return litellm.completion(**arguments)
    if mode == "async":
        return await litellm.acompletion(**arguments)
    arguments |= {"stream": True, "stream_options": {"include_usage": True}}
    if mode == "streamed":
        chunks = list(litellm.completion(**arguments))
    else:
        chunks = [chunk async for chunk in await litellm.acompletion(**arguments)]
    return chunks, litellm.stream_chunk_builder(chunks, messages=arguments["messages"])


def shape(answer):
    """What a caller reads of an answer, without what every answer has anew (ids, times)."""
    (choice,) = answer.choices
    message, usage = choice.message, answer.usage
    return {
        "type": type(answer).__name__,
        "object": answer.object,
        "index": choice.index,
        "finish_reason": choice.finish_reason,
        "role": message.role,
        "content": message.content,
        "reasoning": getattr(message, "reasoning_content", None),
        "calls": [
            (item.type, item.function.name, json.loads(item.function.arguments))
            for item in message.tool_calls or []
        ],
        "logprobs": [item.token for item in (getattr(choice, "logprobs", None) or _None).content],
        "usage": (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens),
        "thought": usage.completion_tokens_details.reasoning_tokens,
        "cached": usage.prompt_tokens_details.cached_tokens is not None,
    }


class _None:
    content = ()


def kinds(chunks):
    """What the chunks bring, in order, without repetitions: how many there are is not promised."""
    found = []
    for chunk in chunks:
        delta = chunk.choices[0].delta if chunk.choices else None
        here = [
            name
            for name in ("reasoning_content", "content", "tool_calls")
            if delta is not None and getattr(delta, name, None)
        ]
        if chunk.choices and chunk.choices[0].finish_reason:
            here.append(f"finish {chunk.choices[0].finish_reason}")
        if getattr(chunk, "usage", None):
            here.append("usage")
        found += [name for name in here if found[-1:] != [name]]
    return found


async def both(url, mode, attached=False, **arguments):
    answers = {}
    for name, where in ways(url, attached).items():
        answers[name] = await call(mode, **where, **arguments)
    return answers["openai"], answers["openjet"]


async def same(url, mode, attached=False, **arguments):
    """Both answer with one shape; it is returned."""
    theirs, ours = await both(url, mode, attached, **arguments)
    if "streamed" in mode:
        assert kinds(ours[0]) == kinds(theirs[0])
        for mine, other in zip(
            (ours[0][0], ours[0][-1]), (theirs[0][0], theirs[0][-1]), strict=True
        ):
            assert set(mine.model_dump()) - {"citations"} <= set(other.model_dump()) | {"usage"}
        theirs, ours = theirs[1], ours[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mine, other = shape(ours), shape(theirs)
    mine["content"], other["content"] = mine["content"] or None, other["content"] or None
    assert mine == other
    return mine


@pytest.mark.parametrize("attached", [False, True], ids=["here", "attached"])
@pytest.mark.parametrize("mode", MODES)
async def test_answers(url, mode, attached):
    said = await same(url, mode, attached, messages=messages("Hi"))
    assert said["content"]
    assert said["reasoning"]
    assert said["finish_reason"] == "stop"
    assert said["usage"][0] > 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("text", ["one wall", "two walls", "many at once"])
async def test_tools(url, mode, text):
    said = await same(url, mode, messages=messages(text), tools=[PAINT])
    assert len(said["calls"]) == {"one wall": 1, "two walls": 2, "many at once": 0}[text]
    assert said["finish_reason"] == ("tool_calls" if said["calls"] else "stop")


@pytest.mark.parametrize("mode", MODES)
async def test_forced_calls(url, mode):
    named = {"type": "function", "function": {"name": "paint"}}
    for choice in ("required", named):
        said = await same(
            url, mode, messages=messages("one wall"), tools=[PAINT], tool_choice=choice
        )
        assert said["calls"] == [("function", "paint", {"colour": "blue", "coats": 2})]


@pytest.mark.parametrize("mode", MODES)
async def test_a_history_with_tool_results(url, mode):
    asked = {"name": "paint", "arguments": json.dumps({"colour": "blue", "coats": 2})}
    history = messages(
        "Paint it.",
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": asked}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "done"},
    )
    await same(url, mode, messages=history, tools=[PAINT])


@pytest.mark.parametrize("mode", MODES)
async def test_structured_output(url, mode):
    schema = {
        "type": "object",
        "properties": {"wall": {"type": "string", "maxLength": 12}, "done": {"type": "boolean"}},
        "required": ["wall", "done"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "wall", "schema": schema}}
    said = await same(url, mode, messages=messages("Hi"), response_format=wanted, max_tokens=200)
    assert set(json.loads(said["content"])) == {"wall", "done"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_tokens": 6}, "length"),
        ({"max_completion_tokens": 6}, "length"),
        ({"stop": ["wall"]}, "stop"),
        ({"logprobs": True, "top_logprobs": 2}, "stop"),
        ({"temperature": 0.5, "top_p": 0.9, "seed": 7, "presence_penalty": 0.1}, "stop"),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
async def test_options(url, mode, options, reason):
    said = await same(url, mode, messages=messages("Hi"), **options)
    assert said["finish_reason"] == reason


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"messages": messages("word " * 2 * CONTEXT)}, litellm.ContextWindowExceededError),
        ({"messages": messages("Hi"), "temperature": -1}, litellm.BadRequestError),
        ({"messages": messages("Hi"), "n": 2}, litellm.BadRequestError),
        ({"messages": messages("Hi"), "max_tokens": -1}, litellm.BadRequestError),
        ({"messages": []}, litellm.BadRequestError),
    ],
    ids=["overflow", "temperature", "n", "max_tokens", "no messages"],
)
async def test_errors(url, mode, arguments, error):
    """The class, the status and the offending name are the same from both."""
    raised = []
    for where in ways(url).values():
        with pytest.raises(error) as caught:
            await call(mode, **where, **arguments, max_retries=0)
        raised.append(caught.value)
    theirs, ours = raised
    assert type(ours) is type(theirs)
    assert ours.status_code == theirs.status_code == 400


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_a_router_over_two_deployments(url, streamed):
    """One model name, an engine in this process and a server: both are asked, both answer alike."""
    deployments = [
        {"model_name": "tiny", "litellm_params": dict(where)} for where in ways(url).values()
    ]
    router = litellm.Router(
        model_list=deployments, num_retries=0, routing_strategy="simple-shuffle"
    )
    seen, contents = set(), set()
    for _ in range(24):
        answer = await router.acompletion(
            model="tiny", messages=messages("Hi"), stream=streamed, temperature=0
        )
        if streamed:
            chunks = [chunk async for chunk in answer]
            seen.add(answer._hidden_params["model_id"])
            contents.add("".join(c.choices[0].delta.content or "" for c in chunks if c.choices))
        else:
            seen.add(answer._hidden_params["model_id"])
            contents.add(answer.choices[0].message.content)
        if len(seen) == 2:
            break
    assert len(seen) == 2
    assert len(contents) == 1
