"""The body of /v1/responses, and its items as messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from openjet_provider.chat.options import chat_request
from openjet_provider.chat.types import ChatRequest
from openjet_provider.server.errors import refused
from openjet_provider.server.schemas import Body, Many, Positive, Seconds


class Reasoning(Body):
    effort: str | None = None


class Text(Body):
    format: dict[str, Any] | None = None


class ResponsesBody(Body):
    """POST /v1/responses: the stateless part, all of the conversation in `input`."""

    model: str | None = None
    input: str | Many[dict[str, Any]]
    instructions: str | None = None
    tools: Many[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    text: Text | None = None
    max_output_tokens: Positive | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    stream: bool | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None
    timeout: Seconds | None = None
    previous_response_id: str | None = Field(default=None, description="refused")
    conversation: Any = Field(default=None, description="refused")
    background: bool | None = Field(default=None, description="refused")


_STATEFUL = ("previous_response_id", "conversation", "background")


def to_request(body: ResponsesBody, client: str | None) -> ChatRequest:
    """Raises ApiError and InvalidRequestError for what cannot be answered."""
    for name in _STATEFUL:
        if getattr(body, name):
            raise refused(f"{name}: nothing is stored here; send the whole `input`", name)
    options: dict[str, Any] = {
        # Flat definitions; tools that run on OpenAI's machines are not offered to the model.
        "tools": [tool for tool in body.tools or () if tool.get("type") == "function"],
        "tool_choice": _tool_choice(body.tool_choice),
        "parallel_tool_calls": body.parallel_tool_calls,
        "reasoning_effort": body.reasoning and body.reasoning.effort,
        "response_format": _response_format(body.text),
        "max_tokens": body.max_output_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "timeout": body.timeout,
        "client": client,
    }
    if not options["tools"]:
        options["tool_choice"] = options["parallel_tool_calls"] = None
    return chat_request(to_messages(body), options)


def _tool_choice(choice: str | Mapping[str, Any] | None) -> Any:
    if isinstance(choice, Mapping):
        if choice.get("type") != "function":
            raise refused(f"tool_choice: {choice.get('type')!r} is not supported", "tool_choice")
        return {"type": "function", "function": {"name": choice.get("name")}}
    return choice


def _response_format(text: Text | None) -> dict[str, Any] | None:
    if text is None or text.format is None:
        return None
    kind = text.format.get("type")
    if kind != "json_schema":
        return {"type": kind}
    schema = {name: value for name, value in text.format.items() if name != "type"}
    return {"type": kind, "json_schema": schema}


def to_messages(body: ResponsesBody) -> list[dict[str, Any]]:
    """Reasoning, text and calls that follow each other are one message of the assistant."""
    out: list[dict[str, Any]] = []
    if body.instructions:
        out.append({"role": "system", "content": body.instructions})
    if isinstance(body.input, str):
        return [*out, {"role": "user", "content": body.input}]
    for index, item in enumerate(body.input):
        kind = item.get("type", "message")
        if kind == "message" and item.get("role") != "assistant":
            out.append({"role": item.get("role"), "content": item.get("content")})
        elif kind == "function_call_output":
            content, call_id = item.get("output"), item.get("call_id")
            out.append({"role": "tool", "tool_call_id": call_id, "content": content})
        elif kind in ("message", "reasoning", "function_call"):
            if not out or out[-1]["role"] != "assistant":
                out.append({"role": "assistant", "content": [], "tool_calls": []})
            _add(out[-1], kind, item)
        elif kind == "item_reference":
            raise refused(f"input[{index}]: nothing is stored here; send the item", "input")
    return out


def _add(message: dict[str, Any], kind: str, item: Mapping[str, Any]) -> None:
    if kind == "reasoning":
        text = _reasoning_text(item.get("content"))
        message["reasoning_content"] = message.get("reasoning_content", "") + text
    elif kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        message["tool_calls"].append(
            {"id": item.get("call_id"), "type": "function", "function": function}
        )
    else:
        content = item.get("content")
        parts = content if isinstance(content, Sequence) and not isinstance(content, str) else ()
        message["content"] += parts or [{"type": "text", "text": content or ""}]


def _reasoning_text(content: Any) -> str:
    parts = content if isinstance(content, list) else ()
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
    return "".join(text for text in texts if isinstance(text, str))
