"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's interface."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from openjet_provider.chat.options import chat_request
from openjet_provider.chat.types import ChatDelta, ChatRequest, ChatResult, ToolCallDelta, Usage
from openjet_provider.server.errors import ApiError, refused
from openjet_provider.server.http import EventStream, json_response, read_body, unless_gone
from openjet_provider.server.schemas import Body, Count, Many, Positive, Seconds, StopString
from openjet_provider.server.service import Service, client_name
from openjet_provider.server.shapes import event, new_id

PATH = "/v1/messages"

# The interface wants one; a client sends it back, nobody reads it.
_SIGNATURE = "openjet"

_STOP_REASONS = {
    "stop": "end_turn",
    "cancelled": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
}


class Thinking(Body):
    type: str
    budget_tokens: Count | None = None


class ToolChoice(Body):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class OutputConfig(Body):
    effort: str | None = None
    format: dict[str, Any] | None = None


class CountTokensBody(Body):
    """POST /v1/messages/count_tokens."""

    model: str | None = None
    messages: Many[dict[str, Any]]
    system: str | Many[dict[str, Any]] | None = None
    tools: Many[dict[str, Any]] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None


class MessagesBody(CountTokensBody):
    """POST /v1/messages."""

    max_tokens: Positive | None = None
    metadata: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None
    stop_sequences: Many[StopString] | None = None
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_k: Count | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    timeout: Seconds | None = None


async def messages(request: Request) -> Response:
    """One answer, as a stream of events or whole."""
    service: Service = request.app.state.service
    body = await read_body(request, MessagesBody, service.settings)
    served = service.check_model(body.model)
    model = body.model or served
    client = client_name(request.headers, None, body.metadata, request.scope["openjet.key"])
    turn = await unless_gone(request, service.chat(to_request(body, client), PATH))
    if body.stream:
        writer = MessagesWriter(model, turn.stats.prompt_tokens)
        return EventStream(turn, writer, service.settings)
    return json_response(message(await unless_gone(request, turn.finish()), model))


async def count_tokens(request: Request) -> Response:
    """Tokens of the prompt that a request would make."""
    service: Service = request.app.state.service
    body = await read_body(request, CountTokensBody, service.settings)
    service.check_model(body.model)
    counted = chat_request(_messages(body), _prompt_options(body))
    prompt = await service.prompt(counted)
    return json_response({"input_tokens": len(prompt.tokens)})


def to_request(body: MessagesBody, client: str | None) -> ChatRequest:
    """Raises ApiError and InvalidRequestError for what cannot be answered."""
    options: dict[str, Any] = {
        **_prompt_options(body),
        "max_tokens": body.max_tokens,
        "stop": body.stop_sequences,
        "temperature": body.temperature,
        "top_k": body.top_k,
        "top_p": body.top_p,
        "timeout": body.timeout,
        "client": client,
    }
    if body.thinking and body.thinking.type == "enabled":
        options["thinking_budget"] = body.thinking.budget_tokens
    wanted = (body.output_config and body.output_config.format) or body.output_format
    if wanted:
        schema = {"name": "answer", "schema": wanted.get("schema")}
        options["response_format"] = {"type": wanted.get("type"), "json_schema": schema}
    return chat_request(_messages(body), options)


def _prompt_options(body: CountTokensBody) -> dict[str, Any]:
    """What decides the prompt and the calls."""
    # Tools that run on Anthropic's machines have a type of their own and no schema.
    tools = [tool for tool in body.tools or () if tool.get("type", "custom") == "custom"]
    options: dict[str, Any] = {"tools": tools}
    if body.messages and body.messages[-1].get("role") == "assistant":
        options["continue_final_message"] = True
    if body.thinking:
        # "adaptive" leaves it to the model
        options["enable_thinking"] = {"enabled": True, "disabled": False}.get(body.thinking.type)
    if body.output_config:
        options["reasoning_effort"] = body.output_config.effort
    if body.tool_choice:
        options["tool_choice"] = _tool_choice(body.tool_choice)
        if body.tool_choice.disable_parallel_tool_use:
            options["parallel_tool_calls"] = False
    return options


