"""One chat turn on the engine: messages in, deltas out, the same for threads and tasks."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from openjet_provider import defaults
from openjet_provider._core import ThinkingBudget, TokenRequest, TokenSampling
from openjet_provider._native import Model
from openjet_provider.chat.constraint import Constrainer
from openjet_provider.chat.parser import EndReason, OutputParser
from openjet_provider.chat.prompt import Prompt, PromptBuilder
from openjet_provider.chat.stream import TurnStream
from openjet_provider.chat.tokenizer import Tokenizer, Vocabulary
from openjet_provider.chat.turns_file import load_turns, save_turns
from openjet_provider.chat.types import (
    ChatDelta,
    ChatRequest,
    ChatResult,
    TokenLogprob,
    Usage,
)
from openjet_provider.errors import InvalidRequestError, ModelFileError
from openjet_provider.generation import Generation, Token

Submit = Callable[[TokenRequest], Generation]

_MASK = (1 << 64) - 1
# Orders of sampling, in GGUF's names: temperature before the filters, or last.
_ORDER = ("penalties", "temperature", "top_k", "top_p", "min_p")
_LAST = ("penalties", "top_k", "top_p", "min_p", "temperature")
_CHANGE_FILE = "remove the key from the file to use it here"


class ChatFormat:
    """A model file's tokenizer, template and sampling defaults. Safe to use from many threads."""

    def __init__(self, tokenizer: Tokenizer, name: str, file_sampling: dict[str, Any]) -> None:
        self.tokenizer = tokenizer
        self._name = name
        self._file_sampling = file_sampling
        self._prompts = PromptBuilder(tokenizer)
        self._constrainer = Constrainer(tokenizer)

    @classmethod
    def of_model(cls, model: Model) -> ChatFormat:
        """Read from the file's metadata; about a second for 248K tokens."""
        name = model.metadata("general.name") or model.path.stem
        return cls(model_tokenizer(model), name, _file_sampling(model.metadata))

    def prompt(self, request: ChatRequest, most: int | None = None) -> Prompt:
        """The tokens of a request's prompt. Raises InvalidRequestError for what cannot be one.
        most: one of more tokens than these need not be complete."""
        return self._prompts.build(request, most)

    def save_turns(self, folder: Path) -> None:
        """Write the remembered turns to a file of a state directory."""
        save_turns(folder, self._prompts.history, self.tokenizer.vocabulary)

    def load_turns(self, folder: Path) -> None:
        """Remember the turns of that file."""
        load_turns(folder, self._prompts.history, self.tokenizer.vocabulary)

    def start(self, request: ChatRequest, submit: Submit, most: int | None = None) -> ChatStream:
        """Render, tokenise and queue one turn. most: `submit` refuses longer prompts."""
        prompt = self.prompt(request, most)
        generation = submit(
            TokenRequest(
                tokens=prompt.tokens,
                boundaries=prompt.boundaries,
                client=request.client or prompt.client,
                max_tokens=request.max_tokens or 0,
                ignore_eos=request.ignore_eos,
                timeout_s=request.timeout,
                sampling=self.sampling(request, prompt.thinking),
                thinking=self._thinking_budget(request, prompt),
                constraint=self._constrainer.constraint(request, prompt),
            )
        )
        parser = OutputParser(
            self.tokenizer,
            tools=prompt.tools,
            reasoning_open=prompt.reasoning_open,
            stop=request.stop,
        )
        return ChatStream(
            generation,
            parser,
            self.tokenizer,
            conversation=prompt.client,
            with_logprobs=request.top_logprobs is not None,
            remember=lambda output, result: self._prompts.remember(prompt, output, result),
        )

    def _thinking_budget(self, request: ChatRequest, prompt: Prompt) -> ThinkingBudget | None:
        """None for a vocabulary without thinking."""
        asked = request.thinking_budget
        tokens = defaults.THINKING_BUDGET if asked is None else asked
        if not 0 <= tokens < 1 << 31:
            raise InvalidRequestError(
                f"thinking_budget={tokens}: give a number of tokens, 0 or more"
            )
        special = self.tokenizer.special
        if "<think>" not in special or "</think>" not in special:
            return None
        closing = self.tokenizer.encode("\n</think>\n\n", parse_special=True)
        return ThinkingBudget(
            open=special["<think>"],
            close=special["</think>"],
            starts_open=prompt.reasoning_open,
            tokens=tokens,
            closing=closing,
        )

    def sampling(self, request: ChatRequest, thinking: bool) -> TokenSampling:
        """The request's values, else the file's, else the model card's."""
        asked, preset = request.sampling, defaults.preset(self._name, thinking)

        def value(name: str, neutral: float) -> Any:
            for source in (getattr(asked, name), self._file_sampling.get(name)):
                if source is not None:
                    return source
            return getattr(preset, name, neutral)

        temperature = float(value("temperature", 1.0))
        seed = asked.seed
        return TokenSampling(
            temperature=temperature,
            top_k=value("top_k", 0),
            top_p=value("top_p", 1.0),
            min_p=value("min_p", 0.0),
            presence=value("presence_penalty", 0.0),
            frequency=value("frequency_penalty", 0.0),
            repetition=value("repetition_penalty", 1.0),
            seed=secrets.randbits(64) if seed is None else seed & _MASK,
            coupled=temperature == 0 or seed is not None,
            top_logprobs=request.top_logprobs or 0,
            adjusted_logprobs=request.adjusted_logprobs,
            temperature_last=self._file_sampling.get("temperature_last", False),
            bias=asked.logit_bias,
        )


