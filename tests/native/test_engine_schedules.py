"""Whoever else is served, however a prompt is cut, whatever is drafted, reused or evicted: a
request gets the same tokens and the same log-probability bits as alone. On the CPU backend."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native.engine_driver import Answer, Driver, Request

SYSTEM = [(7 * i * i + 3 * i) % 500 for i in range(150)]

tokens = st.lists(st.integers(0, 499), min_size=1, max_size=40)
sampling = st.sampled_from(
    [
        {},
        {"temperature": 0.8, "seed": 3, "top_k": 20},
        {"temperature": 1.2, "seed": 9, "top_p": 0.9, "presence": 0.5, "frequency": 0.2},
        {"repetition": 1.3},
    ]
)


@st.composite
def turns(draw: st.DrawFn) -> dict[str, Any]:
    """A request: what it goes on from, what it adds, how it is sampled, whether it is cancelled."""
    return {
        "base": draw(st.integers(-2, 5)),  # an earlier request; below 0 the system prompt
        "new": draw(tokens),
        "boundary": draw(st.booleans()),
        "max_tokens": draw(st.integers(1, 24)),
        "draft": draw(st.integers(-1, 5)),
        "sampling": draw(sampling),
        "cancelled": draw(st.integers(0, 5)) == 0,
        "client": draw(st.sampled_from(["a", "b"])),
    }


# Each in a new engine, or in the one before.
rounds = st.lists(
    st.tuples(st.booleans(), st.lists(turns(), min_size=1, max_size=4)), min_size=1, max_size=3
)
pools = st.fixed_dictionaries(
    {
        "n_slots": st.integers(1, 5),
        "n_pages": st.integers(6, 16),
        "n_snapshots": st.integers(0, 8),
        "max_rows": st.sampled_from([13, 32, 64]),
        "host_bytes": st.sampled_from([0, 500_000, 1 << 30]),
    }
)


@pytest.fixture(scope="module")
def lone(library: Any, micro_model: Path) -> Any:
    """An engine without drafts and reuse, for one request at a time."""
    with Driver(library, micro_model, n_slots=1, n_snapshots=0, context=384) as engine:
        yield engine


def alone(lone: Driver, request: Request, known: dict[str, Answer]) -> Answer:
    plain = replace(request, draft=0, client="")
    return known.setdefault(repr(plain), lone.run(plain)[0])


def same(answer: Answer, expected: Answer) -> bool:
    return (answer.tokens, answer.logprobs) == (expected.tokens, expected.logprobs)


@given(schedule=rounds, pool=pools, keeps=st.booleans())
@settings(max_examples=max(100, settings.default.max_examples))
@pytest.mark.timeout(3600)  # 2,000 schedules in soak
def test_any_schedule(
    library: Any,
    micro_model: Path,
    lone: Driver,
    schedule: list[Any],
    pool: dict[str, Any],
    keeps: bool,
) -> None:
    """Submit, follow up, share, cancel, evict, spill, restore, restart and draft in any mix;
    nothing is left behind."""
    known: dict[str, Answer] = {}
    histories: list[list[int]] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        state_dir = Path(folder) if keeps else None
        engine = None
        for restarts, turns_ in schedule:
            if engine is None or restarts:
                opened.close()
                engine = opened.enter_context(
                    Driver(library, micro_model, context=384, draft=3, state_dir=state_dir, **pool)
                )
            run_round(engine, lone, turns_, histories, known)


def run_round(
    engine: Driver,
    lone: Driver,
    turns_: list[Any],
    histories: list[list[int]],
    known: dict[str, Answer],
) -> None:
    asked = []
    for turn in turns_:
        base = (
            SYSTEM
            if turn["base"] < 0
            else (histories or [SYSTEM])[turn["base"] % max(1, len(histories))]
        )
        prompt = base[:300] + turn["new"]
        request = Request(
            prompt,
            max_tokens=turn["max_tokens"],
            boundaries=[len(base[:300])] if turn["boundary"] else [],
            draft=turn["draft"],
            sampling=turn["sampling"],
            client=turn["client"],
        )
        asked.append((engine.submit(request), request))
        if turn["cancelled"]:
            engine.lib.oj_cancel(engine.engine, asked[-1][0])
    for (id_, request), answer in zip(asked, engine.wait(*[id_ for id_, _ in asked]), strict=True):
        expected = alone(lone, request, known)
        if answer.finish == "cancelled":
            n = len(answer.tokens)
            assert answer.tokens == expected.tokens[:n], id_
        else:
            assert same(answer, expected), id_
        histories.append([*request.tokens, *answer.tokens])
    stats = engine.stats()
    while stats["running"]:
        stats = engine.stats()
    assert stats["waiting"] == stats["pages_used"] == 0
    assert (stats["snapshots_used"] == 0) == (stats["pages_cached"] == 0)


def test_draft_depth_and_source_change_nothing(library: Any, micro_model: Path) -> None:
    """At temperature 0 and with a seed, with many drafts of both sources in a repetitive text."""
    prompt = [1, 2, 3, 4, 5, 6, 7, 8] * 6
    bias = {"bias": dict.fromkeys(range(1, 9), 4.0), "temperature": 0.4, "seed": 1}
    for extra in ({}, bias):
        answers = []
        drafted = [0, 0]
        for draft in (0, 1, 3, 8):
            with Driver(library, micro_model, n_snapshots=0) as engine:
                request = Request(prompt, max_tokens=60, draft=draft, sampling=extra)
                answers.append(engine.run(request)[0])
            for source in (0, 1):
                drafted[source] += sum(answers[-1].stats["drafted_at"][source])
        assert all(same(answer, answers[0]) for answer in answers)
        assert min(drafted) > 0, "both sources were tried"


@pytest.mark.parametrize("max_rows", [9, 16, 64])
def test_chunk_size_changes_nothing(library: Any, micro_model: Path, max_rows: int) -> None:
    """A prompt read in chunks of any size, alone and beside another that decodes."""
    request = Request(SYSTEM, max_tokens=10)
    with Driver(library, micro_model, n_snapshots=0, n_slots=1, max_rows=400) as engine:
        whole = engine.run(request)[0]
    options = {"n_slots": 2 if max_rows > 9 else 1, "min_prompt_rows": 7}
    with Driver(library, micro_model, n_snapshots=0, max_rows=max_rows, **options) as engine:
        first, second = engine.run(Request([5, 6], max_tokens=60), request)
        assert same(second, whole)
        assert first.stats["generated"] == 60


def test_logprob_alternatives(library: Any, micro_model: Path) -> None:
    """The chosen token's log-probability is among them, and drafts do not change them."""
    results = []
    for draft in (0, 4):
        with Driver(library, micro_model) as engine:
            sampling_ = {"top_logprobs": 5, "temperature": 0.5, "seed": 2}
            results.append(engine.run(Request(SYSTEM, draft=draft, sampling=sampling_))[0])
    assert results[0].tops == results[1].tops
    for token, logprob, top in zip(
        results[0].tokens, results[0].logprobs, results[0].tops, strict=True
    ):
        assert len(top) == 5
        assert [p for _, p in top] == sorted((p for _, p in top), reverse=True)
        assert dict(top).get(token, logprob) == logprob


def test_rejection_sampling_with_one_draft_plan(library: Any, micro_model: Path) -> None:
    """Unseeded requests: with the draft plan fixed, the same tokens alone and in company."""
    request = Request(
        [1, 2, 3, 4] * 8,
        max_tokens=40,
        draft=3,
        sampling={"temperature": 0.9, "seed": 77, "coupled": 0, "top_k": 30},
    )
    with Driver(library, micro_model, n_slots=1, n_snapshots=0) as engine:
        expected = engine.run(request)[0]
    with Driver(library, micro_model) as engine:
        others = [Request(SYSTEM, max_tokens=30), Request([9], max_tokens=50, draft=2)]
        assert same(engine.run(*others, request)[2], expected)
        assert same(engine.run(request)[0], expected)
