"""Runs the output parser over a text cut in any way, and checks what must hold for every cut."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
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
    parser = _parser(tokenizer, output)
    return _result(parser, [parser.feed(step) for step in steps], output)


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


def _result(parser: OutputParser, deltas: list[ChatDelta], output: Output) -> ChatResult:
    """The result, after checking that the deltas add up to it."""
    deltas.append(parser.finish(output.end))
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
