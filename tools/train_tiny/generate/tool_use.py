"""Episodes of tool use: one call, several at once, chains, missing tools, errors."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from . import values as v
from .conversation import Conversation
from .families import FAMILIES, Family
from .lookups import lookup
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

    @property
    def call(self) -> Call:
        return self.tool.name, self.arguments


# ---- wording of explicit requests ------------------------------------------------------------

_WITH_ARGS = (
    "(Call|Use|Run|Invoke|Execute|Try) (the tool |the function |the {name} tool: |){name} with {args}.",
    "(Please |)(call|use|run|invoke) {name} with {args}(, please|| and tell me the result| and report back).",
    "(Call|Run|Execute) {call}.", "(What does|What will) {call} (return|give|yield|say)?",
    "(Can|Could|Would) you (call|run|use) {name} (with|for|on) {args}?",
    "What (is|do you get for|comes out of) {call}? (Use|You may use|Please use) (the|that|your) (tool|function)(.| for it.| to find out.| for this.)",
    "(Compute|Evaluate|Work out|Determine|Give me|Tell me|Find) {call}( with the tool| using the tool| by calling it|).",
    "(Tell me the value of|I want the value of|The value of|The result of) {call}( is what I need|, please|). Use the function.",
    "{call}", "{call}?", "{name}: {args}", "(I need|I want|Get me) (the result|the output|the value) of {call}.",
    "Use the {name} (tool|function) (with|and set|where) {args}.", "(Apply|Run) {name} (to|on|with) {values}.",
    "(Let|Have) {name} (run|work) (with|on) {args}.", "Make a call to {name}. (Arguments|Parameters|Inputs): {args}",
    "Using the tool, {verb} the {noun} ({args}).", "(By means of|With) {name}, {verb} the {noun}: {args}.",
    "I (would like|want) you to {verb} the {noun} with {args}.", "(Please |){verb} the {noun}: {args}.",
    "(Could you |Can you |){verb} (a|the|my|this) {noun} (with|using|for) {args}?",
    "{verb} {noun} {values}", "(Let's|We should|Time to) {verb} the {noun}; {args}.",
)  # fmt: skip
_WITHOUT_ARGS = (
    "(Call|Use|Run|Invoke|Execute|Try) (the tool |the function |)({name}|{call})(.|, please.| and tell me what it says.)",
    "What (does|will) {call} (return|give|say)?", "(Can|Could) you (call|run|use) {name}?",
    "What (is|do you get from|comes out of) ({name}|{call})? (Use|You may use|Please use) (the|that|your) (tool|function)(.| for it.| to find out.)",
    "(Tell me|Give me|I need|I want) the (value|result|output) of ({name}|{call})( with the tool|).",
    "{call}", "{name}", "(Please |){verb} the {noun}.", "(Could you |Can you |){verb} (a|the|my) {noun}?",
    "Using the tool, {verb} the {noun}.", "(Compute|Evaluate|Find) {call}( using the tool|).",
)  # fmt: skip


def python_value(rng: random.Random, value: Any) -> str:
    if isinstance(value, str):
        return rng.choice(("'{}'", '"{}"', '"{}"')).replace("{}", value)
    return repr(value) if rng.random() < 0.5 else json.dumps(value, ensure_ascii=False)


def argument_text(rng: random.Random, arguments: dict[str, Any]) -> str:
    """Arguments in words, in one of many notations."""
    style = rng.randrange(9)
    if style == 0:
        return json.dumps(arguments, ensure_ascii=False)
    if style == 1:
        return ", ".join(f"{k}={python_value(rng, x)}" for k, x in arguments.items())
    if style == 2:
        return ", ".join(f"{k} = {show(x)}" for k, x in arguments.items())
    if style == 3:
        return "; ".join(f"{k}: {show(x)}" for k, x in arguments.items())
    if style == 4:
        return join_words([f"{k} set to {python_value(rng, x)}" for k, x in arguments.items()])
    if style == 5:
        return join_words([f"{k.replace('_', ' ')} {show(x)}" for k, x in arguments.items()])
    if style == 6:
        return join_words(
            [f"the {k.replace('_', ' ')} {python_value(rng, x)}" for k, x in arguments.items()]
        )
    if style == 7:
        return join_words([f"{k} {show(x)}" for k, x in arguments.items()])
    return join_words([f"{show(x)} as {k.replace('_', ' ')}" for k, x in arguments.items()])


def call_text(rng: random.Random, name: str, arguments: dict[str, Any]) -> str:
    """`name(1, 'x')` or `name(a=1, b='x')`; positional only when the order says it all."""
    if rng.random() < 0.6:
        inner = ", ".join(python_value(rng, x) for x in arguments.values())
    else:
        inner = ", ".join(f"{k}={python_value(rng, x)}" for k, x in arguments.items())
    return f"{name}({inner})"


def explicit_ask(rng: random.Random, tool: Tool, arguments: dict[str, Any]) -> str:
    words = tool.name.replace("-", "_").split("_")
    text = fill(rng, _WITH_ARGS if arguments else _WITHOUT_ARGS, {
        "name": tool.name, "args": argument_text(rng, arguments) if arguments else "",
        "call": call_text(rng, tool.name, arguments), "verb": words[0],
        "noun": " ".join(words[1:]) or "value",
        "values": join_words([show(x) for x in arguments.values()] or [""]),
    })  # fmt: skip
    return text if text.startswith(tool.name) else sentence(text)


# ---- requests in plain words -------------------------------------------------------------------

_PLAIN = (
    "{lead}{verb} (the |a |my |our |this |that |)({noun}|{noun}|) {parts}{tail}", "{lead}{verb} {parts}{tail}",
    "(What's|What is|How is|How's|Tell me|Show me|Find out|Check|Do you know|I'd like to know|I wonder about|Any news on|Let me know) the {noun} {parts}{tail}",
    "{noun} {parts}{tail}", "(A|One|Another|The) {noun} {parts}{tail}", "(I need|I want|I would like|Get me|We need|Give me|Bring me|I could use) (a|the|some|another) {noun} {parts}{tail}",
    "I (have|must|need|want) to {verb} (the |a |my |){noun} {parts}{tail}", "{verb} {noun}, {parts}{tail}", "(Here is|This is) (what I need|a job|the next thing): {verb} (the |a |){noun} {parts}{tail}",
    "(How|What) about (a|the|some) {noun} {parts}{tail}", "{parts}: {verb} (the |that |){noun}{tail}",
    "(need|want|get me|gimme|looking for|still need) (a|the) {noun} {parts}", "{verb} {noun} {parts} (pls|plz|thx|asap|now|quickly)", "(can u|could u|pls|plz|hey, can you) {verb} (the |a |){noun} {parts}",
    "(We're|We are|I'm|I am) (missing|short of|waiting for|looking for) (a|the) {noun} {parts}{tail}", "(There should be|Time for|Next up:|To do:|Your job:|One more thing:) (a|the) {noun} {parts}{tail}", "(Mind|Would you mind|Any chance of) {verb}ing (the|a|my) {noun} {parts}?",
    "{noun}! {parts}", "{parts} ({verb} {noun})", "(My|The) {noun}: {parts}. {verb} it(.|, please.|!)", "(Ok|Right|So|Well), (next|then|now)( we|) {verb} {parts}{tail}",
)  # fmt: skip
_ONE_VALUE = (  # the only argument stands before the noun
    "{lead}{verb} (a|the|one|some) {value} {noun}{tail}",
    "(Using|With|By means of) the tool, {verb} (a|the) {value} {noun}{tail}",
    "(I need|I want|Give me|Get me|Make me) (a|the|one) {value} {noun}{tail}",
)
_LEADS = (
    "",
    "",
    "",
    "Please ",
    "Could you ",
    "Can you ",
    "Would you ",
    "I'd like you to ",
    "I want you to ",
    "Somebody should ",
    "Could somebody ",
    "We have to ",
    "Let's ",
    "Go and ",
    "Kindly ",
    "You should ",
    "Now ",
    "Then ",
)
_TAILS = (
    ".", ".", "", "?", ", please.", ", thanks.", " for me.", " for me, will you?", " right now.", " if you can.", " at once.", " today.", "!", " - thanks", ", will you?", " (please)",
)  # fmt: skip
_ASIDES = (
    " That would help.", " Any idea?", " You have a tool for that.", " Use what you have.", " The tool is {name}.", " Please go by the tool, not by guessing.", " It is urgent.", " Take your time.",
    " Tell me what comes out.", " Use the tool for it, don't guess.", " {name} does that.", " I can't do it myself.", " Do it with {name}.", " Tools are allowed.", " Run it and see.", " Thanks in advance!",
)  # fmt: skip
_PREPOSITIONS = (
    "to",
    "at",
    "for",
    "with",
    "in",
    "on",
    "from",
    "of",
    "by",
    "as",
    "under",
    "about",
    "called",
    "named",
)


def argument_phrase(rng: random.Random, name: str, value: Any, alone: bool) -> str:
    """One argument inside a sentence; without its name only where its type is `alone`."""
    word, preposition = name.replace("_", " "), rng.choice(_PREPOSITIONS)
    if isinstance(value, str):
        shown = rng.choice(("{}", "{}", "'{}'", '"{}"', "“{}”")).replace("{}", value)
        named = (
            f"{word} {shown}",
            f"{preposition} {word} {shown}",
            f"{preposition} the {word} {shown}",
            f"({word}: {shown})",
            f"{word} = {shown}",
        )
        return rng.choice(
            (f"{preposition} {shown}", f"{preposition} {shown}", shown, *named) if alone else named
        )
    shown = show(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        named = (
            f"{shown} {word}",
            f"{word} {shown}",
            f"{preposition} {shown} {word}",
            f"{preposition} {word} {shown}",
            f"with a {word} of {shown}",
            f"{word} = {shown}",
        )
        return rng.choice(
            (f"{preposition} {shown}", shown, f"{preposition} {shown} {word}", *named)
            if alone
            else named
        )
    return rng.choice(
        (
            f"{word} {shown}",
            f"with {word} {shown}",
            f"{word} set to {shown}",
            f"and {word} = {shown}",
            f"{word}: {shown}",
        )
    )


def plain_ask(rng: random.Random, tool: Tool, arguments: dict[str, Any]) -> str:
    """A request as people would put it: the tool's words somewhere, values in the sentence."""
    words = tool.name.replace("-", "_").strip("_").split("_")
    kinds = ["text" if isinstance(x, str) else "number" for x in arguments.values()]
    phrases = [
        argument_phrase(rng, k, x, kinds.count(kind) == 1)
        for (k, x), kind in zip(arguments.items(), kinds, strict=True)
    ]
    if rng.random() < 0.2:
        rng.shuffle(phrases)
    parts = rng.choice((" ", " ", ", ", " and ")).join(phrases)
    slots = {
        "verb": tool.verb or words[0], "noun": tool.noun or " ".join(words[1:]) or words[0], "parts": parts,
        "lead": rng.choice(_LEADS), "tail": rng.choice(_TAILS), "name": tool.name, "value": "".join(map(show, arguments.values())),
    }  # fmt: skip
    one_value = kinds == ["text"] and rng.random() < 0.25
    text = (
        " ".join(fill(rng, _ONE_VALUE if one_value else _PLAIN, slots).split())
        .replace(" ,", ",")
        .replace(" .", ".")
        .replace(" ?", "?")
    )
    return sentence(text)


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
    value = show(rng.choice((v.integer, v.integer, v.decimal, v.phrase, v.code, v.person))(rng))
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
    return Request(found.tool, found.arguments, found.ask, found.result, found.answers, found.facts)


