"""What a request allows the model to say, as token masks: tool choice and response format.

docs/chat-format.md, "Constrained output", has the rules.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from openjet_provider.chat.grammar import JSON_STYLE, Grammar, GrammarBuilder
from openjet_provider.chat.prompt import Prompt
from openjet_provider.chat.tokenizer import CONTROL, USER_DEFINED, Tokenizer
from openjet_provider.chat.types import ChatRequest
from openjet_provider.errors import ConstraintError, InvalidRequestError
from openjet_provider.masks import UNCONSTRAINED, Constraint

if TYPE_CHECKING:
    import llguidance

_CALL, _END_CALL, _END_THINK = "<tool_call>", "</tool_call>", "</think>"

Mode = Literal["none", "auto", "required"]


class Constrainer:
    """Makes the constraints of one model's requests. Safe to use from many threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._library_tokenizer: llguidance.LLTokenizer | None = None

    def constraint(self, request: ChatRequest, prompt: Prompt) -> Constraint:
        """What masks the request's tokens.

        Raises InvalidRequestError for options that contradict each other and for schemas that the
        grammar library cannot enforce, with its own words.
        """
        mode, tools = _tool_choice(request, prompt.tools)
        schema = _response_schema(request)
        parallel = request.parallel_tool_calls is not False
        if mode == "auto" and schema is None:
            return self._one_call(request, tools) if tools and not parallel else UNCONSTRAINED
        if mode == "none" and schema is None:
            banned = {self._tokenizer.special.get(_CALL, -1)}
            return Constraint(allowed=self._all_but(banned) if request.tools else None)
        _refuse(request, prompt, schema)
        grammar = self._builder()
        forms = (
            [grammar.calls(tools, parallel=parallel and not _is_named(request))] if tools else []
        )
        if mode != "required" and schema is not None:
            forms.append(grammar.json(schema, "response_format"))
        body = f"({' | '.join(forms)})"
        if not prompt.reasoning_open:
            return Constraint(matcher=self._matcher(grammar.finish(body)))
        return Constraint(
            matcher=self._matcher(grammar.finish(f'"\\n\\n" {body}')),
            after=self._special(_END_THINK),
            allowed=self._all_but(self._not_thinking()),
        )

    def _one_call(self, request: ChatRequest, tools: Sequence[Mapping[str, Any]]) -> Constraint:
        """Free up to the first call, which is the end of the turn."""
        if request.ignore_eos:
            raise InvalidRequestError("parallel_tool_calls=False needs ignore_eos=False")
        grammar = self._builder()
        matcher = self._matcher(grammar.finish(grammar.call_rest(tools)))
        return Constraint(matcher=matcher, after=self._special(_CALL))

    def _builder(self) -> GrammarBuilder:
        return GrammarBuilder(self._special(_CALL), self._special(_END_CALL))

    def _special(self, text: str) -> int:
        if text not in self._tokenizer.special:
            raise InvalidRequestError(
                f"this model's vocabulary has no {text}: its calls cannot be constrained"
            )
        return self._tokenizer.special[text]

    def _not_thinking(self) -> set[int]:
        """Tokens that would end the turn, or begin a call, without closing the thinking."""
        types = self._tokenizer.vocabulary.token_types
        control = {token for token in self._tokenizer.special.values() if types[token] == CONTROL}
        return control | {self._special(_CALL), self._special(_END_CALL)}

    def _all_but(self, banned: Iterable[int]) -> array[int]:
        words = array("I", [0xFFFFFFFF]) * ((len(self._tokenizer) + 31) // 32)
        for token in banned:
            if token >= 0:
                words[token // 32] &= ~(1 << token % 32) & 0xFFFFFFFF
        return words

    def _matcher(self, grammar: Grammar) -> GrammarMatcher:
        import llguidance

        library = llguidance.LLMatcher
        limits = llguidance.LLParserLimits(verbose_errors=False)
        matcher = library(
            self._tokens(), library.grammar_from_lark(grammar.lark), log_level=0, limits=limits
        )
        if matcher.is_error():
            for where, schema in grammar.schemas.items():  # which one was it?
                text = library.grammar_from_json_schema(dict(schema), overrides=JSON_STYLE)
                _check(library.validate_grammar(text), where)
            _check(matcher.get_error(), "tools and response_format")
        return GrammarMatcher(matcher, self._tokenizer.vocabulary.eos_id)

    def _tokens(self) -> llguidance.LLTokenizer:
        """The library's view of the vocabulary: a second or two for 248K tokens, made once."""
        import llguidance

        with self._lock:
            if self._library_tokenizer is None:
                wrapper = llguidance.TokenizerWrapper(_LibraryVocabulary(self._tokenizer))
                self._library_tokenizer = llguidance.LLTokenizer(
                    wrapper, n_vocab=len(self._tokenizer)
                )
            return self._library_tokenizer


class GrammarMatcher:
    """openjet_provider.masks.TokenMatcher over llguidance."""

    def __init__(self, matcher: llguidance.LLMatcher, eos: int) -> None:
        self._matcher = matcher
        self._eos = eos

    def advance(self, tokens: Sequence[int]) -> None:
        if self._matcher.is_stopped() and list(tokens) == [self._eos]:
            return
        if not self._matcher.consume_tokens(list(tokens)):
            raise ConstraintError(self._error())

    def forced(self) -> list[int]:
        if not self._matcher.is_stopped():
            return list(self._matcher.compute_ff_tokens())
        if self._matcher.is_error() or not self._matcher.is_accepting():
            raise ConstraintError(self._error())
        return [self._eos]

    def fill(self, address: int, size: int) -> None:
        self._matcher.unsafe_compute_mask_ptr(address, size)
        if self._matcher.is_error():
            raise ConstraintError(self._error())

    def try_advance(self, token: int) -> bool:
        return bool(self._matcher.try_consume_tokens([token]))

    def copy(self) -> GrammarMatcher:
        # Not a rollback: after one over a mask, llguidance 1.9.1 may allow what is forbidden.
        return GrammarMatcher(self._matcher.deep_copy(), self._eos)

    def _error(self) -> str:
        words = self._matcher.get_error() or self._matcher.stop_reason()
        return f"the output could not be constrained: {_first_line(words)}"


class _LibraryVocabulary:
    """What llguidance.TokenizerWrapper asks for."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        types = tokenizer.vocabulary.token_types
        self._encode = tokenizer.encode
        self.eos_token_id = tokenizer.vocabulary.eos_id
        self.tokens = [tokenizer.token_bytes(token) for token in range(len(tokenizer))]
        self.special_token_ids = [
            token for token, kind in enumerate(types) if kind in (CONTROL, USER_DEFINED)
        ]

    def __call__(self, text: str) -> list[int]:
        return list(self._encode(text))


def _tool_choice(
    request: ChatRequest, tools: Sequence[Mapping[str, Any]]
) -> tuple[Mode, Sequence[Mapping[str, Any]]]:
    """The mode, and the tools that may be called."""
    choice = request.tool_choice
    if choice is None or choice == "auto":
        return "auto", tools
    if choice == "none":
        return "none", ()
    if choice == "required":
        if not tools:
            raise InvalidRequestError("tool_choice='required' needs tools; the request has none")
        return "required", tools
    function = choice.get("function", choice) if isinstance(choice, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        raise InvalidRequestError(
            f"tool_choice={choice!r}: use 'none', 'auto', 'required' or"
            ' {"type": "function", "function": {"name": ...}}'
        )
    named = [tool for tool in tools if tool["function"]["name"] == name]
    if not named:
        known = ", ".join(tool["function"]["name"] for tool in tools) or "none"
        raise InvalidRequestError(f"tool_choice: no tool is named {name!r}; the tools are: {known}")
    return "required", named[:1]


def _is_named(request: ChatRequest) -> bool:
    return isinstance(request.tool_choice, Mapping)


def _response_schema(request: ChatRequest) -> Mapping[str, Any] | None:
    """The schema of the answer; None for text."""
    given = request.response_format
    if given is None:
        return None
    kind = given.get("type") if isinstance(given, Mapping) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind != "json_schema":
        raise InvalidRequestError(
            f"response_format={given!r}: its type must be text, json_object or json_schema"
        )
    named = given.get("json_schema")
    schema = named.get("schema") if isinstance(named, Mapping) else None
    if not isinstance(schema, Mapping):
        raise InvalidRequestError(
            'response_format: needs {"type": "json_schema", "json_schema": {"schema": {...}}}'
        )
    return schema


def _refuse(request: ChatRequest, prompt: Prompt, schema: Mapping[str, Any] | None) -> None:
    if request.ignore_eos:
        raise InvalidRequestError(
            "ignore_eos=True: a forced call or response_format ends the turn; leave ignore_eos out"
        )
    if prompt.continues and schema is not None and not prompt.reasoning_open:
        raise InvalidRequestError(
            "response_format: the whole answer must be generated; leave out the beginning of it"
            " (continue_final_message, prefix)"
        )


def _check(error: str, where: str) -> None:
    if error:
        raise InvalidRequestError(f"{where}: this schema cannot be enforced: {error.strip()}")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