def _tool_choice(choice: ToolChoice) -> Any:
    if choice.type == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    known = {"auto": "auto", "any": "required", "none": "none"}
    if choice.type not in known:
        raise refused(f"tool_choice.type: {choice.type!r} is not auto, any, tool or none")
    return known[choice.type]


def _messages(body: CountTokensBody) -> list[Mapping[str, Any]]:
    """Blocks stay as they are: the chat layer reads them. Each block of the system prompt becomes a
    message of its own, so that a per-request line at the head of one is recognised."""
    system = body.system or ()
    texts = [system] if isinstance(system, str) else [block.get("text") for block in system]
    return [*({"role": "system", "content": text} for text in texts), *body.messages]


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


def _stop(result: ChatResult) -> dict[str, Any]:
    if result.stop_string is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": result.stop_string}
    return {"stop_reason": _STOP_REASONS[result.finish_reason], "stop_sequence": None}


def _head(model: str) -> dict[str, Any]:
    return {"id": new_id("msg_"), "type": "message", "role": "assistant", "model": model}


def message(result: ChatResult, model: str) -> dict[str, Any]:
    """The whole answer."""
    content: list[dict[str, Any]] = []
    if result.reasoning:
        content.append({"type": "thinking", "thinking": result.reasoning, "signature": _SIGNATURE})
    if result.content:
        content.append({"type": "text", "text": result.content})
    for call in result.tool_calls:
        arguments = json.loads(call.arguments)
        content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments})
    return {
        **_head(model),
        "content": content,
        **_stop(result),
        "usage": _usage(result.usage),
    }


class MessagesWriter:
    """Anthropic's order: message_start; each block started, filled and stopped before the next;
    message_delta with the reason and the final counts; message_stop."""

    keep_alive = event({"type": "ping"}, "ping")

    def __init__(self, model: str, prompt_tokens: int) -> None:
        self._model = model
        self._prompt_tokens = prompt_tokens
        self._index = -1
        self._open: str | None = None

    def start(self) -> bytes:
        started = {
            **_head(self._model),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(Usage(prompt_tokens=self._prompt_tokens)),
        }
        return _event("message_start", message=started) + self.keep_alive

    def delta(self, delta: ChatDelta) -> bytes:
        out = b""
        if delta.reasoning:
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            out += self._block("thinking", empty)
            out += self._fill("thinking_delta", thinking=delta.reasoning)
        if delta.content:
            out += self._block("text", {"type": "text", "text": ""})
            out += self._fill("text_delta", text=delta.content)
        for piece in delta.tool_calls:
            out += self._call(piece)
        return out

    def end(self, result: ChatResult) -> bytes:
        return (
            self._stop()
            + _event("message_delta", delta=_stop(result), usage=_usage(result.usage))
            + _event("message_stop")
        )

    def failed(self, error: ApiError) -> bytes:
        return event(error.body(PATH), "error")

    def _call(self, piece: ToolCallDelta) -> bytes:
        out = b""
        if piece.name is not None:
            out = self._stop()
            block: dict[str, Any] = {
                "type": "tool_use",
                "id": piece.id,
                "name": piece.name,
                "input": {},
            }
            out += self._block("tool_use", block)
        if piece.arguments:
            out += self._fill("input_json_delta", partial_json=piece.arguments)
        return out

    def _block(self, kind: str, empty: Mapping[str, Any]) -> bytes:
        """Start a block, unless one of its kind is open."""
        if self._open == kind:
            return b""
        out = self._stop()
        self._open = kind
        self._index += 1
        return out + _event("content_block_start", index=self._index, content_block=empty)

    def _fill(self, kind: str, **delta: str) -> bytes:
        return _event("content_block_delta", index=self._index, delta={"type": kind, **delta})

    def _stop(self) -> bytes:
        if self._open is None:
            return b""
        out = b""
        if self._open == "thinking":
            out = self._fill("signature_delta", signature=_SIGNATURE)
        self._open = None
        return out + _event("content_block_stop", index=self._index)


def _event(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields}, kind)