def request(rng: random.Random, conv: Conversation) -> Request:
    makers = (family_request, generic_request, lookup_request)
    made = rng.choices(makers, (40, 42, 18))[0](rng, conv)
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


def parallel(conv: Conversation) -> None:
    """Two or three calls in one turn: the same tool again, or different ones."""
    rng = conv.rng
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
    if len({json.dumps(r.call, sort_keys=True) for r in requests}) < len(requests):
        parallel(conv)
        return
    offer(rng, conv, *requests)
    asks = [requests[0].ask] + [rng.choice(_JOINS) + r.ask for r in requests[1:]]
    if rng.random() < 0.25:
        asks = [f"{i}. {r.ask}\n" for i, r in enumerate(requests, 1)]
    conv.user("".join(asks))
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
    "(The tool|The function) {name} (is not available|does not exist) here.",
)  # fmt: skip
_MISSING_THOUGHTS = (
    "(There is no|I have no|I see no) tool (for this|that does this|called {name}).",
    "{name} is not in the list. I say so.",
)


def missing(conv: Conversation) -> None:
    """A request for a tool that is not there gets a plain answer."""
    rng = conv.rng
    r = (generic_request if conv.tools or rng.random() < 0.75 else family_request)(rng, conv)
    conv.extra.setdefault("absent", set()).add(r.tool.name)
    if not conv.tools:
        for _ in range(rng.randint(1, 3)):
            conv.offer(spec(rng, random_tool(rng)))
    conv.user(r.ask)
    text = fill(rng, _MISSING, {"name": r.tool.name})
    conv.answer(text, think(rng, conv, _MISSING_THOUGHTS, name=r.tool.name), facts=[])


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
