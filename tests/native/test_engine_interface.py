"""The engine through the C interface, on the scripted backend: what a request gets, and what
wrong ones are told."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.native.engine_driver import Driver, NativeError, Request, Rule
from tests.native.steps import SCRIPTED

CLOSED, INVALID, BUSY, CONTEXT, FAULT = 8, 1, 6, 7, 9
SCRIPT = [
    Rule([100, 101], [1, 2, 3, 4, 5, 6, 7, 8], per_step=3),
    Rule([102], [10] * 400, delay_us=5000),
    Rule([103], [1, 2, 3], fault_after=2),
    Rule([], [50, 51]),
]


def driver(library: Any, model: Path, **options: Any) -> Driver:
    return Driver(library, model, kind=SCRIPTED, **({"script": SCRIPT, "draft": 8} | options))


def test_replies_and_ends(library: Any, micro_model: Path) -> None:
    """Replies by rule, one or several tokens a step, each with its end-of-generation token."""
    with driver(library, micro_model) as engine:
        many, other = engine.run(
            Request([7, 100, 101], ignore_eos=False), Request([7], ignore_eos=False)
        )
        assert many.tokens[:-1] == [1, 2, 3, 4, 5, 6, 7, 8]
        assert other.tokens[:-1] == [50, 51]
        assert many.keeps == [-1] * 8 + [0]
        assert many.finish == other.finish == "stop"
        assert sum(many.stats["accepted_at"][0]) >= 4, "several tokens a step"
        assert many.stats["generated"] == 9
        cut, named = engine.run(
            Request([7, 100, 101], max_tokens=4), Request([7], stop_tokens=[51])
        )
        assert (cut.tokens, cut.finish) == ([1, 2, 3, 4], "length")
        assert (named.tokens, named.keeps, named.finish) == ([50, 51], [-1, 0], "stop")


def test_drafts_are_counted_by_place(library: Any, micro_model: Path) -> None:
    """A draft counts as accepted only with all before it; the engine adds up its requests."""
    with driver(library, micro_model) as engine:
        answers = engine.run(Request([7, 100, 101], max_tokens=7), Request([7], max_tokens=30))
        stats = engine.stats()
    for name in ("drafted_at", "accepted_at"):
        total = np.sum([answer.stats[name] for answer in answers], axis=0)
        assert stats[name] == total.tolist()
    drafted, accepted = stats["drafted_at"][0], stats["accepted_at"][0]
    assert accepted[0] > 0
    assert drafted == sorted(drafted, reverse=True)
    assert accepted == sorted(accepted, reverse=True)
    assert all(a <= d for a, d in zip(accepted, drafted, strict=True))
    for answer in answers:  # every token is chosen, accepted or cut off at the end
        assert sum(answer.stats["accepted_at"][0]) < answer.stats["generated"]


def test_follow_up_reads_only_new_tokens(library: Any, micro_model: Path) -> None:
    """Also when the answer ended inside a block of drafts."""
    with driver(library, micro_model) as engine:
        history = [7, 100, 101]
        for _ in range(3):
            answer = engine.run(Request(history, ignore_eos=False))[0]
            history += [*answer.tokens, 60]
        assert engine.run(Request(history))[0].stats["cached_tokens"] >= len(history) - 2


def test_prompt_progress_is_reported(library: Any, micro_model: Path) -> None:
    """A prompt longer than a step's rows is read in chunks."""
    with driver(library, micro_model) as engine:
        first = engine.submit(Request(list(range(50)) * 4))
        seen = set()
        while not engine.answers[first].finish:
            engine.poll()
            seen.add(engine.answers[first].stats.get("prompt_read"))
        assert engine.answers[first].stats["prompt_read"] == 200
        assert engine.stats()["prompt_rows"] == 200


def test_cancel_and_deadline(library: Any, micro_model: Path) -> None:
    """Running or waiting, at the next step, and nobody else notices."""
    with driver(library, micro_model, n_slots=1) as engine:
        running = engine.submit(Request([102], max_tokens=400))
        late = engine.submit(Request([102], max_tokens=400, deadline_us=1))
        waiting = engine.submit(Request([102], max_tokens=400))
        last = engine.submit(Request([1], max_tokens=2))
        while not engine.answers[running].tokens:
            engine.poll()
        engine.lib.oj_cancel(engine.engine, running)
        engine.lib.oj_cancel(engine.engine, waiting)
        engine.lib.oj_cancel(engine.engine, 12345)
        answers = engine.wait(running, late, waiting, last)
        assert [a.finish for a in answers] == ["cancelled", "deadline", "cancelled", "length"]
        assert 0 < len(answers[0].tokens) < 400
        assert answers[3].tokens == [50, 51]


