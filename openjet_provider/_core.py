"""The one native engine behind every handle on a model: submission, the pump thread, closing."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openjet_provider._native import Model, Native
from openjet_provider.errors import (
    ContextOverflowError,
    EngineClosedError,
    EngineLost,
    InvalidRequestError,
)
from openjet_provider.generation import (
    DraftCounts,
    Finish,
    Generation,
    RequestStats,
    Token,
    Waiter,
    wake,
)
from openjet_provider.masks import UNCONSTRAINED, Constraint, MaskThread

log = logging.getLogger("openjet_provider")

_FINISHES: tuple[Finish, ...] = (
    "stop",
    "stop_string",
    "length",
    "cancelled",
    "deadline",
    "error",
    "constraint",
)
_EVENTS = 256  # taken from the engine at a time
_POLL_MS = 500
_LONGEST_S = 1e9  # a longer timeout is none


@dataclass(frozen=True, kw_only=True)
class TokenSampling:
    """oj_sampling with every value decided."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence: float = 0.0
    frequency: float = 0.0
    repetition: float = 1.0
    seed: int = 0
    coupled: bool = True
    top_logprobs: int = 0
    adjusted_logprobs: bool = False
    temperature_last: bool = False
    bias: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ThinkingBudget:
    """oj_thinking: the tokens that may come between `open` and `close`, and what then closes it."""

    open: int
    close: int
    starts_open: bool
    tokens: int
    closing: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class TokenRequest:
    """oj_request in Python's terms; see native/include/openjet.h for every field's meaning."""

    tokens: Sequence[int]
    boundaries: Sequence[int] = ()
    client: str = ""
    max_tokens: int = 0
    ignore_eos: bool = False
    timeout_s: float | None = None
    sampling: TokenSampling = TokenSampling()
    stops: Sequence[str] = ()
    hidden: Sequence[tuple[int, int]] = ()
    starts_hidden: int = -1
    stop_tokens: Sequence[int] = ()
    draft: int = -1
    thinking: ThinkingBudget | None = None
    constraint: Constraint = UNCONSTRAINED


@dataclass(frozen=True)
class EngineStats:
    """oj_engine_stats: totals since the engine opened, and what is in use now. Times in us.

    drafted_at, accepted_at: as in RequestStats, of all requests.
    """

    steps: int
    rows: int
    shared_steps: int
    step_us: int
    last_step_us: int
    prompt_rows: int
    decode_rows: int
    generated: int
    cached_tokens: int
    evicted_pages: int
    drafted_at: DraftCounts
    accepted_at: DraftCounts
    running: int
    waiting: int
    pages_total: int
    pages_used: int
    pages_cached: int
    snapshots_total: int
    snapshots_used: int
    context: int
    prefixes_kept: int = 0
    host_bytes: int = 0

    def summary(self) -> str:
        """What the conversations of this engine had in common, in a line."""
        return (
            f"{self.steps} steps ({self.shared_steps} of several agents),"
            f" {self.rows / max(self.steps, 1):.1f} rows per step,"
            f" {self.cached_tokens} prompt tokens reused"
        )


@dataclass(frozen=True)
class SavedFile:
    """What a file of the state directory holds. tokens: of the conversation, as far as stored."""

    tokens: Sequence[int]
    n_bytes: int


