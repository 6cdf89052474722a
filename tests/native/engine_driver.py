"""The C interface's engine through cffi, without the Python Engine above it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.native.steps import CPU, CUDA, NEUTRAL_SAMPLING

# What tests of the engine run on if they do not say it: a GPU's library has the CUDA backend only.
TESTED_KIND = CUDA if os.environ.get("OPENJET_TEST_GPU") else CPU
MOST_ROWS = {CUDA: 64}  # of a step

FINISHES = ("stop", "stop_string", "length", "cancelled", "deadline", "error")
EVENT_TOKEN, EVENT_DONE = 1, 2


class NativeError(Exception):
    """A status other than OJ_OK."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Request:
    """oj_request; `sampling` holds oj_sampling's fields that are not neutral."""

    tokens: Sequence[int]
    max_tokens: int = 16
    boundaries: Sequence[int] = ()
    client: str = ""
    ignore_eos: bool = True
    deadline_us: int = 0
    stops: Sequence[bytes] = ()
    hidden: Sequence[int] = ()
    starts_hidden: int = -1
    stop_tokens: Sequence[int] = ()
    draft: int = -1
    sampling: dict[str, Any] = field(default_factory=dict)


@dataclass
class Answer:
    """What became of a request."""

    tokens: list[int] = field(default_factory=list)
    keeps: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    tops: list[list[tuple[int, float]]] = field(default_factory=list)
    finish: str = ""
    stop: int = -1
    stats: dict[str, Any] = field(default_factory=dict)


@dataclass
class Rule:
    """oj_script_rule."""

    match: Sequence[int]
    reply: Sequence[int]
    per_step: int = 1
    delay_us: int = 0
    fault_after: int = -1


def _values(stats: Any) -> dict[str, Any]:
    """The fields of a struct of numbers and tables."""
    values = {name: getattr(stats, name) for name in dir(stats)}
    for name in ("drafted_at", "accepted_at"):
        values[name] = [list(row) for row in values[name]]
    return values