def test_cancel_while_the_prompt_is_read(library: Any, micro_model: Path) -> None:
    """It ends before its first token, the one beside it goes on, and the prompt can come again."""
    script = [Rule([102], [10] * 40, delay_us=60_000), Rule([], [50, 51])]
    with driver(library, micro_model, script=script, max_rows=16) as engine:
        beside = engine.submit(Request([102], max_tokens=40))  # makes every step take 60 ms
        while not engine.answers[beside].tokens:
            engine.poll()
        prompt = list(range(50)) * 9
        reading = engine.submit(Request(prompt, max_tokens=2))
        while not engine.answers[reading].stats.get("prompt_read"):
            engine.poll()
        engine.lib.oj_cancel(engine.engine, reading)
        cancelled = engine.wait(reading)[0]
        assert (cancelled.tokens, cancelled.finish) == ([], "cancelled")
        assert 0 < cancelled.stats["prompt_read"] < len(prompt)
        again, other = engine.wait(engine.submit(Request(prompt, max_tokens=2)), beside)
        assert (again.tokens, again.finish) == ([50, 51], "length")
        assert (other.tokens, other.finish) == ([10] * 40, "length")


def test_queue_limits(library: Any, micro_model: Path) -> None:
    """Past the bounds a request is refused at once, and room comes back."""
    with driver(library, micro_model, n_slots=1, max_queue=3, max_queue_client=2) as engine:
        slow = Request([102], max_tokens=400)
        ids = [engine.submit(slow)]
        while engine.stats()["running"] == 0:
            engine.poll(10)
        ids += [engine.submit(slow) for _ in range(2)]
        with pytest.raises(NativeError, match='2 requests of client ""') as refused:
            engine.submit(slow)
        assert refused.value.code == BUSY
        ids.append(engine.submit(Request([1], client="b")))
        with pytest.raises(NativeError, match="3 requests wait") as refused:
            engine.submit(Request([1], client="c"))
        assert refused.value.code == BUSY
        for i in ids[:3]:
            engine.lib.oj_cancel(engine.engine, i)
        engine.wait(*ids)
        assert engine.run(Request([1], client="c", max_tokens=2))[0].tokens == [50, 51]


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (Request([]), INVALID, "the prompt is empty"),
        (Request([1, 512]), INVALID, r"tokens\[1\] is 512, expected a token id from 0 to 511"),
        (Request([1, -1]), INVALID, r"tokens\[1\] is -1"),
        (Request([1] * 512), CONTEXT, "prompt has 512 tokens, but the context is 512"),
        (Request([1] * 9, boundaries=[4, 3]), INVALID, r"boundaries\[1\] is 3"),
        (Request([1], boundaries=[2]), INVALID, r"boundaries\[0\] is 2"),
        (Request([1], stops=[b""]), INVALID, r"stops\[0\] in bytes is 0, expected 1 to 256"),
        (Request([1], stops=[b"x" * 257]), INVALID, "in bytes is 257"),
        (Request([1], stops=[b"x"] * 17), INVALID, "n_stops is 17, expected 0 to 16"),
        (Request([1], starts_hidden=0), INVALID, "starts_hidden is 0"),
        (Request([1], hidden=[1, 900]), INVALID, r"hidden\[1\] is 900"),
        (Request([1], stop_tokens=[-5]), INVALID, r"stop_tokens\[0\] is -5"),
        (Request([1], draft=9), INVALID, "draft is 9, expected -1 to 8"),
        (Request([1], deadline_us=-1), INVALID, "deadline_us is -1"),
        (Request([1], sampling={"temperature": -1}), INVALID, "sampling.temperature"),
        (Request([1], sampling={"temperature": float("nan")}), INVALID, "temperature is nan"),
        (Request([1], sampling={"top_p": float("inf")}), INVALID, "top_p is inf"),
        (Request([1], sampling={"top_k": -1}), INVALID, "top_k is -1"),
        (Request([1], sampling={"min_p": 1.5}), INVALID, "min_p is 1.5"),
        (Request([1], sampling={"repetition": 0}), INVALID, "repetition is 0"),
        (Request([1], sampling={"top_logprobs": 21}), INVALID, "top_logprobs is 21"),
        (Request([1], sampling={"bias": {512: 1.0}}), INVALID, r"bias_ids\[0\] is 512"),
        (Request([1], sampling={"bias": {5: float("nan")}}), INVALID, "bias_values is nan"),
    ],
)
def test_wrong_requests_are_told_why(
    library: Any, micro_model: Path, request_: Request, code: int, words: str
) -> None:
    """The field, what it was and what would be right; the engine goes on."""
    with driver(library, micro_model) as engine:
        with pytest.raises(NativeError, match=words) as refused:
            engine.submit(request_)
        assert refused.value.code == code
        assert engine.run(Request([1], max_tokens=2))[0].tokens == [50, 51]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_slots": 0}, "n_slots is 0, expected 1"),
        ({"context": 1 << 20}, "context is 1048576"),
        ({"context": 512, "n_pages": 7}, "raise n_pages or lower context"),
        ({"max_rows": 5}, "max_rows"),
        ({"draft": 9}, "draft is 9"),
        ({"step_target": float("nan")}, "step_target is nan"),
        ({"script": [Rule([], [512])]}, "token 512 is not in the vocabulary of 512"),
        ({"script": [Rule([], [], per_step=10)]}, "per_step is 10"),
        ({"kind": 1, "script": []}, "libopenjet_cuda.so"),
        ({"kind": 7, "script": []}, "backend.kind is 7"),
    ],
)
def test_wrong_options_are_told_why(
    library: Any, micro_model: Path, options: dict[str, Any], words: str
) -> None:
    """Nothing is opened, nothing is left behind."""
    settings: dict[str, Any] = {"kind": SCRIPTED, "script": SCRIPT} | options
    with pytest.raises(NativeError, match=words):
        Driver(library, micro_model, **settings)


