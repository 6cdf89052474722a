"""Defaults that are the same on every surface; docs/defaults.md is their table."""

from __future__ import annotations

from dataclasses import dataclass

AGENTS = 4
KV = "q8_0"
BACKEND = "auto"
QUEUE = 64
QUEUE_CLIENT = 16
STEP_TARGET = 2.5  # a step with prompt rows takes at most this many ordinary ones
MIN_PROMPT_ROWS = 1
DRAFTS = 2
DRAFT_HEAD_ROWS = 40960  # tokens that MTP drafts are chosen from, in a vocabulary of twice as many
HOST_CACHE = 8 << 30  # bytes of host memory for conversations the pool has no room for, at most
STATE_BYTES = 32 << 30  # bytes of files in a state directory
REASONING_EFFORT = "medium"
THINKING_BUDGET = 8192


@dataclass(frozen=True)
class SamplingPreset:
    """Sampling a model card recommends; a file's `general.sampling.*` comes before it."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    presence_penalty: float


QWEN_THINKING = SamplingPreset(1.0, 20, 0.95, 0.0, 0.0)
QWEN_ANSWERING = SamplingPreset(0.7, 20, 0.8, 0.0, 1.5)
OPENJET_TINY = SamplingPreset(1.0, 20, 0.95, 0.0, 0.0)


def preset(model: str, thinking: bool) -> SamplingPreset:
    """What the card of the model with this `general.name` recommends."""
    if model.lower().startswith("openjet"):
        return OPENJET_TINY
    return QWEN_THINKING if thinking else QWEN_ANSWERING
