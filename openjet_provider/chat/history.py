"""Generated turns, remembered so that they come back token for token.

Most clients strip the reasoning from the history they send, and a number or a quoted string may be
spelled differently after a round trip. The prompt would then differ from what was computed, and a
recurrent state cannot be rewound. So a turn that comes back behind the same tokens with the same
content and calls is replaced by the tokens that were generated.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

_MAX_TOKENS = 4_000_000


@dataclass(frozen=True)
class Turn:
    """tokens: the whole turn as it was in prompt and output, up to its end token, exclusive."""

    tokens: array[int]
    reasoning: str


class History:
    """Bounded; the least recently used turns go first. Safe to use from many threads."""

    def __init__(self, max_tokens: int = _MAX_TOKENS) -> None:
        self._max_tokens = max_tokens
        self._turns: OrderedDict[bytes, Turn] = OrderedDict()
        self._tokens = 0
        self._lock = Lock()

    def remember(self, prefix: bytes, message: Mapping[str, Any], turn: Turn) -> None:
        """prefix: digest of the tokens before the turn. message: the turn, normalised."""
        self.add(_keys(prefix, message), turn)

    def add(self, keys: Iterable[bytes], turn: Turn) -> None:
        """Remember a turn under the keys that `records` gave for it."""
        if len(turn.tokens) > self._max_tokens:
            return
        with self._lock:
            for key in keys:
                if (old := self._turns.pop(key, None)) is not None:
                    self._tokens -= len(old.tokens)
                self._turns[key] = turn
                self._tokens += len(turn.tokens)
            while self._tokens > self._max_tokens:
                _, old = self._turns.popitem(last=False)
                self._tokens -= len(old.tokens)

    def records(self) -> list[tuple[list[bytes], Turn]]:
        """Every turn with its keys, the least recently used first."""
        found: dict[int, tuple[list[bytes], Turn]] = {}
        with self._lock:
            for key, turn in self._turns.items():
                found.setdefault(id(turn), ([], turn))[0].append(key)
        return list(found.values())

    def recall(self, prefix: bytes, message: Mapping[str, Any]) -> Turn | None:
        """The turn that this message is, unless the client sent other reasoning with it."""
        if not self._turns:
            return None
        given = message["reasoning_content"].strip()
        with self._lock:
            for key in _keys(prefix, message):
                turn = self._turns.get(key)
                if turn is not None and given in ("", turn.reasoning):
                    self._turns.move_to_end(key)
                    return turn
        return None


def _keys(prefix: bytes, message: Mapping[str, Any]) -> Iterator[bytes]:
    """By the calls' ids, which tell equal-looking turns apart, then by what the turn says."""
    calls = message.get("tool_calls", ())
    said: list[Any] = [message["content"].strip()]
    said += [[call["function"]["name"], _plain(call["function"]["arguments"])] for call in calls]
    if calls:
        yield _key(prefix, [[call["id"] for call in calls], *said])
    yield _key(prefix, said)


def _key(prefix: bytes, parts: list[Any]) -> bytes:
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.blake2b(prefix + text.encode(), digest_size=16).digest()


def _plain(value: Any) -> Any:
    """JSON has one kind of number: clients may send 1.0 back as 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value
