"""The ASGI application: routes, guards and error bodies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from openjet_provider.errors import OpenJetError
from openjet_provider.server import info, live, openapi, slots
from openjet_provider.server.chat_completions import chat_completions
from openjet_provider.server.completions import completions
from openjet_provider.server.errors import ApiError, describe
from openjet_provider.server.http import CLIENT_CLOSED, Guard, error_response
from openjet_provider.server.messages import count_tokens, messages
from openjet_provider.server.responses import responses
from openjet_provider.server.service import Service

Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]

ROUTES = [
    Route("/v1/chat/completions", chat_completions, methods=["POST"]),
    Route("/v1/completions", completions, methods=["POST"]),
    Route("/v1/responses", responses, methods=["POST"]),
    Route("/v1/messages", messages, methods=["POST"]),
    Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
    Route("/v1/models", info.models),
    Route("/v1/models/{name:path}", info.model),
    Route("/v1/stats", live.stats),
    Route("/v1/stats/stream", live.stats_stream),
    Route("/health", info.health),
    Route("/metrics", info.metrics),
    Route("/tokenize", info.tokenize, methods=["POST"]),
    Route("/detokenize", info.detokenize, methods=["POST"]),
    Route("/slots", slots.slots),
    Route("/slots/{id}", slots.act, methods=["POST"]),
    Route("/openapi.json", openapi.document),
    Route("/", live.page),
    Route("/monitor.js", live.script),
]


@asynccontextmanager
async def _no_lifespan(_: Starlette) -> AsyncIterator[None]:
    yield


def create_app(service: Service, lifespan: Lifespan = _no_lifespan) -> Starlette:
    """The application that serves `service`."""
    settings = service.settings
    guards = [Middleware(Guard, settings=settings)]
    if settings.origins:
        guards.insert(
            0,
            Middleware(
                CORSMiddleware,
                allow_origins=list(settings.origins),
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
                expose_headers=["x-request-id", "retry-after"],
            ),
        )
    app = Starlette(
        routes=ROUTES,
        middleware=guards,
        exception_handlers={
            ApiError: _error,
            OpenJetError: _error,
            HTTPException: _http_error,
            ClientDisconnect: _gone,
            Exception: _error,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.service = service
    return app


async def _error(request: Request, error: Exception) -> Response:
    return error_response(describe(error), request.url.path)


async def _http_error(request: Request, error: Exception) -> Response:
    """Unknown paths and methods."""
    assert isinstance(error, HTTPException)
    path, method = request.url.path, request.method
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        found = ApiError(405, f"{method} is not allowed for {path}; allowed: {allowed}")
    else:
        found = ApiError(error.status_code, f"Unknown request URL: {method} {path}")
    response = error_response(found, path)
    response.headers.update(error.headers or {})
    return response


async def _gone(_: Request, error: Exception) -> Response:
    """Nobody hears this; it is for the log."""
    return Response(status_code=CLIENT_CLOSED)
