"""Answers in a declared form: a tool named like a class, JSON after tool calls, JSON of any schema."""

from __future__ import annotations

import json
import random
from typing import Any

from . import values as v
from .conversation import Conversation
from .lookups import Lookup, lookup
from .text import expand, fill, join_words, show
from .tool_specs import BOOLEAN, INTEGER, STRING, Param, Tool, random_tool, spec
from .tool_use import CALL_THOUGHTS, think

Schema = dict[str, Any]

# ---- a tool named like a class ---------------------------------------------------------------------

_CLASS_ENDS = "Answer Result Report Info Response Output Record Details Summary Entry Fact Reply".split()  # fmt: skip
_CLASS_TEXTS = (
    "", "", "(A|The) {k} and (its|the) {p}.", "(The answer|What was found)( about a {k}|).", "{K}.", "(The|A) (structured|final|typed) (answer|response|output).", "What the user wants to know.",
)  # fmt: skip
_SYSTEMS = (
    "You (know|look up|tell) {knows}.(| Use the tool(s|).| Look it up first.)(| (Then|Finally) give the (answer|result).)", "(Answer|Help) (the user|users)(, with the tools| by calling tools|).(| Finish with {n}.)",
    "(Look things up|Find out), then (answer with|return|call) {n}.", "You are (a|the) {k} (agent|helper|expert).(| Always look it up.)(| Your answer has a fixed form.)",
)  # fmt: skip
_FINISH = (
    "(The {p} is {a}|I know it now: {a}|It is {a}). (Now|I finish with|I answer with|That goes into) {n}.", "(All is known|Nothing is missing|I have what I need). (Now|I call) {n}.",
)  # fmt: skip
_EXTRA: tuple[tuple[str, Schema], ...] = (
    ("found", BOOLEAN), ("ok", BOOLEAN), ("known", BOOLEAN), ("source", STRING), ("tool", STRING), ("looked_up_with", STRING),
    ("note", {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}), ("comment", {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}),
)  # fmt: skip


def _class_name(rng: random.Random, *words: str) -> str:
    """CamelCase out of one or two words."""
    first = rng.choice((*words, v.word(rng), rng.choice(v.NOUNS)))
    second = rng.choice((*words, *_CLASS_ENDS, *_CLASS_ENDS))
    parts = [first, second] if rng.random() < 0.7 and first != second else [first]
    return "".join(part[:1].upper() + part[1:] for word in parts for part in word.split("_"))


def _fields(
    rng: random.Random, found: Lookup, texts: float = 0.0
) -> tuple[list[Param], dict[str, Any]]:
    """What an answer declares, and its values: the thing, what was found out, now and then more.
    `texts` is the share of numbers that are declared as texts."""
    first = rng.choice((found.kind, found.tool.params[0].name, "name", "subject", "thing", "what"))
    second = rng.choice(
        (found.word, found.word, *found.property.tools.split("|"), "value", "answer")
    )
    whole = isinstance(found.outcome, int) and rng.random() >= texts
    fields = [
        (first, dict(found.tool.params[0].schema), found.value),
        (second, dict(INTEGER if whole else STRING), found.outcome if whole else show(found.outcome)),
    ]  # fmt: skip
    if first == second or rng.random() < 0.12:
        fields.pop(0)
    if rng.random() < 0.3:
        fields.reverse()
    params = [Param(name, schema, v.word) for name, schema, _ in fields]
    values = {name: value for name, _, value in fields}
    if rng.random() < 0.25:
        name, schema = rng.choice([e for e in _EXTRA if e[0] not in values])
        optional = "anyOf" in schema
        params.append(Param(name, dict(schema), v.word, required=not optional))
        if not optional:
            values[name] = True if schema == BOOLEAN else found.tool.name
    return params, values


def _look_up(conv: Conversation, *things: Lookup) -> None:
    """The calls (all in one turn) and their results."""
    rng, tool = conv.rng, things[0].tool.name
    args = ", ".join(f"{k} = {show(x)}" for k, x in things[0].arguments.items())
    thought = think(rng, conv, CALL_THOUGHTS, name=tool, args=args)
    conv.call(*[(tool, each.arguments) for each in things], thought=thought)
    for each in things:
        conv.result(each.result)