def _file_sampling(metadata: Callable[[str], Any]) -> dict[str, Any]:
    """A file's `general.sampling.*` under our names. Files switch a filter off in llama.cpp's way,
    with top_k -1 or 0 and a penalty of 0."""
    names = {
        "temperature": "temp",
        "top_k": "top_k",
        "top_p": "top_p",
        "min_p": "min_p",
        "repetition_penalty": "penalty_repeat",
    }
    found = {ours: metadata(f"general.sampling.{theirs}") for ours, theirs in names.items()}
    if found["top_k"] is not None:
        found["top_k"] = max(0, found["top_k"])
    found["repetition_penalty"] = found["repetition_penalty"] or None
    return found | _file_order(metadata)


def _file_order(metadata: Callable[[str], Any]) -> dict[str, Any]:
    """Neutral values of the filters that a file's `general.sampling.sequence` leaves out, and
    whether temperature comes behind them. Raises ModelFileError if the file wants an order that the
    engine does not have, or a filter it lacks."""
    for key in ("mirostat", "xtc_probability"):
        if value := metadata(f"general.sampling.{key}"):
            raise ModelFileError(
                f"general.sampling.{key} is {value}; this engine lacks it; {_CHANGE_FILE}"
            )
    sequence = metadata("general.sampling.sequence")
    if sequence is None:
        return {}
    # Filters beside ours (dry, typ_p, xtc, ...) do nothing unless a parameter switches them on.
    wanted = [name for name in sequence.split(";") if name in _ORDER]
    # Temperature keeps the ranks of tokens, so it may as well stand right behind top_k.
    order = ";".join(wanted).replace("top_k;temperature", "temperature;top_k").split(";")
    first, last = ([name for name in names if name in wanted] for names in (_ORDER, _LAST))
    if wanted and order != first and wanted != last:
        raise ModelFileError(
            f"general.sampling.sequence is {sequence!r}; this engine samples in the order"
            f" {';'.join(_ORDER)} or {';'.join(_LAST)}; {_CHANGE_FILE}"
        )
    neutral = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}
    found: dict[str, Any] = {name: neutral[name] for name in neutral if name not in wanted}
    return found if order == first or not wanted else found | {"temperature_last": True}


def model_tokenizer(model: Model) -> Tokenizer:
    """The model file's tokenizer; about a second for 248K tokens."""

    def required(name: str) -> Any:
        value = model.metadata(f"tokenizer.ggml.{name}")
        if value is None:
            raise ModelFileError(f"{model.path.name}: tokenizer.ggml.{name} is missing")
        return value

    eos = required("eos_token_id")
    vocabulary = Vocabulary(
        tokens=required("tokens"),
        merges=required("merges"),
        token_types=required("token_type"),
        pre=required("pre"),
        eos_id=eos,
        eog_ids=(eos,),
        chat_template=model.metadata("tokenizer.chat_template") or "",
    )
    return Tokenizer(vocabulary)


