"""Request options under the names that clients use, as a ChatRequest. The one place every adapter
and the server come through, so that an option means the same everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from openjet_provider.chat.types import ChatRequest, Sampling
from openjet_provider.errors import InvalidRequestError

_SAMPLING = frozenset(field.name for field in fields(Sampling))
_REQUEST = frozenset(field.name for field in fields(ChatRequest)) - {"messages", "sampling"}

_ALIASES = {"max_completion_tokens": "max_tokens", "stop_sequences": "stop"}

# Accepted without effect: they say how to transport or account for a request, not what to answer.
IGNORED = frozenset(
    {
        "max_retries",
        "metadata",
        "prompt_cache_key",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "stream_options",
    }
)

KNOWN = _REQUEST | _SAMPLING | _ALIASES.keys() | IGNORED | {"logprobs", "n", "user"}


def chat_request(messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> ChatRequest:
    """A request with these options; a value of None leaves an option unset.

    options: fields of ChatRequest and Sampling by name, and OpenAI's `logprobs`, `n` (only 1),
        `user` (the client), `max_completion_tokens`, `stop` as one string; IGNORED has no effect.
    Raises InvalidRequestError naming an unknown option or an impossible value.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if unknown := sorted(given.keys() - KNOWN):
        raise InvalidRequestError(
            f"unknown option {unknown[0]!r}; known are {', '.join(sorted(KNOWN - IGNORED))}"
        )
    if given.get("n", 1) != 1:
        raise InvalidRequestError(f"n={given['n']}: one answer a request; send the request n times")
    for alias, name in _ALIASES.items():
        if alias in given:
            given[name] = given.pop(alias)
    if "max_tokens" in given and not _is_positive(given["max_tokens"]):
        raise InvalidRequestError(
            f"max_tokens={given['max_tokens']!r}: give a whole number from 1, or leave it out to"
            " answer up to the context"
        )
    if isinstance(given.get("stop"), str):
        given["stop"] = (given["stop"],)
    if "user" in given:
        given.setdefault("client", given["user"])
    if "logprobs" in given:
        given.setdefault("top_logprobs", 0)
        if not given["logprobs"]:
            del given["top_logprobs"]
    if "logit_bias" in given:
        given["logit_bias"] = _token_bias(given["logit_bias"])
    return ChatRequest(
        messages=messages,
        sampling=Sampling(**{name: given[name] for name in _SAMPLING & given.keys()}),
        **{name: given[name] for name in _REQUEST & given.keys()},
    )


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _token_bias(bias: Mapping[Any, Any]) -> dict[int, float]:
    try:
        return {int(token): float(value) for token, value in bias.items()}
    except (AttributeError, TypeError, ValueError):
        raise InvalidRequestError(
            f"logit_bias={bias!r}: give a mapping of token ids to numbers"
        ) from None
