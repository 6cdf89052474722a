"""ChatOpenJet: the OpenJet engine as a LangChain chat model."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput, ModelProfile
from langchain_core.language_models.base import LangSmithParams
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableMap, RunnablePassthrough
from langchain_core.tools import BaseTool
from pydantic import AliasChoices, ConfigDict, Field, PrivateAttr

from langchain_openjet import structured
from langchain_openjet.errors import langchain_errors
from langchain_openjet.messages import ChunkWriter, to_ai_message, to_openai
from openjet_provider.chat.options import chat_request
from openjet_provider.chat.types import ChatRequest
from openjet_provider.handles import Handles, server_url
from openjet_provider.models import default_model

if TYPE_CHECKING:
    from openjet_provider.chat.stream import TurnStream
    from openjet_provider.engine import Engine
    from openjet_provider.remote import RemoteEngine

ToolLike = Mapping[str, Any] | type | Callable[..., Any] | BaseTool

# Fields that are sent with every request under their own name.
_REQUEST_FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "logit_bias",
    "max_tokens",
    "stop",
    "logprobs",
    "top_logprobs",
    "reasoning_effort",
    "preserve_thinking",
    "thinking_budget",
    "chat_template_kwargs",
    "timeout",
    "client",
)


class ChatOpenJet(BaseChatModel):
    """A local model served by the OpenJet engine, in this process or by `openjet serve`.

    The constructor does no work: the engine is opened by the first call and shared by every
    ChatOpenJet, LiteLLM call and Engine of the process that names the same model. All methods may
    be called from any thread and any event loop; the requests of several agents are answered
    together. Every field can be overridden in a call or with `bind`.

        llm = ChatOpenJet(model="openjet-tiny", temperature=0)
        llm.invoke("Hello")

    Errors: OpenJetContextOverflowError, OpenJetInvalidRequestError, OpenJetRateLimitError,
    OpenJetTimeoutError, OpenJetModelNotFoundError (each is LangChain's class and the engine's),
    and otherwise the classes of `openjet_provider.errors`.
    """

    model_config = ConfigDict(populate_by_name=True, extra="forbid", protected_namespaces=())

    model: str | None = Field(default=None, validation_alias=AliasChoices("model", "model_name"))
    """A name or the path of a GGUF file. None: OPENJET_MODEL, else qwen3.8-27b."""
    engine_options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of `openjet_provider.Engine`: agents, context, kv, device, backend, ..."""
    base_url: str | None = None
    """A server (`openjet serve`) to use instead of an engine in this process; OPENJET_BASE_URL."""
    api_key: Any = Field(default=None, exclude=True, repr=False)
    """For a server that asks for one (OPENJET_API_KEY); an engine in this process does not."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    logit_bias: dict[int, float] | None = None
    """Sampling; None means the model file's or the model card's value (docs/defaults.md)."""
    max_tokens: int | None = Field(
        default=None, validation_alias=AliasChoices("max_tokens", "max_completion_tokens")
    )
    """Thinking and answer together; None: up to the context."""
    stop: list[str] | None = Field(
        default=None, validation_alias=AliasChoices("stop", "stop_sequences")
    )
    """Stop strings, looked for in the visible answer only."""
    logprobs: bool | None = None
    top_logprobs: int | None = None

    reasoning: bool | None = None
    """False: no thinking. None: the model's default."""
    reasoning_effort: str | None = None
    """xhigh, medium or low."""
    preserve_thinking: bool | None = None
    thinking_budget: int | None = None
    """Thinking tokens after which the model is made to answer."""
    chat_template_kwargs: dict[str, Any] | None = None

    timeout: float | None = Field(
        default=None, validation_alias=AliasChoices("timeout", "request_timeout")
    )
    """Seconds until a request is ended with OpenJetTimeoutError."""
    max_retries: int | None = None
    """Accepted for compatibility: a request that has started is never sent again."""
    streaming: bool | None = None
    """Whether `invoke` goes through `stream` (for callbacks that want tokens)."""
    client: str | None = None
    """Who asks: decides fairness in the queue. None: derived from the first messages."""
    model_kwargs: dict[str, Any] = Field(default_factory=dict)
    """More options of a request, by the names of `openjet_provider.chat.types.ChatRequest`."""

    watch: Callable[[Any], None] | None = Field(default=None, exclude=True, repr=False)
    """Called with the `TurnStream` of every request as it starts: its `stats` are live, from the
    prompt being read on, and `cancel()` ends it. Runs in the caller's thread or event loop."""

    _handles: Handles = PrivateAttr(default_factory=Handles)

    @property
    def _llm_type(self) -> str:
        return "openjet-chat"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        """Everything that decides an answer; LangChain's caches use it as their key."""
        return {
            "model": self.model or default_model(),
            "base_url": server_url(self.base_url),
            "engine_options": self.engine_options,
            **self._own_options(),
        }

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop or self.stop, **kwargs)
        params["ls_provider"] = "openjet"
        params.setdefault("ls_model_name", default_model())
        return params

    def _resolve_model_profile(self) -> ModelProfile:
        """What this version can do; the context is known only once the engine is open, unless an
        option names it."""
        profile = ModelProfile(
            text_inputs=True,
            text_outputs=True,
            image_inputs=False,
            audio_inputs=False,
            video_inputs=False,
            pdf_inputs=False,
            reasoning_output=True,
            tool_calling=True,
            tool_call_streaming=True,
            tool_choice=True,
            structured_output=True,
        )
        context = self.engine_options.get("context") or os.environ.get("OPENJET_CONTEXT")
        if context:
            profile["max_input_tokens"] = profile["max_output_tokens"] = int(context)
        return profile

    def _where(self, model: str | None) -> tuple[str | None, dict[str, Any], str | None, Any]:
        """Model, engine options, server and its key."""
        key = self.api_key
        secret = key.get_secret_value() if hasattr(key, "get_secret_value") else key
        return model or self.model, self.engine_options, self.base_url, secret

    def _engine(self, model: str | None) -> Engine | RemoteEngine:
        """The engine of a model, opened at first use. Blocks while it opens."""
        return self._with_context(self._handles.get(*self._where(model)))

    async def _aengine(self, model: str | None) -> Engine | RemoteEngine:
        return self._with_context(await self._handles.aget(*self._where(model)))

    def _with_context(self, engine: Engine | RemoteEngine) -> Engine | RemoteEngine:
        if self.profile is not None:
            self.profile.setdefault("max_input_tokens", engine.context)
            self.profile.setdefault("max_output_tokens", engine.context)
        return engine

    def _watched(self, stream: TurnStream[Any]) -> None:
        if self.watch is not None:
            self.watch(stream)

    def _own_options(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in _REQUEST_FIELDS}
        options["enable_thinking"] = self.reasoning
        return {**options, **self.model_kwargs}

    def _request(
        self, messages: Sequence[BaseMessage], stop: list[str] | None, options: dict[str, Any]
    ) -> ChatRequest:
        """This model's options, a call's over them. Raises InvalidRequestError naming a bad one."""
        if "reasoning" in options:
            options["enable_thinking"] = options.pop("reasoning")
        if "response_format" in options:
            options["response_format"] = structured.response_format(options["response_format"])
        if stop is not None:
            options["stop"] = stop
        return chat_request(to_openai(messages), {**self._own_options(), **options})

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        *,
        model: str | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        with langchain_errors():
            engine = self._engine(model)
            with engine.chat(self._request(messages, stop, kwargs)) as stream:
                self._watched(stream)
                result = stream.result()
        return _chat_result(to_ai_message(result, engine.model_name))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        *,
        model: str | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        with langchain_errors():
            engine = await self._aengine(model)
            async with await engine.achat(self._request(messages, stop, kwargs)) as stream:
                self._watched(stream)
                result = await stream.aresult()
        return _chat_result(to_ai_message(result, engine.model_name))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        *,
        model: str | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        writer = ChunkWriter(self.output_version)
        with langchain_errors():
            engine = self._engine(model)
            with engine.chat(self._request(messages, stop, kwargs)) as stream:
                self._watched(stream)
                for delta in stream:
                    for message in writer.chunks(delta):
                        chunk = ChatGenerationChunk(message=message)
                        if run_manager:
                            run_manager.on_llm_new_token(_text(message), chunk=chunk)
                        yield chunk
                result = stream.result()
        yield ChatGenerationChunk(message=writer.last(result, engine.model_name))

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        *,
        model: str | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        writer = ChunkWriter(self.output_version)
        with langchain_errors():
            engine = await self._aengine(model)
            async with await engine.achat(self._request(messages, stop, kwargs)) as stream:
                self._watched(stream)
                async for delta in stream:
                    for message in writer.chunks(delta):
                        chunk = ChatGenerationChunk(message=message)
                        if run_manager:
                            await run_manager.on_llm_new_token(_text(message), chunk=chunk)
                        yield chunk
                result = await stream.aresult()
        yield ChatGenerationChunk(message=writer.last(result, engine.model_name))

    def bind_tools(
        self,
        tools: Sequence[ToolLike],
        *,
        tool_choice: str | bool | Mapping[str, Any] | None = None,
        strict: bool | None = None,
        parallel_tool_calls: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Tools the model may call.

        tool_choice: "auto" (default), "none", "any" or "required" or True, a tool's name, or
            OpenAI's mapping. parallel_tool_calls: False allows one call a turn.
        """
        formatted = [structured.openai_tool(tool, strict=strict) for tool in tools]
        if tool_choice:
            kwargs["tool_choice"] = structured.tool_choice(tool_choice, formatted)
        if parallel_tool_calls is not None:
            kwargs["parallel_tool_calls"] = parallel_tool_calls
        return self.bind(tools=formatted, **kwargs)

    def with_structured_output(
        self,
        schema: dict[str, Any] | type,
        *,
        method: Literal["json_schema", "function_calling", "json_mode"] = "json_schema",
        include_raw: bool = False,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, Any]:
        """Answers as objects of `schema` (a Pydantic class, TypedDict or JSON schema).

        include_raw: a mapping with raw, parsed and parsing_error instead of an exception.
        """
        options = structured.options(schema, method=method, strict=strict)
        asked = {"method": method} if strict is None else {"method": method, "strict": strict}
        described = {"kwargs": asked, "schema": schema}
        llm = self.bind(ls_structured_output_format=described, **options, **kwargs)
        parser = structured.parser(schema, method)
        if not include_raw:
            return llm | parser
        parsed = RunnablePassthrough.assign(
            parsed=itemgetter("raw") | parser, parsing_error=lambda _: None
        )
        failed = RunnablePassthrough.assign(parsed=lambda _: None)
        return RunnableMap(raw=llm) | parsed.with_fallbacks([failed], exception_key="parsing_error")

    def close(self) -> None:
        """Give the engines back; the last user's frees the model. A later call opens them again."""
        self._handles.close()

    def get_token_ids(self, text: str) -> list[int]:
        """The model's own token ids of plain text. Opens the engine."""
        if self.custom_get_token_ids is not None:
            return self.custom_get_token_ids(text)
        with langchain_errors():
            return self._engine(None).tokenize(text)

    def get_num_tokens_from_messages(
        self, messages: list[BaseMessage], tools: Sequence[ToolLike] | None = None
    ) -> int:
        """Tokens of the whole rendered prompt, tools included. Opens the engine."""
        formatted = [structured.openai_tool(tool) for tool in tools or ()]
        with langchain_errors():
            return self._engine(None).count_tokens(to_openai(messages), formatted)


def _chat_result(message: AIMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message)])


def _text(message: AIMessageChunk) -> str:
    return str(message.text)