class ChatStream(TurnStream[Token]):
    """A turn being generated in this process. Raises RequestTimeoutError past the deadline and
    EngineLost when the backend fails."""

    def __init__(
        self,
        generation: Generation,
        parser: OutputParser,
        tokenizer: Tokenizer,
        *,
        conversation: str,
        with_logprobs: bool,
        remember: Callable[[Sequence[int], ChatResult], None],
    ) -> None:
        """remember: called with the tokens and the result of a turn that the model ended itself."""
        super().__init__(generation, conversation)
        self._generation = generation
        self._parser = parser
        self._tokenizer = tokenizer
        self._with_logprobs = with_logprobs
        self._remember = remember
        self._output: list[int] = []
        self._logprobs: list[TokenLogprob] = []

    @property
    def tokens(self) -> Sequence[int]:
        """The prompt's tokens and those generated so far."""
        return self._generation.conversation

    @property
    def token_times(self) -> Sequence[float]:
        """When the engine had each generated token, by time.perf_counter()."""
        return self._generation.times

    @property
    def thinking(self) -> bool:
        """Whether the last delta ended inside the model's thinking."""
        return self._parser.thinking

    def _deltas(self, tokens: Sequence[Token]) -> Iterator[ChatDelta]:
        """What these tokens add; an empty list of tokens is the end of the generation."""
        self._output += _output(tokens)
        for deltas in self._fed(tokens):
            if self._parser.stopped:
                self.cancel()
            yield from deltas
        if not tokens or self._parser.stopped:
            yield from self._end()

    def _fed(self, tokens: Sequence[Token]) -> Iterator[list[ChatDelta]]:
        """Of all at once, or of each where it has log-probabilities."""
        if not self._with_logprobs:
            yield self._parser.feed(_output(tokens))
            return
        for token in tokens:
            if not self._parser.stopped:
                yield self._token_deltas(token)

    def _token_deltas(self, token: Token) -> list[ChatDelta]:
        visible = not self._parser.thinking and token.keep != 0
        deltas = self._parser.feed(_output((token,)))
        if not visible or self._parser.thinking or any(delta.tool_calls for delta in deltas):
            return deltas
        self._logprobs.append(self._logprob(token))
        text = deltas[0] if deltas else ChatDelta()
        return [replace(text, logprobs=(self._logprobs[-1],))]

    def _logprob(self, token: Token) -> TokenLogprob:
        def described(token_id: int) -> tuple[str, bytes]:
            utf8 = self._tokenizer.token_bytes(token_id)
            return utf8.decode("utf-8", "replace"), utf8

        top = tuple((*described(token_id), logprob) for token_id, logprob in token.top)
        return TokenLogprob(*described(token.id), token.logprob, top)

    def _end(self) -> list[ChatDelta]:
        stats, parser = self.stats, self._parser
        reason = _END_REASONS.get(self._generation.finish or "stop", "stop")
        deltas = parser.finish("stop" if parser.stopped else reason)
        usage = Usage(
            prompt_tokens=stats.prompt_tokens,
            # The engine goes on behind a stop string until it hears of it: that is no answer's.
            completion_tokens=parser.tokens if parser.stopped else stats.generated,
            cached_tokens=stats.cached_tokens,
            reasoning_tokens=parser.reasoning_tokens,
        )
        result = replace(parser.result(usage), logprobs=tuple(self._logprobs))
        if self._generation.finish == "stop" and not parser.stopped:
            self._remember(self._output, result)
        self._result = result
        return deltas


_END_REASONS: dict[str, EndReason] = {"length": "length", "cancelled": "cancelled"}


def _output(tokens: Sequence[Token]) -> list[int]:
    """Ids that belong to the answer: without the token that ended the generation."""
    return [token.id for token in tokens if token.keep != 0]
