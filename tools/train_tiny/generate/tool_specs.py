"""Tools: random ones of any name and signature, and families with a meaning of their own."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import values as v
from .text import some

Maker = Callable[[random.Random], Any]


@dataclass
class Param:
    """One parameter of a concrete tool."""

    name: str
    schema: dict[str, Any]
    make: Maker
    required: bool = True


@dataclass
class Tool:
    name: str
    description: str
    params: list[Param] = field(default_factory=list)
    verb: str = ""  # what it does, in words
    noun: str = ""  # to what
    opaque: bool = False  # the name says nothing: only its description does

    def signature(self) -> str:
        return self.name + "(" + ",".join(p.name for p in self.params) + ")"

    def arguments(self, rng: random.Random, optional: float = 0.4) -> dict[str, Any]:
        """Random arguments: all required ones, each optional one with this probability."""
        return {p.name: p.make(rng) for p in self.params if p.required or rng.random() < optional}


def spec(rng: random.Random, tool: Tool) -> dict[str, Any]:
    """The tool as frameworks send it: OpenAI's function form, with their small differences."""
    properties = {}
    style = rng.randrange(6)
    titled = style == 4 and rng.random() < 0.5
    for p in tool.params:
        schema = dict(p.schema)
        if titled:
            schema["title"] = p.name.replace("_", " ").title()
        if rng.random() < 0.4:
            schema["description"] = _describe(rng, p.name)
        properties[p.name] = schema
    parameters: dict[str, Any] = {"properties": properties, "type": "object"}
    required = [p.name for p in tool.params if p.required]
    if required:
        parameters["required"] = required
    if style == 1:
        parameters = {"type": "object", **parameters}
    elif style in (2, 4):
        parameters["additionalProperties"] = False
    if titled:
        parameters["title"] = f"{tool.name}_args"
    function: dict[str, Any] = {"name": tool.name}
    if tool.description and (tool.opaque or rng.random() < 0.9):
        function["description"] = tool.description
    function["parameters"] = parameters
    if style in (3, 4):
        function["strict"] = True
    return {"type": "function", "function": function}


def _describe(rng: random.Random, name: str) -> str:
    shown = name.replace("_", " ")
    return rng.choice((
        f"The {shown}.", f"the {shown} to use", shown.capitalize(), f"Value of {shown}",
        f"The {shown} of the {rng.choice(v.NOUNS)}", f"{shown} (see the manual)",
    ))  # fmt: skip


def enum(options: list[str]) -> tuple[dict[str, Any], Maker]:
    return {"type": "string", "enum": options}, lambda rng: rng.choice(options)


STRING = {"type": "string"}
INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
BOOLEAN = {"type": "boolean"}
_ENUMS = (
    ["low", "medium", "high"], ["asc", "desc"], ["json", "csv", "xml"], ["small", "large"],
    ["open", "closed", "pending"], ["metric", "imperial"], ["celsius", "fahrenheit"],
    ["red", "green", "blue"], ["read", "write", "admin"], ["daily", "weekly", "monthly"],
    ["up", "down"], ["north", "south", "east", "west"], ["on", "off", "auto"], ["fast", "slow"],
)  # fmt: skip
_STRING_NAMES = (
    "name title text query message label key value subject content note comment topic id item "
    "word source target tag category description filename owner field phrase reference code s input_text"
).split()
_INT_NAMES = (
    "n x y a b count number limit amount size value index quantity level page score age year days "
    "minutes seconds width height start end offset k item_id user_id points first second num input_value"
).split()
_FLOAT_NAMES = "price ratio rate weight amount distance x y factor temperature value total".split()
_BOOL_NAMES = "enabled dry_run verbose force active recursive notify public strict urgent".split()
_TYPED_NAMES: tuple[tuple[str, Maker], ...] = (
    ("city", v.place), ("location", v.place), ("place", v.place), ("email", v.email),
    ("customer", v.person), ("person", v.person), ("user", v.person), ("author", v.person),
    ("customer_name", v.company), ("company", v.company), ("account_name", v.foreign),
    ("url", v.url), ("path", v.path), ("file_path", v.path), ("date", v.date), ("time", v.clock),
    ("order_id", v.code), ("ticket_id", v.code), ("sku", v.code), ("color", lambda r: r.choice(v.COLORS)),
    ("language", lambda r: r.choice(v.LANGUAGES)), ("animal", lambda r: r.choice(v.ANIMALS)),
    ("style", v.word), ("name", v.foreign), ("full_name", v.foreign), ("answer_in", v.word),
)  # fmt: skip


def random_param(rng: random.Random, taken: set[str]) -> Param:
    """A parameter of a random type whose name is not taken."""
    while True:
        param = _draw_param(rng)
        if param.name not in taken:
            taken.add(param.name)
            return param