class Driver:
    """An open engine. Events are collected by whoever waits; for one thread."""

    def __init__(
        self,
        library: Any,
        model: Path,
        *,
        kind: int = TESTED_KIND,
        script: Sequence[Rule] = (),
        context: int = 512,
        n_slots: int = 4,
        n_pages: int = 64,
        n_snapshots: int = 16,
        max_rows: int = 64,
        draft: int = 0,
        mtp: int = 1,
        draft_head_rows: int = 0,
        step_target: float = 2.5,
        min_prompt_rows: int = 8,
        max_queue: int = 64,
        max_queue_client: int = 64,
        threads: int = 1,
        host_bytes: int = 0,
        state_dir: Path | None = None,
    ) -> None:
        self.ffi, self.lib = library
        handle = self.ffi.new("oj_model **")
        self.call("oj_model_open", str(model).encode(), handle)
        self.model = handle[0]
        keep: list[Any] = []
        options = self.ffi.new("oj_engine_options *")
        options.backend.kind = kind
        options.backend.threads = threads
        options.backend.n_slots = n_slots
        options.backend.n_pages = n_pages
        options.backend.n_snapshots = n_snapshots
        options.backend.max_rows = min(max_rows, MOST_ROWS.get(kind, max_rows))
        options.backend.mtp = mtp
        options.backend.draft_head_rows = draft_head_rows
        options.context = context
        options.max_queue = max_queue
        options.max_queue_client = max_queue_client
        options.draft = draft
        options.step_target = step_target
        options.min_prompt_rows = min_prompt_rows
        options.host_bytes, options.state_bytes = host_bytes, 1 << 30
        if state_dir is not None:
            options.state_dir = self._array("char", str(state_dir).encode(), keep)
        options.script, options.n_script = self._rules(script, keep), len(script)
        handle = self.ffi.new("oj_engine **")
        try:
            self.call("oj_engine_open", self.model, options, handle)
        except NativeError:
            self.lib.oj_model_close(self.model)
            raise
        self.engine = handle[0]
        self.answers: dict[int, Answer] = {}
        self._events = self.ffi.new("oj_event[64]")

    def _rules(self, script: Sequence[Rule], keep: list[Any]) -> Any:
        rules = self._array("oj_script_rule", len(script), keep)
        for to, rule in zip(rules, script, strict=True):
            to.match, to.n_match = self._array("int32_t", rule.match, keep), len(rule.match)
            to.reply, to.n_reply = self._array("int32_t", rule.reply, keep), len(rule.reply)
            to.per_step, to.delay_us = rule.per_step, rule.delay_us
            to.fault_after = rule.fault_after
        return rules

    def _array(self, kind: str, values: Any, keep: list[Any]) -> Any:
        keep.append(self.ffi.new(f"{kind}[]", values))
        return keep[-1]

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns oj_status; NativeError unless OJ_OK."""
        error = self.ffi.new("oj_error *")
        status = getattr(self.lib, name)(*arguments, error)
        if status != 0:
            raise NativeError(status, self.ffi.string(error.message).decode())

    def submit(self, request: Request) -> int:
        """The request's id; its Answer grows as events are polled."""
        keep: list[Any] = []
        packed = self.ffi.new("oj_request *")
        for name in ("tokens", "boundaries", "hidden", "stop_tokens"):
            values = getattr(request, name)
            setattr(packed, name, self._array("int32_t", list(values), keep))
            setattr(packed, f"n_{name}", len(values) // (2 if name == "hidden" else 1))
        stops = [self._array("char", stop, keep) for stop in request.stops]
        packed.stops, packed.n_stops = self._array("char *", stops, keep), len(stops)
        packed.client = self._array("char", request.client.encode(), keep)
        for name in ("max_tokens", "deadline_us", "starts_hidden", "draft"):
            setattr(packed, name, getattr(request, name))
        packed.ignore_eos = request.ignore_eos
        for name, value in (NEUTRAL_SAMPLING | request.sampling).items():
            if name == "bias":
                packed.sampling.n_bias = len(value)
                packed.sampling.bias_ids = self._array("int32_t", list(value), keep)
                packed.sampling.bias_values = self._array("float", list(value.values()), keep)
            else:
                setattr(packed.sampling, name, value)
        out = self.ffi.new("uint64_t *")
        self.call("oj_submit", self.engine, packed, out)
        self.answers[int(out[0])] = Answer()
        return int(out[0])

    def poll(self, timeout_ms: int = 1000, most: int = 64) -> int:
        """Take what is there, at most 64 events, into `answers`; their number."""
        count = int(self.lib.oj_poll(self.engine, self._events, most, timeout_ms))
        for event in self._events[0 : max(0, count)]:
            answer = self.answers[event.request]
            assert not answer.finish, "an event after the last"
            if event.kind == EVENT_TOKEN:
                answer.tokens.append(event.token)
                answer.keeps.append(event.keep)
                answer.logprobs.append(event.logprob.logprob)
                answer.tops.append(
                    [
                        (event.logprob.top_ids[i], event.logprob.top_logprobs[i])
                        for i in range(event.logprob.n_top)
                    ]
                )
            answer.stats = _values(event.stats)
            if event.kind == EVENT_DONE:
                answer.finish, answer.stop = FINISHES[event.finish], event.stop
        return count

    def wait(self, *ids: int) -> list[Answer]:
        """Poll until these requests have ended."""
        for _ in range(10_000):
            if all(self.answers[i].finish for i in ids):
                return [self.answers[i] for i in ids]
            assert self.poll(30_000) > 0, "no event in 30 s"
        raise AssertionError("the requests do not end")

    def run(self, *requests: Request) -> list[Answer]:
        """Submit together and wait for all."""
        return self.wait(*[self.submit(request) for request in requests])

    def stats(self) -> dict[str, Any]:
        """oj_engine_stats."""
        out = self.ffi.new("oj_engine_stats *")
        self.lib.oj_engine_get_stats(self.engine, out)
        return _values(out)

    def close(self) -> None:
        """Close engine and model."""
        self.lib.oj_engine_close(self.engine)
        self.lib.oj_model_close(self.model)

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def tokens_of(answers: Iterable[Answer]) -> list[list[int]]:
    """Only the token ids."""
    return [answer.tokens for answer in answers]
