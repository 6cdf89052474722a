"""A model's tokens to reasoning, content and tool calls, while they arrive.

Nothing here depends on how the output is cut into pieces: a decision is taken when the text seen
so far determines it whatever follows, else the parser waits. So streamed deltas add up to the same
result for any chunking. It never raises: what cannot be a call stays visible text.

Tool-call arguments are streamed one whole parameter at a time. A value cut off by a length limit
is therefore never handed to a tool; the call is closed with the parameters that were complete.

docs/chat-format.md lists the rules.
"""

from __future__ import annotations

import codecs
import json
import re
import secrets
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from openjet_provider.chat.channels import Content, Reasoning, held_suffix
from openjet_provider.chat.schema import coerce, parse_loosely
from openjet_provider.chat.tokenizer import CONTROL, Tokenizer
from openjet_provider.chat.types import (
    ChatDelta,
    ChatResult,
    FinishReason,
    ToolCall,
    ToolCallDelta,
    Usage,
)

T = TypeVar("T")
#: A step of the parser: yields when it needs more input, returns what it found.
Step = Generator[None, None, T]

EndReason = Literal["stop", "length", "cancelled"]

# Inside the parser a tag is one character that no decoded text can hold: a lone surrogate.
_THINK, _END_THINK, _CALL, _END_CALL = "\udc00", "\udc01", "\udc02", "\udc03"
_TAGS = {
    "<think>": _THINK,
    "</think>": _END_THINK,
    "<tool_call>": _CALL,
    "</tool_call>": _END_CALL,
}
_TAG_TEXT = {ord(char): text for text, char in _TAGS.items()}

_FUNCTION, _END_FUNCTION = "<function=", "</function>"
_PARAMETER, _END_PARAMETER = "<parameter=", "</parameter>"

_REASONING_MARK = re.compile(f"[{_THINK}{_END_THINK}{_CALL}{_END_CALL}]")
_CONTENT_MARK = re.compile(f"[{_THINK}{_END_THINK}{_CALL}{_END_CALL}]|{_FUNCTION}")
_VALUE_MARK = re.compile(
    f"[{_CALL}{_END_CALL}]|{_FUNCTION}|{_END_FUNCTION}|{_PARAMETER}|{_END_PARAMETER}"
)
_BODY_MARK = re.compile(f"[<{_CALL}{_END_CALL}]")
_HEADER_END = re.compile(f"[>\n{_CALL}{_END_CALL}]")
_SPACE = re.compile(r"\s*")

_IN_BODY = (_PARAMETER, _END_PARAMETER, _END_FUNCTION, _END_CALL, _CALL, _FUNCTION)
_BEHIND_VALUE = (_END_PARAMETER, _PARAMETER, _END_FUNCTION, _END_CALL)

# What `_next` finds when it is none of the words.
_END, _NEITHER = "", "?"

_LONGEST_MARK = len(_END_PARAMETER)
_LONGEST_NAME = 256
_BARE_ATTEMPTS = 16  # calls without <tool_call> that turned out to be text, until they are ignored


@dataclass
class _Call:
    index: int
    id: str
    name: str
    properties: Mapping[str, Any]
    schema: Mapping[str, Any]
    accepted: bool = False  # certainly a call: its pieces are sent as they come
    arguments: str = ""
    seen: set[str] = field(default_factory=set)
    unsent: list[ToolCallDelta] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.unsent.append(ToolCallDelta(self.index, self.id, self.name, ""))

    def add(self, name: str, value: Any) -> None:
        """The first value of a name counts: it may have been sent already."""
        if name not in self.seen:
            self.seen.add(name)
            opening = ", " if self.arguments else "{"
            self._append(f"{opening}{_json(name)}: {_json(value)}")

    def close(self) -> None:
        self._append("}" if self.arguments else "{}")

    def _append(self, text: str) -> None:
        self.arguments += text
        self.unsent.append(ToolCallDelta(self.index, None, None, text))


