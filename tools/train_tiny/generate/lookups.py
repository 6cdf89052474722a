"""Tools that look one property of one thing up, and the many ways people ask for it."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from . import values as v
from .text import expand, fill, sentence, show
from .tool_specs import INTEGER, STRING, Maker, Param, Tool

_KINDS = (
    "order ticket room house book bridge tower ship bottle chair bag coat engine wheel garden "
    "ladder table bill card letter machine street ring customer song film team shop van drink"
).split()


@dataclass(frozen=True)
class Property:
    """`asks` are questions, `indirect` the same inside a sentence, `knows` is what somebody who can
    answer them knows, `results` what a tool gives and `says` the same as a sentence about {v}."""

    name: str
    tools: str
    asks: str
    indirect: str
    knows: str
    results: str
    says: str
    make: Maker


def _count(rng: random.Random) -> int:
    return rng.randint(0, rng.choice((9, 99, 999)))


_PROPERTIES = (
    Property("price", "price|cost|rate", "(How much is {t}|What does {t} cost|What is the price of {t})", "(how much {t} is|what {t} costs|what one pays for {t})", "(the prices|what things cost|prices)", "({x} euros|{x} dollars|EUR {x}|{x})", "({v} costs {x} euros|{v} is {x} dollars|one pays {x} euros for {v}|{v} now costs {x})", _count),
    Property("stock", "stock|count|quantity|number", "(How many {t} are (there|left|in stock)|How many {t} do we have|What is the stock of {t})", "(how many {t} are (there|left)|how many {t} we have|whether we have enough {t})", "(the stock|how much is left|what is in the store)", "({x}|{x} pieces|{x} in stock|{x} left)", "(there are {x} of {v}|{x} of {v} are left|the store has {x} {v}|{v} comes to {x})", _count),
    Property("place", "place|location|position", "(Where is {t}|Where can I find {t}|Where do I look for {t})", "(where {t} is|where to find {t}|where {t} has gone)", "(where things are|all places|the locations)", "({x}|in {x}|at {x})", "({v} is in {x}|{v} is at {x}|{v} went to {x}|{v} stands in {x}|one finds {v} near {x})", v.place),
    Property("owner", "owner|holder|user", "(Who owns {t}|Whose is {t}|Who is the owner of {t}|Who has {t})", "(who owns {t}|whose {t} is|who has {t}|who got {t})", "(who owns what|the owners)", "({x}|owned by {x})", "({v} belongs to {x}|{x} owns {v}|{x} has {v}|{v} was given to {x})", v.person),
    Property("age", "age|years", "(How old is {t}|What is the age of {t})", "(how old {t} is|the age of {t})", "(how old things are|ages)", "({x} years|{x})", "({v} is {x} years old|{v} has seen {x} years|{v} was made {x} years ago)", _count),
    Property("length", "length|size|height", "(How (long|tall|high) is {t}|What is the (length|height|size) of {t})", "(how (long|tall|high|large) {t} is|what size {t} has)", "(sizes|how large things are|all measures)", "({x} metres|{x} m|{x} cm|{x})", "({v} is {x} metres (long|tall|high)|{v} measures {x} cm|{v} goes on for {x} m)", _count),
    Property("weight", "weight|mass|load", "(How heavy is {t}|How much does {t} weigh|What is the weight of {t})", "(how heavy {t} is|how much {t} weighs|what {t} weighs)", "(weights|how heavy things are)", "({x} kilos|{x} kg|{x})", "({v} weighs {x} kilos|{v} has {x} kg|{v} comes to {x} kilos)", _count),
    Property("state", "state|status|condition", "(What is the (state|status) of {t}|How is {t} doing|Is {t} (ready|done|fine))", "(how {t} is doing|what has become of {t}|whether {t} is (ready|done|fine)|how things stand with {t})", "(the state of everything|how things stand)", "({x}|it is {x}|status: {x})", "({v} is {x}|{v} is {x} again|{v} has become {x}|{v} looks {x})", lambda r: r.choice(v.ADJECTIVES)),
    Property("warmth", "temperature|warmth|degrees", "(How (cold|hot|warm) is {t}|What is the temperature of {t}|Is {t} (cold|warm|hot))", "(how (cold|hot|warm) {t} is|whether {t} is (too |)(cold|hot|warm))", "(temperatures|how warm things are)", "({x} degrees|{x} C|{x}|it has {x} degrees)", "({v} has {x} degrees|it is {x} degrees in {v}|{v} is at {x} C)", lambda r: r.randint(-20, 99)),
    Property("colour", "color|colour|paint", "(What colo(u|)r (is|has) {t}|Which colo(u|)r is {t})", "(what colo(u|)r {t} (is|has)|the colo(u|)r of {t})", "(the colours of things|colours)", "({x}|it is {x}|painted {x})", "({v} is {x}|{v} is painted {x}|{v} comes in {x})", lambda r: r.choice(v.COLORS)),
    Property("maker", "maker|author|origin", "(Who (made|wrote|built) {t}|Who is the (maker|author) of {t})", "(who (made|wrote|built) {t}|whom we owe {t} to)", "(who made what|the makers|authors)", "({x}|made by {x}|by {x})", "({v} was (made|built) by {x}|{x} made {v}|{v} comes from {x})", v.person),
    Property("time", "time|start|opening|schedule", "(When does {t} (start|open|begin|leave|close|arrive)|At what time does {t} (start|open|leave))", "(when {t} (starts|opens|begins|leaves|closes|arrives)|at what time {t} (starts|opens|leaves))", "(the schedule|all times|when things start)", "({x}|at {x}|starts at {x})", "({v} (starts|opens|leaves|closes|arrives|departs|begins) at {x}|{v} is due at {x})", v.clock),
    Property("contact", "phone|contact|email", "(How do I reach {t}|What is the (phone number|contact|address) of {t})", "(how to reach {t}|how I get hold of {t}|whom to call about {t})", "(phone numbers|how to reach people|contacts)", "({x}|call {x})", "({v} can be reached at {x}|one reaches {v} by {x}|for {v} call {x})", v.code),
)  # fmt: skip
_WORDS = {word for each in _PROPERTIES for word in (each.name, *each.tools.split("|"))}
_MEASURES = "boxes bags bottles pieces crates bunches jars rows packs".split()
_NAMES = ("{p}_of", "get_{p}", "{k}_{p}", "find_{k}", "look_up_{p}", "{p}_lookup", "{k}_info", "check_{p}", "{k}_{p}_service", "show_{k}", "fetch_{k}_{p}", "{p}")  # fmt: skip
_DESCRIPTIONS = (
    "(Look up|Get|Find|Tell|Return) the {p} of (a|one|the) {k}.", "{a}?", "{a} (is|can be) (looked up|answered) (here|with this).",
    "(Look up|Find out)( what is known about a {k}| a {k}'s {p}).", "{K} {p}.", "",
)  # fmt: skip
_HINTS = (
    "", "", "", " (Look it up.|Please look it up.|Use the tool.|With the tool, please.|Use {n}.|Please check.|Thanks!|Tell me.)",
)  # fmt: skip
_LEADS = "(I'd like to know|I want to know|I need to know|I would love to know|I wonder|Tell me|Can you tell me|Could you (check|find out|tell me)|Find out|Check|Let me know|Do you (happen to |)know|Any idea|Somebody asks|Please (check|find out|say)|We have to know|Look up|It would help to know)"
_AFTER = (
    "", "", "", " (right now|now|today|at the moment|for me|, please|, will you|if you can|, thanks)",
)  # fmt: skip
_WHY = (
    "(I'm|We're|I am) (in a hurry|at the desk|on the phone|new here)(.|, so:) ", "(Quick question|One question|A customer asks|Next one|Hello)(:|.) ",
    "I (plan|make plans) for {w}. ", "(We|They) need it for the {w}. ", "(Sorry to bother you|Hi again)(,|.) ",
)  # fmt: skip
_SHORT = (
    "{p} of {t}", "{p} {v}?", "{t}: {p}?", "(the |){p} of {t}, please(.|)", "(need|want) the {p} of {t}", "(give me|tell me|get|I need|find) the {p} of {t}(.|)",
    "(look up|check) {t}( please|)", "(do you know|any idea of|what about) the {p} of {t}?",
)  # fmt: skip
_ANSWERS = ("The {p} of {t} is {r}.", "{T}: {r}.", "(It is|That is|The answer is) {r}.", "{r}")


@dataclass
class Lookup:
    """One property of one thing, and the tool that knows it."""

    property: Property
    kind: str
    word: str  # what the tool calls the property
    tool: Tool
    value: str | int  # which thing
    thing: str  # as people say it
    question: str  # a whole question
    ask: str  # what somebody writes, hints included
    outcome: Any  # the property's value
    result: str  # what the tool returns
    answers: list[str]

    @property
    def arguments(self) -> dict[str, Any]:
        return {self.tool.params[0].name: self.value}

    @property
    def facts(self) -> list[str]:
        return [show(self.outcome)]

    @property
    def key(self) -> tuple[str, ...]:
        """What is held out: this tool for this property of these things."""
        return (self.property.name, self.kind, self.tool.name)


def _kind(rng: random.Random) -> str:
    """What sort of thing a tool knows: any noun, now and then a word that nobody knows."""
    while True:
        roll = rng.random()
        kind = (
            v.pseudo_word(rng, 1, 2)
            if roll < 0.12
            else rng.choice(_KINDS if roll < 0.45 else v.NOUNS)
        )
        if kind not in _WORDS:
            return kind


def _thing(rng: random.Random, kind: str) -> tuple[str | int, str]:
    """(argument, as said): the article and the kind are not part of the argument."""
    roll = rng.random()
    if roll < 0.25:
        number = rng.randint(1, rng.choice((99, 9999)))
        return number, expand(
            rng,
            f"({kind} {number}|(the |){kind} (number |){number}|the {kind} {number}|{number} {kind}s)",
        )
    if roll < 0.45:
        code = v.code(rng)
        return code, expand(rng, f"({kind} {code}|the {kind} {code}|{code})")
    if roll < 0.75:
        noun = rng.choice((rng.choice(v.NOUNS), rng.choice(v.FOODS), v.word(rng)))
        return noun, expand(rng, f"(the {noun}|the {noun}|{noun}|our {noun}|a {noun})")
    name = rng.choice((v.place(rng), v.person(rng), v.pseudo_word(rng, 2, 3).capitalize()))
    return name, expand(rng, f"({name}|{name}|the {kind} {name}|{kind} {name}|the {name})")


def lookup(rng: random.Random, like: Lookup | None = None) -> Lookup:
    """A random one, or one more of the same tool; whether it may be used is the caller's to ask."""
    prop, kind = (like.property, like.kind) if like else (rng.choice(_PROPERTIES), _kind(rng))
    word = like.word if like else rng.choice(prop.tools.split("|"))
    value, thing = _thing(rng, kind)
    while like and isinstance(value, str) != isinstance(like.value, str):
        value, thing = _thing(rng, kind)
    if prop.name == "stock" and isinstance(value, str):
        if rng.random() < 0.5:
            thing = f"{rng.choice(_MEASURES)} of {value}"
        else:
            value = value if value.endswith("s") else value + "s"
            thing = value
    slots: dict[str, Any] = {"p": word, "k": kind, "K": sentence(kind), "t": thing, "v": value}
    asked = sentence(fill(rng, prop.asks, {"t": thing}))
    tool = like.tool if like else _tool(rng, prop, slots)
    outcome = prop.make(rng)
    told = fill(rng, prop.results, {"x": outcome})
    result = _result(rng, told, show(outcome), show(value), word)
    says = {**slots, "r": told, "T": sentence(thing)}
    answers = [fill(rng, each, says) for each in _ANSWERS]
    if rng.random() < 0.3:
        subject = rng.choice((show(value), f"{kind} {value}", thing))
        result = fill(rng, prop.says, {"v": subject, "x": outcome})
        answers += [sentence(result) + "."] * 3
    ask = _ask(rng, prop, slots, asked, tool.name)
    return Lookup(prop, kind, word, tool, value, thing, asked + "?", ask, outcome, result, answers)


