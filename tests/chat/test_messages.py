"""Messages of every client become messages that the template renders, or a clear error."""

from __future__ import annotations

from typing import Any

import pytest

from openjet_provider.chat.messages import (
    normalise_messages,
    normalise_tools,
    thinking_variables,
)
from openjet_provider.errors import InvalidRequestError

USER = {"role": "user", "content": "hi"}


def assistant(content: str = "", reasoning: str = "", **calls: Any) -> dict[str, Any]:
    """Normalised; calls: arguments by id, all of the function `f`."""
    out: dict[str, Any] = {
        "role": "assistant",
        "content": content,
        "reasoning_content": reasoning,
    }
    if calls:
        out["tool_calls"] = [
            {"id": key, "type": "function", "function": {"name": "f", "arguments": value}}
            for key, value in calls.items()
        ]
    return out


def sent(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", **fields}


def sent_call(arguments: Any, key: str = "a") -> dict[str, Any]:
    return {"id": key, "type": "function", "function": {"name": "f", "arguments": arguments}}


def result(content: str, key: str | None = "a") -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": key}


SAME = {
    "unknown keys": ([{**USER, "cache_breakpoint": True, "name": "bob"}], [USER]),
    "no content": ([sent()], [assistant()]),
    "null content": ([sent(content=None)], [assistant()]),
    "parts": (
        [{"role": "user", "content": [{"type": "text", "text": "h"}, "i"]}],
        [USER],
    ),
    "one part without a list": (
        [{"role": "user", "content": {"type": "text", "text": "hi"}}],
        [USER],
    ),
    "input_text parts": (
        [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        [USER],
    ),
    "parts of unknown kinds": (
        [{"role": "user", "content": [{"type": "tool_reference", "tool_name": "g"}, "hi"]}],
        [USER],
    ),
    "developer": (
        [{"role": "developer", "content": "S"}, USER],
        [{"role": "system", "content": "S"}, USER],
    ),
    "several system messages": (
        [{"role": "system", "content": "A"}, {"role": "developer", "content": "B"}, USER],
        [{"role": "system", "content": "A\n\nB"}, USER],
    ),
    "a late system message stays where it is": (
        [USER, sent(content="x"), {"role": "system", "content": "note"}, USER],
        [USER, assistant("x"), {"role": "user", "content": "note"}, USER],
    ),
    "a billing line that changes every time": (
        [{"role": "system", "content": "x-anthropic-billing-header: cch=1;\nBe kind."}, USER],
        [{"role": "system", "content": "Be kind."}, USER],
    ),
    "the same as a message of its own": (
        [
            {"role": "system", "content": "x-anthropic-billing-header: cch=1;"},
            {"role": "system", "content": "S"},
        ],
        [{"role": "system", "content": "S"}],
    ),
    "the phrase in a user message": (
        [{"role": "user", "content": "x-anthropic-billing-header: 1"}],
        [{"role": "user", "content": "x-anthropic-billing-header: 1"}],
    ),
    "reasoning_content": ([sent(content="x", reasoning_content="r")], [assistant("x", "r")]),
    "reasoning": ([sent(content="x", reasoning="r")], [assistant("x", "r")]),
    "null reasoning": ([sent(content="x", reasoning_content=None)], [assistant("x")]),
    "thinking parts": (
        [sent(content=[{"type": "thinking", "thinking": "r"}, {"type": "text", "text": "x"}])],
        [assistant("x", "r")],
    ),
    "parts of a kind that is no text": (
        [sent(content=[{"type": {}, "text": "x"}])],
        [assistant("x")],
    ),
    "reasoning parts": (
        [sent(content=[{"type": "reasoning", "reasoning": "r"}, "x"])],
        [assistant("x", "r")],
    ),
    "thinking inside the text": (
        [sent(content="<think>\nr\n</think>\n\nx")],
        [assistant("x", "r")],
    ),
    "text about the tag": (
        [sent(content="Close with </think>.")],
        [assistant("Close with </think>.")],
    ),
    "a refusal": ([sent(content=[{"type": "refusal", "refusal": "no"}])], [assistant("no")]),
    "arguments as text": ([sent(tool_calls=[sent_call('{"x": 1}')])], [assistant(a={"x": 1})]),
    "arguments as a mapping": ([sent(tool_calls=[sent_call({"x": 1})])], [assistant(a={"x": 1})]),
    "empty arguments": ([sent(tool_calls=[sent_call("")])], [assistant(a={})]),
    "null arguments": ([sent(tool_calls=[sent_call(None)])], [assistant(a={})]),
    "arguments quoted twice": (
        [sent(tool_calls=[sent_call('"{\\"x\\": 1}"')])],
        [assistant(a={"x": 1})],
    ),
    "arguments that are no object": (
        [sent(tool_calls=[sent_call("[1]")])],
        [assistant(a={"arguments": [1]})],
    ),
    "broken arguments": (
        [sent(tool_calls=[sent_call('{"x": ')])],
        [assistant(a={"arguments": '{"x": '})],
    ),
    "raw line breaks in arguments": (
        [sent(tool_calls=[sent_call('{"x": "a\nb"}')])],
        [assistant(a={"x": "a\nb"})],
    ),
    "Python arguments": ([sent(tool_calls=[sent_call("{'x': True}")])], [assistant(a={"x": True})]),
    "null tool_calls": ([sent(content="x", tool_calls=None)], [assistant("x")]),
    "a flat call": (
        [sent(tool_calls=[{"id": "a", "name": "f", "arguments": {}}])],
        [assistant(a={})],
    ),
    "function_call": (
        [
            sent(function_call={"name": "f", "arguments": "{}"}),
            {"role": "function", "name": "f", "content": "y"},
        ],
        [
            assistant(**{"None": {}}) | {"tool_calls": [sent_call({}) | {"id": None}]},
            result("y", None),
        ],
    ),
    "tool_use parts": (
        [sent(content=["x", {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}])],
        [assistant("x", a={"x": 1})],
    ),
    "tool_use parts beside tool_calls": (
        [
            sent(
                content=[{"type": "tool_use", "id": "a", "name": "f", "input": {}}],
                tool_calls=[sent_call("{}")],
            )
        ],
        [assistant(a={})],
    ),
    "tool content that is no text": (
        [{"role": "tool", "tool_call_id": "a", "content": {"é": [1, None]}}],
        [result('{"é": [1, null]}')],
    ),
    "tool parts": (
        [{"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "x"}, "y"]}],
        [result("xy")],
    ),
    "results in the order of their calls": (
        [
            sent(tool_calls=[sent_call("{}", "a"), sent_call("{}", "b"), sent_call("{}", "c")]),
            result("3", "c"),
            result("1"),
            result("2", "b"),
        ],
        [assistant(a={}, b={}, c={}), result("1"), result("2", "b"), result("3", "c")],
    ),
    "a result without a call": ([result("x", "zzz"), USER], [result("x", "zzz"), USER]),
    "tool_result parts come before the text": (
        [
            sent(
                content=[
                    {"type": "tool_use", "id": "a", "name": "f", "input": {}},
                    {"type": "tool_use", "id": "b", "name": "f", "input": {}},
                ]
            ),
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "note"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "b",
                        "is_error": True,
                        "content": "no such dir",
                    },
                    {
                        "type": "tool_result",
                        "tool_use_id": "a",
                        "content": [{"type": "text", "text": "bin"}],
                    },
                ],
            },
        ],
        [
            assistant(a={}, b={}),
            result("bin"),
            result("no such dir", "b"),
            {"role": "user", "content": "note"},
        ],
    ),
}


@pytest.mark.parametrize(("given", "expected"), SAME.values(), ids=SAME)
def test_normalised(given: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert normalise_messages(given) == expected
    assert normalise_messages(expected)[: len(expected)] == expected


REFUSED = {
    "no messages": ([], "messages: is empty"),
    "text instead of messages": ("hi", "must be a list"),
    "one message": ({"role": "user", "content": "hi"}, "must be a list"),
    "a text as message": (["hi"], r"messages\[0\]: must be a mapping, not str"),
    "an unknown role": ([{"role": "boss", "content": "x"}], r"messages\[0\].role: 'boss'"),
    "no role": ([{"content": "x"}], r"messages\[0\].role: None"),
    "a number": ([USER, {"role": "user", "content": 5}], r"messages\[1\].content: must be text"),
    "an image": (
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        r"messages\[0\].content\[0\]: this model reads text only, not image_url",
    ),
    "audio": ([{"role": "user", "content": [{"type": "input_audio"}]}], "input_audio"),
    "an image from a tool": ([result([{"type": "image"}])], "image"),  # type: ignore[arg-type]
    "calls that are no list": ([sent(tool_calls=1)], r"messages\[0\].tool_calls: must be a list"),
    "a call without a name": (
        [sent(tool_calls=[{"id": "a"}])],
        r"tool_calls\[0\]: has no function",
    ),
}


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(given: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        normalise_messages(given)


SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA}
TOOL = {"type": "function", "function": FUNCTION}


@pytest.mark.parametrize(
    "given",
    [
        TOOL,
        {**TOOL, "cache_control": {"type": "ephemeral"}},
        {"type": "function", **FUNCTION},
        {"name": "f", "description": "d", "input_schema": SCHEMA},
    ],
)
def test_tools_of_every_client(given: dict[str, Any]) -> None:
    assert normalise_tools([given]) == [TOOL]


def test_tools_keep_what_the_model_reads() -> None:
    given = {"type": "function", "function": {"strict": True, "parameters": None, "name": "f"}}
    assert list(normalise_tools([given])[0]["function"]) == ["strict", "parameters", "name"]
    assert normalise_tools(None) == normalise_tools([]) == []


@pytest.mark.parametrize("given", ["f", {}, {"function": {}}, {"name": "f", "parameters": 3}])
def test_tools_refused(given: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"tools\[0\]"):
        normalise_tools([given])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((None, None, None), {"reasoning_effort": "medium"}),
        ((None, "none", None), {"reasoning_effort": "medium", "enable_thinking": False}),
        ((None, "minimal", None), {"reasoning_effort": "low", "enable_thinking": True}),
        ((None, "high", None), {"reasoning_effort": "xhigh", "enable_thinking": True}),
        ((None, "max", None), {"reasoning_effort": "xhigh", "enable_thinking": True}),
        ((False, "low", None), {"reasoning_effort": "low", "enable_thinking": False}),
        (
            (True, None, False),
            {
                "reasoning_effort": "medium",
                "enable_thinking": True,
                "preserve_thinking": False,
            },
        ),
    ],
)
def test_thinking_options(given: Any, expected: dict[str, Any]) -> None:
    assert thinking_variables(*given) == expected


def test_unknown_effort() -> None:
    with pytest.raises(InvalidRequestError, match="reasoning_effort: 'turbo' is not one of none"):
        thinking_variables(None, "turbo", None)
