"""A chat request to the tokens of its prompt."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openjet_provider.chat.history import History, Turn
from openjet_provider.chat.messages import (
    normalise_messages,
    normalise_tools,
    thinking_variables,
)
from openjet_provider.chat.template import ChatTemplate, Segment
from openjet_provider.chat.tokenizer import Tokenizer
from openjet_provider.chat.types import ChatRequest, ChatResult
from openjet_provider.errors import InvalidRequestError, ModelFileError

_TURN_START, _TURN_END = "<|im_start|>", "<|im_end|>"
_THINK, _END_THINK = "<think>", "</think>"

# Set by the engine; as template variables they would contradict it.
_RESERVED = ("messages", "tools", "continue_final_message")


@dataclass(frozen=True)
class Prompt:
    """tokens: array of C int.
    boundaries: ascending prompt lengths at which a turn ends, the first one that of system and
        tools; the prompt's own length is the last boundary and not repeated here.
    reasoning_open: the prompt ends inside thinking, so the output starts there.
    tools: normalised; those that may be called.
    client: who asks, derived from the first messages.
    continues: the prompt ends inside the assistant's last message.
    """

    tokens: array[int]
    boundaries: tuple[int, ...]
    reasoning_open: bool
    tools: tuple[dict[str, Any], ...]
    client: str
    turn_start: int
    prefix: bytes
    continues: bool

    @property
    def thinking(self) -> bool:
        """Whether the model is to think, which decides the sampling preset."""
        return self.reasoning_open


class PromptBuilder:
    """Builds the prompts of one model file. Safe to use from many threads."""

    def __init__(self, tokenizer: Tokenizer, history: History | None = None) -> None:
        """Raises ModelFileError when the file has no chat template."""
        source = tokenizer.vocabulary.chat_template
        if not source:
            raise ModelFileError("tokenizer.chat_template is missing: this is not a chat model")
        self._tokenizer = tokenizer
        self._template = ChatTemplate(source, tokenizer.special)
        self.history = history or History()

    def build(self, request: ChatRequest, most: int | None = None) -> Prompt:
        """Raises InvalidRequestError for messages or options that make no prompt. most: a prompt of
        more tokens than these need not be complete."""
        try:
            return self._build(request, most)
        except RecursionError as error:
            raise InvalidRequestError(
                "messages or tools: nested too deeply for a prompt; send less structure"
            ) from error

    def _build(self, request: ChatRequest, most: int | None) -> Prompt:
        messages = normalise_messages(
            request.messages, keep_billing_header=request.keep_billing_header
        )
        tools = normalise_tools(request.tools)
        variables, continues = _options(request)
        if continues:
            _check_continues(messages[-1])
        segments = self._template.render(
            messages, tools, continue_final_message=continues, **variables
        )
        answered = [message for message in messages if message["role"] == "assistant"]
        if continues:
            answered.pop()
        tokens, boundaries, prefix = self._encode(list(_turns(segments)), answered, most)
        return Prompt(
            tokens=tokens,
            boundaries=tuple(boundaries),
            reasoning_open=_ends_in_thinking(segments),
            tools=() if request.tool_choice == "none" else tuple(tools),
            client=_client(messages),
            turn_start=boundaries[-1] if boundaries else 0,
            prefix=prefix,
            continues=continues,
        )

    def remember(self, prompt: Prompt, output: Sequence[int], result: ChatResult) -> None:
        """Keep a turn that the model ended itself: its tokens, without the end token."""
        if prompt.continues:
            return
        calls = [
            {
                "id": call.id,
                "function": {"name": call.name, "arguments": json.loads(call.arguments)},
            }
            for call in result.tool_calls
        ]
        message = {"content": result.content or "", "tool_calls": calls}
        turn = prompt.tokens[prompt.turn_start :] + array("i", output)
        self.history.remember(prompt.prefix, message, Turn(turn, result.reasoning or ""))

    def _encode(
        self,
        turns: Sequence[Sequence[Segment]],
        answered: Sequence[Mapping[str, Any]],
        most: int | None,
    ) -> tuple[array[int], list[int], bytes]:
        """Tokens, the positions where turns end, and a digest of all turns but the last."""
        tokens: array[int] = array("i")
        boundaries: list[int] = []
        digest = hashlib.blake2b(digest_size=16)
        hashed = 0
        answers = [turn for turn in turns if _is_answer(turn)]
        messages = iter(answered if len(answers) in (len(answered), len(answered) + 1) else ())
        for turn in turns:
            if most is not None and len(tokens) > most:
                break
            if tokens:
                boundaries.append(len(tokens))
            digest.update(tokens[hashed:].tobytes())
            hashed = len(tokens)
            rest = turn
            if _is_answer(turn) and (message := next(messages, None)) is not None:
                kept = self.history.recall(digest.digest(), message)
                if kept is not None and _may_replace(turn, kept):
                    tokens.extend(kept.tokens)
                    rest = turn[turn.index(Segment(_TURN_END, True)) :]
            for text, control in rest:
                if control:
                    tokens.append(self._tokenizer.special[text])
                else:
                    tokens.extend(self._tokenizer.encode(text, most=most))
        return tokens, boundaries, digest.digest()


def _options(request: ChatRequest) -> tuple[dict[str, Any], bool]:
    """Template variables, and whether the last message is to be continued."""
    extra = dict(request.chat_template_kwargs)
    if reserved := [name for name in _RESERVED if name in extra]:
        raise InvalidRequestError(
            f"chat_template_kwargs: {reserved[0]!r} is set by the request itself; remove it"
        )

    def option(name: str) -> Any:
        inner = extra.pop(name, None)
        return inner if getattr(request, name) is None else getattr(request, name)

    thinking = thinking_variables(
        option("enable_thinking"), option("reasoning_effort"), option("preserve_thinking")
    )
    last = request.messages[-1] if request.messages else {}
    marked = isinstance(last, Mapping) and last.get("role") == "assistant" and last.get("prefix")
    generates = extra.pop("add_generation_prompt", True)
    continues = request.continue_final_message or marked is True or generates is False
    return {**extra, **thinking}, continues


def _check_continues(last: Mapping[str, Any]) -> None:
    if last["role"] != "assistant" or "tool_calls" in last:
        raise InvalidRequestError(
            "continue_final_message: the last message must be the assistant's, without tool calls"
        )


def _turns(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    turn: list[Segment] = []
    for segment in segments:
        if segment == (_TURN_START, True) and turn:
            yield turn
            turn = []
        turn.append(segment)
    if turn:
        yield turn


def _is_answer(turn: Sequence[Segment]) -> bool:
    return len(turn) > 1 and turn[0].control and turn[1].text.startswith("assistant\n")


def _may_replace(turn: Sequence[Segment], kept: Turn) -> bool:
    """A template that has dropped an old turn's thinking meant it."""
    complete = Segment(_TURN_END, True) in turn
    return complete and (not kept.reasoning or Segment(_THINK, True) in turn)


def _ends_in_thinking(segments: Sequence[Segment]) -> bool:
    for text, control in reversed(segments):
        if control and text in (_THINK, _END_THINK, _TURN_START):
            return text == _THINK
    return False


def _client(messages: Sequence[Mapping[str, Any]]) -> str:
    first = {message["role"]: message["content"] for message in reversed(messages)}
    text = json.dumps([first.get("system"), first.get("user")])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
