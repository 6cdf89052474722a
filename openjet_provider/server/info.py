"""What a server says of itself: models, health, metrics; tokens of a text and back."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from openjet_provider.chat.options import chat_request
from openjet_provider.server.errors import refused
from openjet_provider.server.http import json_response, read_body
from openjet_provider.server.metrics import CONTENT_TYPE
from openjet_provider.server.schemas import DetokenizeBody, TokenizeBody
from openjet_provider.server.service import Service
from openjet_provider.server.text import prompt_tokens


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def health(request: Request) -> Response:
    """200 while requests are taken; 503 while loading or shutting down."""
    _ = _service(request).engine
    return json_response({"status": "ok"})


async def metrics(request: Request) -> Response:
    """Prometheus' text format."""
    return Response(_service(request).metrics.text(), headers={"content-type": CONTENT_TYPE})


async def models(request: Request) -> Response:
    """The one model, as a list."""
    return json_response({"object": "list", "data": [_model(_service(request))]})


async def model(request: Request) -> Response:
    """The model by its name or an alias."""
    service, name = _service(request), request.path_params["name"]
    service.check_model(name)
    return json_response({**_model(service), "id": name})


def _model(service: Service) -> dict[str, Any]:
    engine = service.engine
    return {
        "id": engine.model_name,
        "object": "model",
        "created": int(service.started),
        "owned_by": "openjet",
        "max_model_len": engine.context,
    }


async def tokenize(request: Request) -> Response:
    """Token ids of a text, or of the prompt that messages make."""
    service = _service(request)
    body = await read_body(request, TokenizeBody, service.settings)
    service.check_model(body.model)
    engine = service.engine
    if (body.prompt is None) == (body.messages is None):
        raise refused("prompt: send either `prompt` or `messages`", "prompt")

    def text_tokens() -> list[int]:
        tokenizer, text = engine.format.tokenizer, body.prompt or ""
        return list(
            prompt_tokens(tokenizer, text) if body.add_special_tokens else tokenizer.encode(text)
        )

    if body.messages is None:
        tokens = await asyncio.to_thread(text_tokens)
    else:
        options = {"tools": body.tools, "chat_template_kwargs": body.chat_template_kwargs}
        tokens = list((await service.prompt(chat_request(body.messages, options))).tokens)
    return json_response({"count": len(tokens), "max_model_len": engine.context, "tokens": tokens})


async def detokenize(request: Request) -> Response:
    """The text of token ids."""
    service = _service(request)
    body = await read_body(request, DetokenizeBody, service.settings)
    service.check_model(body.model)
    tokenizer = service.engine.format.tokenizer
    tokens = prompt_tokens(tokenizer, body.tokens)
    return json_response({"prompt": await asyncio.to_thread(tokenizer.decode, tokens)})