def _draw_param(rng: random.Random) -> Param:
    roll = rng.random()
    odd_name = _odd_name(rng) if rng.random() < 0.4 else ""
    if roll < 0.28:
        return Param(odd_name or rng.choice(_INT_NAMES), dict(INTEGER), v.integer)
    if roll < 0.50:
        return Param(odd_name or rng.choice(_STRING_NAMES), dict(STRING), v.phrase)
    if roll < 0.68:
        name, make = rng.choice(_TYPED_NAMES)
        return Param(odd_name or name, dict(STRING), make)
    if roll < 0.76:
        return Param(odd_name or rng.choice(_FLOAT_NAMES), dict(NUMBER), v.decimal)
    if roll < 0.82:
        return Param(odd_name or rng.choice(_BOOL_NAMES), dict(BOOLEAN), lambda r: r.random() < 0.5)
    if roll < 0.88:
        schema, make = enum(
            rng.choice(_ENUMS) if rng.random() < 0.6 else [v.word(rng) for _ in range(3)]
        )
        name = rng.choice(("mode", "kind", "status", "unit", "priority", "format"))
        return Param(odd_name or name, schema, make)
    if roll < 0.92:
        schema = {"type": "array", "items": {"type": "string"}}
        return Param(
            odd_name or rng.choice(("tags", "names", "items", "words")), schema,
            lambda r: [v.word(r) for _ in range(r.randint(1, 4))],
        )  # fmt: skip
    if roll < 0.95:
        schema = {"type": "array", "items": {"type": "integer"}}
        return Param(
            odd_name or rng.choice(("numbers", "values", "ids", "scores")), schema,
            lambda r: [r.randint(0, 99) for _ in range(r.randint(1, 5))],
        )  # fmt: skip
    if roll < 0.975:
        schema = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
        return Param(
            rng.choice(("parent", "assignee", "deadline", "alias")), schema,
            lambda r: None if r.random() < 0.5 else v.word(r), required=rng.random() < 0.5,
        )  # fmt: skip
    return _object_param(rng)


def _odd_name(rng: random.Random) -> str:
    """A parameter name out of any words."""
    name = v.word(rng) if rng.random() < 0.8 else rng.choice(v.NOUNS)
    return f"{name}_{v.word(rng)}" if rng.random() < 0.25 else name


def _object_param(rng: random.Random) -> Param:
    inner: set[str] = set()
    fields = []
    while len(fields) < rng.randint(1, 3):
        candidate = _draw_param(rng)
        plain = candidate.schema.get("type") in ("string", "integer", "number", "boolean")
        if plain and candidate.name not in inner:
            inner.add(candidate.name)
            fields.append(candidate)
    schema = {
        "type": "object",
        "properties": {f.name: f.schema for f in fields},
        "required": [f.name for f in fields],
    }
    return Param(
        rng.choice(("options", "address", "config", "details", "filter")),
        schema,
        lambda r: {f.name: f.make(r) for f in fields},
    )


def tool_name(rng: random.Random) -> tuple[str, str, str]:
    """(name, verb phrase, noun phrase) of a random tool, in one of many spellings."""
    roll = rng.random()
    verb = (
        rng.choice(v.VERBS)
        if roll < 0.55
        else v.rare_word(rng)
        if roll < 0.85
        else v.pseudo_word(rng)
    )
    roll = rng.random()
    noun = (
        rng.choice(v.NOUNS)
        if roll < 0.45
        else v.rare_word(rng)
        if roll < 0.75
        else v.pseudo_word(rng)
    )
    if rng.random() < 0.3:
        noun = v.word(rng) + " " + noun
    parts, tail = verb.split("_") + noun.split(), "_".join(noun.split())
    style = rng.random()
    if style < 0.52:
        name = "_".join(parts)
    elif style < 0.62:
        name = parts[0] + "".join(p.capitalize() for p in parts[1:])
    elif style < 0.67:
        name = "-".join(parts)
    elif style < 0.72:
        name = "".join(p.capitalize() for p in parts)
    elif style < 0.80:
        name = tail + rng.choice(
            ("_for", "_of", "_in", "_at", "_lookup", "_info", "_value", "_status", "")
        )
    elif style < 0.88:
        name = tail + rng.choice(
            ("_tool", "_function", "_fn", "_helper", "_maker", "er", "_writer", "_service")
        )
    elif style < 0.93:
        name = f"{tail}_{parts[0]}" + rng.choice(("", "er", "or", "ing"))
    elif style < 0.97:
        name = f"{v.word(rng)}__{'_'.join(parts)}"
    else:
        name = "_".join([*parts, rng.choice(("with", "from", "to", "by", "and")), v.word(rng)])
    if rng.random() < 0.05:
        name += rng.choice(("_v2", "_2", "_all", "_by_id", "_no_input", "_with_args"))
    return name, verb.replace("_", " "), noun


def random_tool(rng: random.Random, most: int = 4) -> Tool:
    """A tool nobody knows: its name says little, its signature is random."""
    name, verb, noun = tool_name(rng)
    taken: set[str] = set()
    count = rng.choices(range(6), (14, 34, 24, 16, 8, 4))[0]
    params = [random_param(rng, taken) for _ in range(min(most, count))]
    for p in params[1:]:
        p.required = p.required and rng.random() < 0.85
    description = rng.choice((
        f"{verb.capitalize()} the {noun}.", f"{verb.capitalize()}s a {noun}", "",
        f"Use this to {verb} a {noun}.", f"{verb.capitalize()} a {noun} and return the result.",
        f"{verb.capitalize()} the {noun} of the {rng.choice(v.NOUNS)}.",
        f"Tool that can {verb} the {noun} for the {rng.choice(v.NOUNS)}. "
        f"Returns the {rng.choice(v.NOUNS)} as text.",
    ))  # fmt: skip
    return Tool(name, description, params, verb, noun)


def distractors(rng: random.Random, low: int, high: int) -> list[Tool]:
    return [random_tool(rng) for _ in range(rng.randint(low, high))]


def shuffled_specs(rng: random.Random, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return some(rng, tools, len(tools), len(tools))