def test_fault_ends_everything(library: Any, micro_model: Path) -> None:
    """Each request gets its last event, later ones the backend's own words."""
    with driver(library, micro_model) as engine:
        answers = engine.run(Request([102], max_tokens=400), Request([103], max_tokens=40))
        assert [answer.finish for answer in answers] == ["error", "error"]
        with pytest.raises(NativeError, match="the script faults after 2 reply tokens") as lost:
            engine.submit(Request([1]))
        assert lost.value.code == FAULT
        with pytest.raises(NativeError, match="lost"):
            engine.call("oj_engine_health", engine.engine)


def test_stop_and_closed_handles(library: Any, micro_model: Path) -> None:
    """A poll that waits is woken; calls on a closed handle are answered, not crashes."""
    engine = driver(library, micro_model)
    running = engine.submit(Request([102], max_tokens=400))
    engine.call("oj_engine_health", engine.engine)
    results: list[int] = []

    def pump() -> None:
        while (count := engine.poll(60_000)) >= 0:
            pass
        results.append(count)

    thread = threading.Thread(target=pump)
    thread.start()
    time.sleep(0.01)
    engine.lib.oj_engine_stop(engine.engine)
    engine.lib.oj_engine_stop(engine.engine)
    thread.join(60)
    assert results == [-CLOSED]
    assert engine.answers[running].finish == "cancelled"
    engine.close()
    engine.close()
    assert engine.poll() == -CLOSED
    engine.lib.oj_cancel(engine.engine, running)
    assert engine.stats()["steps"] == 0
    for action in (
        lambda: engine.submit(Request([1])),
        lambda: engine.call("oj_engine_health", engine.engine),
    ):
        with pytest.raises(NativeError, match="the engine is not open") as closed:
            action()
        assert closed.value.code == CLOSED


def test_null_arguments(library: Any, micro_model: Path) -> None:
    """Are named."""
    with driver(library, micro_model) as engine:
        null = engine.ffi.NULL
        for name, arguments, words in (
            ("oj_model_open", (null, null), "path is NULL"),
            ("oj_engine_open", (engine.model, null, null), "options is NULL"),
            ("oj_submit", (engine.engine, null, null), "request is NULL"),
            ("oj_backend_open", (engine.model, null, null), "options is NULL"),
        ):
            with pytest.raises(NativeError, match=words):
                engine.call(name, *arguments)
        assert engine.lib.oj_poll(engine.engine, null, 4, 0) < 0
        options = engine.ffi.new("oj_backend_options *")
        options.kind, options.n_slots, options.n_pages, options.max_rows = SCRIPTED, 1, 4, 8
        out = engine.ffi.new("oj_backend **")
        engine.call("oj_backend_open", engine.model, options, out)
        results = engine.ffi.new("oj_seq_result[1]")
        for fields, words in (
            ({"n_rows": 1}, "plan.tokens is NULL"),
            ({"n_seqs": 1}, "plan.seqs is NULL"),
            ({"n_seqs": -1}, "negative"),
        ):
            with pytest.raises(NativeError, match=words):
                engine.call("oj_backend_step", out[0], engine.ffi.new("oj_plan *", fields), results)
        engine.lib.oj_backend_close(out[0])
        with pytest.raises(NativeError, match="the backend is not open"):
            engine.call("oj_backend_reset", out[0], 0)
        assert engine.lib.oj_sizeof(null) == 0
        assert engine.lib.oj_sizeof(b"oj_event") == engine.ffi.sizeof("oj_event")


def test_fairness_between_clients(library: Any, micro_model: Path) -> None:
    """A client with many requests does not keep another's single one waiting."""
    with driver(library, micro_model, n_slots=1) as engine:
        # The first one runs until all the others wait.
        sizes = [200, 3, 3, 3, 3, 3]
        busy = [engine.submit(Request([102], client="a", max_tokens=n)) for n in sizes]
        single = engine.submit(Request([102], client="b", max_tokens=3))
        engine.wait(single)
        assert sum(bool(engine.answers[i].finish) for i in busy) <= 2
        engine.wait(*busy)
