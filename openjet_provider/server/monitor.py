"""Who is being served and what they do: the conversations of `/v1/stats`. Event loop only."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openjet_provider.chat.types import ChatDelta
from openjet_provider.generation import RequestStats

_KEPT = 64  # conversations remembered after their last turn
_LATEST = 400  # characters of the newest text
_TASK = 80
_RECENT_S, _SHORTEST_S = 2.0, 0.25


class _Speed:
    """Tokens per second over the last two seconds of a turn."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()

    def mark(self, generated: int) -> None:
        """Tokens came; `generated` is the turn's count now."""
        now = time.monotonic()
        self._marks.append((now, generated))
        while len(self._marks) > 2 and self._marks[1][0] < now - _RECENT_S:
            self._marks.popleft()

    def __call__(self, generated: int) -> float:
        if not self._marks:
            return 0.0
        since, before = self._marks[0]
        return (generated - before) / max(time.monotonic() - since, _SHORTEST_S)


@dataclass
class Conversation:
    """One agent's conversation over its turns. The last started turn is the one described."""

    id: str
    client: str
    task: str
    turns: int = 0
    running: int = 0
    tool_calls: int = 0
    tools: list[str] = field(default_factory=list)
    stats: Callable[[], RequestStats] = RequestStats
    finish: str | None = None
    phase: str = "queued"
    latest: str = ""
    changed: float = field(default_factory=time.monotonic)
    speed: _Speed = field(default_factory=_Speed)

    def begin(self, client: str, task: str, stats: Callable[[], RequestStats]) -> None:
        """A turn starts; `stats` gives its counts."""
        self.client, self.task, self.stats = client, task, stats
        self.turns += 1
        self.running += 1
        self.finish, self.phase, self.latest = None, "queued", ""
        self.speed = _Speed()
        self.changed = time.monotonic()

    def observe(self, delta: ChatDelta) -> None:
        """A turn goes on."""
        for piece in delta.tool_calls:
            if piece.name is not None:
                self.tool_calls += 1
                self.tools = [*self.tools[-9:], piece.name]
                self.latest = f"{piece.name} "
            self.latest += piece.arguments
        if delta.tool_calls:
            self.phase = "calling a tool"
        elif delta.content:
            self._write("writing", delta.content)
        elif delta.reasoning:
            self._write("thinking", delta.reasoning)
        self.latest = self.latest[-_LATEST:]
        self.changed = time.monotonic()
        self.speed.mark(self.stats().generated)

    def end(self, finish: str, stats: RequestStats) -> None:
        """A turn ends; `finish` is its finish reason, or the class of its error."""
        self.running -= 1
        self.stats, self.finish = lambda: stats, finish
        self.phase = "idle"
        self.changed = time.monotonic()

    def _write(self, phase: str, text: str) -> None:
        self.latest = text if self.phase != phase else self.latest + text
        self.phase = phase

    def snapshot(self, private: bool) -> dict[str, Any]:
        """What `/v1/stats` says."""
        stats, phase = self.stats(), self.phase
        if phase == "queued" and stats.prompt_read:
            phase = "prompt"
        return {
            "id": self.id,
            "client": self.client,
            "phase": phase,
            "prompt_progress": stats.prompt_read / max(stats.prompt_tokens, 1),
            "tokens_per_second": round(stats.tokens_per_second, 2),
            "recent_tokens_per_second": round(
                self.speed(stats.generated) if self.running else 0.0, 2
            ),
            "context_used": stats.prompt_read + stats.generated,
            "prompt_tokens": stats.prompt_tokens,
            "cached_tokens": stats.cached_tokens,
            "generated_tokens": stats.generated,
            "drafted": sum(stats.drafted),
            "accepted": sum(stats.accepted),
            "queued_s": stats.queued_s,
            "first_token_s": stats.first_token_s,
            "turns": self.turns,
            "tool_calls": self.tool_calls,
            "tools": self.tools,
            "finish": self.finish,
            "unchanged_s": round(time.monotonic() - self.changed, 3),
            "task": None if private else self.task,
            "latest": None if private else self.latest,
        }


class Monitor:
    """The running conversations and the last idle ones."""

    def __init__(self) -> None:
        self._conversations: OrderedDict[str, Conversation] = OrderedDict()

    def begin(
        self, id: str, client: str | None, task: str, stats: Callable[[], RequestStats]
    ) -> Conversation:
        """A turn of conversation `id` starts; without a client its name is the conversation's."""
        conversation = self._conversations.setdefault(id, Conversation(id, "", ""))
        self._conversations.move_to_end(id)
        conversation.begin(client or id, task, stats)
        idle = [key for key, value in self._conversations.items() if not value.running]
        for key in idle[: max(0, len(self._conversations) - _KEPT)]:
            del self._conversations[key]
        return conversation

    def __iter__(self) -> Iterator[Conversation]:
        return iter(list(self._conversations.values()))


def task_line(messages: Sequence[Mapping[str, Any]]) -> str:
    """First line of the latest user message with text in it. Lines that begin with a tag are what
    clients put beside the user's words."""
    for message in reversed(messages):
        if message.get("role") != "user":
            continue
        for text in _texts(message.get("content")):
            for line in text.splitlines():
                if (line := line.strip()) and not line.startswith("<"):
                    return line[:_TASK]
    return ""


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, Sequence) else ()
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    return [text for text in texts if isinstance(text, str)]
