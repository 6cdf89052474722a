"""LangChain messages to the engine's OpenAI-shaped ones, and the engine's answers back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata
from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk

from openjet_provider.chat.types import ChatDelta, ChatResult, TokenLogprob, Usage

PROVIDER = "openjet"

_ROLES = {SystemMessage: "system", HumanMessage: "user", FunctionMessage: "tool"}


def to_openai(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """One mapping per message. Content goes as it is, blocks included: what the model can read of
    it is for the engine's chat layer to say, the same for every adapter."""
    return [_to_openai(message) for message in messages]


def _to_openai(message: BaseMessage) -> dict[str, Any]:
    out: dict[str, Any] = {"content": message.content}
    if message.name is not None:
        out["name"] = message.name
    if isinstance(message, AIMessage):
        return out | _assistant(message)
    if isinstance(message, ToolMessage):
        return out | {
            "role": "tool",
            "tool_call_id": message.tool_call_id,
            "content": _tool_content(message),
        }
    if isinstance(message, ChatMessage):
        return out | {"role": message.role}
    for kind, role in _ROLES.items():
        if isinstance(message, kind):
            return out | {"role": role}
    raise TypeError(
        f"ChatOpenJet cannot send a {type(message).__name__}; use System-, Human-, AI-, Tool- or"
        " ChatMessage"
    )


def _assistant(message: AIMessage) -> dict[str, Any]:
    out: dict[str, Any] = {"role": "assistant"}
    if reasoning := message.additional_kwargs.get("reasoning_content"):
        out["reasoning_content"] = reasoning
    calls = [
        _call(call["id"], call["name"], json.dumps(call["args"], ensure_ascii=False))
        for call in message.tool_calls
    ] + [
        _call(call["id"], call["name"] or "", call["args"] or "")
        for call in message.invalid_tool_calls
    ]
    if calls:
        out["tool_calls"] = calls
    return out


def _tool_content(message: ToolMessage) -> str | list[Any]:
    """A failed call is said in words: the chat format has no other place for it."""
    content = message.content
    if message.status != "error" or str(message.text).lower().startswith("error"):
        return content
    return f"Error: {content}" if isinstance(content, str) else ["Error: ", *content]


def _call(call_id: str | None, name: str, arguments: str) -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def usage_metadata(usage: Usage) -> UsageMetadata:
    return UsageMetadata(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        input_token_details=InputTokenDetails(cache_read=usage.cached_tokens),
        output_token_details=OutputTokenDetails(reasoning=usage.reasoning_tokens),
    )


def logprobs_metadata(logprobs: Sequence[TokenLogprob]) -> dict[str, Any]:
    """`{"logprobs": {"content": [...]}}` in OpenAI's shape, or nothing."""

    def entry(token: str, utf8: bytes, logprob: float) -> dict[str, Any]:
        return {"token": token, "bytes": list(utf8), "logprob": logprob}

    if not logprobs:
        return {}
    content = [
        entry(item.token, item.utf8, item.logprob)
        | {"top_logprobs": [entry(*alternative) for alternative in item.top]}
        for item in logprobs
    ]
    return {"logprobs": {"content": content}}


def to_ai_message(result: ChatResult, model_name: str) -> AIMessage:
    calls, broken = [], []
    for call in result.tool_calls:
        arguments = json.loads(call.arguments)
        if isinstance(arguments, dict):
            calls.append(tool_call(name=call.name, args=arguments, id=call.id))
        else:
            error = "the arguments are not an object"
            broken.append(
                invalid_tool_call(name=call.name, args=call.arguments, id=call.id, error=error)
            )
    return AIMessage(
        content=result.content or "",
        additional_kwargs={"reasoning_content": result.reasoning} if result.reasoning else {},
        tool_calls=calls,
        invalid_tool_calls=broken,
        usage_metadata=usage_metadata(result.usage),
        response_metadata=response_metadata(result, model_name)
        | logprobs_metadata(result.logprobs),
    )


def response_metadata(result: ChatResult, model_name: str) -> dict[str, Any]:
    return {
        "model_name": model_name,
        "model_provider": PROVIDER,
        "finish_reason": result.finish_reason,
    }


class ChunkWriter:
    """Turns deltas into message chunks, one kind of content each.

    Blocks are numbered in the order they begin (reasoning, text, each call). LangChain merges
    blocks and calls of equal index, and with output_version "v1" would number the text itself
    without looking at the calls' indices, so that a call could be merged into the reasoning: in
    that version the content is written as numbered blocks here.
    """

    def __init__(self, output_version: str | None) -> None:
        self._v1 = output_version == "v1"
        self._last: tuple[str, int] | None = None
        self._index = -1
        self._calls: dict[int, int] = {}

    def chunks(self, delta: ChatDelta) -> Iterator[AIMessageChunk]:
        block: dict[str, Any]
        if delta.reasoning:
            block = {"type": "reasoning", "reasoning": delta.reasoning}
            yield self._chunk(
                self._number("reasoning"),
                block,
                text="",
                additional_kwargs={"reasoning_content": delta.reasoning},
            )
        if delta.content:
            block = {"type": "text", "text": delta.content}
            yield self._chunk(self._number("text"), block, text=delta.content)
        if delta.logprobs:
            yield self._empty(response_metadata=logprobs_metadata(delta.logprobs))
        for call in delta.tool_calls:
            number = self._calls.get(call.index)
            if number is None:
                number = self._calls[call.index] = self._number("call", call.index)
            block = {
                "type": "tool_call_chunk",
                "id": call.id,
                "name": call.name,
                "args": call.arguments,
            }
            piece = tool_call_chunk(name=call.name, args=call.arguments, id=call.id, index=number)
            yield self._chunk(number, block, text="", tool_call_chunks=[piece])

    def last(self, result: ChatResult, model_name: str) -> AIMessageChunk:
        """The one chunk with usage and metadata; it closes the message."""
        return self._empty(
            chunk_position="last",
            usage_metadata=usage_metadata(result.usage),
            response_metadata=response_metadata(result, model_name),
        )

    def _number(self, kind: str, call: int = 0) -> int:
        if (kind, call) != self._last:
            self._last = (kind, call)
            self._index += 1
        return self._index

    def _chunk(
        self, index: int, block: dict[str, Any], *, text: str, **fields: Any
    ) -> AIMessageChunk:
        if not self._v1:
            return AIMessageChunk(content=text, **fields)
        fields.pop("additional_kwargs", None)  # the block says it
        return AIMessageChunk(
            content=[{**block, "index": index}],
            response_metadata={"output_version": "v1"},
            **fields,
        )

    def _empty(self, *, response_metadata: dict[str, Any], **fields: Any) -> AIMessageChunk:
        version = {"output_version": "v1"} if self._v1 else {}
        return AIMessageChunk(
            content=[] if self._v1 else "",
            response_metadata={**response_metadata, **version},
            **fields,
        )
