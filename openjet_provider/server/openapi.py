"""GET /openapi.json, from the models that check the requests."""

from __future__ import annotations

import functools
import re
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from openjet_provider import __version__
from openjet_provider.server import schemas
from openjet_provider.server.http import json_response
from openjet_provider.server.messages import CountTokensBody, MessagesBody
from openjet_provider.server.responses_input import ResponsesBody
from openjet_provider.server.slot_table import SLOT_ACTIONS

_REF = "#/components/schemas/{model}"


class _Operation(NamedTuple):
    method: str
    path: str
    summary: str
    body: type[BaseModel] | None = None
    media: str = "application/json"
    streams: bool = False


OPERATIONS = (
    _Operation("post", "/v1/chat/completions", "Chat", schemas.ChatCompletionBody, streams=True),
    _Operation("post", "/v1/completions", "Continue a text", schemas.CompletionBody, streams=True),
    _Operation("post", "/v1/responses", "Responses", ResponsesBody, streams=True),
    _Operation("post", "/v1/messages", "Anthropic's messages", MessagesBody, streams=True),
    _Operation("post", "/v1/messages/count_tokens", "Tokens of a prompt", CountTokensBody),
    _Operation("get", "/v1/models", "The model"),
    _Operation("get", "/v1/models/{name}", "The model by name"),
    _Operation("get", "/v1/stats", "Counters and conversations"),
    _Operation("get", "/v1/stats/stream", "The same again and again", media="text/event-stream"),
    _Operation("get", "/health", "200 while requests are taken"),
    _Operation("get", "/metrics", "Prometheus metrics", media="text/plain"),
    _Operation("post", "/tokenize", "Token ids of a text or of messages", schemas.TokenizeBody),
    _Operation("post", "/detokenize", "Text of token ids", schemas.DetokenizeBody),
    _Operation("get", "/slots", "What each slot holds"),
    _Operation("post", "/slots/{id}", "Save, restore or erase a slot", schemas.SlotBody),
    _Operation("get", "/openapi.json", "This document"),
    _Operation("get", "/", "A page that shows the statistics live", media="text/html"),
    _Operation("get", "/monitor.js", "The script of that page", media="text/javascript"),
)

_ERRORS = {
    "400": "The request breaks a rule",
    "401": "No key, or a wrong one",
    "403": "A web page that may not use this server",
    "404": "No such model",
    "408": "The request's time is up",
    "409": "The slot is busy",
    "413": "The body is too large",
    "429": "Too many requests; see Retry-After",
    "500": "The server failed",
    "501": "The server was started without --state-dir",
    "503": "Loading, or shutting down; see Retry-After",
}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


_TEXT, _MAYBE_TEXT = {"type": "string"}, {"type": ["string", "null"]}
# The bodies of ApiError.
_ERROR_SCHEMAS = {
    "Error": _object(error=_object(message=_TEXT, type=_TEXT, param=_MAYBE_TEXT, code=_MAYBE_TEXT)),
    "AnthropicError": _object(type={"const": "error"}, error=_object(type=_TEXT, message=_TEXT)),
}


async def document(_: Request) -> Response:
    """The OpenAPI document."""
    return json_response(_document())


@functools.cache
def _document() -> dict[str, Any]:
    bodies = [operation.body for operation in OPERATIONS if operation.body]
    _, definitions = models_json_schema(
        [(body, "validation") for body in bodies], ref_template=_REF
    )
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _describe(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "OpenJet provider", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**definitions["$defs"], **_ERROR_SCHEMAS},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _describe(operation: _Operation) -> dict[str, Any]:
    content: dict[str, Any] = {operation.media: {}}
    if operation.streams:
        content["text/event-stream"] = {}
    responses: dict[str, Any] = {"200": {"description": "OK", "content": content}}
    shape = "AnthropicError" if operation.path.startswith("/v1/messages") else "Error"
    body = {"schema": {"$ref": _REF.format(model=shape)}}
    for status, what in _ERRORS.items():
        responses[status] = {"description": what, "content": {"application/json": body}}
    out: dict[str, Any] = {"summary": operation.summary, "responses": responses}
    if operation.body is not None:
        reference = {"$ref": _REF.format(model=operation.body.__name__)}
        out["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": reference}},
        }
    if found := re.search(r"\{(\w+)\}", operation.path):
        out["parameters"] = [
            {"name": found[1], "in": "path", "required": True, "schema": {"type": "string"}}
        ]
    if operation.path == "/slots/{id}":
        actions = {"type": "string", "enum": list(SLOT_ACTIONS)}
        out["parameters"].append(
            {"name": "action", "in": "query", "required": True, "schema": actions}
        )
    return out
