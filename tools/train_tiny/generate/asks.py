"""Wordings of requests for one tool: explicit ones, and such as people put in plain words."""

from __future__ import annotations

import json
import random
from typing import Any

from .text import fill, join_words, sentence, show
from .tool_specs import Tool

# ---- wording of explicit requests ------------------------------------------------------------

_WITH_ARGS = (
    "(Call|Use|Run|Invoke|Execute|Try) (the tool |the function |the {name} tool: |){name} with {args}.",
    "(Please |)(call|use|run|invoke) {name} with {args}(, please|| and tell me the result| and report back| and (say|give|tell me|write) (what it says|what comes out|the value|the {noun})).",
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
    "I (have to|must|need to|want to) {verb} (the |a |my |){noun} {parts}{tail}", "{verb} {noun}, {parts}{tail}", "(Here is|This is) (what I need|a job|the next thing): {verb} (the |a |){noun} {parts}{tail}",
    "(How|What) about (a|the|some) {noun} {parts}{tail}", "{parts}: {verb} (the |that |){noun}{tail}",
    "(need|want|get me|gimme|looking for|still need) (a|the) {noun} {parts}", "{verb} {noun} {parts} (pls|plz|thx|asap|now|quickly)", "(can u|could u|pls|plz|hey, can you) {verb} (the |a |){noun} {parts}",
    "(We're|We are|I'm|I am) (missing|short of|waiting for|looking for) (a|the) {noun} {parts}{tail}", "(There should be|Time for|Next up:|To do:|Your job:|One more thing:) (a|the) {noun} {parts}{tail}", "(Mind|Would you mind|Any chance of) {verb}ing (the|a|my) {noun} {parts}?",
    "{lead}{verb} (the |a |my |){noun} {parts} (via|through|by way of|by means of) {name}{tail}", "{lead}{verb} {parts} (via|through|with the help of) (the tool|the function|{name}){tail}",
    "{noun}! {parts}", "{parts} ({verb} {noun})", "(My|The) {noun}: {parts}. {verb} it(.|, please.|!)", "(Ok|Right|So|Well), (next|then|now)( we|) {verb} {parts}{tail}",
)  # fmt: skip
_ONE_VALUE = (  # the only argument, a text
    "{lead}{verb} (a|the|one|some) {value} {noun}{tail}",
    "(Using|With|By means of) the tool, {verb} (a|the) {value} {noun}{tail}",
    "(I need|I want|Give me|Get me|Make me) (a|the|one) {value} {noun}{tail}",
    "{lead}{verb} (the |this |a |){param} {q:value} (to|into|in|on|for|of|from) (the|my|our|this) {noun}(s|){tail}",
    "{lead}{verb} (this|that|the following) (to|into|in|on|for) (the|my|our|this) {noun}(s|): {q:value}",
    "(The|My|Our|Its) {param} is {value}. {verb} the {noun}{tail}",
    "(The|My) {noun}: {value}. ({verb} it|Can you {verb} it|What about it|Anything on it)(.|?|, please.)",
    "{verb} {value}{tail}",
    "{lead}{verb} {q:value} (in|on|at|by) (the|my|our) {noun}{tail}",
)
_ONE_NUMBER = (
    "(Need|I need|I want|Give me|Get me|Find|Work out|Tell me|We need|Looking for|I'm after) (the|a|) {noun} (of|for|at) {value}{tail}",
    "(What's|What is|What would be|What about|How about) the {noun} (of|for|at|with) {value}?",
    "(The|A) {noun} (of|for|with) {value}{tail}",
    "{noun} (of|for) {value}{tail}",
    "{name} (of|for|with|on) {value}{tail}",
    "(How about|What about|What does) {name} (with|on|for) {value}(?|, please?| say?)",
    "{lead}{verb} {value}{tail}",
    "{lead}{verb} the {noun} (of|by|to|for) {value}{tail}",
    "(The|My) {param} is {value}. {verb} the {noun}{tail}",
    "{value}: (what is|give me|I need) (the|its) {noun}(?|, please.|.)",
)
LEADS = (
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
TAILS = (
    ".", ".", "", "?", ", please.", ", thanks.", " for me.", " for me, will you?", " right now.", " if you can.", " at once.", " today.", "!", " - thanks", ", will you?", " (please)",
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
    if isinstance(value, list) and alone and rng.random() < 0.5:
        return rng.choice(("the list {}", "the values {}", "{}", "list {}")).format(shown)
    return rng.choice(
        (
            f"{word} {shown}",
            f"the {word} {shown}",
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
        "lead": rng.choice(LEADS), "tail": rng.choice(TAILS), "name": tool.name,
        "value": "".join(map(show, arguments.values())), "param": "".join(arguments).replace("_", " "),
    }  # fmt: skip
    texts: tuple[str, ...] = _PLAIN
    if len(kinds) == 1 and rng.random() < 0.4:
        texts = _ONE_VALUE if kinds == ["text"] else _ONE_NUMBER
    text = (
        " ".join(fill(rng, texts, slots).split())
        .replace(" ,", ",")
        .replace(" .", ".")
        .replace(" ?", "?")
    )
    return sentence(text)
