"""The model file's own chat template, rendered so that no user text becomes a control token.

Control tokens are recognised in the rendered prompt, and only where the template itself wrote
them. To know who wrote a character, everything that comes from outside (contents, names, arguments,
tool definitions) is handed to the template with the characters that open or close a control token
replaced by stand-ins: characters that occur in no input of this request. They are ordinary
non-blank characters of the same length, so trimming, splitting, joining and JSON leave them
alone; after the control tokens have been found they are turned back.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from openjet_provider.errors import InvalidRequestError, ModelFileError

if TYPE_CHECKING:
    import jinja2

# Templates look at these themselves: a user message wrapped in them is a tool result that travels
# in a user turn. The template may see them, but they stay the user's text.
_WRAPPER = ("<tool_response>", "</tool_response>")

_PRIVATE_USE = "".join(map(chr, range(0xE000, 0xF900)))

_DICT_METHODS = frozenset(dir(dict))


class Segment(NamedTuple):
    """A piece of a prompt: one control token that the template wrote, or text."""

    text: str
    control: bool


class ChatTemplate:
    """Immutable; safe to use from many threads. Compiled at the first rendering."""

    def __init__(self, source: str, special: Collection[str]) -> None:
        """special: texts of the vocabulary's control tokens and tags."""
        self.source = source
        self._special = sorted(special, key=lambda word: (-len(word), word))
        self._pattern = re.compile("|".join(map(re.escape, self._special)) or r"(?!)")
        self._edges = "".join(
            sorted({word[0] for word in special} | {word[-1] for word in special})
        )

    @cached_property
    def _template(self) -> jinja2.Template:
        import jinja2

        try:
            return _environment().from_string(self.source)
        except jinja2.TemplateError as error:
            raise ModelFileError(f"tokenizer.chat_template does not compile: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> list[Segment]:
        """The prompt of normalised messages (see messages.py), ready for the model's turn.

        continue_final_message: the prompt ends inside the last message, which the model continues:
            in its content, or in its reasoning when there is no content yet.
        variables: further names that the template reads, such as enable_thinking.

        Raises InvalidRequestError when the template refuses the messages.
        """
        try:
            marks = _Marks.of(self._edges, _PRIVATE_USE)
            return self._render(messages, tools, continue_final_message, variables, marks)
        except _MarkUsed:  # hardly ever: looking for characters that are free costs time
            marks = _Marks.unused_in(self._edges, [*messages, *tools, variables])
            return self._render(messages, tools, continue_final_message, variables, marks)

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        continue_final_message: bool,
        variables: Mapping[str, Any],
        marks: _Marks,
    ) -> list[Segment]:
        outside = [marks.protect_message(message) for message in messages]
        if continue_final_message:
            outside[-1] = marks.with_end(outside[-1])
        if needs_query := _needs_query(messages):
            first = 1 if messages[0]["role"] == "system" else 0
            outside.insert(first, {"role": "user", "content": marks.query})
        text = self._run(
            messages=outside,
            tools=[marks.protect(tool) for tool in tools] or None,
            add_generation_prompt=not continue_final_message,
            **{name: marks.protect(value) for name, value in variables.items()},
        )
        if needs_query:
            text = _without_query(text, marks.query)
        if continue_final_message:
            text, found, _ = text.rpartition(marks.end)
            if not found:
                raise InvalidRequestError(
                    "continue_final_message: the model's chat template does not render the last "
                    "message's text; send it as a complete message instead"
                )
        return list(self._segments(text, marks))

    def _run(self, **variables: Any) -> str:
        import jinja2

        template = self._template
        try:
            return template.render(variables)
        except _TemplateRefusal as refusal:
            raise InvalidRequestError(
                f"the model's chat template refuses these messages: {refusal}"
            ) from refusal
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, ArithmeticError) as error:
            raise InvalidRequestError(
                f"the model's chat template fails on these messages: {error}"
            ) from error

    def _segments(self, text: str, marks: _Marks) -> Iterator[Segment]:
        start = 0
        guarded = marks.guard in text
        restored = marks.restore(text)  # of the same length
        for match in self._pattern.finditer(text):
            if guarded and marks.is_guarded(text, match):
                continue
            here, end = match.span()
            if plain := marks.without_guard(restored[start:here]):
                yield Segment(plain, False)
            yield Segment(match[0], True)
            start = end
        if plain := marks.without_guard(restored[start:]):
            yield Segment(plain, False)


