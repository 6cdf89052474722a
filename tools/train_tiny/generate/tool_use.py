"""Episodes of tool use: one call, several at once, chains, missing tools, errors."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from . import values as v
from .asks import LEADS, TAILS, argument_phrase, argument_text, explicit_ask, plain_ask
from .conversation import Conversation
from .families import FAMILIES, Family
from .lookups import Lookup, lookup
from .text import expand, fill, join_words, sentence, show, vary_case
from .tool_specs import Tool, random_tool, spec

Call = tuple[str, dict[str, Any]]


@dataclass
class Request:
    """What somebody asks of one tool, and how it goes on."""

    tool: Tool
    arguments: dict[str, Any]
    ask: str
    result: str
    answers: list[str]
    facts: list[str]
    source: Lookup | None = None

    @property
    def call(self) -> Call:
        return self.tool.name, self.arguments


# ---- requests --------------------------------------------------------------------------------

_RESULT_ANSWERS = (
    "(The result is|The answer is|It is|That gives|The value is) {result}.",
    "{name} (returned|gave|says) {result}.",
    "(The tool|The function|It) (returned|gave|says): {result}",
    "{result}",
    "(Done. |)(The result|The output) (of {name} |)is {result}.",
)


def generic_request(rng: random.Random, conv: Conversation) -> Request:
    while True:
        tool = random_tool(rng)
        if conv.split.allows("tool", tool.signature()):
            break
    arguments = tool.arguments(rng)
    plain = bool(arguments) and rng.random() < 0.45
    ask = (plain_ask if plain else explicit_ask)(rng, tool, arguments)
    if rng.random() < 0.15:
        field, value = v.word(rng), rng.choice((v.integer, v.word, v.code))(rng)
        result = json.dumps({field: value, v.word(rng): v.integer(rng)}, ensure_ascii=False)
        answers = [f"The {field} is {value}.", f"{sentence(field)}: {value}."]
        return Request(
            tool, arguments, ask + f" (I need the {field}.)", result, answers, [str(value)]
        )
    value = show(
        rng.choice((v.integer, v.integer, v.decimal, v.phrase, v.code, v.person, v.remark))(rng)
    )
    slots = {"result": value, "name": tool.name}
    answers = [fill(rng, t, slots) for t in _RESULT_ANSWERS]
    return Request(tool, arguments, ask, value, answers, [value])


def family_request(rng: random.Random, conv: Conversation, family: Family | None = None) -> Request:
    while True:
        chosen = family or rng.choice(FAMILIES)
        tool, names = chosen.build(rng)
        if conv.split.allows("family", tool.signature()):
            break
    slots: dict[str, Any] = {}
    ask_tail = ""
    arguments: dict[str, Any] = {}
    for slot, s in chosen.slots.items():
        if s.optional and rng.random() < 0.65:
            continue
        slots[slot] = arguments[names[slot]] = s.make(rng)
        if s.optional:
            ask_tail += fill(rng, s.optional, slots)
    for slot, make in chosen.outcome.items():
        slots[slot] = make(rng)
    if "sum" in chosen.outcome:
        slots["sum"] = slots["a"] + slots["b"]
    asked = fill(rng, chosen.asks, slots) + ask_tail
    if rng.random() < 0.2:
        asked = (explicit_ask if rng.random() < 0.6 or not arguments else plain_ask)(
            rng, tool, arguments
        )
    elif rng.random() < 0.1:
        asked += rng.choice((" Use the tool", " Please use the tool", " Use a function")) + "."
    if rng.random() < 0.3:
        tool.description += expand(rng, " (Returns text.|Fast.|Use it whenever it fits.|)").rstrip()
    result = fill(rng, chosen.results, slots)
    told = [fill(rng, t, slots) for t in chosen.answers]
    facts = [show(x) for k, x in slots.items() if k in chosen.outcome and k not in ("id", "extra")]
    return Request(
        tool,
        arguments,
        asked,
        result,
        told,
        [f for f in facts if f in result and all(f in t for t in told)],
    )


def lookup_request(rng: random.Random, conv: Conversation) -> Request:
    while True:
        found = lookup(rng)
        if conv.split.allows("lookup", *found.key):
            break
    return _as_request(found)


def _as_request(found: Lookup) -> Request:
    return Request(
        found.tool, found.arguments, found.ask, found.result, found.answers, found.facts, found
    )


_ASIDES = (
    " That would help.", " Any idea?", " You have a tool for that.", " Use what you have.", " The tool is {name}.", " Please go by the tool, not by guessing.", " It is urgent.", " Take your time.",
    " Tell me what comes out.", " Use the tool for it, don't guess.", " {name} does that.", " I can't do it myself.", " Do it with {name}.", " Tools are allowed.", " A call is fine.", " Tools may be used.", " Run it and see.", " Thanks in advance!",
)  # fmt: skip


def request(rng: random.Random, conv: Conversation) -> Request:
    makers = (family_request, generic_request, lookup_request)
    made = rng.choices(makers, (38, 38, 24))[0](rng, conv)
    made.ask = vary_case(rng, made.ask)
    if rng.random() < 0.15:
        made.ask = made.ask.rstrip() + fill(rng, _ASIDES, {"name": made.tool.name})
    return made


def offer(rng: random.Random, conv: Conversation, *requests: Request) -> None:
    for r in requests:
        conv.offer(spec(rng, r.tool))


# ---- thoughts --------------------------------------------------------------------------------

CALL_THOUGHTS = (
    "(I need|I will use|I should call|This calls for|Let me use) {name}( here| now| for this|).",
    "The user wants (something|a result) that {name} can (give|do). (I will call it.|Calling it.|)",
    "{name} fits. Arguments: {args}.",
    "(The right tool is|The tool for this is) {name}.",
    "The user asks for {name}, with {args}.",
    "(Call|Use) {name} with {args}.",
)
ANSWER_THOUGHTS = (
    "(I have the result|The tool answered|The result is there), (so|now) I can (answer|reply).",
    "The tool (returned|said) {result}. I (will|can) (report|tell) that.",
    "(That is all I need|Now I can answer|Nothing else to do).",
    "The result is {result}.",
)
_DIRECT_THOUGHTS = (
    "(No tool is needed|I can answer this directly|This needs no tool).",
    "(A simple question|This is easy); (I answer|I will answer) (directly|myself).",
    "(I know this|Let me just answer).",
    "The user (wants|expects) a (short|direct) answer.",
)
_CHECKS = (
    " (Check|Let me check|To be sure): (this matches the request|that is what was asked|nothing is missing).",
    " (I check each value once more.|All values come from the request.) (Good.|That is right.|)",
    " Step by step: (read the request|look at the request), (act|do it), then (answer|tell the result).",
)


def think(rng: random.Random, conv: Conversation, templates: tuple[str, ...], **slots: Any) -> str:
    """A short thought; longer at high effort, a few words at low effort."""
    slots = {k: (x if len(show(x)) < 60 else "the given values") for k, x in slots.items()}
    text = fill(rng, templates, slots)
    if conv.effort == "low":
        return text.split(". ")[0].rstrip(".") + "."
    return text + expand(rng, rng.choice(_CHECKS)) if conv.effort == "xhigh" else text


def call_thought(rng: random.Random, conv: Conversation, r: Request) -> str:
    args = ", ".join(f"{k} = {show(x)}" for k, x in r.arguments.items()) or "no arguments"
    return think(rng, conv, CALL_THOUGHTS, name=r.tool.name, args=args)


def tell(rng: random.Random, conv: Conversation, *requests: Request) -> None:
    """The grounded final answer."""
    last = requests[-1]
    text = " ".join(rng.choice(r.answers) for r in requests)
    thought = think(rng, conv, ANSWER_THOUGHTS, result=last.result)
    conv.answer(text, thought, facts=[f for r in requests for f in r.facts])


# ---- episodes --------------------------------------------------------------------------------


def single(conv: Conversation) -> None:
    rng = conv.rng
    r = request(rng, conv)
    offer(rng, conv, r)
    conv.user(r.ask)
    lead = (
        rng.choice(("Let me check.", "One moment.", "I will look that up."))
        if rng.random() < 0.08
        else ""
    )
    conv.call(r.call, thought=call_thought(rng, conv, r), content=lead, scored=not lead)
    conv.result(r.result)
    tell(rng, conv, r)


_JOINS = (
    " and also ",
    " Also: ",
    " Also, ",
    "\n",
    " And ",
    " Besides, ",
    " Second: ",
    " Further: ",
    " and ",
)
_PARALLEL_THOUGHTS = (
    "(Two|Several) (independent |)things: {names}. (I can call them together.|Both at once.|I call all of them.)",
    "I need {names}( at the same time|).", "(These calls do not depend on each other|The requests are independent): {names}.",
)  # fmt: skip


def _one_sentence(rng: random.Random, conv: Conversation) -> tuple[str, list[Request]]:
    """The same tool twice or three times, with what is common said once."""
    count = rng.choices((2, 3), (4, 1))[0]
    if rng.random() < 0.45:
        first = lookup_request(rng, conv)
        assert first.source
        more = [lookup(rng, first.source) for _ in range(count - 1)]
        requests = [first, *map(_as_request, more)]
        things = [m.thing for m in (first.source, *more)]
        slots: dict[str, Any] = {"p": first.source.word, "things": join_words(things), "apart": join_words([f"of {t}" for t in things])}  # fmt: skip
        return fill(rng, _BOTH_OF, slots), requests
    first = generic_request(rng, conv)
    while not first.arguments:
        first = generic_request(rng, conv)
    requests = [first, *(_again(rng, first) for _ in range(count - 1))]
    said = [
        " ".join(argument_phrase(rng, k, x, alone=len(r.arguments) == 1) for k, x in r.arguments.items())
        if rng.random() < 0.7 else argument_text(rng, r.arguments)
        for r in requests
    ]  # fmt: skip
    words = first.tool.name.replace("-", "_").strip("_").split("_")
    slots = {
        "verb": first.tool.verb or words[0], "noun": first.tool.noun or words[-1], "name": first.tool.name, "lead": rng.choice(LEADS), "tail": rng.choice(TAILS),
        "sets": rng.choice((" and ", " and ", "; ", ", then ", " and also ", ", and ")).join(said), "n": count,
    }  # fmt: skip
    return sentence(" ".join(fill(rng, _SETS, slots).split())), requests


_BOTH_OF = (
    "(What is|What's|Tell me|I need|Find|Look up|Check|Give me|I'd like to know) the {p} (of {things}|{apart})(.|?|, please.| for me.)",
    "{p} of {things}(?|, please.|.|)",
    "(The|Both|All) {p}s: {things}(.|, please.|?)",
    "(I'd like|We need|Get me) the {p}s of {things}.",
    "{things}: (what is|give me|I need) the {p} of each(?|.|, please.)",
)
_SETS = (
    "{lead}{verb} (the |a |){noun} {sets}{tail}", "{lead}{verb} {sets}{tail}", "(Call|Use|Run) {name} {n} times: {sets}.", "(Call|Use|Run) {name} (with|for) {sets}{tail}",
    "{name}: {sets}", "(I need|I want|Give me) the {noun} {sets}{tail}", "{verb} {noun}s: {sets}",
)  # fmt: skip


def parallel(conv: Conversation) -> None:
    """Two or three calls in one turn: the same tool again, or different ones."""
    rng = conv.rng
    if rng.random() < 0.25:
        text, requests = _one_sentence(rng, conv)
        if not _repeats(requests):
            _all_at_once(conv, vary_case(rng, text), requests)
            return
    first = request(rng, conv)
    requests = [first]
    for _ in range(rng.choices((1, 2), (3, 1))[0]):
        if rng.random() < 0.5:
            other = request(rng, conv)
            if other.tool.name in {r.tool.name for r in requests}:
                continue
        else:
            other = _again(rng, first)
        requests.append(other)
    if _repeats(requests):
        parallel(conv)
        return
    asks = [requests[0].ask] + [rng.choice(_JOINS) + r.ask for r in requests[1:]]
    if rng.random() < 0.25:
        asks = [f"{i}. {r.ask}\n" for i, r in enumerate(requests, 1)]
    _all_at_once(conv, "".join(asks), requests)


def _repeats(requests: list[Request]) -> bool:
    return len({json.dumps(r.call, sort_keys=True) for r in requests}) < len(requests)


def _all_at_once(conv: Conversation, text: str, requests: list[Request]) -> None:
    rng = conv.rng
    offer(rng, conv, *requests)
    conv.user(text)
    names = join_words([r.tool.name for r in requests])
    conv.call(
        *[r.call for r in requests], thought=think(rng, conv, _PARALLEL_THOUGHTS, names=names)
    )
    for r in requests:
        conv.result(r.result)
    tell(rng, conv, *requests)


def _again(rng: random.Random, r: Request) -> Request:
    """The same tool with other arguments."""
    arguments = {p.name: p.make(rng) for p in r.tool.params if p.name in r.arguments}
    value = show(rng.choice((v.integer, v.decimal, v.phrase))(rng))
    answers = [fill(rng, t, {"result": value, "name": r.tool.name}) for t in _RESULT_ANSWERS[:2]]
    return Request(r.tool, arguments, explicit_ask(rng, r.tool, arguments), value, answers, [value])


_CHAIN_ASKS = (
    "(First |){first} (Then|After that|Afterwards|Next) (call|use|run) {name} (with|on) (the result|what you get|that result|its output) as {param}.",
    "(Pass|Give|Hand) the (result|output) of the following to {name} as {param}: {first}",
    "{first} (Feed|Put|Use) the (result|answer|outcome) (into|in|as {param} of) {name}(| as {param}).",
    "I (need|want) {name} to work on a result. (To get it|For that): {first} (Its|The) output is the {param}.",
)  # fmt: skip
_NEXT_THOUGHTS = (
    "The result is {result}. Now {name}.",
    "(Next|Now) {name} with {result}.",
    "{name} comes next.",
)


def chained(conv: Conversation) -> None:
    """The result of one call is an argument of the next."""
    rng = conv.rng
    first = request(rng, conv)
    while True:
        tool = random_tool(rng, most=2)
        usable = [p for p in tool.params if p.schema.get("type") in ("string", "integer")]
        if usable and tool.name != first.tool.name and conv.split.allows("tool", tool.signature()):
            break
    slot = usable[0]
    passed: Any = (
        v.integer(rng)
        if slot.schema["type"] == "integer"
        else rng.choice((v.code, v.word, v.person))(rng)
    )
    first.result = show(passed)
    rest = {p.name: p.make(rng) for p in tool.params if p is not slot and p.required}
    value = show(rng.choice((v.integer, v.phrase, v.code))(rng))
    answers = [fill(rng, t, {"result": value, "name": tool.name}) for t in _RESULT_ANSWERS]
    ask = fill(rng, _CHAIN_ASKS, {"first": first.ask, "name": tool.name, "param": slot.name})
    if rest:
        ask += f" (Also|And) give it {argument_text(rng, rest)}."
        ask = ask.replace("(Also|And)", rng.choice(("Also", "And", "Further,")))
    arguments = {
        p.name: passed if p is slot else rest[p.name]
        for p in tool.params
        if p is slot or p.name in rest
    }
    second = Request(tool, arguments, ask, value, answers, [value])
    offer(rng, conv, first, second)
    conv.user(vary_case(rng, ask))
    conv.call(first.call, thought=call_thought(rng, conv, first))
    conv.result(first.result)
    conv.call(
        second.call, thought=think(rng, conv, _NEXT_THOUGHTS, result=show(passed), name=tool.name)
    )
    conv.result(second.result)
    tell(rng, conv, second)


_MISSING = (
    "(I have no tool for that|I do not have a tool for this|No tool here can do that|That is not possible with my tools)( here|, sorry|).",
    "(Sorry, |)(I cannot do that|I can't do that): (there is no tool for it|the tool is missing|I lack the tool).",
)
_MISSING_NAMED = ("(The tool|The function) {name} (is not available|does not exist) here.",)  # fmt: skip
_UNLIKE_FAMILIES = ("age", "length", "weight", "colour")  # what no family is asked for
_MISSING_THOUGHTS = (
    "(There is no|I have no|I see no) tool (for this|that does this|that fits).",
    "(There is no tool called {name}.|{name} is not in the list. I say so.)",
)


def missing(conv: Conversation) -> None:
    """A request for a tool that is not there gets a plain answer."""
    rng = conv.rng
    makers = (generic_request, lookup_request, family_request)
    r = rng.choices(makers, (1, 0, 0) if conv.tools else (8, 5, 7))[0](rng, conv)
    conv.extra.setdefault("absent", set()).add(r.tool.name)
    if not conv.tools:
        for _ in range(rng.randint(1, 3)):
            other = random_tool(rng) if rng.random() < 0.7 else _unrelated(rng, r)
            if other.name != r.tool.name:
                conv.offer(spec(rng, other))
    conv.user(r.ask)
    named = r.tool.name in r.ask
    text = fill(rng, _MISSING + _MISSING_NAMED * named, {"name": r.tool.name})
    thoughts = _MISSING_THOUGHTS if named else _MISSING_THOUGHTS[:1]
    conv.answer(text, think(rng, conv, thoughts, name=r.tool.name), facts=[])


def _unrelated(rng: random.Random, r: Request) -> Tool:
    """A tool with a meaning, which is not what the request is about."""
    while True:
        other = lookup(rng)
        about = other.property.name
        if about != r.source.property.name if r.source else about in _UNLIKE_FAMILIES:
            return other.tool


_FINAL_ERRORS = (
    "Error: {thing} not found", "not found: {thing}", '{"error": "{thing} does not exist"}', "Error: permission denied for {thing}",
    "ValueError: {thing} is invalid", "Error: unknown {thing}", "403 Forbidden: {thing}", "Error: Missing required argument '{thing}'.",
)  # fmt: skip
_PASSING_ERRORS = (
    "Error: timeout, try again", "503 Service Unavailable", "Error: connection reset", '{"error": "busy, retry"}',
    "TimeoutError: please retry", "Error: temporarily unavailable",
)  # fmt: skip
_ERROR_ANSWERS = (
    "(It did not work|That failed|The call failed|I could not do it): {error}",
    "{name} (failed|reported an error): {error}",
    "(Sorry, the|The) tool (returned|gave) an error: {error}",
)
_ERROR_THOUGHTS = (
    "(The call failed|That is an error). I (report it|tell the user).",
    "An error: {error}. (Trying again makes no sense.|)",
)
_RETRY_THOUGHTS = (
    "(A passing error|A time-out|It was busy). I (try|call it) (once more|again).",
    "{error}. Once more.",
)


def error(conv: Conversation) -> None:
    """Errors that pass are tried once more; the others are reported."""
    rng = conv.rng
    r = request(rng, conv)
    offer(rng, conv, r)
    conv.user(r.ask)
    conv.call(r.call, thought=call_thought(rng, conv, r))
    if rng.random() < 0.45:
        failure = rng.choice(_PASSING_ERRORS)
        conv.result(failure)
        conv.call(r.call, thought=think(rng, conv, _RETRY_THOUGHTS, error=failure))
        conv.result(r.result)
        tell(rng, conv, r)
        return
    failure = fill(rng, _FINAL_ERRORS, {"thing": v.word(rng)})
    conv.result(failure)
    slots = {"error": failure, "name": r.tool.name}
    thought = think(rng, conv, _ERROR_THOUGHTS, **slots)
    conv.answer(fill(rng, _ERROR_ANSWERS, slots), thought, facts=[failure])


EPISODES = {
    "single": single,
    "parallel": parallel,
    "chained": chained,
    "missing": missing,
    "error": error,
}
DIRECT_THOUGHTS = _DIRECT_THOUGHTS
