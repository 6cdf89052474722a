"""Constrained output and the thinking budget through the whole engine: on the bundled model, and on
scripts that want something else than they may say."""

from __future__ import annotations

import copy
import ctypes
import json
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from openjet_provider._core import TokenRequest
from openjet_provider.chat.types import ChatRequest, ChatResult, Sampling
from openjet_provider.engine import Engine, ScriptRule
from openjet_provider.errors import ConstraintError, RequestTimeoutError
from openjet_provider.masks import Constraint
from tests.engine.conftest import TINY, ask

Open = Callable[..., Engine]

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
    },
    "required": ["city", "days"],
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "list_files"}},
]
ANSWER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "warm": {"type": "boolean"}},
    "required": ["city", "warm"],
    "additionalProperties": False,
}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": ANSWER}}
NAMED = {"type": "function", "function": {"name": "list_files"}}
QUESTION = "What is the weather in Oslo for 3 days?"


def check(result: ChatResult, choice: Any, response_format: Any) -> None:
    """What an answer that ended by itself must be."""
    assert result.finish_reason in ("stop", "tool_calls")
    for call in result.tool_calls:
        parameters = WEATHER if call.name == "weather" else {"type": "object"}
        jsonschema.validate(json.loads(call.arguments), parameters)
    if choice == "none":
        assert not result.tool_calls
        assert "<tool_call>" not in (result.content or "")
    if choice == "required":
        assert result.tool_calls
    if choice == NAMED:
        assert [call.name for call in result.tool_calls] == ["list_files"]
    if response_format and not result.tool_calls:
        answer = json.loads(result.content or "")
        jsonschema.validate(answer, ANSWER if response_format == JSON_SCHEMA else {})


@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize("response_format", [None, JSON_SCHEMA, {"type": "json_object"}])
@pytest.mark.parametrize("choice", [None, "none", "required", NAMED])
def test_every_combination_is_well_formed(
    tiny: Engine, choice: Any, response_format: Any, thinking: bool
) -> None:
    for temperature in (0.0, 1.0):
        result = tiny.chat(
            ask(
                QUESTION,
                tools=TOOLS,
                tool_choice=choice,
                response_format=response_format,
                enable_thinking=thinking,
                max_tokens=600,
                sampling=Sampling(temperature=temperature, seed=1),
            )
        ).result()
        if result.finish_reason == "length":
            for call in result.tool_calls:
                json.loads(call.arguments)
        else:
            check(result, choice, response_format)


def test_one_call_when_calls_may_not_be_parallel(scripted: Open) -> None:
    call = "<tool_call>\n<function=list_files>\n</function>\n</tool_call>"
    engine = scripted(ScriptRule(reply=f"Both at once.\n\n{call}\n{call}"))
    asked = {"tools": TOOLS, "enable_thinking": False}
    assert len(engine.chat(ask(**asked)).result().tool_calls) == 2
    one = engine.chat(ask(parallel_tool_calls=False, **asked)).result()
    assert (one.content, len(one.tool_calls)) == ("Both at once.", 1)


def test_drafts_and_company_change_no_token_of_a_constrained_turn(
    tiny: Engine, tmp_path: Path
) -> None:
    model = shutil.copy(tiny.path, tmp_path)  # a core of its own

    def request(text: str, **options: Any) -> ChatRequest:
        sampling = Sampling(temperature=1.0, seed=7)
        return ask(text, tools=TOOLS, max_tokens=150, sampling=sampling, **options)

    free = request("Say something about cats.", ignore_eos=True)
    held = [
        request(QUESTION, tool_choice="required", enable_thinking=True),
        request(QUESTION, response_format=JSON_SCHEMA),
        request(QUESTION, parallel_tool_calls=False, enable_thinking=True),
    ]

    def said(results: Sequence[ChatResult]) -> list[Any]:
        return [
            (r.content, r.reasoning, [(c.name, c.arguments) for c in r.tool_calls]) for r in results
        ]

    with Engine(model, backend="cpu", drafts=0) as plain:
        alone = said([plain.chat(one).result() for one in [free, *held]])
    with (
        Engine(model, backend="cpu", drafts=4, agents=5) as together,
        together.chat(ask("Something long.", ignore_eos=True)),  # there from the first to the last
    ):
        streams = [together.chat(one) for one in [free, *held]]
        assert said([stream.result() for stream in streams]) == alone
        assert together.stats().shared_steps > 0


def test_forced_tokens_cost_no_steps_of_their_own(tiny: Engine) -> None:
    before = tiny.stats().steps
    result = tiny.chat(ask(QUESTION, tools=TOOLS, tool_choice=NAMED, max_tokens=50)).result()
    assert [call.name for call in result.tool_calls] == ["list_files"]
    assert tiny.stats().steps - before <= result.usage.completion_tokens // 2


