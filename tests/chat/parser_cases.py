"""What models write and what it means. Every case is a kind of failure seen in other engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from openjet_provider.chat.parser import EndReason
from tests.chat.parsing import Output, tool


@dataclass(frozen=True)
class Case:
    """calls: (name, arguments) in order; finish: the finish reason."""

    name: str
    output: Output
    content: str | None = None
    reasoning: str | None = None
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    finish: str = "stop"


RUN = tool("run", command="string")
READ = tool("read_file", path="string", first_line="integer", last_line="integer")
WRITE = tool("write_file", path="string", text="string")
REPLACE = tool("replace", path="string", before="string", after="string")
CLOCK = tool("clock")
OPEN = "<tool_call>\n<function=run>\n"
COMMAND = "<parameter=command>\n"
CLOSE = "</function>\n</tool_call>"
TOOLS = (RUN, READ, WRITE, REPLACE, CLOCK)


def call(name: str, /, **arguments: str) -> str:
    """As the template writes it."""
    body = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in arguments.items())
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def value(schema: Any, text: str, expected: Any, **definitions: Any) -> Case:
    """One parameter with this schema."""
    setter = tool("set", value=schema)
    if definitions:
        setter["function"]["parameters"]["$defs"] = definitions
    return Case(
        f"value {text!r} as {schema!r}"[:80],
        Output(call("set", value=text), (setter,)),
        calls=(("set", {"value": expected}),),
        finish="tool_calls",
    )


def one(name: str, text: str, expected: Any, *, end: EndReason = "stop") -> Case:
    """A call of `run` with this command."""
    return Case(
        name,
        Output(text, TOOLS, end=end),
        calls=(("run", {"command": expected}),),
        finish="tool_calls",
    )


def same(name: str, text: str) -> Case:
    """A command that looks like markup and is none."""
    return one(name, call("run", command=text), text)


def plain(name: str, text: str, *, content: str | None = None) -> Case:
    """No call: the text stays visible as it is."""
    return Case(name, Output(text, TOOLS), content=text if content is None else content)


SHAPES = [
    Case("only content", Output("All tests pass."), content="All tests pass."),
    Case("nothing", Output("")),
    Case("only blank lines", Output("\n\n")),
    Case("trailing white space is content", Output("Done. \n"), content="Done. \n"),
    Case("indented first line", Output("\n    x = 1\n"), content="    x = 1\n"),
    Case(
        "thinking, then an answer",
        Output("Two and two.\n</think>\n\nFour.", reasoning_open=True),
        content="Four.",
        reasoning="Two and two.",
    ),
    Case("thinking closed by the prompt", Output("Four."), content="Four."),
    Case(
        "blank lines between thinking and call are no content",
        Output(f"Look first.\n</think>\n\n{call('run', command='ls')}", TOOLS, reasoning_open=True),
        reasoning="Look first.",
        calls=(("run", {"command": "ls"}),),
        finish="tool_calls",
    ),
    Case(
        "thinking, text and a call",
        Output(
            f"Hm.\n</think>\n\nListing.\n\n{call('run', command='ls')}", TOOLS, reasoning_open=True
        ),
        content="Listing.",
        reasoning="Hm.",
        calls=(("run", {"command": "ls"}),),
        finish="tool_calls",
    ),
    Case(
        "empty thinking",
        Output("\n</think>\n\nHi", reasoning_open=True),
        content="Hi",
    ),
    Case(
        "an opening tag although the prompt has one",
        Output("<think>\nWell.\n</think>\nYes", reasoning_open=True),
        content="Yes",
        reasoning="Well.",
    ),
    Case(
        "thinking that the prompt did not ask for",
        Output("<think>\nWell.\n</think>\n\nYes"),
        content="Yes",
        reasoning="Well.",
    ),
    Case(
        "thinking cut off is no content",
        Output("First, the plan. Then", TOOLS, reasoning_open=True, end="length"),
        reasoning="First, the plan. Then",
        finish="length",
    ),
    Case(
        "thinking ended without closing",
        Output("It is 4.", reasoning_open=True),
        reasoning="It is 4.",
    ),
    Case(
        "a call ends the thinking",
        Output(f"List them.\n{call('run', command='ls')}", TOOLS, reasoning_open=True),
        reasoning="List them.",
        calls=(("run", {"command": "ls"}),),
        finish="tool_calls",
    ),
    Case(
        "thinking closed after the call it should have preceded",
        Output(f"List.\n{call('clock')}\n</think>\n\nWait.", TOOLS, reasoning_open=True),
        content="Wait.",
        reasoning="List.",
        calls=(("clock", {}),),
        finish="tool_calls",
    ),
    Case(
        "a call inside the thinking",
        Output(f"List.\n{call('clock')}\nNo.\n</think>\n\nDone.", TOOLS, reasoning_open=True),
        content="No.\nDone.",
        reasoning="List.",
        calls=(("clock", {}),),
        finish="tool_calls",
    ),
    Case(
        "thinking about the call tag",
        Output("Use <tool_call> for it.\n</think>\nOk", TOOLS, reasoning_open=True),
        content="Ok",
        reasoning="Use <tool_call> for it.",
    ),
    Case("a think tag left behind at the end", Output("Done.\n<think>"), content="Done.\n"),
    Case("a closing tag left behind at the end", Output("Done.</think>\n"), content="Done.\n"),
    Case(
        "text about the tags",
        Output("Write <think> and </think> around it."),
        content="Write <think> and </think> around it.",
    ),
    Case("a closing tag without thinking", Output("</think>\n\nHello"), content="Hello"),
    Case(
        "two calls",
        Output(f"{call('run', command='ls')}\n{call('clock')}", TOOLS),
        calls=(("run", {"command": "ls"}), ("clock", {})),
        finish="tool_calls",
    ),
    Case(
        "text before and behind a call",
        Output(f"Before.\n\n{call('clock')}\nBehind.", TOOLS),
        content="Before.\n\nBehind.",
        calls=(("clock", {}),),
        finish="tool_calls",
    ),
    Case(
        "text between calls",
        Output(f"A\n{call('clock')}\nB\n{call('clock')}\n", TOOLS),
        content="A\nB",
        calls=(("clock", {}), ("clock", {})),
        finish="tool_calls",
    ),
    Case(
        "a complete call before the limit",
        Output(call("clock"), TOOLS, end="length"),
        calls=(("clock", {}),),
        finish="length",
    ),
]

DAMAGED = [
    one(
        "no </parameter>",
        "<tool_call>\n<function=run>\n<parameter=command>\nls\n</function>\n</tool_call>",
        "ls",
    ),
    one(
        "no </function>",
        "<tool_call>\n<function=run>\n<parameter=command>\nls\n</parameter>\n</tool_call>",
        "ls",
    ),
    one(
        "no </tool_call>",
        "<tool_call>\n<function=run>\n<parameter=command>\nls\n</parameter>\n</function>",
        "ls",
    ),
    one(
        "only </tool_call>",
        "<tool_call>\n<function=run>\n<parameter=command>\nls\n</tool_call>",
        "ls",
    ),
    one("nothing closed", "<tool_call>\n<function=run>\n<parameter=command>\nls", "ls"),
    one(
        "</parameter> twice",
        "<tool_call>\n<function=run>\n<parameter=command>\nls\n</parameter>\n</parameter>\n</function>\n</tool_call>",
        "ls",
    ),
    one("</tool_call> twice", call("run", command="ls") + "\n</tool_call>", "ls"),
    one(
        "all on one line",
        "<tool_call><function=run><parameter=command>ls</parameter></function></tool_call>",
        "ls",
    ),
    one(
        "quoted names",
        '<tool_call>\n<function="run">\n<parameter="command">\nls\n</parameter>\n</function>\n</tool_call>',
        "ls",
    ),
    one(
        "no > behind the names",
        "<tool_call>\n<function=run\n<parameter=command\nls\n</parameter>\n</function>\n</tool_call>",
        "ls",
    ),
    one(
        "no <tool_call>",
        "<function=run>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>",
        "ls",
    ),
    one(
        "neither wrapper",
        "<function=run>\n<parameter=command>\nls\n</parameter>\n</function>",
        "ls",
    ),
    one(
        "a parameter without a name",
        "<tool_call>\n<function=run>\n<parameter=command>\nls\n</parameter>\n<parameter=\nyes\n</parameter>\n</function>\n</tool_call>",
        "ls",
    ),
    one(
        "a parameter twice",
        "<tool_call>\n<function=run>\n<parameter=command>\nls\n</parameter>\n<parameter=command>\npwd\n</parameter>\n</function>\n</tool_call>",
        "ls",
    ),
    one(
        "text inside the call",
        f"{OPEN}I will list.\n{COMMAND}ls\n</parameter>\n{CLOSE}",
        "ls",
    ),
    one(
        "arguments as JSON",
        '<tool_call>\n<function=run>\n{"command": "ls"}\n</function>\n</tool_call>',
        "ls",
    ),
    one(
        "a call as JSON",
        '<tool_call>\n{"name": "run", "arguments": {"command": "ls"}}\n</tool_call>',
        "ls",
    ),
    one(
        "arguments as JSON text",
        '<tool_call>\n{"name": "run", "arguments": "{\\"command\\": \\"ls\\"}"}\n</tool_call>',
        "ls",
    ),
    one(
        "half a surrogate pair",
        '<tool_call>\n{"name": "run", "arguments": {"command": "\\ud83d"}}\n</tool_call>',
        "\ud83d",
    ),
    Case(
        "text, then a call without <tool_call>",
        Output(
            "Looking.\n\n<function=run>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>",
            TOOLS,
        ),
        content="Looking.",
        calls=(("run", {"command": "ls"}),),
        finish="tool_calls",
    ),
    Case(
        "the second call without <tool_call>",
        Output(f"{call('clock')}\n<function=clock>\n</function>\n</tool_call>", TOOLS),
        calls=(("clock", {}), ("clock", {})),
        finish="tool_calls",
    ),
    Case(
        "two functions in one call",
        Output(
            "<tool_call>\n<function=clock>\n</function>\n<function=clock>\n</function>\n</tool_call>",
            TOOLS,
        ),
        calls=(("clock", {}), ("clock", {})),
        finish="tool_calls",
    ),
    Case(
        "the next call without closing the first",
        Output(f"<tool_call>\n<function=run>\n<parameter=command>\nls\n{call('clock')}", TOOLS),
        calls=(("run", {"command": "ls"}), ("clock", {})),
        finish="tool_calls",
    ),
    Case(
        "the next parameter without closing the first",
        Output(
            "<tool_call>\n<function=write_file>\n<parameter=path>\na.txt\n<parameter=text>\nhello\n</parameter>\n</function>\n</tool_call>",
            TOOLS,
        ),
        calls=(("write_file", {"path": "a.txt", "text": "hello"}),),
        finish="tool_calls",
    ),
    Case(
        "a parameter that was not declared",
        Output(call("clock", zone="UTC", offset="02"), TOOLS),
        calls=(("clock", {"zone": "UTC", "offset": "02"}),),
        finish="tool_calls",
    ),
    Case(
        "a required parameter missing",
        Output(call("run"), TOOLS),
        calls=(("run", {}),),
        finish="tool_calls",
    ),
]

CUT = [
    Case(
        "cut in the tag",
        Output("Now.\n\n<tool_call>\n<func", TOOLS, end="length"),
        content="Now.",
        finish="length",
    ),
    Case(
        "cut in the name", Output("<tool_call>\n<function=ru", TOOLS, end="length"), finish="length"
    ),
    Case(
        "cut in the first value",
        Output("<tool_call>\n<function=run>\n<parameter=command>\nrm -rf /", TOOLS, end="length"),
        calls=(("run", {}),),
        finish="length",
    ),
    Case(
        "cut in the second value",
        Output(
            "<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=text>\nhal",
            TOOLS,
            end="length",
        ),
        calls=(("write_file", {"path": "a"}),),
        finish="length",
    ),
    Case(
        "cut in the name of a call without <tool_call>",
        Output("Now.\n<function=run>\n<parameter=comm", TOOLS, end="length"),
        content="Now.",
        finish="length",
    ),
    Case(
        "cut in a call written as JSON",
        Output('<tool_call>\n{"name": "run", "argum', TOOLS, end="length"),
        finish="length",
    ),
    Case(
        "cut in the second call",
        Output(f"{call('clock')}\n<tool_call>\n<function=run>\n<parameter", TOOLS, end="length"),
        calls=(("clock", {}), ("run", {})),
        finish="length",
    ),
    Case(
        "cancelled",
        Output("One, tw", TOOLS, end="cancelled"),
        content="One, tw",
        finish="cancelled",
    ),
]

NO_CALL = [
    plain("an unknown function", call("unknown", command="ls")),
    plain("an empty call", "<tool_call>\n</tool_call>"),
    plain("a call without a name", "<tool_call>\n<function=>\n</function>\n</tool_call>"),
    plain("prose in a call", "<tool_call>\nlist the files\n</tool_call>"),
    plain("JSON without a name", '<tool_call>\n{"command": "ls"}\n</tool_call>'),
    plain(
        "JSON for an unknown function",
        '<tool_call>\n{"name": "nope", "arguments": {}}\n</tool_call>',
    ),
    plain("broken JSON", '<tool_call>\n{"name": "run", \n</tool_call>'),
    plain("a tag in a sentence", "The tag <tool_call> opens a call."),
    plain("a function in a sentence", "Write <function=run> to run."),
    plain(
        "an example in a code block", "Like this:\n```\n<function=clock>\n</function>\n```\nClear?"
    ),
    plain("an example with text behind it", "<function=clock>\n</function>\nis how a call looks."),
    plain("a function that is never closed", "<function=run>\nruns a command."),
    plain("a lone closing tag", "Closed by </tool_call> at the end."),
    Case("no tools at all", Output(call("run", command="ls")), content=call("run", command="ls")),
]

VERBATIM = [
    same("entities are not decoded", "echo '&lt;a&gt; &amp;' && x < y"),
    same("a closing tag inside a line", "grep '</parameter>' f\nwc f"),
    same("a parameter inside a line", "grep '<parameter=k>v</parameter>' f"),
    same("a parameter of another function", "cat <<E\n<parameter=path>\nE"),
    same("a closing function inside a line", "echo '</function>' done"),
    same("a closing call inside a line", "echo '</tool_call>' done"),
    same("think tags", "echo '<think></think>'"),
    same("an example call", f"Example:\n{call('demo', x='1', y='2')}"),
    same("an example of a known call", f"Example:\n{call('clock')}\nend"),
    same("two example calls", f"{call('demo', x='1')}\n{call('demo', x='2')}"),
    same("only the closing tags of an example", "1\n</parameter>\n</function>\n</tool_call>"),
    same("only the opening tags of an example", "<tool_call>\n<function=demo>\n..."),
    same("white space around", "  ls \t"),
    same("one line break each side", "\nls\n"),
    same("only a line break", "\n"),
    same("empty", ""),
    one("no line at all", f"{OPEN}{COMMAND}</parameter>\n{CLOSE}", ""),
    same("quotes and backslashes", 'printf "a\\n\\"b\\""'),
    same("carriage returns", "a\r\nb"),
    same("control characters", "a\x1b[0m\x00b"),
    same("JSON for a string parameter", '{"a": [1]}'),
    same("decomposed and astral characters", "e\u0301 👩‍🚀 𠮷"),
    Case(
        "names that are not ASCII",
        Output(call("時刻", 都市="東京"), (tool("時刻", 都市="string"),)),
        calls=(("時刻", {"都市": "東京"}),),
        finish="tool_calls",
    ),
]

NULLABLE = {"anyOf": [{"type": "string"}, {"type": "null"}]}
VALUES = [
    value("integer", "5", 5),
    value("integer", "-12", -12),
    value("integer", " 7 ", 7),
    value("integer", "7.0", 7),
    value("integer", "7.5", "7.5"),
    value("integer", "12B", "12B"),
    value("integer", "2026-01-15", "2026-01-15"),
    value("integer", "", ""),
    value("integer", "1_000", "1_000"),
    value("integer", "٣", "٣"),
    value("integer", "9" * 5000, "9" * 5000),
    value("number", "1.50", 1.5),
    value("number", "3", 3),
    value("number", "1e3", 1000.0),
    value("number", "1e999", "1e999"),
    value("number", "NaN", "NaN"),
    value("number", "heavy", "heavy"),
    value("boolean", "true", True),
    value("boolean", "False", False),
    value("boolean", "yes", "yes"),
    value("boolean", "1", "1"),
    value("null", "null", None),
    value("string", "null", "null"),
    value("string", "None", "None"),
    value("string", "true", "true"),
    value("string", "02134", "02134"),
    value({"type": "string", "enum": ["none", "all"]}, "none", "none"),
    value({"enum": [1, 2, 3]}, "2", 2),
    value({"const": True}, "true", True),
    value({}, "02134", "02134"),
    value({}, "true", "true"),
    value({}, '{"a": 1}', '{"a": 1}'),
    value("array", "[1, 2]", [1, 2]),
    value("array", '["a", "b"]', ["a", "b"]),
    value("array", "['a', 'b']", ["a", "b"]),
    value("array", "[True, None]", [True, None]),
    value("array", "a, b", "a, b"),
    value("array", '["a"b"]', '["a"b"]'),
    value("array", '["ש"ח"]', '["ש"ח"]'),
    value("array", "[" * 3000, "[" * 3000),
    value("array", "[NaN]", "[NaN]"),
    value("object", '{"b": 1, "a": {"c": null}}', {"b": 1, "a": {"c": None}}),
    value("object", "{'a': 'it''s'}", {"a": "its"}),
    value("object", '{"a": "line\nline"}', {"a": "line\nline"}),
    value("object", '{"a": "<b>x</b>"}', {"a": "<b>x</b>"}),
    value("object", "[1]", "[1]"),
    value("object", '{"a": ', '{"a": '),
    value({"properties": {"a": {}}}, '{"a": 1}', {"a": 1}),
    value({"items": {"type": "string"}}, '["a"]', ["a"]),
    value({"type": ["integer", "null"]}, "5", 5),
    value({"type": ["integer", "null"]}, "None", None),
    value({"type": ["integer", "string"]}, "5", 5),
    value({"type": ["integer", "string"]}, "five", "five"),
    value({"type": ["string", "integer"]}, "5", "5"),
    value({"type": "integer", "nullable": True}, "null", None),
    value(NULLABLE, "null", None),
    value(NULLABLE, "nullable", "nullable"),
    value({"oneOf": [{"type": "array"}, {"type": "boolean"}]}, "true", True),
    value({"anyOf": [{"anyOf": [{"type": "integer"}]}, {"type": "null"}]}, "3", 3),
    value({"allOf": [{"$ref": "#/$defs/Size"}]}, "3", 3, Size={"type": "integer"}),
    value({"$ref": "#/$defs/Size"}, "3", 3, Size={"type": "integer"}),
    value({"$ref": "#/$defs/A~1B"}, "3", 3, **{"A/B": {"type": "integer"}}),
    value({"$ref": "#/$defs/Loop"}, "3", "3", Loop={"$ref": "#/$defs/Loop"}),
    value({"$ref": "#/$defs/Missing"}, "3", "3"),
    value({"$ref": "https://example.org/s"}, "3", "3"),
    value({"type": "unheard-of"}, "3", "3"),
    value({"type": 3, "anyOf": 4, "enum": 5}, "3", "3"),
    value(True, "3", "3"),
]

STOPS = [
    Case("a stop string", Output("One. STOP Two.", stop=("STOP",)), content="One. "),
    Case("the one that is complete first", Output("a12345", stop=("12345", "234")), content="a1"),
    Case(
        "a start that does not go on",
        Output("so be\nQuiet", stop=("\nQ:",)),
        content="so be\nQuiet",
    ),
    Case("a start at the end", Output("so be\nQ", stop=("\nQ:",)), content="so be\nQ"),
    Case(
        "not in the thinking",
        Output(
            "Observation: none.\n</think>\n\nOk. Observation: x",
            reasoning_open=True,
            stop=("Observation:",),
        ),
        reasoning="Observation: none.",
        content="Ok. ",
    ),
    Case(
        "not in a call",
        Output(call("run", command="echo STOP"), TOOLS, stop=("STOP",)),
        calls=(("run", {"command": "echo STOP"}),),
        finish="tool_calls",
    ),
    Case(
        "behind a call",
        Output(f"{call('clock')}\nSTOP{call('clock')}", TOOLS, stop=("STOP",)),
        calls=(("clock", {}),),
        finish="tool_calls",
    ),
    Case(
        "a start before a call",
        Output(f"Ok ST{call('clock')}", TOOLS, stop=("STOP",)),
        content="Ok ST",
        calls=(("clock", {}),),
        finish="tool_calls",
    ),
    Case(
        "not the blank line behind the thinking",
        Output("x</think>\n\nA\n\nB", reasoning_open=True, stop=("\n\n",)),
        content="A",
        reasoning="x",
    ),
    Case("an empty stop string means nothing", Output("A", stop=("",)), content="A"),
]

GROUPS = {
    "shape": SHAPES,
    "damaged": DAMAGED,
    "cut": CUT,
    "no call": NO_CALL,
    "verbatim": VERBATIM,
    "value": VALUES,
    "stop": STOPS,
}
CASES = [case for cases in GROUPS.values() for case in cases]
IDS = [f"{group}: {case.name}" for group, cases in GROUPS.items() for case in cases]