@dataclass(frozen=True)
class _Marks:
    """Characters of one rendering: `edges[i]` is replaced by `stand_ins[i]`, `guard` marks a
    wrapper that is the user's, `query` and `end` are looked for in the result."""

    edges: str
    stand_ins: str
    guard: str
    query: str
    end: str

    @classmethod
    def of(cls, edges: str, free: Iterable[str]) -> _Marks:
        """The first characters that are free."""
        chosen = list(islice(free, len(edges) + 3))
        if len(chosen) < len(edges) + 3:
            raise InvalidRequestError(
                "the messages use every private-use character (U+E000 to U+F8FF); remove some"
            )
        guard, query, end = chosen[-3:]
        return cls(edges, "".join(chosen[:-3]), guard, query, end)

    @classmethod
    def unused_in(cls, edges: str, values: Iterable[Any]) -> _Marks:
        """Of characters that occur nowhere in the values."""
        texts = [text for value in values for text in _strings(value) if not text.isascii()]
        free = (char for char in _PRIVATE_USE if not any(char in text for text in texts))
        return cls.of(edges, free)

    @cached_property
    def _pairs(self) -> list[tuple[str, str]]:
        return list(zip(self.edges, self.stand_ins, strict=True))

    @cached_property
    def _own(self) -> str:
        return self.stand_ins + self.guard + self.query + self.end

    def protect(self, value: Any) -> Any:
        """With stand-ins for the edges in every text. Raises _MarkUsed for one that has a mark."""
        if isinstance(value, str):
            if not value.isascii() and any(mark in value for mark in self._own):
                raise _MarkUsed
            for edge, stand_in in self._pairs:
                if edge in value:
                    value = value.replace(edge, stand_in)
            return value
        if type(value) is dict:  # before the abstract class, which takes longer to ask
            return {self.protect(key): self.protect(item) for key, item in value.items()}
        if isinstance(value, Mapping):
            return {self.protect(key): self.protect(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.protect(item) for item in value]
        return value

    def protect_message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        out: dict[str, Any] = self.protect(message)
        if message["role"] == "user":
            text = message["content"].strip()
            opening, closing = _WRAPPER
            if text.startswith(opening) and text.endswith(closing):
                inner = self.protect(text[len(opening) : len(text) - len(closing)])
                out["content"] = f"{opening}{self.guard}{inner}{self.guard}{closing}"
        return out

    def is_guarded(self, text: str, match: re.Match[str]) -> bool:
        before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
        return self.guard in (before, after)

    def with_end(self, message: Mapping[str, Any]) -> dict[str, Any]:
        thinking = message["reasoning_content"] and not message["content"]
        name = "reasoning_content" if thinking else "content"
        return {**message, name: message[name] + self.end}

    def restore(self, text: str) -> str:
        """With the edges back in their places."""
        for edge, stand_in in self._pairs:
            text = text.replace(stand_in, edge)
        return text

    def without_guard(self, text: str) -> str:
        return text.replace(self.guard, "")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)


def _needs_query(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Templates of this family ask for a user message, and for something before a tool result.
    After an agent has compacted its history there may be none."""
    return messages[0]["role"] == "tool" or all(m["role"] != "user" for m in messages)


def _without_query(text: str, mark: str) -> str:
    """Takes out the turn that was put in to satisfy the template."""
    before, found, after = text.partition(f"<|im_start|>user\n{mark}<|im_end|>\n")
    if not found:
        raise InvalidRequestError(
            "No user query found in messages, and the model's chat template cannot do without one; "
            "add a user message"
        )
    return before + after


class _MarkUsed(Exception):
    """A text has one of the characters that were to stand for something else."""


class _TemplateRefusal(Exception):
    """The template called raise_exception()."""


def _raise_exception(message: object) -> NoReturn:
    raise _TemplateRefusal(message)


def _strftime_now(format: str) -> str:
    return datetime.datetime.now().strftime(format)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As Hugging Face renders templates: unlike jinja2's own, keys keep their order and nothing is
    escaped for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _environment() -> jinja2.Environment:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Environment(ImmutableSandboxedEnvironment):
        def getattr(self, obj: Any, attribute: str) -> Any:
            """`message.role` is the item; the sandbox finds it last, behind an exception."""
            if type(obj) is dict and attribute in obj and attribute not in _DICT_METHODS:
                return obj[attribute]
            return super().getattr(obj, attribute)

    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    functions: dict[str, Callable[..., Any]] = {
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
    }
    environment.globals.update(functions)
    return environment
