"""Runs the output parser over a text cut in any way, and checks what must hold for every cut."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from typing import Any

from openjet_provider.chat.parser import EndReason, OutputParser
from openjet_provider.chat.tokenizer import Tokenizer
from openjet_provider.chat.types import ChatDelta, ChatResult, Usage


@dataclass(frozen=True)
class Output:
    """What a model wrote, and the request it answers."""

    text: str
    tools: Sequence[dict[str, Any]] = ()
    reasoning_open: bool = False
    end: EndReason = "stop"
    stop: tuple[str, ...] = ()


def tool(name: str, /, **properties: Any) -> dict[str, Any]:
    """A tool whose parameters have these schemas; a string is short for a type."""
    schemas = {
        key: {"type": value} if isinstance(value, str) else value
        for key, value in properties.items()
    }
    parameters = {"type": "object", "properties": schemas}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def parse_ids(tokenizer: Tokenizer, output: Output, steps: Iterable[Sequence[int]]) -> ChatResult:
    """Fed as tokens, this many a step."""
    return parse_in_order(tokenizer, output, steps)[0]


def parse_in_order(
    tokenizer: Tokenizer, output: Output, steps: Iterable[Sequence[int]]
) -> tuple[ChatResult, list[tuple[str, str]]]:
    """The result, and the texts and calls as a stream brings them, one behind the other."""
    parser = _parser(tokenizer, output)
    deltas = [delta for step in steps for delta in parser.feed(step)]
    deltas += parser.finish(output.end)
    return _result(parser, deltas), in_order(deltas)


def in_order(deltas: Iterable[ChatDelta]) -> list[tuple[str, str]]:
    """What the deltas bring, by kind; what is of one kind, or of one call, is joined."""
    pieces = []
    for delta in deltas:
        pieces += [("reasoning", delta.reasoning), ("content", delta.content)]
        pieces += [(f"call {piece.index}", piece.arguments) for piece in delta.tool_calls]
    found = [piece for piece in pieces if piece[1] or piece[0].startswith("call")]
    return [
        (kind, "".join(text for _, text in group))
        for kind, group in groupby(found, key=lambda piece: piece[0])
    ]


def joined(deltas: Iterable[ChatDelta]) -> ChatDelta:
    """All of them as one."""
    deltas = list(deltas)
    return ChatDelta(
        "".join(delta.reasoning for delta in deltas),
        "".join(delta.content for delta in deltas),
        tuple(piece for delta in deltas for piece in delta.tool_calls),
    )


def byte_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """The text as one token a byte, but for the special tokens."""
    alphabet = {tokenizer.token_bytes(i): i for i in range(len(tokenizer))}
    ids: list[int] = []
    for i, piece in enumerate(tokenizer.split_special(text)):
        if i % 2:
            ids.append(tokenizer.special[piece])
        else:
            ids += [alphabet[bytes([byte])] for byte in piece.encode()]
    return ids


def cuts(ids: Sequence[int], sizes: Iterable[int]) -> Iterator[Sequence[int]]:
    """`ids` in steps of these lengths, the last step whatever is left."""
    at = 0
    for size in sizes:
        yield ids[at : at + size]
        at += size
    yield ids[at:]


def _parser(tokenizer: Tokenizer, output: Output) -> OutputParser:
    numbers = count()
    return OutputParser(
        tokenizer,
        tools=output.tools,
        reasoning_open=output.reasoning_open,
        stop=output.stop,
        make_id=lambda: f"id{next(numbers)}",
    )


def _result(parser: OutputParser, deltas: list[ChatDelta]) -> ChatResult:
    """The result, after checking that the deltas add up to it."""
    result = parser.result(Usage())
    assert ("".join(d.reasoning for d in deltas) or None) == result.reasoning
    assert ("".join(d.content for d in deltas) or None) == result.content
    streamed: list[list[str]] = []
    for piece in (piece for delta in deltas for piece in delta.tool_calls):
        if piece.id is not None:
            assert piece.name is not None
            assert piece.index == len(streamed)
            assert piece.arguments == ""
            streamed.append([piece.name, ""])
        else:
            assert piece.name is None
        streamed[piece.index][1] += piece.arguments
    assert streamed == [[call.name, call.arguments] for call in result.tool_calls]
    for call in result.tool_calls:
        assert isinstance(json.loads(call.arguments), dict)
    return result
