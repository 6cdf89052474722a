"""OpenAI's request bodies, and vLLM's extras. Fields that are not listed are ignored."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_INT32 = 2**31 - 1
_MOST_BIASES = 10_000

Count = Annotated[int, Field(ge=0, le=_INT32)]
Positive = Annotated[int, Field(ge=1, le=_INT32)]
Token = Annotated[int, Field(ge=0, le=_INT32)]
StopString = Annotated[str, Field(min_length=1, max_length=256)]
Seconds = Annotated[float, Field(gt=0)]

T = TypeVar("T")
#: A list that is looked at up to the first item that is wrong: there may be millions.
Many = Annotated[list[T], Field(fail_fast=True)]


def _few(value: Any) -> Any:
    if isinstance(value, dict) and len(value) > _MOST_BIASES:
        raise ValueError(f"give at most {_MOST_BIASES:,}")
    return value


Biases = Annotated[dict[str, float], BeforeValidator(_few)]


class Body(BaseModel):
    """A JSON object. Types are not converted: a number in quotes is not a number."""

    model_config = ConfigDict(
        strict=True, extra="ignore", allow_inf_nan=False, protected_namespaces=()
    )


class StreamOptions(Body):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class SamplingBody(Body):
    """How tokens are chosen; what is not given is the file's or the model card's value."""

    temperature: Annotated[float, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=_INT32)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: Annotated[float, Field(gt=0)] | None = None
    seed: int | None = None
    logit_bias: Biases | None = None
    ignore_eos: bool | None = None

    def sampling_options(self) -> dict[str, Any]:
        """By the names of `chat.options`."""
        given = {name: getattr(self, name) for name in SamplingBody.model_fields}
        if given["top_k"] == -1:  # vLLM's way to say none
            given["top_k"] = 0
        return given


class ChatCompletionBody(SamplingBody):
    """POST /v1/chat/completions."""

    model: str | None = None
    messages: Many[dict[str, Any]]
    tools: Many[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    stop: StopString | Many[StopString] | None = None
    stop_token_ids: Many[Token] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    n: int | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    timeout: Seconds | None = None
    reasoning_effort: str | None = None
    enable_thinking: bool | None = None
    preserve_thinking: bool | None = None
    thinking_budget: Count | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    continue_final_message: bool | None = None
    functions: Many[Any] | None = Field(default=None, description="refused: send tools")
    function_call: Any = Field(default=None, description="refused: send tool_choice")


class CompletionBody(SamplingBody):
    """POST /v1/completions: text or token ids go on, without a chat template."""

    model: str | None = None
    # One after another: all at once would keep what is wrong for each.
    prompt: Annotated[
        str | Many[Token] | Many[str] | Many[Many[Token]], Field(union_mode="left_to_right")
    ]
    max_tokens: Positive | None = 16
    stop: StopString | Many[StopString] | None = None
    stop_token_ids: Many[Token] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    n: int | None = None
    best_of: int | None = None
    echo: bool | None = None
    suffix: str | None = None
    user: str | None = None
    timeout: Seconds | None = None


class TokenizeBody(Body):
    """POST /tokenize: either `prompt` or `messages`."""

    model: str | None = None
    prompt: str | None = None
    messages: Many[dict[str, Any]] | None = None
    tools: Many[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: bool = True


class DetokenizeBody(Body):
    """POST /detokenize."""

    model: str | None = None
    tokens: Many[Token]


class SlotBody(Body):
    """POST /slots/{id}?action=save and restore; erase needs none."""

    filename: str