class OutputParser:
    """The parser of one generated turn; one thread."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        reasoning_open: bool = False,
        stop: Sequence[str] = (),
        make_id: Callable[[], str] = lambda: f"call_{secrets.token_hex(12)}",
    ) -> None:
        """tools: normalised; only calls to these are calls.
        reasoning_open: the prompt ends inside thinking (`Prompt.reasoning_open`).
        stop: strings that end the visible content.
        """
        self._functions = {tool["function"]["name"]: tool["function"] for tool in tools}
        self._make_id = make_id
        self._token_bytes = tokenizer.token_bytes
        self._types = tokenizer.vocabulary.token_types
        self._tag_of = {
            tokenizer.special[text]: char
            for text, char in _TAGS.items()
            if text in tokenizer.special
        }
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

        self._buffer = ""
        self._at = 0
        self._final = False  # no more input
        self._cut = False  # the output ended by a limit, not by the model
        self._loose = False  # values end at the first plausible place: see _value

        self._thinking = reasoning_open
        self._unclosed = False  # a call ended the thinking, its closing tag may still come
        self._reasoning = Reasoning()
        self._content = Content(stop)
        self._calls: list[_Call] = []
        self._bare_attempts = _BARE_ATTEMPTS
        self._deltas: list[ChatDelta] = []  # up to the last call's; text behind it is yet to follow
        self._end: EndReason = "stop"
        self._machine: Step[None] | None = self._run()

        #: Tokens read: all that were fed, or those up to the one that completed a stop string.
        self.tokens = 0
        #: Those of them read while the model was thinking.
        self.reasoning_tokens = 0

    @property
    def stopped(self) -> bool:
        """A stop string has been found: nothing that follows counts."""
        return self._content.stopped

    @property
    def thinking(self) -> bool:
        return self._thinking

    def feed(self, ids: Iterable[int]) -> list[ChatDelta]:
        """What these tokens add, in order: a delta has thinking before text and text before calls,
        so what stands behind a later one of these begins another delta. Tags count as tags only as
        the vocabulary's own tokens; without the token that ended the generation. What follows a
        stop string is not looked at."""
        for token in ids:
            if self.stopped:
                break
            self.tokens += 1
            if self._thinking:
                self.reasoning_tokens += 1
            if (tag := self._tag_of.get(token)) is not None:
                self._advance(self._decoder.decode(b"", final=True) + tag)
                self._decoder.reset()
            elif self._types[token] != CONTROL:
                self._advance(self._decoder.decode(self._token_bytes(token)))
        return self._take()

    def finish(self, reason: EndReason = "stop") -> list[ChatDelta]:
        """The rest. reason: why the generation ended; "stop" for its end token or a stop string."""
        if not self._final:
            self._end = reason
            self._cut = reason != "stop"
            self._final = True
            self._advance(self._decoder.decode(b"", final=True))
            self._content.finish()
        return self._take()

    @property
    def finish_reason(self) -> FinishReason:
        return "tool_calls" if self._calls and self._end == "stop" else self._end

    def result(self, usage: Usage) -> ChatResult:
        """The whole turn, after finish()."""
        return ChatResult(
            content=self._content.text or None,
            reasoning=self._reasoning.text or None,
            tool_calls=tuple(ToolCall(c.id, c.name, c.arguments) for c in self._calls),
            finish_reason=self.finish_reason,
            usage=usage,
            stop_string=self._content.stop_string,
        )

    # Running. The machine is suspended wherever it needs more input.

    def _advance(self, text: str) -> None:
        if self._machine is None:
            return
        self._buffer += text
        try:
            next(self._machine)
        except StopIteration:
            self._machine = None

    def _take(self) -> list[ChatDelta]:
        self._add_delta(())
        deltas, self._deltas = self._deltas, []
        return deltas

    def _run(self) -> Step[None]:
        while not (self._final and self._at == len(self._buffer)) and not self.stopped:
            yield from self._in_thinking() if self._thinking else self._in_content()

    def _wait(self) -> Step[None]:
        """Between marks: what has been read is forgotten."""
        self._buffer = self._buffer[self._at :]
        self._at = 0
        yield

    def _in_thinking(self) -> Step[None]:
        while not (mark := _REASONING_MARK.search(self._buffer, self._at)):
            self._reasoning.add(self._buffer[self._at :])
            self._at = len(self._buffer)
            if self._final:
                return
            yield from self._wait()
        self._reasoning.add(self._buffer[self._at : mark.start()])
        self._at = mark.end()
        if mark[0] == _END_THINK:
            self._thinking = False
            self._content.new_segment()
        elif mark[0] == _CALL:
            # The model sometimes forgets </think>; a call is never part of the thinking.
            if not (yield from self._call()):
                self._reasoning.add("<tool_call>")
        elif mark[0] == _END_CALL or self._reasoning.visible:
            self._reasoning.add(_literal(mark[0]))

    def _in_content(self) -> Step[None]:
        while not (mark := _CONTENT_MARK.search(self._buffer, self._at)):
            keep = 0 if self._final else held_suffix(self._buffer[self._at :], (_FUNCTION,))
            end = len(self._buffer) - keep
            self._content.add(self._buffer[self._at : end])
            self._at = end
            if self._final or self.stopped:
                return
            yield from self._wait()
        self._content.add(self._buffer[self._at : mark.start()])
        self._at = mark.end()
        if self.stopped:
            return
        if mark[0] == _CALL:
            if not (yield from self._call()):
                self._content.add("<tool_call>")
        elif mark[0] == _FUNCTION:
            if not (yield from self._bare_call()):
                self._content.add(_FUNCTION)
        elif mark[0] == _END_CALL:
            if not self._content.after_call:
                self._content.add("</tool_call>")
        else:
            yield from self._think_tag_in_content(mark[0])

    def _think_tag_in_content(self, tag: str) -> Step[None]:
        """Before any visible text it is what it says; behind some it is text about the tag, except
        at the very end, where models leave one behind."""
        self._content.flush()
        if tag == _END_THINK and self._unclosed:
            self._unclosed = False
            self._content.new_segment()
        elif self._content.visible:
            word, _ = yield from self._next(self._at, ())
            if word != _END:
                self._content.add(_literal(tag))
        elif tag == _THINK:
            self._thinking, self._unclosed = True, False
            self._add_delta(())  # text there may be: of an earlier segment
            self._reasoning.add("\n")

    # Calls. What is read here is looked at from positions that stay valid: no _wait().

    def _call(self) -> Step[bool]:
        """Behind <tool_call>. False when no call starts here; then nothing has been read."""
        word, at = yield from self._next(self._at, (_FUNCTION, "{"))
        if word == "{":
            return (yield from self._json_call(at))
        name: str | None = None
        if word == _FUNCTION:
            name, at = yield from self._name(at + len(_FUNCTION))
            if name is not None and name in self._functions:
                call = self._open(name)
                self._accept(call)
                yield from self._body(call, at)
                return True
        if self._cut and name is None and word != _NEITHER:
            return self._drop_rest()
        return False

    def _bare_call(self) -> Step[bool]:
        """Behind <function= without <tool_call>: a call if it is at the start of a line, not in a
        code block, complete, and followed by nothing but another call."""
        start = self._at
        if not (self._functions and self._bare_attempts and self._content.at_line_start):
            return False
        name, at = yield from self._name(start)
        if name is not None and name in self._functions:
            call = self._open(name)
            if (yield from self._body(call, at)):
                word, _ = yield from self._next(self._at, (_CALL, _FUNCTION))
                if word != _NEITHER:
                    self._accept(call)
                    return True
        if self._cut and (name is None or self._at == len(self._buffer)):
            return self._drop_rest()
        self._bare_attempts -= 1
        self._at = start
        return False

    def _body(self, call: _Call, at: int) -> Step[bool]:
        """Parameters up to the end of the call. True when it was closed explicitly."""
        closed, stray = False, ""
        while True:
            word, at = yield from self._next(at, _IN_BODY)
            if word == _PARAMETER:
                name, at = yield from self._name(at + len(_PARAMETER))
                named = name in call.properties or self._buffer[at - 1] == ">"
                value, at = yield from self._value(at, call, name)
                if name and named and value is not None:
                    call.add(name, coerce(value, call.properties.get(name), call.schema))
                    self._send(call)
            elif word == _END_PARAMETER:  # one too many
                at += len(_END_PARAMETER)
            elif word == _END_FUNCTION:
                closed = True
                after = at + len(_END_FUNCTION)
                word, at = yield from self._next(after, (_END_CALL,))
                at = at + 1 if word == _END_CALL else after
                break
            elif word == _NEITHER:
                if not call.accepted:
                    return False
                end = at + 1
                while not (mark := _BODY_MARK.search(self._buffer, end)) and not self._final:
                    end = len(self._buffer)
                    yield
                end = mark.start() if mark else len(self._buffer)
                stray += self._buffer[at:end]
                at = end
            else:
                closed = word == _END_CALL
                at = len(self._buffer) if word == _END else at + closed
                break
        if stray and not call.seen and isinstance(given := parse_loosely(_literal(stray)), dict):
            for key, item in given.items():
                call.add(str(key), item)
        call.close()
        self._send(call)
        self._at = at
        return closed

    def _json_call(self, at: int) -> Step[bool]:
        """The form of older models: {"name": ..., "arguments": {...}}."""
        while (end := self._buffer.find(_END_CALL, at)) < 0:
            if self._final:
                return self._cut and self._drop_rest()
            yield
        given = parse_loosely(_literal(self._buffer[at:end]))
        if not isinstance(given, dict) or given.get("name") not in self._functions:
            return False
        arguments = given.get("arguments", given.get("parameters"))
        if isinstance(arguments, str):
            arguments = parse_loosely(arguments)
        call = self._open(given["name"])
        for key, item in arguments.items() if isinstance(arguments, dict) else ():
            call.add(str(key), item)
        call.close()
        self._accept(call)
        self._at = end + 1
        return True

    def _value(self, at: int, call: _Call, name: str | None) -> Step[tuple[str | None, int]]:
        """A parameter's text, one line break taken off each end, and the place behind it. None when
        the output ended inside it by a limit.

        A value is free text and may hold the very tags that end it, so each candidate is judged by
        what is around it. When no candidate holds and the model ended the output itself, the first
        plausible one is taken.
        """
        while at >= len(self._buffer) and not self._final:
            yield
        start = at + self._buffer.startswith("\n", at)
        end = None
        if not self._loose:
            end = yield from self._value_end(start, call, name)
            self._loose = end is None and not self._cut
        if self._loose:
            end = yield from self._value_end(start, call, name)
        if end is None:
            end = len(self._buffer), len(self._buffer)
            if self._cut:
                return None, end[1]
        text = self._buffer[start : end[0]].removesuffix("\n")
        return _literal(text), end[1]

    def _value_end(self, start: int, call: _Call, name: str | None) -> Step[tuple[int, int] | None]:
        """Where the value's text ends and where to read on."""
        at, functions, calls = start, 0, 0  # calls quoted in the value that are still open
        while True:
            mark = _VALUE_MARK.search(self._buffer, at)
            if mark is None:
                if self._final:
                    return None
                at = max(at, len(self._buffer) - _LONGEST_MARK + 1)
                yield
                continue
            here, at, tag = mark.start(), mark.end(), mark[0]
            before = self._buffer[here - 1] if here > start else "\n"
            if tag == _CALL:
                word, inside = yield from self._next(at, (_FUNCTION,))
                if word == _FUNCTION and not self._loose:
                    calls += 1
                elif word == _FUNCTION and before == "\n":
                    other, _ = yield from self._name(inside + len(_FUNCTION))
                    if other in self._functions:
                        return here, here
            elif tag == _FUNCTION:
                line = max(self._buffer.rfind("\n", start, here) + 1, start)
                if not self._loose and not self._buffer[line:here].strip(f" \t{_CALL}"):
                    functions += 1
            elif tag == _END_FUNCTION and functions:
                functions -= 1
            elif tag == _END_CALL and calls:
                calls -= 1
            elif tag == _END_FUNCTION:
                if (yield from self._ends_call(at)):
                    return here, here
            elif tag == _END_CALL:
                if before == "\n" and (yield from self._is_last(at)):
                    return here, here
            elif functions:
                continue
            elif tag == _PARAMETER:
                if before == "\n":
                    other, _ = yield from self._name(at)
                    if other in call.properties and other != name and other not in call.seen:
                        return here, here
            elif (yield from self._ends_value(at)):
                return here, at

    def _ends_value(self, at: int) -> Step[bool]:
        """Behind </parameter>: the next parameter, the end of the call or of the output."""
        word, at = yield from self._next(at, _BEHIND_VALUE)
        while word == _END_PARAMETER:
            word, at = yield from self._next(at + len(_END_PARAMETER), _BEHIND_VALUE)
        if word == _END_FUNCTION:
            return (yield from self._ends_call(at + len(_END_FUNCTION), after_value=True))
        if word == _END_CALL:
            return not (yield from self._is_quoted(at + 1))
        return word != _NEITHER

    def _ends_call(self, at: int, *, after_value: bool = False) -> Step[bool]:
        """Behind </function>. With a closed value before it, little doubt is left."""
        word, at = yield from self._next(at, (_END_CALL, _CALL, _FUNCTION))
        if word == _END_CALL and after_value:
            return not (yield from self._is_quoted(at + 1))
        if word == _END_CALL:
            return (yield from self._is_last(at + 1))
        return word != _NEITHER or (self._loose and after_value)

    def _is_last(self, at: int) -> Step[bool]:
        """Behind </tool_call>: the end of the output or another call."""
        word, _ = yield from self._next(at, (_CALL,))
        return word != _NEITHER or self._loose

    def _is_quoted(self, at: int) -> Step[bool]:
        """Behind </tool_call>: more closing tags, so this call was an example in a value."""
        word, _ = yield from self._next(at, (_END_PARAMETER, _END_FUNCTION))
        return word in (_END_PARAMETER, _END_FUNCTION)

    # Reading.

    def _next(self, at: int, words: tuple[str, ...]) -> Step[tuple[str, int]]:
        """Which of the words comes next after white space, and where; _END at the end of the
        output, _NEITHER for anything else."""
        while True:
            at = _SPACE.match(self._buffer, at).end()  # type: ignore[union-attr]
            for word in words:
                if self._buffer.startswith(word, at):
                    return word, at
            rest = self._buffer[at : at + _LONGEST_MARK]
            if rest and not any(word.startswith(rest) for word in words):
                return _NEITHER, at
            if self._final:
                return _END if not rest or self._cut else _NEITHER, at
            yield

    def _name(self, at: int) -> Step[tuple[str | None, int]]:
        """The name behind <function= or <parameter=, and the place behind its `>`. Empty when there
        is none in reach; None when the output ended before it did."""
        while not (end := _HEADER_END.search(self._buffer, at, at + _LONGEST_NAME)):
            if len(self._buffer) >= at + _LONGEST_NAME:
                return "", at
            if self._final:
                return None, len(self._buffer)
            yield
        name = self._buffer[at : end.start()].strip().strip("\"'")
        return name, end.end() if end[0] == ">" else end.start()

    # Writing.

    def _open(self, name: str) -> _Call:
        schema = self._functions[name].get("parameters") or {}
        properties = schema.get("properties")
        return _Call(
            len(self._calls),
            self._make_id(),
            name,
            properties if isinstance(properties, Mapping) else {},
            schema,
        )

    def _accept(self, call: _Call) -> None:
        call.accepted = True
        self._calls.append(call)
        self._unclosed = self._unclosed or self._thinking
        self._thinking = False
        self._content.new_segment(after_call=True)
        self._send(call)

    def _drop_rest(self) -> bool:
        """Of an output that was cut before it said which call it is."""
        self._content.new_segment(after_call=True)
        self._at = len(self._buffer)
        return True

    def _send(self, call: _Call) -> None:
        if call.accepted:
            self._add_delta(tuple(call.unsent))
            call.unsent.clear()

    def _add_delta(self, pieces: tuple[ToolCallDelta, ...]) -> None:
        """The text that has come, and pieces of calls behind it."""
        delta = ChatDelta(self._reasoning.take(), self._content.take(), pieces)
        if self._deltas and not delta.reasoning and not delta.content:
            last = self._deltas.pop()
            delta = replace(last, tool_calls=last.tool_calls + pieces)
        if delta != ChatDelta():
            self._deltas.append(delta)


def _literal(text: str) -> str:
    """With the tags as they are written."""
    return text.translate(_TAG_TEXT)


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, from an escape in the model's JSON
        return json.dumps(value)
    return text
