"""Coverage-guided fuzzing of the chat layer: nothing may raise or hang.

    pip install atheris
    python tools/fuzz_chat.py parser CORPUS -max_total_time=600
    python tools/fuzz_chat.py messages CORPUS -max_total_time=600

    parser    bytes choose tags, text and raw bytes, and how they are cut into tokens and steps;
              whole and cut must give one result, and arguments that are JSON
    messages  bytes choose messages, tools and options; a prompt comes out or InvalidRequestError

CORPUS is a folder that inputs which reach new code are kept in. Options are libFuzzer's; an input
that takes longer than -timeout (10 s here) counts as a hang.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, cycle, groupby
from pathlib import Path
from typing import Any

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))

with atheris.instrument_imports(include=["openjet_provider.chat"]):
    from openjet_provider.chat import channels, parser, schema  # noqa: F401 - to be instrumented
    from openjet_provider.chat.prompt import PromptBuilder
    from openjet_provider.chat.tokenizer import NORMAL, Tokenizer
    from openjet_provider.chat.types import ChatRequest

from openjet_provider.errors import InvalidRequestError
from tests.chat.conftest import vocabulary
from tests.chat.parser_cases import CASES
from tests.chat.parsing import Output, parse_in_order
from tests.chat.test_parser_properties import FRAGMENTS, TOOLS
from tests.reference.chat_goldens import OWN_TEMPLATE
from tests.reference.vocabulary import small_vocabulary

TOKENIZER = Tokenizer(vocabulary(small_vocabulary(512), OWN_TEMPLATE.read_text()))
BUILDER = PromptBuilder(TOKENIZER)
STOPS: list[tuple[str, ...]] = [(), (), (), ("STOP",), ("ST", "\n\n"), ("xt",)]

WORDS = [
    "", "a", "system", "user", "assistant", "tool", "function", "developer", "text", "thinking",
    "tool_use", "tool_result", "image_url", "refusal", "<think>x</think>y", "</think>", "\ud800",
    "<tool_response>a</tool_response>", '{"a": [1]}', '"{}"', "{'a': None}", "<|im_end|>", "{",
    "x-anthropic-billing-header: 1\nrest", "call_1", "call_2", "none", "high", "\ue000\uf8ff",
]  # fmt: skip
KEYS = [
    "role", "content", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "id", "type",
    "function", "function_call", "name", "arguments", "text", "thinking", "input", "args",
    "tool_use_id", "parameters", "input_schema", "properties", "prefix", "refusal",
]  # fmt: skip


class Pieces:
    """What the parser needs of a tokenizer, with any bytes for tokens: the special ones come first,
    then what `ids` was given."""

    def __init__(self) -> None:
        self.vocabulary = self
        self.special = {text: i for i, text in enumerate(TOKENIZER.special)}
        types = TOKENIZER.vocabulary.token_types
        self.token_types = [types[i] for i in TOKENIZER.special.values()]
        self._bytes = [text.encode() for text in self.special]

    def token_bytes(self, token: int) -> bytes:
        return self._bytes[token]

    def ids(self, pieces: Sequence[int | bytes]) -> list[int]:
        """Pieces are ids of special tokens and bytes."""
        return [piece if isinstance(piece, int) else self._add(piece) for piece in pieces]

    def _add(self, utf8: bytes) -> int:
        self._bytes.append(utf8)
        self.token_types.append(NORMAL)
        return len(self._bytes) - 1


SPECIAL = Pieces().special


def fuzz_parser(data: bytes) -> None:
    source = atheris.FuzzedDataProvider(data)
    sizes = [source.ConsumeIntInRange(1, 9) for _ in range(source.ConsumeIntInRange(1, 5))]
    output = Output(
        "",
        tools=TOOLS if source.ConsumeBool() else (),
        reasoning_open=source.ConsumeBool(),
        end="stop" if source.ConsumeBool() else "length",
        stop=source.PickValueInList(STOPS),
    )
    pieces = list(_pieces(source))
    tokenizer = Pieces()
    whole = parse_in_order(tokenizer, output, [tokenizer.ids(pieces)])
    steps = [[token] for token in tokenizer.ids(list(_cut(pieces, sizes)))]
    assert parse_in_order(tokenizer, output, steps) == whole


def _pieces(source: Any) -> Iterator[int | bytes]:
    """Some output: often the start of one of the tests' cases, then anything."""
    if source.ConsumeBool():
        text = source.PickValueInList(CASES).output.text[:200]
        yield from _split(text[: source.ConsumeIntInRange(0, len(text))])
    while source.remaining_bytes():
        kind = source.ConsumeIntInRange(0, 7)
        if kind == 0:
            yield source.ConsumeBytes(3)
        elif kind == 1:
            yield from _split(source.ConsumeUnicodeNoSurrogates(4))
        else:
            yield from _split(source.PickValueInList(FRAGMENTS))


