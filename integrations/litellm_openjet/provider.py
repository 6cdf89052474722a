"""OpenJetLLM: LiteLLM's handler for `openjet/<model>`, and its registration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import httpx
import litellm
from litellm import CustomLLM
from litellm.utils import custom_llm_setup

from litellm_openjet.errors import PROVIDER, litellm_errors
from litellm_openjet.responses import ChunkStream, fill_response
from openjet_provider.chat.options import KNOWN, chat_request
from openjet_provider.handles import Handles
from openjet_provider.models import BUNDLED
from openjet_provider.models import KNOWN as KNOWN_MODELS

if TYPE_CHECKING:
    from litellm.types.utils import ModelResponse

    from openjet_provider.chat.types import ChatRequest
    from openjet_provider.engine import Engine
    from openjet_provider.remote import RemoteEngine

_CLIENT_HEADER = "x-openjet-client"

# What LiteLLM's model map says of every model here. No price: costs are zero, and naming all of
# them keeps LiteLLM from warning about the ones left out.
_CAPABILITIES = {
    "litellm_provider": PROVIDER,
    "mode": "chat",
    "input_cost_per_token": 0.0,
    "output_cost_per_token": 0.0,
    "cache_read_input_token_cost": 0.0,
    "cache_creation_input_token_cost": 0.0,
    "supports_function_calling": True,
    "supports_parallel_function_calling": True,
    "supports_reasoning": True,
    "supports_system_messages": True,
    "supports_native_streaming": True,
    "supports_tool_choice": True,
    "supports_response_schema": True,
}


class OpenJetLLM(CustomLLM):  # type: ignore[misc]  # litellm is not checked
    """Serves `openjet/<model>` from an engine in this process, opened at the first call, or from
    the server that `api_base` or OPENJET_BASE_URL names.

    Any thread, any event loop. Every method takes LiteLLM's keyword arguments. Options that the
    engine does not know are refused with BadRequestError, or dropped under `drop_params`. Errors of
    a streamed call are raised by the call, before the first chunk, wherever they are known by then.
    """

    def __init__(self) -> None:
        super().__init__()
        self._handles = Handles()
        self._described: set[str] = set()

    def completion(self, **call: Any) -> ModelResponse:
        with litellm_errors(call["model"]):
            request = _request(call)
            engine = self._describe(self._handles.get(*_where(call)))
            with engine.chat(request) as stream:
                result = stream.result()
        return fill_response(call["model_response"], result, engine.model_name)

    async def acompletion(self, **call: Any) -> ModelResponse:
        with litellm_errors(call["model"]):
            request = _request(call)
            engine = self._describe(await self._handles.aget(*_where(call)))
            async with await engine.achat(request) as stream:
                result = await stream.aresult()
        return fill_response(call["model_response"], result, engine.model_name)

    def streaming(self, **call: Any) -> ChunkStream:
        """A plain function, not a generator, so that a refused request is refused here."""
        with litellm_errors(call["model"]):
            request = _request(call)
            engine = self._describe(self._handles.get(*_where(call)))
            stream = engine.chat(request)
        return ChunkStream(stream, engine.model_name, call["model_response"])

    def astreaming(self, **call: Any) -> ChunkStream:
        """As `streaming`: LiteLLM calls it in a worker thread and reads the result with
        `async for`."""
        return self.streaming(**call)

    def close(self) -> None:
        """Give the engines back; the last user's frees the model. A later call opens them again."""
        self._handles.close()
        self._described.clear()  # it may have another context then

    def _describe(self, engine: Engine | RemoteEngine) -> Engine | RemoteEngine:
        """Tell LiteLLM the context of a model once it is known."""
        if engine.model_name not in self._described:
            self._described.add(engine.model_name)
            _register_models([engine.model_name], engine.context)
        return engine


def _where(call: Mapping[str, Any]) -> tuple[str, Mapping[str, Any], str | None, str | None]:
    """Model, engine options, server and its key."""
    options = _options(call).get("engine_options") or {}
    return call["model"], options, call.get("api_base"), call.get("api_key")


def _options(call: Mapping[str, Any]) -> dict[str, Any]:
    """The call's options; those of OpenAI clients' `extra_body` are as good as the others."""
    options = dict(call.get("optional_params") or {})
    return options | (options.pop("extra_body", None) or {})


def _request(call: Mapping[str, Any]) -> ChatRequest:
    options = _options(call)
    options.pop("engine_options", None)
    if (call.get("litellm_params") or {}).get("drop_params") or litellm.drop_params:
        options = {name: value for name, value in options.items() if name in KNOWN}
    options.setdefault("timeout", _seconds(call.get("timeout")))
    options.setdefault("client", _client(call))
    return chat_request(call["messages"], options)


def _seconds(timeout: float | httpx.Timeout | None) -> float | None:
    return timeout.read if isinstance(timeout, httpx.Timeout) else timeout


def _client(call: Mapping[str, Any]) -> str | None:
    """Who asks: the `client` argument if it is a name (LiteLLM means an HTTP client by it), the
    header, the user of the metadata; None leaves it to the engine or the server."""
    if isinstance(call.get("client"), str):
        return str(call["client"])
    for name, value in (call.get("headers") or {}).items():
        if name.lower() == _CLIENT_HEADER:
            return str(value)
    metadata = (call.get("litellm_params") or {}).get("metadata") or {}
    user = metadata.get("user_id")
    return None if user is None else str(user)


def _register_models(names: Sequence[str], context: int | None = None) -> None:
    known = _CAPABILITIES
    if context is not None:
        known = known | {"max_input_tokens": context, "max_output_tokens": context}
    litellm.register_model({f"{PROVIDER}/{name}": dict(known) for name in names})


openjet_llm = OpenJetLLM()


def register() -> None:
    """Make LiteLLM send `openjet/...` to `openjet_llm`. May be called again at any time: some code
    replaces LiteLLM's list of providers instead of adding to it."""
    if not any(item["provider"] == PROVIDER for item in litellm.custom_provider_map):
        litellm.custom_provider_map.append({"provider": PROVIDER, "custom_handler": openjet_llm})
    custom_llm_setup()
    _register_models([*KNOWN_MODELS, *BUNDLED])
