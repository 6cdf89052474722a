"""One training document: a conversation, how it renders, and which tokens count."""

from __future__ import annotations

import json
import random
import re
import zlib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

TEMPLATE = Path(__file__).parent.parent / "chat_template.jinja"
Message = dict[str, Any]
HELD_OUT_SHARE = 16  # one combination in this many is never trained on
WEIGHT_ANSWER, WEIGHT_CONTEXT = 1.0, 0.1


class Split:
    """Which combinations this document may use: held-out ones, or all the others."""

    def __init__(self, held_out: bool) -> None:
        self.held_out = held_out
        self.used: list[str] = []

    def allows(self, kind: str, *parts: object) -> bool:
        """Whether the combination is on this side; remembers the ones that are."""
        key = kind + "|" + "|".join(map(str, parts))
        if is_held_out(key) != self.held_out:
            return False
        self.used.append(key)
        return True


def is_held_out(key: str) -> bool:
    return zlib.crc32(key.encode()) % HELD_OUT_SHARE == 0


@dataclass
class Conversation:
    """Messages and tools, built up by episodes.

    `muted` holds the indices of assistant messages that must not be learned (deliberate
    mistakes). `expected` maps an assistant message to the strings its text must hold; without an
    entry an evaluation compares tool calls exactly and plain answers as a whole.
    """

    rng: random.Random
    split: Split
    kind: str = ""
    thinking: bool = True
    effort: str = "medium"
    messages: list[Message] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    muted: set[int] = field(default_factory=set)
    expected: dict[int, list[str]] = field(default_factory=dict)
    scored: list[int] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    def tool_names(self) -> set[str]:
        return {tool["function"]["name"] for tool in self.tools}

    def offer(self, tool: dict[str, Any]) -> None:
        if tool["function"]["name"] not in self.tool_names():
            self.tools.append(tool)

    def user(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text.strip()})

    def result(self, text: Any) -> None:
        text = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
        self.messages.append({"role": "tool", "content": text})

    def answer(
        self, text: str, thought: str = "", facts: list[str] | None = None, scored: bool = True
    ) -> None:
        """A final answer; `facts` are what must be in it when it need not be word for word."""
        if facts is not None:
            self.expected[len(self.messages)] = facts
        self._assistant({"content": text.strip()}, thought, scored)

    def call(
        self,
        *calls: tuple[str, dict[str, Any]],
        thought: str = "",
        content: str = "",
        muted: bool = False,
        scored: bool = True,
    ) -> None:
        """A turn of one or more tool calls."""
        if muted:
            self.muted.add(len(self.messages))
        items = [{"function": {"name": name, "arguments": args}} for name, args in calls]
        self._assistant({"content": content, "tool_calls": items}, thought, scored and not muted)

    def _assistant(self, message: Message, thought: str, scored: bool) -> None:
        if scored:
            self.scored.append(len(self.messages))
        if self.thinking and thought:
            message["reasoning_content"] = thought
        self.messages.append({"role": "assistant", **message})

    def options(self) -> dict[str, Any]:
        """Template variables of this conversation."""
        return {
            "tools": self.tools or None,
            "enable_thinking": self.thinking,
            "reasoning_effort": self.effort,
        }

    def prompt(self, index: int) -> str:
        """The text the model sees when assistant message `index` is to be written."""
        return render(self.messages[:index], add_generation_prompt=True, **self.options())


@cache
def _template() -> jinja2.Template:
    def fail(message: str) -> None:
        raise jinja2.TemplateError(message)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    env.globals["raise_exception"] = fail
    return env.from_string(TEMPLATE.read_text())


def render(messages: list[Message], **options: Any) -> str:
    """The conversation as text, by the template that ships in the model file."""
    return _template().render(messages=messages, **options)


_TURN = re.compile(
    r"<\|im_start\|>assistant\n(<think>\n(?:\n</think>\n\n)?)(.*?<\|im_end\|>)", re.S
)


def tokenise(doc: Conversation, tokenizer: Tokenizer) -> tuple[list[int], list[float]]:
    """Token ids and loss weights: 1 on what the model writes, 0.1 on context, 0 on mistakes.

    The end of the prompt is a token boundary, so that training sees the ids that serving sees.
    """
    text = render(doc.messages, **doc.options())
    muted = iter([i in doc.muted for i, m in enumerate(doc.messages) if m["role"] == "assistant"])
    spans: list[tuple[str, float]] = []
    at = 0
    for turn in _TURN.finditer(text):
        # A silent <think></think> belongs to the prompt only if thinking is off.
        opening = turn[1] if not doc.thinking else "<think>\n"
        start = turn.start(1) + len(opening)
        spans.append((text[at:start], WEIGHT_CONTEXT))
        spans.append((text[start : turn.end()], 0.0 if next(muted) else WEIGHT_ANSWER))
        at = turn.end()
    spans.append((text[at:], WEIGHT_CONTEXT))
    ids: list[int] = []
    weights: list[float] = []
    for part, encoding in zip(spans, tokenizer.encode_batch([s for s, _ in spans]), strict=True):
        ids += encoding.ids
        weights += [part[1]] * len(encoding.ids)
    return ids, weights
