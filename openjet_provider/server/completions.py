"""POST /v1/completions: text or token ids go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from openjet_provider.chat.options import chat_request
from openjet_provider.chat.types import ChatDelta, ChatRequest, ChatResult, TokenLogprob
from openjet_provider.server.errors import ApiError, refused
from openjet_provider.server.http import EventStream, json_response, read_body, unless_gone
from openjet_provider.server.schemas import CompletionBody
from openjet_provider.server.service import Service, client_name
from openjet_provider.server.shapes import (
    DONE,
    KEEP_ALIVE,
    error_event,
    event,
    finish_reason,
    new_id,
    now,
    usage_body,
)

PATH = "/v1/completions"


async def completions(request: Request) -> Response:
    """One continuation, as a stream or whole."""
    service: Service = request.app.state.service
    body = await read_body(request, CompletionBody, service.settings)
    model = service.check_model(body.model)
    client = client_name(request.headers, body.user, None, request.scope["openjet.key"])
    start = service.complete(
        _prompt(body.prompt), to_options(body, client), body.stop_token_ids or (), PATH
    )
    turn = await unless_gone(request, start)
    include_usage = bool(body.stream_options and body.stream_options.include_usage)
    writer = TextWriter(model, include_usage)
    if body.stream:
        return EventStream(turn, writer, service.settings)
    return json_response(writer.whole(await unless_gone(request, turn.finish())))


def to_options(body: CompletionBody, client: str | None) -> ChatRequest:
    """Raises ApiError and InvalidRequestError for what cannot be answered."""
    if body.echo:
        raise refused("echo: not supported; put the prompt before the text yourself", "echo")
    if body.suffix:
        raise refused(
            "suffix: send the model's own fill-in-the-middle tokens in `prompt`", "suffix"
        )
    if body.best_of not in (None, 1):
        raise refused(f"best_of={body.best_of}: one answer a request", "best_of")
    stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if any("\0" in stop for stop in stops):
        raise refused("stop: must not hold NUL characters", "stop")
    options: dict[str, Any] = {
        **body.sampling_options(),
        "max_tokens": body.max_tokens,
        "stop": stops,
        "n": body.n,
        "timeout": body.timeout,
        "client": client,
        "top_logprobs": body.logprobs,
    }
    return chat_request((), options)


def _prompt(prompt: str | Sequence[Any]) -> str | list[int]:
    """OpenAI's four forms; a batch of one is what some clients always send."""
    if isinstance(prompt, str):
        return prompt
    if prompt and not isinstance(prompt[0], int):
        if len(prompt) > 1:
            raise refused("prompt: one prompt a request; send a request for each", "prompt")
        return _prompt(prompt[0])
    return list(prompt)


class TextWriter:
    """Chunks with the legacy shape of log-probabilities, whole or streamed."""

    keep_alive = KEEP_ALIVE

    def __init__(self, model: str, include_usage: bool) -> None:
        self._head = {
            "id": new_id("cmpl-"),
            "object": "text_completion",
            "created": now(),
            "model": model,
        }
        self._usage: dict[str, None] = {"usage": None} if include_usage else {}
        self._offset = 0

    def start(self) -> bytes:
        return b""

    def delta(self, delta: ChatDelta) -> bytes:
        return event({**self._head, **self._choice(delta.content, delta.logprobs), **self._usage})

    def end(self, result: ChatResult) -> bytes:
        finish = finish_reason(result.finish_reason)
        out = event({**self._head, **self._choice("", (), finish), **self._usage})
        if self._usage:
            out += event({**self._head, "choices": [], "usage": usage_body(result.usage)})
        return out + DONE

    def failed(self, error: ApiError) -> bytes:
        return error_event(error, PATH)

    def whole(self, result: ChatResult) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        finish = finish_reason(result.finish_reason)
        choice = self._choice(result.content or "", result.logprobs, finish)
        return {**self._head, **choice, "usage": usage_body(result.usage)}

    def _choice(
        self, text: str, logprobs: Sequence[TokenLogprob], finish: str | None = None
    ) -> dict[str, Any]:
        choice = {
            "index": 0,
            "text": text,
            "logprobs": self._logprobs(logprobs) if logprobs else None,
            "finish_reason": finish,
        }
        return {"choices": [choice]}

    def _logprobs(self, items: Sequence[TokenLogprob]) -> dict[str, Any]:
        offsets = []
        for item in items:
            offsets.append(self._offset)
            self._offset += len(item.token)
        return {
            "tokens": [item.token for item in items],
            "token_logprobs": [item.logprob for item in items],
            "top_logprobs": [{token: logprob for token, _, logprob in item.top} for item in items],
            "text_offset": offsets,
        }
