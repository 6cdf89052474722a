"""Messages in both directions, without an engine."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("langchain_core")

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_openjet.messages import ChunkWriter, to_ai_message, to_openai
from openjet_provider.chat.messages import normalise_messages
from openjet_provider.chat.types import (
    ChatDelta,
    ChatResult,
    TokenLogprob,
    ToolCall,
    ToolCallDelta,
    Usage,
)

USAGE = Usage(prompt_tokens=10, completion_tokens=7, cached_tokens=4, reasoning_tokens=3)


def read(*messages):
    """What the chat layer makes of them."""
    return normalise_messages(to_openai(messages))


def test_roles_and_names_arrive():
    out = to_openai(
        [
            SystemMessage("Be brief."),
            HumanMessage("Hi", name="kim"),
            ChatMessage("Now", role="developer"),
        ]
    )
    assert [message["role"] for message in out] == ["system", "user", "developer"]
    assert out[1]["name"] == "kim"


def test_calls_and_results_arrive():
    call = {"name": "paint", "args": {"colour": "grün"}, "id": "c1", "type": "tool_call"}
    out = read(
        HumanMessage("Paint."),
        AIMessage("", tool_calls=[call]),
        ToolMessage("ok", tool_call_id="c1"),
    )
    assert out[1]["tool_calls"][0]["function"] == {
        "name": "paint",
        "arguments": {"colour": "grün"},
    }
    assert out[2] == {"role": "tool", "content": "ok", "tool_call_id": "c1"}


def test_a_call_in_content_and_in_tool_calls_is_one_call():
    call = {"name": "paint", "args": {"coats": 1}, "id": "c1", "type": "tool_call"}
    content = [
        {"type": "text", "text": "I paint."},
        {"type": "tool_use", "id": "c1", "name": "paint", "input": {"coats": 1}},
        {"type": "tool_use", "id": "c2", "name": "paint", "input": {"coats": 2}},
    ]
    out = read(HumanMessage("Paint."), AIMessage(content, tool_calls=[call]))[1]
    assert out["content"] == "I paint."
    assert [c["function"]["arguments"] for c in out["tool_calls"]] == [{"coats": 1}, {"coats": 2}]


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("Yes.", additional_kwargs={"reasoning_content": "Why not."}),
        AIMessage(
            [{"type": "reasoning", "reasoning": "Why not."}, {"type": "text", "text": "Yes."}]
        ),
        AIMessage([{"type": "thinking", "thinking": "Why not."}, {"type": "text", "text": "Yes."}]),
    ],
    ids=["additional_kwargs", "v1 block", "thinking block"],
)
def test_reasoning_survives_the_round_trip(message):
    """Without it the next prompt differs from what was generated, and the prefix is lost."""
    out = read(HumanMessage("Really?"), message)[1]
    assert out["reasoning_content"] == "Why not."
    assert out["content"] == "Yes."


def test_an_invalid_call_is_kept():
    broken = {
        "name": "paint",
        "args": "{colour",
        "id": "c1",
        "error": "?",
        "type": "invalid_tool_call",
    }
    out = to_openai([AIMessage("", invalid_tool_calls=[broken])])[0]
    assert out["tool_calls"][0]["function"] == {"name": "paint", "arguments": "{colour"}


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (ToolMessage("no such wall", tool_call_id="c", status="error"), "Error: no such wall"),
        (ToolMessage("Error: no wall", tool_call_id="c", status="error"), "Error: no wall"),
        (ToolMessage("fine", tool_call_id="c"), "fine"),
        (
            ToolMessage([{"type": "text", "text": "no"}], tool_call_id="c", status="error"),
            "Error: no",
        ),
    ],
)
def test_a_failed_call_says_so(message, text):
    assert read(HumanMessage("Go."), message)[1]["content"] == text


def test_a_message_that_is_none_is_refused():
    with pytest.raises(TypeError, match="RemoveMessage"):
        to_openai([RemoveMessage(id="x")])


def test_a_result_becomes_a_message():
    calls = (ToolCall("c1", "paint", '{"coats": 2}'), ToolCall("c2", "paint", "[1]"))
    message = to_ai_message(ChatResult(None, "Hm.", calls, "tool_calls", USAGE), "tiny")
    assert message.content == ""
    assert message.tool_calls == [
        {"name": "paint", "args": {"coats": 2}, "id": "c1", "type": "tool_call"}
    ]
    assert message.invalid_tool_calls[0]["args"] == "[1]"
    assert message.content_blocks[0] == {"type": "reasoning", "reasoning": "Hm."}
    assert message.response_metadata == {
        "model_name": "tiny",
        "model_provider": "openjet",
        "finish_reason": "tool_calls",
    }
    assert message.usage_metadata == {
        "input_tokens": 10,
        "output_tokens": 7,
        "total_tokens": 17,
        "input_token_details": {"cache_read": 4},
        "output_token_details": {"reasoning": 3},
    }


DELTAS = [
    ChatDelta(reasoning="I "),
    ChatDelta(reasoning="think.", content="Both"),
    ChatDelta(content=" walls."),
    ChatDelta(tool_calls=(ToolCallDelta(0, "c1", "paint", ""),)),
    ChatDelta(tool_calls=(ToolCallDelta(0, None, None, '{"coats": '),)),
    ChatDelta(tool_calls=(ToolCallDelta(0, None, None, "2}"), ToolCallDelta(1, "c2", "paint", ""))),
    ChatDelta(tool_calls=(ToolCallDelta(1, None, None, '{"coats": 3}'),)),
    ChatDelta(content="Done."),
]
RESULT = ChatResult("Both walls.Done.", "I think.", (), "tool_calls", USAGE)


def merged(version):
    writer = ChunkWriter(version)
    chunks = [chunk for delta in DELTAS for chunk in writer.chunks(delta)]
    full = AIMessageChunk(content=[] if version else "")
    for chunk in [*chunks, writer.last(RESULT, "tiny")]:
        full = full + chunk
    return full


@pytest.mark.parametrize("version", [None, "v1"])
def test_chunks_add_up(version):
    full = merged(version)
    assert [(c["id"], c["name"], c["args"]) for c in full.tool_calls] == [
        ("c1", "paint", {"coats": 2}),
        ("c2", "paint", {"coats": 3}),
    ]
    assert full.text == "Both walls.Done."
    assert full.usage_metadata["total_tokens"] == 17
    assert full.response_metadata["finish_reason"] == "tool_calls"
    kinds = {block["type"] for block in full.content_blocks}
    assert kinds == {"reasoning", "text", "tool_call"}
    reasoning = [b["reasoning"] for b in full.content_blocks if b["type"] == "reasoning"]
    assert reasoning == ["I think."]


def test_v1_blocks_keep_their_order_and_no_call_is_merged_away():
    """LangChain merges blocks of equal index; a call numbered from 0 would vanish in the thinking,
    and text after several calls in one of them."""
    blocks = merged("v1").content_blocks
    assert [b["type"] for b in blocks] == ["reasoning", "text", "tool_call", "tool_call", "text"]
    assert blocks[1]["text"] == "Both walls."
    assert blocks[4]["text"] == "Done."


def test_log_probabilities_in_openai_shape():
    item = TokenLogprob("é", "é".encode(), -0.5, (("e", b"e", -1.0),))
    writer = ChunkWriter(None)
    full = AIMessageChunk(content="")
    for chunk in writer.chunks(ChatDelta(content="é", logprobs=(item,))):
        full = full + chunk
    expected = {
        "token": "é",
        "bytes": [195, 169],
        "logprob": -0.5,
        "top_logprobs": [{"token": "e", "bytes": [101], "logprob": -1.0}],
    }
    assert full.response_metadata["logprobs"] == {"content": [expected]}
    message = to_ai_message(ChatResult("é", None, (), "stop", USAGE, (item,)), "tiny")
    assert message.response_metadata["logprobs"] == {"content": [expected]}
    json.dumps(message.response_metadata)