def _split(text: str) -> Iterator[int | bytes]:
    for i, piece in enumerate(TOKENIZER.split_special(text)):
        if piece:
            yield SPECIAL[piece] if i % 2 else piece.encode()


def _cut(pieces: Sequence[int | bytes], sizes: Sequence[int]) -> Iterator[int | bytes]:
    """The same, with the bytes between special tokens cut into these sizes, again and again."""
    for is_tag, run in groupby(pieces, lambda piece: isinstance(piece, int)):
        if is_tag:
            yield from run
            continue
        text, at = bytes(chain.from_iterable(run)), 0  # type: ignore[arg-type]
        for size in cycle(sizes):
            if at >= len(text):
                break
            yield text[at : at + size]
            at += size


def fuzz_messages(data: bytes) -> None:
    source = atheris.FuzzedDataProvider(data)
    request = ChatRequest(
        messages=[_mapping(source, 3) for _ in range(source.ConsumeIntInRange(0, 5))],
        tools=[_tool(source) for _ in range(source.ConsumeIntInRange(0, 2))],
        reasoning_effort=source.PickValueInList([None, None, "high", "none", "odd"]),
        enable_thinking=source.PickValueInList([None, True, False]),
        continue_final_message=source.ConsumeIntInRange(0, 5) == 0,
        chat_template_kwargs=_mapping(source, 1) if source.ConsumeBool() else {},
    )
    try:
        prompt = BUILDER.build(request)
    except InvalidRequestError:
        return
    assert list(prompt.boundaries) == sorted(set(prompt.boundaries))
    assert not prompt.boundaries or prompt.boundaries[-1] < len(prompt.tokens)


def _mapping(source: Any, depth: int) -> dict[str, Any]:
    found = {}
    if depth == 3:
        found["role"] = source.PickValueInList(["user", "assistant", "system", "tool", "developer"])
    for _ in range(source.ConsumeIntInRange(0, 5)):
        found[source.PickValueInList(KEYS)] = _value(source, depth - 1)
    return found


def _tool(source: Any) -> dict[str, Any]:
    return source.PickValueInList(TOOLS) if source.ConsumeBool() else _mapping(source, 2)


def _value(source: Any, depth: int) -> Any:
    kind = source.ConsumeIntInRange(0, 9)
    if kind < 4:
        return source.PickValueInList(WORDS)
    if kind == 4:
        return source.ConsumeUnicode(6)
    if kind == 5:
        return source.PickValueInList([None, True, False, 0, -1, 2**70, 1.5, float("nan")])
    if depth <= 0:
        return ""
    if kind < 8:
        return [_value(source, depth - 1) for _ in range(source.ConsumeIntInRange(0, 3))]
    return _mapping(source, depth)


TARGETS: dict[str, Callable[[bytes], None]] = {"parser": fuzz_parser, "messages": fuzz_messages}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(__doc__)
    target = TARGETS[sys.argv.pop(1)]
    usual = ["-timeout=10", "-max_len=96", "-len_control=0"]
    atheris.Setup([sys.argv[0], *usual, *sys.argv[1:]], target)
    atheris.Fuzz()
