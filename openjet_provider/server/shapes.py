"""Pieces that OpenAI's endpoints share."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

from openjet_provider.chat.types import FinishReason, TokenLogprob, Usage
from openjet_provider.server.errors import ApiError, to_json

KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"


def event(value: Any, name: str | None = None) -> bytes:
    """A server-sent event."""
    head = b"" if name is None else f"event: {name}\n".encode()
    return head + b"data: " + to_json(value) + b"\n\n"


def error_event(error: ApiError, path: str) -> bytes:
    """An error in the middle of a stream, in the body's shape."""
    return event(error.body(path))


def new_id(prefix: str) -> str:
    """A fresh id."""
    return f"{prefix}{secrets.token_hex(12)}"


def now() -> int:
    """Seconds since the epoch."""
    return int(time.time())


def finish_reason(reason: FinishReason) -> str:
    """OpenAI has no word for a cancelled answer."""
    return "stop" if reason == "cancelled" else reason


def usage_body(usage: Usage) -> dict[str, Any]:
    """Token counts."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def chat_logprobs(items: Sequence[TokenLogprob]) -> dict[str, Any]:
    """Log-probabilities as the chat endpoint has them."""

    def entry(token: str, utf8: bytes, logprob: float) -> dict[str, Any]:
        return {"token": token, "logprob": logprob, "bytes": list(utf8)}

    content = [
        {
            **entry(item.token, item.utf8, item.logprob),
            "top_logprobs": [entry(*other) for other in item.top],
        }
        for item in items
    ]
    return {"content": content, "refusal": None}
