"""The mix of episodes, whole documents, and rows of tokens packed for training."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
from tokenizers import Tokenizer

from . import agents, chat, coding, frameworks, open_ended, tool_use, typed
from .conversation import Conversation, Split, tokenise
from .tool_specs import distractors, shuffled_specs, spec

EPISODES = {
    **tool_use.EPISODES, "coding": coding.coding, **chat.EPISODES, **open_ended.EPISODES, **frameworks.EPISODES, **agents.EPISODES, **typed.EPISODES,
}  # fmt: skip
_WEIGHTS = {
    "single": 24, "parallel": 14, "chained": 6, "missing": 8, "error": 3, "coding": 21,
    "greeting": 4, "question": 18, "memory": 2, "reading": 11, "structured": 6, "made_up": 2,
    "story": 2.5, "poem": 2, "listing": 3, "pick": 1.5,
    "supervisor": 1.5, "handoff": 1.5, "plan": 1.5, "react": 2.5, "observation": 2.5, "final_tool": 1.5, "todo": 1, "crew": 3, "summary": 1,
    "triage": 5, "handed_over": 2.5, "sub_agent": 2.5, "typed_final": 3, "observed": 3, "build_on": 3,
    "schema_final": 4, "typed_text": 2.5, "shaped": 4.5, "forced": 2,
}  # fmt: skip
_ALONE = {
    "react",
    "supervisor",
    "final_tool",
    *agents.EPISODES,
    "forced",
    "schema_final",
    "typed_text",
}  # these bring their own frame
_WORDY_SHARE = 0.12  # of documents with tools: descriptions as long as a manual
CHUNK = 64  # documents are padded to whole chunks of the delta rule
SHORT_ROW, LONG_ROW = 2048, 8192


def document(
    rng: random.Random, held_out: bool = False, kind: str = "", turns: int = 1
) -> Conversation:
    """A conversation of `turns` episodes; the first one is of this kind (default: drawn)."""
    thinking = rng.random() < 0.55
    effort = rng.choices(("medium", "xhigh", "low"), (70, 15, 15))[0] if thinking else "medium"
    conv = Conversation(rng, Split(held_out), thinking=thinking, effort=effort)
    conv.kind = kind or _draw(rng)
    EPISODES[conv.kind](conv)
    own_system = conv.messages[0]["role"] == "system"
    for _ in range(turns - 1):
        follow = conv.kind if conv.kind == "coding" and rng.random() < 0.5 else _draw(rng)
        if follow not in _ALONE and not (follow == "missing" and conv.kind == "coding"):
            EPISODES[follow](conv)
    if conv.tools or rng.random() < 0.08:
        _add_distractors(conv)
    if not own_system and rng.random() < 0.6:
        _add_system(conv)
    if conv.thinking and turns > 1 and rng.random() < 0.25:
        _forget_thoughts(conv)
    return conv


def _draw(rng: random.Random) -> str:
    return rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]


def _add_distractors(conv: Conversation) -> None:
    rng = conv.rng
    high = rng.choices((0, 2, 4, 8), (40, 35, 20, 5))[0]
    absent = conv.extra.get("absent", set())
    for tool in distractors(rng, 0, high):
        if tool.name not in absent:
            conv.offer(spec(rng, tool))
    conv.tools = shuffled_specs(rng, conv.tools)
    if rng.random() < _WORDY_SHARE:
        agents.wordy(rng, conv.tools)


def _add_system(conv: Conversation) -> None:
    box = conv.extra.get("toolbox")
    coder = box is not None and conv.rng.random() < 0.8
    text = coding.system_prompt(conv.rng, box) if coder else frameworks.system_prompt(conv.rng)
    conv.messages.insert(0, {"role": "system", "content": text})
    conv.muted = {i + 1 for i in conv.muted}
    conv.scored = [i + 1 for i in conv.scored]
    conv.expected = {i + 1: facts for i, facts in conv.expected.items()}


def _forget_thoughts(conv: Conversation) -> None:
    """Clients that drop reasoning: earlier turns come back with an empty thinking block."""
    last_user = max(i for i, m in enumerate(conv.messages) if m["role"] == "user")
    for i, message in enumerate(conv.messages[:last_user]):
        if message.pop("reasoning_content", None) is not None:
            conv.muted.add(i)


def draw_turns(rng: random.Random, long: bool) -> int:
    return rng.randint(8, 40) if long else rng.choices((1, 2, 3, 5), (68, 20, 8, 4))[0]


def documents(
    seed: int, tokenizer: Tokenizer, long: bool
) -> Iterator[tuple[list[int], list[float]]]:
    """Endless tokenised training documents: short ones, or ones of 2K to 8K tokens."""
    rng = random.Random(seed)
    limit = LONG_ROW if long else SHORT_ROW
    while True:
        ids, weights = tokenise(document(rng, turns=draw_turns(rng, long)), tokenizer)
        if len(ids) <= limit and (not long or len(ids) > SHORT_ROW):
            yield ids, weights


def pack(
    source: Iterator[tuple[list[int], list[float]]], rows: int, length: int, pad: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`rows` rows of documents: token ids uint16, loss weights uint8 (in tenths) and positions in
    the document uint16, each [rows, length]. Documents start at multiples of 64."""
    tokens = np.full((rows, length), pad, np.uint16)
    weights = np.zeros((rows, length), np.uint8)
    positions = np.zeros((rows, length), np.uint16)
    positions[:] = np.arange(length)
    open_rows: list[list[int]] = []
    next_row = 0
    while True:
        ids, loss = next(source)
        size = -(-len(ids) // CHUNK) * CHUNK
        slot = next((r for r in open_rows if r[1] + size <= length), None)
        if slot is None:
            if next_row == rows:
                return tokens, weights, positions
            slot = [next_row, 0]
            next_row += 1
            open_rows = [slot, *open_rows][:16]
        row, at = slot
        tokens[row, at : at + len(ids)] = ids
        weights[row, at : at + len(ids)] = np.rint(np.array(loss) * 10)
        positions[row, at:] = np.arange(length - at)
        slot[1] += size
