"""Which conversation is in which slot.

The engine itself has no such places: a conversation is stored by its tokens and found by them,
wherever it ran. A slot is one of `agents` numbers and the conversation that it was last given to.
"""

from __future__ import annotations

import asyncio
import itertools
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from openjet_provider.generation import RequestStats

SLOT_ACTIONS = ("save", "restore", "erase")


class Turn(Protocol):
    """What a slot needs to know of a stream."""

    conversation: str

    @property
    def tokens(self) -> Sequence[int]: ...

    @property
    def stats(self) -> RequestStats: ...


@dataclass
class Slot:
    """tokens: of the last conversation when nothing runs."""

    id: int
    conversation: str = ""
    tokens: Sequence[int] = field(default_factory=lambda: array("i"))
    running: Turn | None = None
    stats: RequestStats = field(default_factory=RequestStats)
    task: int = -1
    last_use: int = 0

    def history(self) -> Sequence[int]:
        """The conversation's tokens as far as they are known."""
        return self.tokens if self.running is None else self.running.tokens

    def describe(self, context: int, drafts: int) -> dict[str, Any]:
        """In llama-server's shape, without the texts and parameters of requests."""
        stats = self.stats if self.running is None else self.running.stats
        return {
            "id": self.id,
            "n_ctx": context,
            "speculative": drafts > 0,
            "is_processing": self.running is not None,
            "id_task": self.task,
            "n_prompt_tokens": stats.prompt_tokens,
            "n_prompt_tokens_processed": stats.prompt_read - stats.cached_tokens,
            "n_prompt_tokens_cache": stats.cached_tokens,
            "next_token": [
                {"has_next_token": self.running is not None, "n_decoded": stats.generated}
            ],
        }


class Slots:
    """Which conversation is whose. Event loop only.

    changing: held while a conversation is saved, restored or erased: these wait for the disk in the
    threads that start turns too, and hold a whole conversation in memory.
    """

    def __init__(self) -> None:
        self.changing = asyncio.Lock()
        self._slots: list[Slot] = []
        self._clock = itertools.count(1)
        self._tasks = itertools.count(1)

    def of(self, n: int) -> list[Slot]:
        """All `n` of them."""
        self._slots += [Slot(i) for i in range(len(self._slots), n)]
        return self._slots

    def begin(self, turn: Turn, n: int) -> None:
        """A turn starts in the slot of its conversation, else in one that it continues, else in the
        one that has been idle longest. While all `n` are busy it waits, and is in none."""
        idle = [slot for slot in self.of(n) if slot.running is None]
        if not idle:
            return
        prompt = array("i", turn.tokens)

        def fit(slot: Slot) -> tuple[bool, int, int]:
            known = len(slot.tokens)
            continues = 0 < known <= len(prompt) and prompt[:known] == slot.tokens
            same = slot.conversation == turn.conversation
            return same, known if continues else 0, -slot.last_use

        slot = max(idle, key=fit)
        slot.running, slot.conversation = turn, turn.conversation
        slot.task = next(self._tasks)

    def end(self, turn: Turn) -> None:
        """The turn is over, whatever ended it."""
        if all(slot.running is not turn for slot in self._slots):
            self.begin(turn, len(self._slots))
        for slot in self._slots:
            if slot.running is turn:
                slot.running, slot.stats = None, turn.stats
                slot.tokens = array("i", turn.tokens)
                slot.last_use = next(self._clock)

    def fill(self, slot: Slot, tokens: Sequence[int]) -> None:
        """The slot holds another conversation now; none for no tokens."""
        slot.conversation, slot.tokens, slot.stats = "", array("i", tokens), RequestStats()
        slot.last_use = next(self._clock)
