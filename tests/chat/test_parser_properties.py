"""Whatever the model writes: no exception, and the same result for every way of cutting it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from openjet_provider.chat.tokenizer import Tokenizer
from tests.chat.parsing import Output, byte_ids, cuts, parse_in_order, tool

TOOLS = [
    tool("run", command="string", timeout="integer", env={"type": ["object", "null"]}),
    tool("edit", path="string", old={}, all={"anyOf": [{"type": "boolean"}, {"type": "null"}]}),
    tool("now"),
]
FRAGMENTS = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<function=", "</function>",
    "<parameter=", "</parameter>", "<function=run>", "<function=edit>", "<function=now>",
    "<function=other>", "<parameter=command>", "<parameter=timeout>", "<parameter=path>",
    "<parameter=old>", "<parameter=env>", "<parameter=nope>", "<parameter=all>", "run", ">", "\n",
    "\n\n", " ", "\t", "ls -la", "5", "null", "true", "None", '{"a": 1}', '{"name": "now"}', "[1, ",
    "```", "text", "é", "😀", "<", "</", "<tool", "_call>", "<|im_end|>", "\\ud83d", '"', "STOP",
    "ST",
    "<tool_call>\n<function=run>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>",
    "\n</parameter>\n</function>\n</tool_call>", "\n<function=now>\n</function>\n</tool_call>",
]  # fmt: skip

texts = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=3)), max_size=40).map(
    "".join
)
outputs = st.builds(
    Output,
    text=texts,
    tools=st.sampled_from([TOOLS, TOOLS, TOOLS, ()]),
    reasoning_open=st.booleans(),
    end=st.sampled_from(["stop", "stop", "length"]),
    stop=st.sampled_from([(), (), ("STOP",), ("ST", "\n\n", "STOP"), ("text<", "xt")]),
)
sizes = st.lists(st.integers(0, 9), max_size=60)


@given(output=outputs, sizes=sizes)
def test_bytes_cut_anywhere(tokenizer: Tokenizer, output: Output, sizes: list[int]) -> None:
    ids = byte_ids(tokenizer, output.text)
    once = parse_in_order(tokenizer, output, [ids])
    assert parse_in_order(tokenizer, output, cuts(ids, sizes)) == once
    assert parse_in_order(tokenizer, output, [[i] for i in ids]) == once


@given(output=outputs, step=st.integers(1, 7))
def test_tokens_in_steps_of_any_size(tokenizer: Tokenizer, output: Output, step: int) -> None:
    ids = tokenizer.encode(output.text, parse_special=True)
    once = parse_in_order(tokenizer, output, [byte_ids(tokenizer, output.text)])
    assert parse_in_order(tokenizer, output, [ids]) == once
    steps = [ids[i : i + step] for i in range(0, len(ids), step)]
    assert parse_in_order(tokenizer, output, steps) == once
