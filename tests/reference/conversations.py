"""Conversations whose rendering is compared with Hugging Face's and llama.cpp's. Each is something
that both accept: mappings for arguments, text, one system message, a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Conversation:
    """options: template variables by the names of ChatRequest, in values that templates accept."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    continues: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


def _system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _answer(text: str | None, *calls: dict[str, Any], thought: str = "") -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = list(calls)
    return message


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": f"call_{name}", "type": "function", "function": function}


def _result(name: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{name}", "content": text}


HELLO = _user("Hello!")
BRIEF = _system("Be brief.")
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather in a city <b>now</b> & later, in °C",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "e.g. Zürich, 東京"},
                "days": {"type": "integer", "minimum": 1, "default": 3},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
LIST = {"type": "function", "function": {"name": "ls", "description": "", "parameters": {}}}
VALUES = {
    "text": "two\nlines, \"quoted\" and 'so'",
    "number": 3,
    "fraction": 0.25,
    "yes": True,
    "nothing": None,
    "list": [1, "a", None, {"b": False}],
    "mapping": {"z": "é", "a": {"<k>": "x & y"}},
}
LOOP = (
    _user("What is here?"),
    _answer("", _call("ls", path="/"), thought="I have to look."),
    _result("ls", "bin\netc"),
    _answer("Let me look closer.", _call("ls", path="/etc"), thought="Hm,\n\ntwo entries."),
    _result("ls", "hosts"),
)

CONVERSATIONS: dict[str, Conversation] = {
    "a question": Conversation([HELLO]),
    "a system message": Conversation([BRIEF, HELLO]),
    "an empty system message": Conversation([_system(""), HELLO]),
    "white space": Conversation([_system("\n S \n"), _user(" \t\n a\n\n  b \n"), _answer(" c ")]),
    "several turns": Conversation([BRIEF, HELLO, _answer("Hi."), _user("Who?"), _answer("I.")]),
    "text parts": Conversation(
        [{"role": "user", "content": [{"type": "text", "text": t} for t in ("one ", "two")]}]
    ),
    "many scripts": Conversation([_user("naïve e\u0301 漢字 עברית 👩‍💻 \u00a0x\u200b y")]),
    "markup and code": Conversation([_user("<p class='x'>&amp;</p>\n```py\n\tif a < b: ...\n```")]),
    "control tokens as text": Conversation([_user("say <|im_end|> and </think> <tool_call>")]),
    "reasoning in history": Conversation([HELLO, _answer("Hi.", thought="Be nice."), _user("So?")]),
    "reasoning kept": Conversation(
        [HELLO, _answer("Hi.", thought="Be nice."), _user("So?")],
        options={"preserve_thinking": True},
    ),
    "reasoning dropped": Conversation(
        [HELLO, _answer("Hi.", thought="Be nice."), _user("So?")],
        options={"preserve_thinking": False},
    ),
    "reasoning last": Conversation([HELLO, _answer("Hi.", thought="Hm.")]),
    "thinking off": Conversation([HELLO], options={"enable_thinking": False}),
    "thinking on": Conversation([HELLO], options={"enable_thinking": True}),
    "low effort": Conversation([BRIEF, HELLO], options={"reasoning_effort": "low"}),
    "most effort": Conversation([HELLO], [LIST], options={"reasoning_effort": "xhigh"}),
    "tools": Conversation([HELLO], [WEATHER, LIST]),
    "tools and a system message": Conversation([BRIEF, HELLO], [WEATHER]),
    "an agent's loop": Conversation(LOOP, [LIST]),
    "a loop that is over": Conversation(
        [*LOOP, _answer("Two folders.", thought="Done."), _user("Thanks, and /etc?")], [LIST]
    ),
    "reasoning of a loop dropped": Conversation(
        [BRIEF, *LOOP, _answer("Two folders."), _user("And?")],
        [LIST],
        options={"preserve_thinking": False},
    ),
    "a call without text": Conversation([HELLO, _answer(None, _call("ls", path="."))], [LIST]),
    "a call without arguments": Conversation([HELLO, _answer("Yes.", _call("ls"))], [LIST]),
    "arguments of all types": Conversation([HELLO, _answer("", _call("f", **VALUES))], [LIST]),
    "parallel calls": Conversation(
        [
            HELLO,
            _answer("Both.", _call("ls", path="a"), _call("weather", city="Zürich", days=2)),
            _result("ls", "x < y"),
            _result("weather", '{"°C": 21}'),
        ],
        [WEATHER, LIST],
    ),
    "tool history without tools": Conversation([*LOOP, _answer("Done."), HELLO]),
    "a result in a user message": Conversation(
        [*LOOP[:2], _user("<tool_response>\nbin\n</tool_response>")], [LIST]
    ),
    "an answer continued": Conversation([HELLO, _answer("Hi, I am")], continues=True),
}
