"""Every failure as the status and body that each interface's clients know."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

from openjet_provider import errors

log = logging.getLogger("openjet_provider.server")

RETRY_AFTER_S = 2
_LONGEST_MESSAGE = 2000  # characters; requests are quoted in some

# The field that a message of the engine begins with: "messages[0].role: ...", "n=2: ...".
_PARAM = re.compile(r"([a-z_]+(?:\[\d+\]|\.[a-z_]+)*)(?=[=:])")

_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class ApiError(Exception):
    """What a client is told. type, param and code are OpenAI's.

    retry: None leaves it to the client; False tells it not to, a number of seconds tells it when.
    close: the connection is closed behind the answer, because the body may still be coming.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry: float | bool | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message if len(message) <= _LONGEST_MESSAGE else _shortened(message)
        self.type = type
        self.param = param
        self.code = code
        self.retry = retry
        self.close = close

    @property
    def headers(self) -> dict[str, str]:
        """Retry-After, the header by which the official SDKs are told, and `connection: close`."""
        found = {"connection": "close"} if self.close else {}
        if self.retry is None:
            return found
        if self.retry is False:
            return {**found, "x-should-retry": "false"}
        return {**found, "retry-after": str(int(self.retry))}

    def body(self, path: str) -> dict[str, Any]:
        """The JSON body in the shape of the interface that `path` belongs to."""
        if path.startswith("/v1/messages"):
            kind = "invalid_request_error" if self.status < 500 else "api_error"
            kind = _ANTHROPIC_TYPES.get(self.status, kind)
            return {"type": "error", "error": {"type": kind, "message": self.message}}
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }


def _shortened(message: str) -> str:
    half = _LONGEST_MESSAGE // 2
    return f"{message[:half]} ... {message[-half:]}"


def busy(message: str) -> ApiError:
    """Too much at once: the client is to come back."""
    return ApiError(
        429, message, type="rate_limit_error", code="rate_limit_exceeded", retry=RETRY_AFTER_S
    )


def unavailable(message: str, code: str) -> ApiError:
    """Not now: loading, or shutting down."""
    return ApiError(503, message, type="server_error", code=code, retry=RETRY_AFTER_S)


def refused(message: str, param: str | None = None) -> ApiError:
    """A request that breaks a rule."""
    return ApiError(400, message, param=param)


def describe(error: Exception) -> ApiError:
    """What a client is told of an exception. Unexpected ones are logged, not shown."""
    if isinstance(error, ApiError):
        return error
    message = str(error)
    if isinstance(error, errors.ContextOverflowError):
        return ApiError(
            400, _overflow(error), param="messages", code="context_length_exceeded", retry=False
        )
    if isinstance(error, errors.InvalidRequestError):
        found = _PARAM.match(message)
        return refused(message, found[1] if found else None)
    if isinstance(error, errors.EngineBusyError):
        return busy(message)
    if isinstance(error, errors.RequestTimeoutError):
        return ApiError(408, message, type="timeout_error", code="timeout", retry=False)
    if isinstance(error, errors.EngineClosedError):
        return unavailable("the server is shutting down", "shutting_down")
    if isinstance(error, errors.EngineLost):
        return ApiError(500, message, type="server_error", code="engine_lost")
    if isinstance(error, errors.OutOfMemoryError):  # a full disk too; the message names the way out
        return ApiError(507, message, type="server_error", code="insufficient_storage", retry=False)
    if isinstance(error, errors.OpenJetError):
        return ApiError(500, message, type="server_error")
    log.error("unexpected error", exc_info=error)
    return ApiError(500, "internal error; see the server's log", type="server_error")


def _overflow(error: errors.ContextOverflowError) -> str:
    """In the words that clients of both interfaces look for."""
    return (
        f"This model's maximum context length is {error.context} tokens. However, your messages"
        f" resulted in {error.prompt_tokens} tokens (prompt is too long: {error.prompt_tokens}"
        f" tokens > {error.context} maximum). Please reduce the length of the messages."
    )


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def to_json(value: Any) -> bytes:
    """Compact JSON in UTF-8."""
    return _ENCODER.encode(value).encode("utf-8", "replace")
