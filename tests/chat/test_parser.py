"""The table of parser cases, whole and cut at every byte and token."""

from __future__ import annotations

import json
import time

import pytest

from openjet_provider.chat.parser import OutputParser
from openjet_provider.chat.tokenizer import Tokenizer
from openjet_provider.chat.types import ChatDelta, ChatResult, Usage
from tests.chat.parser_cases import CASES, IDS, TOOLS, Case, call
from tests.chat.parsing import Output, byte_ids, joined, parse_ids, parse_in_order


def check(case: Case, result: ChatResult) -> None:
    assert result.reasoning == case.reasoning
    assert result.content == case.content
    assert [(c.name, json.loads(c.arguments)) for c in result.tool_calls] == list(case.calls)
    assert result.finish_reason == case.finish


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_tokens(tokenizer: Tokenizer, case: Case) -> None:
    ids = tokenizer.encode(case.output.text, parse_special=True)
    check(case, parse_ids(tokenizer, case.output, [ids]))
    check(case, parse_ids(tokenizer, case.output, [[i] for i in ids]))
    single = byte_ids(tokenizer, case.output.text)
    check(case, parse_ids(tokenizer, case.output, [[i] for i in single]))


def test_tags_written_as_plain_text_are_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a </think> b")
    result = parse_ids(tokenizer, Output("", TOOLS, reasoning_open=True), [ids])
    assert (result.reasoning, result.content) == ("a </think> b", None)