# --- a model that wants something else ----------------------------------------------------------


@pytest.mark.parametrize("per_step", [1, 4])
@pytest.mark.parametrize("reply", ["", "No, I will not.", "<|im_end|>", "</tool_call></think>{"])
def test_an_unwilling_model_calls_when_it_must(scripted: Open, reply: str, per_step: int) -> None:
    engine = scripted(ScriptRule(reply=reply, per_step=per_step), drafts=4)
    for thinking in (False, True):
        result = engine.chat(
            ask(tools=TOOLS[1:], tool_choice=NAMED, enable_thinking=thinking, thinking_budget=3)
        ).result()
        assert [(call.name, call.arguments) for call in result.tool_calls] == [("list_files", "{}")]
        assert (result.content, result.finish_reason) == (None, "tool_calls")


def test_masked_drafts_are_verified_several_a_step(scripted: Open) -> None:
    reply = '{"city": "Oslo", "warm": false}'
    engine = scripted(ScriptRule(reply=reply, per_step=4), drafts=4)
    stream = engine.chat(ask(response_format=JSON_SCHEMA))
    assert (stream.result().content, stream.result().finish_reason) == (reply, "stop")
    assert sum(stream.stats.accepted) > 0


# --- thinking budget ----------------------------------------------------------------------------

THOUGHTS = "one two three four five six seven eight nine ten"


@pytest.mark.parametrize("per_step", [1, 3])
@pytest.mark.parametrize("budget", [0, 1, 4, 5])
def test_a_budget_closes_the_thinking(scripted: Open, budget: int, per_step: int) -> None:
    engine = scripted(ScriptRule(reply=f"{THOUGHTS}\n</think>\n\nDone.", per_step=per_step))
    whole = engine.chat(ask(enable_thinking=True)).result()
    assert (whole.reasoning, whole.content) == (THOUGHTS, "Done.")
    result = engine.chat(ask(enable_thinking=True, thinking_budget=budget)).result()
    tokens = engine.format.tokenizer.encode(THOUGHTS)
    kept = engine.format.tokenizer.decode(tokens[:budget]).strip()
    assert result.reasoning == (kept or None)
    assert result.usage.reasoning_tokens <= budget + 2  # with the line break and </think>
    assert result.content  # whatever the script has left


def test_a_budget_that_is_not_used_up_changes_nothing(scripted: Open) -> None:
    engine = scripted(ScriptRule(reply=f"{THOUGHTS}\n</think>\n\nDone."))
    n_tokens = len(engine.format.tokenizer.encode(THOUGHTS + "\n"))
    result = engine.chat(ask(enable_thinking=True, thinking_budget=n_tokens + 1)).result()
    assert (result.reasoning, result.content) == (THOUGHTS, "Done.")