class Core:
    """A running oj_engine. Every method may be called from any thread."""

    def __init__(self, model: Model, options: Any) -> None:
        """`options` is an `oj_engine_options *`; the model is closed with the core."""
        self.native: Native = model.native
        self.model = model
        self.context: int = options.context
        out = self.native.ffi.new("oj_engine **")
        self.native.call("oj_engine_open", model.handle, options, out)
        self._engine = out[0]
        self._oj_cancel = self.native.lib.oj_cancel  # cffi takes a lock to look a function up
        self._pid = os.getpid()
        # Guards _closed, _deaf and _running, and every call but oj_poll and oj_cancel.
        self._lock = threading.Lock()
        self._closed = False
        self._deaf = False  # the pump thread has ended
        self._running: dict[int, Generation] = {}
        self._masks = MaskThread(self.native, self._engine, model.info.n_vocab, self._lock)
        self._pump = threading.Thread(target=self._pump_events, name="openjet-events", daemon=True)
        self._pump.start()

    def submit(self, request: TokenRequest) -> Generation:
        """Queue a request.

        Raises ContextOverflowError, EngineBusyError, InvalidRequestError, EngineClosedError.
        """
        ffi = self.native.ffi
        keep: list[Any] = []  # arrays that must live until oj_submit has returned
        try:
            packed = self._pack(request, keep)
        except (OverflowError, ValueError) as error:
            raise InvalidRequestError(f"a value of the request cannot be used: {error}") from error
        out = ffi.new("uint64_t *")
        generation = Generation(request.tokens, lambda: self.cancel(int(out[0])))
        with self._open():
            try:
                self.native.call("oj_submit", self._engine, packed, out)
            except ContextOverflowError as error:
                raise ContextOverflowError(str(error), len(request.tokens), self.context) from None
            self._running[int(out[0])] = generation
            if request.constraint.matcher is not None:
                self._masks.add(int(out[0]), request.constraint.matcher)
        return generation

    def cancel(self, request: int) -> None:
        """End a request at the next step; unknown and ended ones are ignored.

        Takes no lock of Python's: a stream that is garbage cancels when it is collected, which may
        be in any thread and inside any locked section.
        """
        if self._pid == os.getpid():
            self._oj_cancel(self._engine, request)

    def stats(self) -> EngineStats:
        """Counters of the engine."""
        out = self.native.ffi.new("oj_engine_stats *")
        with self._open():
            self.native.lib.oj_engine_get_stats(self._engine, out)
        values = {name: getattr(out, name) for name in EngineStats.__dataclass_fields__}
        for name in ("drafted_at", "accepted_at"):
            values[name] = _draft_counts(values[name])
        return EngineStats(**values)

    def save(self, tokens: Sequence[int], filename: str) -> SavedFile:
        """See Engine.save. Waits for the disk, without a lock: nobody else does."""
        ids = self.native.ffi.new("int32_t[]", list(tokens))
        saved = self.native.ffi.new("oj_saved *")
        self._call("oj_engine_save", ids, len(ids), _file_name(filename), saved)
        return SavedFile(tokens[: saved.n_tokens], saved.n_bytes)

    def restore(self, filename: str) -> SavedFile:
        """See Engine.restore."""
        ids = self.native.ffi.new("int32_t[]", self.context)
        restored = self.native.ffi.new("oj_saved *")
        self._call("oj_engine_restore", _file_name(filename), ids, len(ids), restored)
        n_tokens = min(restored.n_tokens, len(ids))
        return SavedFile(self.native.ffi.unpack(ids, n_tokens), restored.n_bytes)

    def erase(self, tokens: Sequence[int]) -> int:
        """See Engine.erase."""
        ids = self.native.ffi.new("int32_t[]", list(tokens))
        n_erased = self.native.ffi.new("int32_t *")
        self._call("oj_engine_erase", ids, len(ids), n_erased)
        return int(n_erased[0])

    def _call(self, function: str, *arguments: Any) -> None:
        """Outside of the lock; the engine refuses a call once it is closed."""
        with self._open():
            pass
        self.native.call(function, self._engine, *arguments)

    def close(self) -> None:
        """Cancel what runs, wait for the threads, free the engine and the model. Idempotent."""
        if self._pid != os.getpid():
            return  # the parent's threads and memory are not ours to end
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.native.lib.oj_engine_stop(self._engine)
        self._log_notes()
        if threading.current_thread() is not self._pump:
            self._pump.join()
        self._masks.join()
        self.native.lib.oj_engine_close(self._engine)
        self.model.close()

    @contextlib.contextmanager
    def _open(self) -> Iterator[None]:
        if self._pid != os.getpid():
            raise EngineClosedError(
                f"this engine belongs to process {self._pid}, from which this one was forked;"
                " open an Engine after the fork, or use the spawn start method"
            )
        with self._lock:
            if self._closed:
                raise EngineClosedError("the engine is closed; open a new Engine")
            if self._deaf:
                raise EngineLost("the engine's event thread ended; restart this process")
            yield

    def _pack(self, request: TokenRequest, keep: list[Any]) -> Any:
        ffi = self.native.ffi

        def array(kind: str, values: Sequence[Any]) -> Any:
            keep.append(ffi.new(f"{kind}[]", values if isinstance(values, bytes) else list(values)))
            return keep[-1]

        packed = ffi.new("oj_request *")
        packed.tokens = array("int32_t", request.tokens)
        packed.n_tokens = len(request.tokens)
        packed.boundaries = array("int32_t", request.boundaries)
        packed.n_boundaries = len(request.boundaries)
        packed.client = array("char", request.client.encode())
        packed.max_tokens = min(max(request.max_tokens, 0), self.context)
        packed.ignore_eos = request.ignore_eos
        packed.deadline_us = (
            0
            if request.timeout_s is None
            else max(1, int(min(request.timeout_s, _LONGEST_S) * 1e6))
        )
        packed.stops = array("char *", [array("char", stop.encode()) for stop in request.stops])
        packed.n_stops = len(request.stops)
        packed.hidden = array("int32_t", [token for span in request.hidden for token in span])
        packed.n_hidden = len(request.hidden)
        packed.starts_hidden = request.starts_hidden
        packed.stop_tokens = array("int32_t", request.stop_tokens)
        packed.n_stop_tokens = len(request.stop_tokens)
        packed.draft = request.draft
        sampling, out = request.sampling, packed.sampling
        for name in ("temperature", "top_k", "top_p", "min_p", "presence", "frequency"):
            setattr(out, name, getattr(sampling, name))
        out.repetition = sampling.repetition
        out.seed = sampling.seed
        out.coupled = sampling.coupled
        out.top_logprobs = sampling.top_logprobs
        out.adjusted_logprobs = sampling.adjusted_logprobs
        out.temperature_last = sampling.temperature_last
        out.n_bias = len(sampling.bias)
        out.bias_ids = array("int32_t", list(sampling.bias))
        out.bias_values = array("float", list(sampling.bias.values()))
        constraint = request.constraint
        packed.constrained = constraint.matcher is not None
        packed.constrain_after = constraint.after
        if constraint.allowed is not None:
            packed.allowed = array("uint32_t", constraint.allowed)
        if request.thinking is not None:
            span, limit = packed.thinking, request.thinking
            span.open, span.close, span.starts_open = limit.open, limit.close, limit.starts_open
            span.budget, span.n_closing = limit.tokens, len(limit.closing)
            span.closing = array("int32_t", limit.closing)
        return packed

    def _pump_events(self) -> None:
        """Hand events to their requests until the engine has stopped. Runs in its own thread."""
        events = self.native.ffi.new("oj_event[]", _EVENTS)
        try:
            while True:
                self._log_notes()
                count = self.native.lib.oj_poll(self._engine, events, _EVENTS, _POLL_MS)
                if count < 0:
                    break
                self._dispatch(events, count)
        finally:
            with self._lock:
                self._deaf = True
                left, self._running = self._running, {}
            for generation in left.values():  # nobody waits for what will never come
                wake(generation.deliver([], generation.stats, "error"))

    def _log_notes(self) -> None:
        """What the engine has to say about files of the state directory."""
        text = self.native.ffi.new("char[]", 1024)
        while self.native.lib.oj_engine_note(self._engine, text, len(text)) > 0:
            log.warning("%s", self.native.ffi.string(text).decode("utf-8", "replace"))

    def _dispatch(self, events: Any, count: int) -> None:
        tokens: dict[int, list[Token]] = defaultdict(list)
        last: dict[int, Any] = {}
        for i in range(count):
            event = events[i]
            if event.kind == self.native.lib.OJ_EVENT_TOKEN:
                tokens[event.request].append(_token(event))
            last[event.request] = event
        waiters: list[Waiter] = []
        for request, event in last.items():
            done = event.kind == self.native.lib.OJ_EVENT_DONE
            finish = _FINISHES[event.finish] if done else None
            error = None
            with self._lock:
                generation = self._running.get(request)
                if done:
                    self._running.pop(request, None)
                    failure = self._masks.remove(request)
                    error = failure if finish == "constraint" else None
            if generation is not None:
                waiters += generation.deliver(tokens[request], _stats(event.stats), finish, error)
        wake(waiters)


def _file_name(name: str) -> bytes:
    """As the engine takes it, which checks the rest. Raises InvalidRequestError."""
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError("filename: it is not valid Unicode") from None
    if b"\0" in encoded:
        raise InvalidRequestError("filename: it contains a NUL character")
    return encoded


def _token(event: Any) -> Token:
    found = event.logprob
    top = tuple((found.top_ids[i], found.top_logprobs[i]) for i in range(found.n_top))
    return Token(event.token, event.keep, found.logprob, top, event.stats.total_us / 1e6)


def _draft_counts(counts: Any) -> DraftCounts:
    mtp, lookup = counts
    return tuple(mtp), tuple(lookup)


def _stats(stats: Any) -> RequestStats:
    first = stats.first_token_us
    return RequestStats(
        prompt_tokens=stats.prompt_tokens,
        cached_tokens=stats.cached_tokens,
        prompt_read=stats.prompt_read,
        generated=stats.generated,
        drafted_at=_draft_counts(stats.drafted_at),
        accepted_at=_draft_counts(stats.accepted_at),
        queued_s=stats.queued_us / 1e6,
        first_token_s=first / 1e6 if first > 0 else None,
        total_s=stats.total_us / 1e6,
    )
