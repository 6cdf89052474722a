"""POST /v1/responses: the stateless part of OpenAI's newer interface, which Codex uses."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from openjet_provider.chat.types import ChatDelta, ChatResult, ToolCallDelta, Usage
from openjet_provider.server.errors import ApiError
from openjet_provider.server.http import EventStream, json_response, read_body, unless_gone
from openjet_provider.server.responses_input import ResponsesBody, to_request
from openjet_provider.server.service import Service, client_name
from openjet_provider.server.shapes import KEEP_ALIVE, event, new_id, now

PATH = "/v1/responses"

Item = dict[str, Any]


async def responses(request: Request) -> Response:
    """One answer, as a stream of events or whole."""
    service: Service = request.app.state.service
    body = await read_body(request, ResponsesBody, service.settings)
    model = service.check_model(body.model)
    client = client_name(request.headers, body.user, body.metadata, request.scope["openjet.key"])
    turn = await unless_gone(request, service.chat(to_request(body, client), PATH))
    writer = ResponsesWriter(body, model)
    if body.stream:
        return EventStream(turn, writer, service.settings)
    return json_response(writer.whole(await unless_gone(request, turn.finish())))


class ResponsesWriter:
    """An answer as items (reasoning, message, function_call): each is added, filled and done before
    the next; the last event holds them all."""

    keep_alive = KEEP_ALIVE

    def __init__(self, body: ResponsesBody, model: str) -> None:
        self._response = {
            "id": new_id("resp_"),
            "object": "response",
            "created_at": now(),
            "model": model,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": body.reasoning and body.reasoning.effort, "summary": None},
            "store": False,
            "temperature": body.temperature,
            "text": {"format": (body.text and body.text.format) or {"type": "text"}},
            "tool_choice": body.tool_choice or "auto",
            "tools": body.tools or [],
            "top_p": body.top_p,
            "truncation": "disabled",
        }
        self._output: list[Item] = []
        self._open: Item | None = None
        self._text = ""
        self._sequence = 0

    def start(self) -> bytes:
        response = self._state("in_progress")
        return self._event("created", response=response) + self._event(
            "in_progress", response=response
        )

    def delta(self, delta: ChatDelta) -> bytes:
        out = b""
        if delta.reasoning:
            empty = {"type": "reasoning", "id": new_id("rs_"), "summary": [], "content": []}
            out += self._begin(empty) + self._fill("reasoning_text", delta.reasoning)
        if delta.content:
            empty = {"type": "message", "id": new_id("msg_"), "role": "assistant", "content": []}
            out += self._begin(empty) + self._fill("output_text", delta.content)
        for piece in delta.tool_calls:
            out += self._call(piece)
        return out

    def end(self, result: ChatResult) -> bytes:
        out = self._done()
        response = self._final(result)
        return out + self._event(response["status"], response=response)

    def failed(self, error: ApiError) -> bytes:
        code = error.code or "server_error"
        failure = {"error": {"code": code, "message": error.message}}
        return self._event("failed", response={**self._state("failed"), **failure})

    def whole(self, result: ChatResult) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        self.delta(_as_delta(result))
        self._done()
        return self._final(result)

    def _final(self, result: ChatResult) -> dict[str, Any]:
        usage = {"usage": _usage(result.usage)}
        if result.finish_reason == "length":
            details = {"incomplete_details": {"reason": "max_output_tokens"}}
            return {**self._state("incomplete"), **details, **usage}
        return {**self._state("completed"), **usage}

    def _state(self, status: str) -> dict[str, Any]:
        return {
            **self._response,
            "status": status,
            "output": list(self._output),
            "error": None,
            "incomplete_details": None,
            "usage": None,
        }

    def _call(self, piece: ToolCallDelta) -> bytes:
        out = b""
        if piece.name is not None:
            out = self._done() + self._begin(
                {
                    "type": "function_call",
                    "id": new_id("fc_"),
                    "call_id": piece.id,
                    "name": piece.name,
                    "arguments": "",
                }
            )
        if piece.arguments:
            self._text += piece.arguments
            out += self._of_item("function_call_arguments.delta", delta=piece.arguments)
        return out

    def _begin(self, item: Item) -> bytes:
        """Add an item, unless one of its kind is open."""
        if self._open is not None and self._open["type"] == item["type"]:
            return b""
        out = self._done()
        self._open = {**item, "status": "in_progress"}
        self._text = ""
        index = len(self._output)
        out += self._event("output_item.added", output_index=index, item=self._open)
        if item["type"] != "function_call":
            out += self._of_part("content_part.added", part=self._part())
        return out

    def _fill(self, kind: str, text: str) -> bytes:
        self._text += text
        more: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
        return self._of_part(f"{kind}.delta", delta=text, **more)

    def _done(self) -> bytes:
        """Finish the open item, if there is one."""
        item = self._open
        if item is None:
            return b""
        if item["type"] == "function_call":
            finished = {**item, "arguments": self._text, "status": "completed"}
            name, arguments = item["name"], self._text
            out = self._of_item("function_call_arguments.done", name=name, arguments=arguments)
        else:
            part = self._part()
            finished = {**item, "content": [part], "status": "completed"}
            more: dict[str, Any] = {"logprobs": []} if part["type"] == "output_text" else {}
            out = self._of_part(f"{part['type']}.done", text=self._text, **more)
            out += self._of_part("content_part.done", part=part)
        out += self._event("output_item.done", output_index=len(self._output), item=finished)
        self._output.append(finished)
        self._open = None
        return out

    def _part(self) -> dict[str, Any]:
        assert self._open is not None
        if self._open["type"] == "reasoning":
            return {"type": "reasoning_text", "text": self._text}
        return {"type": "output_text", "text": self._text, "annotations": [], "logprobs": []}

    def _of_part(self, kind: str, **fields: Any) -> bytes:
        return self._of_item(kind, content_index=0, **fields)

    def _of_item(self, kind: str, **fields: Any) -> bytes:
        assert self._open is not None
        index = len(self._output)
        return self._event(kind, item_id=self._open["id"], output_index=index, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        kind = f"response.{kind}"
        number, self._sequence = self._sequence, self._sequence + 1
        return event({"type": kind, "sequence_number": number, **fields}, kind)


def _as_delta(result: ChatResult) -> ChatDelta:
    calls = [
        ToolCallDelta(index, call.id, call.name, call.arguments)
        for index, call in enumerate(result.tool_calls)
    ]
    return ChatDelta(result.reasoning or "", result.content or "", tuple(calls))


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
