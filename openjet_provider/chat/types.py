"""What adapters hand to the chat layer and what they get back. Plain values, no behaviour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

FinishReason = Literal["stop", "length", "tool_calls", "cancelled"]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are chosen. None means: the file's `general.sampling.*`, else the model card's
    preset for thinking or not (docs/defaults.md)."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ChatRequest:
    """One turn to generate.

    messages: OpenAI-shaped mappings (role, content as text or parts, tool_calls, tool_call_id,
        reasoning_content); unknown keys are ignored.
    tools: OpenAI-shaped tool definitions, `{"type": "function", "function": {...}}`.
    stop: stop strings; they count in visible content only.
    max_tokens: of thinking and answer together; None = up to the context.
    enable_thinking, reasoning_effort, preserve_thinking: None = the defaults (docs/defaults.md).
    top_logprobs: alternatives reported with each token's log-probability; None = no report.
    adjusted_logprobs: report them after bias, penalties and mask, not the model's own.
    timeout: seconds until the request is ended with RequestTimeoutError.
    keep_billing_header: leave the line of changing hashes at the head of a system prompt in it.
    client: who asks; decides fairness in the queue. None = derived from the first messages.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: Mapping[str, Any] | None = None
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    ignore_eos: bool = False
    enable_thinking: bool | None = None
    reasoning_effort: str | None = None
    preserve_thinking: bool | None = None
    thinking_budget: int | None = None
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    continue_final_message: bool = False
    keep_billing_header: bool = False
    top_logprobs: int | None = None
    adjusted_logprobs: bool = False
    timeout: float | None = None
    client: str | None = None


@dataclass(frozen=True)
class ToolCall:
    """A finished call. `arguments` is JSON text, always valid."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ToolCallDelta:
    """A piece of a call. The first piece of each index carries id and name and empty arguments."""

    index: int
    id: str | None
    name: str | None
    arguments: str


@dataclass(frozen=True)
class TokenLogprob:
    """Natural-log probability of a visible token, before temperature and filters."""

    token: str
    utf8: bytes
    logprob: float
    top: tuple[tuple[str, bytes, float], ...] = ()


@dataclass(frozen=True)
class ChatDelta:
    """What some generated tokens add, in the order of its fields; empty ones add nothing."""

    reasoning: str = ""
    content: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Usage:
    """Token counts. cached_tokens of the prompt were not computed again; reasoning_tokens are part
    of completion_tokens."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True)
class ChatResult:
    """A finished turn: the sum of its deltas, and why it ended; stop_string: which one ended it."""

    content: str | None
    reasoning: str | None
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason
    usage: Usage
    logprobs: tuple[TokenLogprob, ...] = ()
    stop_string: str | None = None
