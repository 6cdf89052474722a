"""Token masks of constrained requests: made by a thread of their own, outside the step loop.

After each step the engine says which tokens of a constrained conversation became history and which
drafts it would like to verify; the thread here advances that request's matcher and hands back the
masks. A conversation waits for its masks; the others do not.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from openjet_provider._native import Native
from openjet_provider.errors import ConstraintError, EngineClosedError

log = logging.getLogger("openjet_provider")

_POLL_MS = 500


class TokenMatcher(Protocol):
    """Which tokens may come next. One request's; used by one thread at a time.

    Every method may raise ConstraintError, which ends the request with its message, but for a
    copy's, which then only looks ahead less far.
    """

    def advance(self, tokens: Sequence[int]) -> None:
        """These tokens are history now."""

    def forced(self) -> list[int]:
        """Tokens that must come next, possibly none."""

    def fill(self, address: int, size: int) -> None:
        """Write the mask of the next token: one bit an id, `size` bytes at `address`."""

    def try_advance(self, token: int) -> bool:
        """As `advance` if the token is allowed; else False and nothing has changed."""

    def copy(self) -> TokenMatcher:
        """One in the same state, to look ahead with."""


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """What a request's tokens may be.

    matcher: masks every token behind `after`; None: nothing but `allowed` applies.
    after: a token id: the matcher begins behind the first such token generated; -1: at once.
    allowed: one bit an id in words of 32 (array of unsigned int), for tokens that the matcher does
        not mask; None: all.
    """

    matcher: TokenMatcher | None = None
    after: int = -1
    allowed: array[int] | None = None


UNCONSTRAINED = Constraint()


class MaskThread:
    """Answers the mask requests of one engine until the engine stops."""

    def __init__(self, native: Native, engine: Any, n_vocab: int, lock: threading.Lock) -> None:
        """`lock` guards the requests served: a request is submitted and added in one hold of it, so
        that its first question finds it."""
        self._native = native
        self._engine = engine
        self._n_words = (n_vocab + 31) // 32
        self._lock = lock
        self._matchers: dict[int, TokenMatcher] = {}
        self._failures: dict[int, ConstraintError] = {}
        self._thread = threading.Thread(target=self._run, name="openjet-masks", daemon=True)

    def add(self, request: int, matcher: TokenMatcher) -> None:
        """Serve this request from now on; the caller holds the lock."""
        if self._thread.ident is None:
            self._thread.start()
        self._matchers[request] = matcher

    def remove(self, request: int) -> ConstraintError | None:
        """At the request's end: what went wrong with its masks. The caller holds the lock."""
        self._matchers.pop(request, None)
        return self._failures.pop(request, None)

    def join(self) -> None:
        """Wait for the thread's end, after the engine was stopped."""
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        ffi, lib = self._native.ffi, self._native.lib
        asked = ffi.new("oj_mask_request *")
        masks = ffi.new("uint32_t[]", self._n_words * (lib.OJ_MAX_DRAFTS + 1))
        while True:
            found = lib.oj_poll_masks(self._engine, asked, _POLL_MS)
            if found < 0:
                return
            if found:
                self._answer(asked, masks)

    def _answer(self, asked: Any, masks: Any) -> None:
        with self._lock:
            matcher = self._matchers.get(asked.request)
        if matcher is None:
            return  # it has ended
        try:
            forced, n_masks = self._make_masks(matcher, asked, masks)
            self._send(asked, masks, n_masks, forced)
        except Exception as error:  # a fault of a matcher ends its own request only
            if not isinstance(error, ConstraintError):
                log.exception("the masks of a request failed")
                error = ConstraintError(f"the output could not be constrained: {error!r}")
            with self._lock:
                if asked.request in self._matchers:
                    self._failures[asked.request] = error
            self._send(asked, masks, 0, [])

    def _send(self, asked: Any, masks: Any, n_masks: int, forced: list[int]) -> None:
        """Hand them over; without masks the request ends."""
        args = (asked.request, asked.position, masks, n_masks, forced, len(forced))
        with contextlib.suppress(EngineClosedError):
            self._native.call("oj_set_masks", self._engine, *args)

    def _make_masks(self, matcher: TokenMatcher, asked: Any, masks: Any) -> tuple[list[int], int]:
        """Fills `masks`: of the next token, and along the drafts up to the first one that is
        refused or has tokens forced behind it. So what is forced does not depend on drafts."""
        address = int(self._native.ffi.cast("uintptr_t", masks))
        size = 4 * self._n_words
        matcher.advance([asked.tokens[i] for i in range(asked.n_tokens)])
        forced = matcher.forced()
        matcher.advance(forced)
        matcher.fill(address, size)
        drafts = [] if forced else [asked.drafts[i] for i in range(asked.n_drafts)]
        ahead = matcher.copy() if drafts else matcher
        n_masks = 1
        with contextlib.suppress(ConstraintError):  # of a draft, which may never be chosen
            for draft in drafts:
                if not ahead.try_advance(draft) or ahead.forced():
                    break
                ahead.fill(address + n_masks * size, size)
                n_masks += 1
        return forced, n_masks
