"""Coverage-guided fuzzing of the chat layer: nothing may raise or hang.

    pip install atheris
    python tools/fuzz_chat.py parser CORPUS -max_total_time=600
    python tools/fuzz_chat.py messages CORPUS -max_total_time=600

    parser    bytes choose tags, text and raw bytes, and the steps in which they come; every way of
              cutting them must give one result, and arguments that are JSON
    messages  bytes choose messages, tools and options; a prompt comes out or InvalidRequestError

CORPUS is a folder that inputs which reach new code are kept in. Options are libFuzzer's; an input
that takes longer than -timeout (10 s here) counts as a hang.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))

with atheris.instrument_imports(include=["openjet_provider.chat"]):
    from openjet_provider.chat import channels, parser, schema  # noqa: F401 - to be instrumented
    from openjet_provider.chat.prompt import PromptBuilder
    from openjet_provider.chat.tokenizer import Tokenizer
    from openjet_provider.chat.types import ChatRequest

from openjet_provider.errors import InvalidRequestError
from tests.chat.conftest import vocabulary
from tests.chat.parser_cases import CASES
from tests.chat.parsing import Output, byte_ids, cuts, parse_ids
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


def fuzz_parser(data: bytes) -> None:
    source = atheris.FuzzedDataProvider(data)
    sizes = [source.ConsumeIntInRange(0, 9) for _ in range(source.ConsumeIntInRange(0, 12))]
    options = {
        "tools": TOOLS if source.ConsumeBool() else (),
        "reasoning_open": source.ConsumeBool(),
        "end": "stop" if source.ConsumeBool() else "length",
        "stop": source.PickValueInList(STOPS),
    }
    pieces = list(_pieces(source))
    output = Output("".join(pieces), **options)
    ids = byte_ids(TOKENIZER, output.text)
    whole = parse_ids(TOKENIZER, output, [ids])
    assert parse_ids(TOKENIZER, output, cuts(ids, sizes)) == whole
    assert parse_ids(TOKENIZER, output, [[i] for i in ids]) == whole


def _pieces(source: Any) -> Iterator[str]:
    while source.remaining_bytes():
        kind = source.ConsumeIntInRange(0, 7)
        if kind == 0:
            yield source.ConsumeUnicodeNoSurrogates(4)
        elif kind == 1:
            yield source.PickValueInList(CASES).output.text
        else:
            yield source.PickValueInList(FRAGMENTS)


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
    usual = ["-timeout=10", "-max_len=160", "-len_control=0"]
    atheris.Setup([sys.argv[0], *usual, *sys.argv[1:]], target)
    atheris.Fuzz()