def _several(rng: random.Random, first: Lookup) -> tuple[list[Lookup], str]:
    """One thing or two, and how somebody asks for them."""
    second = lookup(rng, first)
    if rng.random() < 0.8 or second.value == first.value:
        return [first], first.ask
    both = f"the {first.word} of {first.thing} and of {second.thing}"
    asks = (f"{first.question} And {second.thing}?", f"(What is|Tell me|I need|Find) {both}(?|.)")
    return [first, second], expand(rng, rng.choice(asks))


def _allowed(conv: Conversation, kind: str) -> Lookup:
    while True:
        found = lookup(conv.rng)
        if conv.split.allows(kind, *found.key):
            return found


def schema_final(conv: Conversation) -> None:
    """Look up with other tools, then call the tool that is named like the answer's class: once."""
    rng = conv.rng
    first = _allowed(conv, "schema_final")
    things, ask = _several(rng, first)
    name = _class_name(rng, first.kind, first.word)
    params, values = _fields(rng, first, texts=0.2)
    if len(things) > 1:
        each = {"type": "object", "properties": {p.name: p.schema for p in params}, "required": [p.name for p in params if p.required]}  # fmt: skip
        rows = [values, {p: _value_of(p, x, things) for p, x in values.items()}]
        field = rng.choice(("items", "answers", "results", f"{first.kind}s", "entries", "rows"))
        params, values = [Param(field, {"type": "array", "items": each}, v.word)], {field: rows}
    slots = {"k": first.kind, "K": name, "p": first.word, "n": name}
    final = Tool(name, fill(rng, _CLASS_TEXTS, slots), params)
    others = [random_tool(rng) for _ in range(rng.choices((0, 1, 2), (6, 3, 1))[0])]
    for tool in rng.sample([first.tool, final, *others], 2 + len(others)):
        conv.offer(spec(rng, tool))
    if rng.random() < 0.45:
        knows = expand(rng, first.property.knows)
        conv.messages.append({"role": "system", "content": fill(rng, _SYSTEMS, {**slots, "knows": knows})})  # fmt: skip
    if rng.random() < 0.12:  # all of it was said: nothing to look up
        said = fill(rng, "({a}|{a}. (Note it.|Keep that.|Write it down.)|(Extract|Record) this: {a}|{a} (Put it into {n}.|Use {n}.))", {**slots, "a": " ".join(f"The {t.word} of {t.value} is {show(t.outcome)}." for t in things)})  # fmt: skip
        conv.user(said)
    else:
        conv.user(ask)
        _look_up(conv, *things)
    given = {p.name: values[p.name] for p in params if p.name in values}
    conv.call((name, given), thought=think(rng, conv, _FINISH, p=first.word, a=show(first.outcome), n=name))  # fmt: skip
    if rng.random() < 0.3:
        shown = " ".join(f"{k}={x!r}" for k, x in given.items())
        conv.result(rng.choice(("ok", "", f"Structured response: {shown}", f"{name}({shown})")))


def _value_of(name: str, value: Any, things: list[Lookup]) -> Any:
    """The second thing's value where the first one's stands."""
    first, second = things
    if value == first.value and isinstance(value, type(second.value)):
        return second.value
    if value in (first.outcome, show(first.outcome)) and not isinstance(value, bool):
        return second.outcome if isinstance(value, int) else show(second.outcome)
    return value


_JSON_WANTED = (
    "(Answer|Reply|Respond) (with|in|as) (a |)JSON( object|)(| with (the keys |keys |){k}).", "(Answer|Output|Final answer): JSON (of|that follows|matching) this schema: {s}",
    "(When you know it|At the end|Finally)(,|) (give|return|write) (a |one |)JSON( object|) with {k}.", "(Your answer must match|Answer by) this schema:\n{s}", "Response format: {s}",
)  # fmt: skip


