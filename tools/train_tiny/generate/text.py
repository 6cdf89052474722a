"""A tiny grammar: `(a|b|)` picks one alternative, `{name}` fills a slot."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
_GROUP = re.compile(r"\(([^()]*\|[^()]*)\)")
_SLOT = re.compile(r"\{(q:)?(\w+)\}")
_OPENERS = set(  # first words that lose their capital without harm
    "Add Call Can Check Convert Could Create Execute Find Give How Is Look Please Put Run Set Show "
    "Start Tell The Translate Use What Where Who Write".split()
)
_QUOTES = ("'{}'", '"{}"', "`{}`", "“{}”", "{}")


def expand(rng: random.Random, text: str) -> str:
    """Resolve every group of alternatives, innermost first; parentheses without `|` stay."""
    while True:
        text, count = _GROUP.subn(lambda m: rng.choice(m[1].split("|")), text)
        if not count:
            return text


def fill(rng: random.Random, text: str | Sequence[str], slots: Mapping[str, Any]) -> str:
    """Pick a template, expand it and fill its slots; `{q:name}` quotes the value somehow."""
    template = expand(rng, text if isinstance(text, str) else rng.choice(text))

    def value(match: re.Match[str]) -> str:
        shown = show(slots[match[2]])
        return rng.choice(_QUOTES).replace("{}", shown) if match[1] else shown

    return _SLOT.sub(value, template)


def show(value: Any) -> str:
    """A value as it stands in running text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def sentence(text: str) -> str:
    """First letter in upper case."""
    return text[:1].upper() + text[1:]


def vary_case(rng: random.Random, text: str) -> str:
    """Now and then what people really type: no capital, no full stop, a polite word."""
    roll = rng.random()
    if roll < 0.12 and text.split(" ", 1)[0] in _OPENERS:
        text = text[:1].lower() + text[1:]
    if roll > 0.92 and text.endswith((".", "?")):
        text = text[:-1]
    if 0.76 < roll < 0.80:  # typed in a hurry
        text = "pls " + text.removeprefix("Please ") if text.startswith("Please ") else text
        return text[:-1] if text.endswith((".", "?", "!")) else text
    if 0.80 < roll < 0.86:
        text = rng.choice(("Please: ", "Hey, ", "Hi! ", "Task: ", "OK. ", "Next: ")) + text
    elif 0.86 < roll < 0.92:
        text += rng.choice((" Thanks!", " Thank you.", " Please.", "\n", " Go ahead.", " Now."))
    return text


def join_words(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def some(rng: random.Random, items: Sequence[T], low: int, high: int) -> list[T]:
    return rng.sample(list(items), min(len(items), rng.randint(low, high)))
