"""Raw text from token ids: what `/v1/completions` generates, without the chat layer."""

from __future__ import annotations

import codecs
import secrets
from array import array
from collections.abc import Sequence

from openjet_provider._core import TokenRequest
from openjet_provider.chat.stream import TurnStream
from openjet_provider.chat.tokenizer import CONTROL, Tokenizer
from openjet_provider.chat.types import (
    ChatDelta,
    ChatRequest,
    ChatResult,
    FinishReason,
    TokenLogprob,
    Usage,
)
from openjet_provider.engine import Engine
from openjet_provider.errors import InvalidRequestError
from openjet_provider.generation import Generation, Token

_REASONS: dict[str, FinishReason] = {"length": "length", "cancelled": "cancelled"}


def prompt_tokens(
    tokenizer: Tokenizer, prompt: str | Sequence[int], most: int | None = None
) -> array[int]:
    """Ids of a prompt; of more than `most`, perhaps not all. Special tokens written in a text count
    as such: its author wrote them.

    Raises InvalidRequestError for ids that the vocabulary does not have.
    """
    if not isinstance(prompt, str):
        if prompt and max(prompt) >= len(tokenizer):
            raise InvalidRequestError(
                f"prompt: {max(prompt)} is no token; this model's are 0 to {len(tokenizer) - 1}"
            )
        return array("i", prompt)
    ids = tokenizer.encode(prompt, parse_special=True, most=most)
    vocabulary = tokenizer.vocabulary
    return array("i", [vocabulary.bos_id]) + ids if vocabulary.add_bos else ids


def start_text(
    engine: Engine, prompt: Sequence[int], options: ChatRequest, stop_tokens: Sequence[int]
) -> TextStream:
    """Queue a continuation of token ids; `options` are a request without messages."""
    generation = engine.generate(
        TokenRequest(
            tokens=prompt,
            client=options.client or "",
            max_tokens=options.max_tokens or 0,
            ignore_eos=options.ignore_eos,
            timeout_s=options.timeout,
            sampling=engine.format.sampling(options, thinking=False),
            stops=options.stop,
            stop_tokens=stop_tokens,
        )
    )
    with_logprobs = options.top_logprobs is not None
    return TextStream(generation, engine.format.tokenizer, with_logprobs=with_logprobs)


class TextStream(TurnStream[Token]):
    """A continuation being generated."""

    thinking = False

    def __init__(
        self, generation: Generation, tokenizer: Tokenizer, *, with_logprobs: bool
    ) -> None:
        super().__init__(generation, f"text-{secrets.token_hex(4)}")
        self._generation = generation
        self._tokenizer = tokenizer
        self._with_logprobs = with_logprobs
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text: list[str] = []
        self._logprobs: list[TokenLogprob] = []

    @property
    def tokens(self) -> Sequence[int]:
        """The prompt's tokens and those generated so far."""
        return self._generation.conversation

    @property
    def usage(self) -> Usage:
        """Of the continuation so far."""
        stats = self.stats
        return Usage(stats.prompt_tokens, stats.generated, stats.cached_tokens)

    def _deltas(self, tokens: Sequence[Token]) -> list[ChatDelta]:
        delta = self._delta(tokens) if tokens else self._end()
        return [] if delta == ChatDelta() else [delta]

    def _end(self) -> ChatDelta:
        rest = self._decoder.decode(b"", final=True)
        self._result = ChatResult(
            content="".join(self._text) + rest,
            reasoning=None,
            tool_calls=(),
            finish_reason=_REASONS.get(self._inbox.finish or "stop", "stop"),
            usage=self.usage,
            logprobs=tuple(self._logprobs),
        )
        return ChatDelta(content=rest)

    def _delta(self, tokens: Sequence[Token]) -> ChatDelta:
        text = self._decoder.decode(b"".join(map(self._bytes, tokens)))
        self._text.append(text)
        if not self._with_logprobs:
            return ChatDelta(content=text)
        found = tuple(self._logprob(token) for token in tokens if token.keep != 0)
        self._logprobs += found
        return ChatDelta(content=text, logprobs=found)

    def _bytes(self, token: Token) -> bytes:
        if self._tokenizer.vocabulary.token_types[token.id] == CONTROL:
            return b""
        kept = self._tokenizer.token_bytes(token.id)
        return kept if token.keep < 0 else kept[: token.keep]

    def _logprob(self, token: Token) -> TokenLogprob:
        def described(token_id: int) -> tuple[str, bytes]:
            utf8 = self._tokenizer.token_bytes(token_id)
            return utf8.decode("utf-8", "replace"), utf8

        top = tuple((*described(other), logprob) for other, logprob in token.top)
        return TokenLogprob(*described(token.id), token.logprob, top)