def typed_text(conv: Conversation) -> None:
    """Look up with tools, then answer with JSON; in some documents nobody says so: a client may
    force it without a word."""
    rng = conv.rng
    first = _allowed(conv, "typed_text")
    things, ask = _several(rng, first)
    params, values = _fields(rng, first)
    schema: Schema = {"type": "object", "properties": {p.name: p.schema for p in params}, "required": [p.name for p in params if p.required]}  # fmt: skip
    answer: Any = values
    if len(things) > 1:
        rows = [values, {p: _value_of(p, x, things) for p, x in values.items()}]
        field = rng.choice(("items", "answers", "results", f"{first.kind}s"))
        answer = {field: rows}
        schema = {"type": "object", "properties": {field: {"type": "array", "items": schema}}, "required": [field]}  # fmt: skip
    others = [random_tool(rng) for _ in range(rng.choices((0, 1, 2), (6, 3, 1))[0])]
    for tool in rng.sample([first.tool, *others], 1 + len(others)):
        conv.offer(spec(rng, tool))
    quoted = join_words([f"'{key}'" if rng.random() < 0.5 else key for key in answer])
    wanted = fill(rng, _JSON_WANTED, {"k": quoted, "s": json.dumps(schema)})
    where = rng.choices(("system", "user", ""), (45, 30, 25))[0]
    if where == "system":
        lead = fill(rng, _SYSTEMS[0], {"knows": expand(rng, first.property.knows)})
        conv.messages.append({"role": "system", "content": f"{lead} {wanted}"})
    conv.user(ask if where != "user" else f"{ask}{rng.choice((' ', chr(10)))}{wanted}")
    _look_up(conv, *things)
    shown = json.dumps(answer, ensure_ascii=False)
    facts = [shown] if where else [show(each.outcome) for each in things]
    conv.answer(shown, think(rng, conv, ("(It is|The result is|I have) {a}. (As JSON.|Now the object.|I answer with an object.)",), a=show(first.outcome)), facts=facts)  # fmt: skip


# ---- JSON of any schema, with content that is free ---------------------------------------------------

_ASKS = (
    "(Describe|Invent|Make up|Show me|Think of) (a|one|some) {n}(.|, please.|!)", "{verb} (it|something|the {n})(.|, please.)", "(What|Which) (comes|is|would be) (then|now|good)?", "(Fill|Complete) (it|this)(.| for the {n}.)",
    "(Something|Anything) (about|with|for) (a |){n}(s|)(.|?)", "(Give|Send|Write) (us|me) (one|a|some) {n}(.|?)", "(My|A|Our) {n} (of|for) {w}(.|?)", "(Data|An entry|A record) (for|of) {w}(.|, please)", "How (would|does) (a|your|the) {n} look(| like)?", "{w}(|?|.|!)",
)  # fmt: skip
_SCHEMA_ASKS = (
    "{a}\n(Answer|Reply|Respond) with JSON (that follows|of|for) this schema: {s}", "{a}\n(JSON schema|Schema|Response format): {s}", "{a} (Use|Follow|Stick to) this (JSON |)schema(.\n|:\n|: ){s}", "(Schema|Format): {s}\n{a}",
    "{a} Return an object by this declaration: {s}", "{a}\n\nThe output must be JSON valid under\n{s}",
)  # fmt: skip