def test_a_budget_splits_no_character(scripted: Open) -> None:
    engine = scripted(ScriptRule(reply="🦖🦖🦖🦖\n</think>\n\nDone."))
    n_bytes = len(engine.format.tokenizer.encode("🦖🦖🦖🦖"))
    assert n_bytes > 8  # the vocabulary has no token for it
    for budget in range(1, n_bytes):
        reasoning = (
            engine.chat(ask(enable_thinking=True, thinking_budget=budget)).result().reasoning
        )
        assert reasoning == "🦖" * -(-budget * 4 // n_bytes)


def test_a_budget_counts_thinking_that_the_model_opened_itself(scripted: Open) -> None:
    engine = scripted(ScriptRule(reply=f"<think>{THOUGHTS}</think>Done."))
    result = engine.chat(ask(thinking_budget=2)).result()
    tokens = engine.format.tokenizer.encode(THOUGHTS)
    assert result.reasoning == engine.format.tokenizer.decode(tokens[:2]).strip()


def test_the_answer_follows_a_closed_thinking_on_the_model(tiny: Engine) -> None:
    greedy = {"sampling": Sampling(temperature=0), "enable_thinking": True, "thinking_budget": 3}
    result = tiny.chat(ask(QUESTION, tools=TOOLS, tool_choice="required", **greedy)).result()
    assert result.usage.reasoning_tokens <= 5
    check(result, "required", None)


# --- what goes wrong ----------------------------------------------------------------------------


class Matcher:
    """Allows everything; fails or blocks when told to."""

    def __init__(self, n_vocab: int) -> None:
        self.n_words = (n_vocab + 31) // 32
        self.bits = 0xFF
        self.fail_at = -1
        self.release = threading.Event()
        self.release.set()
        self.seen: list[int] = []

    def advance(self, tokens: Sequence[int]) -> None:
        self.seen += tokens
        self.release.wait(100)
        if len(self.seen) == self.fail_at:
            raise ConstraintError("out of rules")

    def forced(self) -> list[int]:
        return []

    def fill(self, address: int, size: int) -> None:
        ctypes.memset(address, self.bits, size)

    def try_advance(self, token: int) -> bool:
        self.seen.append(token)
        return True

    def copy(self) -> Matcher:
        ahead = copy.copy(self)
        ahead.seen = [*self.seen]
        return ahead


@pytest.fixture
def matcher(tiny: Engine) -> Matcher:
    return Matcher(len(tiny.format.tokenizer))


def tokens_of(engine: Engine, **options: Any) -> TokenRequest:
    prompt = engine.format.prompt(ask(QUESTION)).tokens
    return TokenRequest(tokens=prompt, ignore_eos=True, **options)


def test_a_matcher_sees_every_token_of_its_part_once(tiny: Engine, matcher: Matcher) -> None:
    generation = tiny.generate(
        tokens_of(tiny, max_tokens=40, constraint=Constraint(matcher=matcher))
    )
    said = []
    while got := generation.take():
        said += [token.id for token in got]
    assert len(said) == 40
    assert matcher.seen == said[: len(matcher.seen)]
    assert len(matcher.seen) >= 35


def test_a_failing_matcher_ends_its_own_request_only(tiny: Engine, matcher: Matcher) -> None:
    other = tiny.generate(tokens_of(tiny, max_tokens=60))
    matcher.fail_at = 0
    failing = tiny.generate(tokens_of(tiny, max_tokens=60, constraint=Constraint(matcher=matcher)))
    with pytest.raises(ConstraintError, match="out of rules"):
        drain(failing)
    assert len(drain(other)) == 60
    assert len(drain(tiny.generate(tokens_of(tiny, max_tokens=5)))) == 5


def test_a_matcher_that_fails_on_a_draft_ends_nothing(tiny: Engine, matcher: Matcher) -> None:
    failed: list[int] = []

    def fail(token: int) -> bool:
        failed.append(token)
        raise ConstraintError("out of rules")

    matcher.try_advance = fail  # type: ignore[method-assign]
    generation = tiny.generate(
        tokens_of(tiny, max_tokens=60, constraint=Constraint(matcher=matcher))
    )
    assert len(drain(generation)) == 60
    assert failed


def test_any_fault_of_a_matcher_is_its_requests(tiny: Engine, matcher: Matcher) -> None:
    matcher.fill = None  # type: ignore[assignment,method-assign]
    failing = tiny.generate(tokens_of(tiny, max_tokens=60, constraint=Constraint(matcher=matcher)))
    with pytest.raises(ConstraintError, match="NoneType"):
        drain(failing)


def test_masks_that_allow_nothing_end_the_request(tiny: Engine, matcher: Matcher) -> None:
    matcher.bits = 0
    failing = tiny.generate(tokens_of(tiny, max_tokens=60, constraint=Constraint(matcher=matcher)))
    with pytest.raises(ConstraintError, match="no token"):
        drain(failing)


def test_waiting_for_masks_stops_for_cancel_and_deadline(tiny: Engine, matcher: Matcher) -> None:
    matcher.release.clear()
    constraint = Constraint(matcher=matcher)
    try:
        waiting = tiny.generate(tokens_of(tiny, max_tokens=60, constraint=constraint))
        assert len(drain(tiny.generate(tokens_of(tiny, max_tokens=20)))) == 20  # nobody else waits
        waiting.cancel()
        assert drain(waiting) == []
        assert waiting.finish == "cancelled"
        late = tiny.generate(tokens_of(tiny, max_tokens=60, timeout_s=0.1, constraint=constraint))
        started = time.monotonic()
        with pytest.raises(RequestTimeoutError):
            drain(late)
        assert time.monotonic() - started < 50
    finally:
        matcher.release.set()


def test_closing_does_not_wait_for_a_constrained_request() -> None:
    engine = Engine(TINY, backend="scripted", script=[ScriptRule(reply="word " * 400)])
    threads = {thread for thread in threading.enumerate() if thread.name == "openjet-masks"}
    matcher = Matcher(len(engine.format.tokenizer))
    waiting = engine.generate(
        tokens_of(engine, max_tokens=1000, constraint=Constraint(matcher=matcher))
    )
    engine.close()
    drain(waiting)
    assert waiting.finish == "cancelled"
    assert {t for t in threading.enumerate() if t.name == "openjet-masks"} <= threads


def drain(generation: Any) -> list[int]:
    said: list[int] = []
    while got := generation.take():
        said += [token.id for token in got]
    return said