def _tool(rng: random.Random, prop: Property, slots: dict[str, Any]) -> Tool:
    """Its name or its description says which property it knows: it can be told from others."""
    kind, word = slots["k"], slots["p"]
    general = sentence(fill(rng, prop.asks, {"t": f"a {kind}"}))
    name = fill(rng, _NAMES, slots)
    description = fill(rng, _DESCRIPTIONS, {**slots, "a": general})
    if word not in name and word not in description:
        description = description if general in description else general + "?"
    param = expand(rng, f"({kind}|{kind}|item|name|thing|{kind}_id|id|what|which|key)")
    schema = dict(INTEGER if isinstance(slots["v"], int) else STRING)
    params = [Param(param, schema, lambda r: _thing(r, kind)[0])]
    return Tool(name, description, params, opaque=word not in name)


def _ask(rng: random.Random, prop: Property, slots: dict[str, Any], asked: str, name: str) -> str:
    """What somebody writes: a question, the same inside a sentence, or a few words."""
    style = rng.random()
    if style < 0.30:
        return fill(rng, _SHORT, slots)
    if style < 0.65:
        lead = expand(rng, _LEADS) + (":" if rng.random() < 0.05 else "")
        text = f"{lead} {fill(rng, prop.indirect, slots)}{expand(rng, rng.choice(_AFTER))}"
        end = rng.choice((".", ".", "?", ""))
    else:
        text = asked + expand(rng, rng.choice(_AFTER))
        end = rng.choice(("?", "?", ""))
    if rng.random() < 0.15:
        text = fill(rng, _WHY, {"w": v.word(rng)}) + text
    hint = fill(rng, _HINTS, {"n": name})
    return text.replace(" ,", ",") + (end or "?" if hint else end) + hint


def _result(rng: random.Random, told: str, outcome: str, value: str, word: str) -> str:
    """What the tool returns, in the styles of tools."""
    return rng.choice((
        told, told, outcome, f"{value}: {told}", f"{value} {word}: {outcome}",
        f"the {word} of {value} is {told}", json.dumps({word: outcome}, ensure_ascii=False),
    ))  # fmt: skip