class _Schemas:
    """Draws a schema together with a value that it allows: short texts, short arrays, small depth."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.closed, self.required = rng, rng.random() < 0.6, rng.random() < 0.75

    def draw(self, depth: int) -> tuple[Schema, Any]:
        rng = self.rng
        roll = rng.random()
        if depth > 0 and roll < 0.34:
            return rng.choice((self.object, self.object, self.array, self.array, self.union, self.map))(depth - 1)  # fmt: skip
        return rng.choice((self.text, self.text, self.text, self.bounded, self.number, self.number, self.choice, self.form))()  # fmt: skip

    def text(self) -> tuple[Schema, Any]:
        rng = self.rng
        made = rng.choice((v.phrase, v.words, v.word, v.person, v.place, lambda r: f"{v.words(r, 2, 6).capitalize()}."))(rng)  # fmt: skip
        return {"type": "string"}, made

    def bounded(self) -> tuple[Schema, Any]:
        rng = self.rng
        value = rng.choice((v.word, v.code, v.words))(rng)
        low, high = len(value) - rng.randint(0, 3), len(value) + rng.randint(0, 12)
        limits = {"maxLength": high, **({"minLength": max(0, low)} if rng.random() < 0.4 else {})}
        return {"type": "string", **limits}, value

    def number(self) -> tuple[Schema, Any]:
        rng = self.rng
        kind = rng.choice(("integer", "integer", "number", "boolean", "null", "maybe"))
        if kind == "boolean":
            return {"type": "boolean"}, rng.random() < 0.5
        value: Any = rng.randint(0, rng.choice((9, 99, 999, 2000)))
        if kind in ("null", "maybe"):
            schema = {"type": ["integer", "null"]} if kind == "null" else {"anyOf": [{"type": "integer"}, {"type": "null"}]}  # fmt: skip
            return schema, rng.choice((None, value))
        if kind == "number":
            value = rng.choice((round(rng.uniform(0, 99), rng.randint(1, 2)), float(value), 0.5))
        limits = {}
        if rng.random() < 0.5:
            limits = {"minimum": int(value) - rng.randint(0, 40), "maximum": int(value) + rng.randint(1, 90)}  # fmt: skip
        return {"type": kind, **limits}, value

    def choice(self) -> tuple[Schema, Any]:
        rng = self.rng
        options: list[Any] = rng.choice(([v.word(rng) for _ in range(3)], rng.sample(v.COLORS, 3), [1, 2, 3, 5], [v.word(rng), 7, None, False]))  # fmt: skip
        value = rng.choice(options)
        return ({"const": value} if rng.random() < 0.15 else {"enum": options}), value

    def form(self) -> tuple[Schema, Any]:
        rng = self.rng
        day = f"20{rng.randint(10, 39)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
        name, value = rng.choice((("date", day), ("date-time", f"{day}T{v.clock(rng)}:00Z"), ("email", f"{rng.choice(v.NOUNS)}@example.com"), ("time", f"{v.clock(rng)}:00Z")))  # fmt: skip
        return {"type": "string", "format": name}, value

    def keys(self, low: int, high: int) -> list[str]:
        rng = self.rng
        pool = ("id", "name", "title", "text", "note", "value", "kind", "count", "size", "x", "y", "from", "to", "line", "ok", "error", "reason", "step", "items", "parts", "day", "answer", "user", v.word(rng), v.word(rng), v.foreign(rng))  # fmt: skip
        return rng.sample(sorted(set(pool)), rng.randint(low, high))

    def object(self, depth: int, low: int = 1, high: int = 4) -> tuple[Schema, Any]:
        rng = self.rng
        drawn = {key: self.draw(depth) for key in self.keys(low, high)}
        schema: Schema = {"type": "object", "properties": {k: s for k, (s, _) in drawn.items()}}
        given = [k for k in drawn if self.required or rng.random() < 0.6]
        if given:
            schema["required"] = [k for k in given if self.required or rng.random() < 0.5]
        if self.closed:
            schema["additionalProperties"] = False
        return schema, {k: drawn[k][1] for k in given}

    def array(self, depth: int) -> tuple[Schema, Any]:
        """Most arrays have one or two elements; without a bound they end all the same."""
        rng = self.rng
        schema, value = self.draw(depth)
        length = rng.choices((0, 1, 2, 3, 4), (1, 4, 4, 2, 1))[0]
        values = [value, *(_another(rng, schema, value) for _ in range(length - 1))][:length]
        limits: Schema = {}
        if rng.random() < 0.4:
            limits["maxItems"] = length + rng.randint(0, 3)
        if rng.random() < 0.2:
            limits["minItems"] = rng.randint(0, length)
        return {"type": "array", "items": schema, **limits}, values

    def union(self, depth: int) -> tuple[Schema, Any]:
        options = [self.draw(depth) for _ in range(self.rng.randint(2, 3))]
        if self.rng.random() < 0.4:
            options.append(({"type": "null"}, None))
        return {"anyOf": [s for s, _ in options]}, self.rng.choice(options)[1]

    def map(self, depth: int) -> tuple[Schema, Any]:
        schema, value = self.draw(0)
        values = dict.fromkeys(self.keys(1, 2), value)
        return {"type": "object", "additionalProperties": schema, "maxProperties": 3}, values

    def tree(self) -> tuple[Schema, Any]:
        """An object that may hold others of its kind."""
        rng = self.rng
        key = rng.choice(("children", "parts", "replies", "next"))
        leaf = {rng.choice(("name", "value", "title")): v.words(rng, 1, 2), key: []}
        properties: Schema = {name: {"type": "string"} for name in leaf if name != key}
        properties[key] = {"type": "array", "items": {"$ref": "#"}}
        below = [leaf] * rng.choice((0, 1, 2))
        return {"type": "object", "properties": properties, "required": list(leaf)}, {**leaf, key: below}  # fmt: skip


def _another(rng: random.Random, schema: Schema, value: Any) -> Any:
    """One more element of an array: another one where that is easy."""
    if schema == {"type": "string"}:
        return v.word(rng)
    if schema == {"type": "integer"}:
        return rng.randint(0, 99)
    return rng.choice(schema["enum"]) if "enum" in schema else value


def shaped(conv: Conversation) -> None:
    """JSON of a schema that is drawn: it may be told, or only its keys, or nothing of it."""
    rng = conv.rng
    while True:
        make = _Schemas(rng)
        schema, value = make.object(2) if rng.random() < 0.85 else make.draw(2)
        if rng.random() < 0.05:
            schema, value = make.tree()
        shown = json.dumps(value, ensure_ascii=False)
        if len(shown) < 500 and conv.split.allows("shaped", json.dumps(schema)):
            break
    if rng.random() < 0.1 and schema.get("type") == "object":
        name = rng.choice(("Part", "Node", "Item", v.word(rng).capitalize()))
        schema = {"$ref": f"#/$defs/{name}", "$defs": {name: schema}}
    conv.extra["schema"] = schema
    words = {"n": rng.choice((rng.choice(v.NOUNS), v.word(rng))), "w": v.phrase(rng), "verb": rng.choice(v.VERBS).replace("_", " ")}  # fmt: skip
    ask = fill(rng, _ASKS, words)
    style = rng.random()
    if style < 0.55:
        ask = fill(rng, _SCHEMA_ASKS, {"a": ask, "s": json.dumps(schema)})
    elif style < 0.65:
        told = fill(rng, _JSON_WANTED[1:2] + _JSON_WANTED[3:], {"s": json.dumps(schema)})
        if conv.messages:
            ask = f"{ask}\n{told}"
        else:
            conv.messages.append({"role": "system", "content": told})
    elif style < 0.80 and isinstance(value, dict) and value:
        ask += fill(
            rng, " (As JSON with|JSON, keys:|In JSON, with) {k}.", {"k": join_words(list(value))}
        )
    elif style < 0.85:
        ask += expand(rng, " (In JSON|JSON|As JSON|Only JSON)(.|, please.)")
    conv.user(ask)
    conv.answer(shown, think(rng, conv, ("(JSON is wanted|An object is wanted|It must be JSON)(, short|, nothing else|).",)), scored=False)  # fmt: skip


_SUBMITS = "submit record save hand_in store send report register note_down put".split()
_SUBMIT_ASKS = (
    "{a} (Use|Call|Submit it with|Put it into|Give it to) {n}.", "{a}\n(The answer goes|Everything goes|It goes) through {n}.", "(Call|Use) {n}: {a}", "{a} ({n})", "{a}",
)  # fmt: skip


def forced(conv: Conversation) -> None:
    """A call of the only tool there is, with values that nobody gave: short ones."""
    rng = conv.rng
    if conv.tools:
        shaped(conv)
        return
    while True:
        schema, value = _Schemas(rng).object(2)
        name = rng.choice(_SUBMITS)
        name = f"{name}_{rng.choice((*v.NOUNS, 'it', 'answer'))}" if rng.random() < 0.7 else name
        if len(json.dumps(value)) < 400 and conv.split.allows("forced", name, json.dumps(schema)):
            break
    required = schema.get("required", ())
    params = [Param(k, s, v.word, required=k in required) for k, s in schema["properties"].items()]
    said = rng.choice((f"{name.replace('_', ' ').capitalize()}.", "", "(Hand|Send) in the (result|answer)."))  # fmt: skip
    conv.offer(spec(rng, Tool(name, expand(rng, said), params)))
    words = {"n": rng.choice((rng.choice(v.NOUNS), v.word(rng))), "w": v.phrase(rng), "verb": rng.choice(v.VERBS).replace("_", " ")}  # fmt: skip
    conv.user(fill(rng, _SUBMIT_ASKS, {"a": fill(rng, _ASKS, words), "n": name}))
    thought = think(rng, conv, ("(It goes into|I fill in|I call) {n}.",), n=name)
    conv.call((name, value), thought=thought, scored=False)


EPISODES = {
    "forced": forced,
    "schema_final": schema_final,
    "typed_text": typed_text,
    "shaped": shaped,
}
