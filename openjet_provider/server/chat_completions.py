"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from openjet_provider.chat.options import chat_request
from openjet_provider.chat.types import ChatDelta, ChatRequest, ChatResult, ToolCallDelta, Usage
from openjet_provider.server.errors import ApiError, refused, to_json
from openjet_provider.server.http import EventStream, json_response, read_body, unless_gone
from openjet_provider.server.schemas import ChatCompletionBody, StreamOptions
from openjet_provider.server.service import Service, client_name
from openjet_provider.server.shapes import (
    DONE,
    KEEP_ALIVE,
    chat_logprobs,
    error_event,
    finish_reason,
    new_id,
    now,
    usage_body,
)

PATH = "/v1/chat/completions"

# Fields that reach the engine under their own name.
_OPTIONS = (
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "stop",
    "logprobs",
    "top_logprobs",
    "n",
    "timeout",
    "reasoning_effort",
    "enable_thinking",
    "preserve_thinking",
    "thinking_budget",
    "chat_template_kwargs",
    "continue_final_message",
)


async def chat_completions(request: Request) -> Response:
    """One answer, as a stream of deltas or whole."""
    service: Service = request.app.state.service
    body = await read_body(request, ChatCompletionBody, service.settings)
    model = service.check_model(body.model)
    client = client_name(request.headers, body.user, body.metadata, request.scope["openjet.key"])
    turn = await unless_gone(request, service.chat(to_request(body, client), PATH))
    if body.stream:
        options = body.stream_options or StreamOptions()
        live = (lambda: turn.stream.usage) if options.continuous_usage_stats else None
        writer = ChatWriter(model, bool(options.include_usage), live)
        return EventStream(turn, writer, service.settings)
    return json_response(completion(await unless_gone(request, turn.finish()), model))


def to_request(body: ChatCompletionBody, client: str | None) -> ChatRequest:
    """Raises ApiError and InvalidRequestError for what cannot be answered."""
    if body.functions or body.function_call not in (None, "auto", "none"):
        raise refused("functions: the old form is not supported; send `tools`", "functions")
    if body.stop_token_ids:
        raise refused("stop_token_ids: not supported here; send `stop`", "stop_token_ids")
    options: dict[str, Any] = {name: getattr(body, name) for name in _OPTIONS}
    options |= body.sampling_options()
    options["max_tokens"] = body.max_completion_tokens or body.max_tokens
    options["client"] = client
    if body.tool_choice == "auto" and not body.tools:
        options["tool_choice"] = None
    return chat_request(body.messages, options)


def completion(result: ChatResult, model: str) -> dict[str, Any]:
    """The whole answer."""
    message: dict[str, Any] = {"role": "assistant", "content": result.content, "refusal": None}
    if result.reasoning is not None:
        message["reasoning_content"] = result.reasoning
    if result.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in result.tool_calls
        ]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": chat_logprobs(result.logprobs) if result.logprobs else None,
        "finish_reason": finish_reason(result.finish_reason),
    }
    return {
        "id": new_id("chatcmpl-"),
        "object": "chat.completion",
        "created": now(),
        "model": model,
        "choices": [choice],
        "usage": usage_body(result.usage),
    }


class ChatWriter:
    """The order clients rely on: the role, then reasoning, content and calls as they come (a call's
    id and name in its first piece only), the finish reason, the usage if asked for, [DONE]."""

    keep_alive = KEEP_ALIVE

    def __init__(self, model: str, include_usage: bool, live: Callable[[], Usage] | None) -> None:
        """live: the counts so far, if every chunk is to have them."""
        head = {
            "id": new_id("chatcmpl-"),
            "object": "chat.completion.chunk",
            "created": now(),
            "model": model,
        }
        # What no chunk changes is encoded once: most chunks are a token.
        self._head = b"data: " + to_json(head)[:-1] + b","
        self._plain = b',"logprobs":null,"finish_reason":null}]'
        self._include_usage = include_usage
        self._live = live

    def start(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def delta(self, delta: ChatDelta) -> bytes:
        out = b""
        if delta.reasoning:
            out += self._chunk({"reasoning_content": delta.reasoning})
        if delta.content or delta.logprobs:
            logprobs = chat_logprobs(delta.logprobs) if delta.logprobs else None
            out += self._chunk({"content": delta.content}, logprobs=logprobs)
        for piece in delta.tool_calls:
            out += self._chunk({"tool_calls": [_call(piece)]})
        return out

    def end(self, result: ChatResult) -> bytes:
        out = self._chunk({}, finish=finish_reason(result.finish_reason))
        if self._include_usage:
            usage = to_json(usage_body(result.usage))
            out += self._head + b'"choices":[],"usage":' + usage + b"}\n\n"
        return out + DONE

    def failed(self, error: ApiError) -> bytes:
        return error_event(error, PATH)

    def _chunk(
        self,
        delta: Mapping[str, Any],
        *,
        logprobs: dict[str, Any] | None = None,
        finish: str | None = None,
    ) -> bytes:
        rest = self._plain
        if logprobs is not None or finish is not None:
            rest = b"," + to_json({"logprobs": logprobs, "finish_reason": finish})[1:] + b"]"
        choice = b'"choices":[{"index":0,"delta":' + to_json(delta) + rest
        return self._head + choice + self._usage() + b"}\n\n"

    def _usage(self) -> bytes:
        if self._live is not None:
            return b',"usage":' + to_json(usage_body(self._live()))
        return b',"usage":null' if self._include_usage else b""


def _call(piece: ToolCallDelta) -> dict[str, Any]:
    if piece.name is None:
        return {"index": piece.index, "function": {"arguments": piece.arguments}}
    return {
        "index": piece.index,
        "id": piece.id,
        "type": "function",
        "function": {"name": piece.name, "arguments": piece.arguments},
    }