def test_control_tokens_never_show(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a<|im_start|>b<|im_end|>", parse_special=True)
    assert parse_ids(tokenizer, Output(""), [ids]).content == "ab"


def test_bytes_that_are_no_text(tokenizer: Tokenizer) -> None:
    byte = {tokenizer.token_bytes(i): i for i in range(len(tokenizer))}
    ids = [byte[b"A"], byte[b"\xf0"], byte[b"\x9f"], tokenizer.special["</think>"]]
    result = parse_ids(tokenizer, Output("", reasoning_open=True), [ids, [byte[b"\xc3"]]])
    assert (result.reasoning, result.content) == ("A\ufffd", "\ufffd")


# Bytes in steps, and the text.
STREAMS = {
    "a character in three steps": ([b"A\xf0", b"\x9f\x98", b"\x80", b"B"], "A😀B"),
    "a bad byte in the middle": ([b"A", b"\xc3", b"(B"], "A\ufffd(B"),
    "an incomplete end": ([b"A", b"\xe2\x8c"], "A\ufffd"),
    "an incomplete end behind a character": ([b"\xe4\xb8", b"\xad\xe6"], "中\ufffd"),
    "nothing": ([], ""),
}


@pytest.mark.parametrize(("steps", "text"), STREAMS.values(), ids=STREAMS)
def test_half_characters_wait(tokenizer: Tokenizer, steps: list[bytes], text: str) -> None:
    token = {tokenizer.token_bytes(i): i for i in range(len(tokenizer))}
    parser = OutputParser(tokenizer)
    parts = [joined(parser.feed(token[bytes([byte])] for byte in step)).content for step in steps]
    assert all("\ufffd" not in part for part in parts) or "bad" in text or text[-1] != "\ufffd"
    assert "".join(parts) + joined(parser.finish()).content == text


def test_arguments_arrive_by_parameter(tokenizer: Tokenizer) -> None:
    parser = OutputParser(tokenizer, tools=TOOLS)

    def feed(text: str) -> ChatDelta:
        return joined(parser.feed(tokenizer.encode(text, parse_special=True)))

    first = feed("<tool_call>\n<function=write_file>\n<parameter=path>\na.txt")
    assert [(c.name, c.arguments) for c in first.tool_calls] == [("write_file", "")]
    second = feed("\n</parameter>\n<parameter=text>\n")
    assert [c.arguments for c in second.tool_calls] == ['{"path": "a.txt"']
    feed("x\n</parameter>\n</function>\n</tool_call>")
    assert [c.arguments for c in joined(parser.finish()).tool_calls][-1] == "}"


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_text_behind_a_call_stays_behind_it(tokenizer: Tokenizer, step: int) -> None:
    """However many tokens come at once."""
    text = f"First.\n{call('clock')}\nThen. {call('clock')}\n<think>\nHm.\n</think>\n\nLast."
    ids = tokenizer.encode(text, parse_special=True)
    steps = [ids[at : at + step] for at in range(0, len(ids), step)]
    _, found = parse_in_order(tokenizer, Output(text, TOOLS), steps)
    assert found == [
        ("content", "First."),
        ("call 0", "{}"),
        ("content", "\nThen."),
        ("call 1", "{}"),
        ("reasoning", "Hm."),
        ("content", " Last."),
    ]


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_thinking_behind_text_stays_behind_it(tokenizer: Tokenizer, step: int) -> None:
    """A call ended the thinking; its closing tag comes behind more text, and then new thinking."""
    text = f"Plan.{call('clock')}\nSo.</think>\n<think>\nHm.\n</think>\n\nLast."
    ids = tokenizer.encode(text, parse_special=True)
    steps = [ids[at : at + step] for at in range(0, len(ids), step)]
    _, found = parse_in_order(tokenizer, Output(text, TOOLS, reasoning_open=True), steps)
    assert [kind for kind, _ in found] == [
        "reasoning",
        "call 0",
        "content",
        "reasoning",
        "content",
    ]


def test_ids_are_unique(tokenizer: Tokenizer) -> None:
    parser = OutputParser(tokenizer, tools=TOOLS)
    parser.feed(tokenizer.encode(call("clock") * 50, parse_special=True))
    parser.finish()
    ids = {c.id for c in parser.result(Usage()).tool_calls}
    assert len(ids) == 50
    assert "" not in ids


def test_reasoning_tokens_include_the_closing_tag(tokenizer: Tokenizer) -> None:
    thinking = tokenizer.encode("Well, well.\n</think>", parse_special=True)
    parser = OutputParser(tokenizer, reasoning_open=True)
    parser.feed([*thinking, *tokenizer.encode("\n\nYes.")])
    parser.finish()
    assert parser.reasoning_tokens == len(thinking)


def test_nothing_counts_after_a_stop_string(tokenizer: Tokenizer) -> None:
    parser = OutputParser(tokenizer, tools=TOOLS, stop=("END",))
    assert joined(parser.feed(tokenizer.encode("a END"))).content == "a"
    assert parser.stopped
    more = tokenizer.encode(f"b {call('clock')}", parse_special=True)
    assert parser.feed(more) == []
    parser.finish()
    assert parser.result(Usage()).content == "a "
    assert parser.finish_reason == "stop"


def test_finish_twice_adds_nothing(tokenizer: Tokenizer) -> None:
    parser = OutputParser(tokenizer, tools=TOOLS)
    assert joined(parser.feed(tokenizer.encode("a <func"))).content == "a"
    assert joined(parser.finish()).content == " <func"
    assert parser.finish("length") == []
    assert parser.finish_reason == "stop"


@pytest.mark.parametrize(
    "text",
    [
        "word " * 20_000,
        "\n" * 50_000,
        "<" * 50_000,
        "\n<function=run>" * 5_000,
        "<tool_call>\n<function=run>\n<parameter=command>\n" * 2_000,
        "<tool_call>{" * 5_000,
        "<tool_call>\n<function=run>\n<parameter=command>\n" + "</parameter> <tool_call>" * 5_000,
        "<tool_call>\n<function=run>\n" + "<parameter=command>\nx\n</parameter>\n" * 3_000,
        "<tool_call>\n<function=run>\n<parameter=command>\n" + "x = 1\n" * 10_000,
    ],
    ids=lambda text: repr(text[:30]),
)
def test_time_grows_with_the_length(tokenizer: Tokenizer, text: str) -> None:
    """Nothing that a model can write makes the parser slow: 100 KB, 3 tokens a step, in seconds."""
    ids = tokenizer.encode(text, parse_special=True)
    start = time.process_time()
    parse_ids(tokenizer, Output(text, TOOLS), [ids[i : i + 3] for i in range(0, len(ids), 3)])
    assert time.process_time() - start < 50
