"""What a constrained request may say. The walks take any token that a mask allows, as a model with
any weights could, and check what the output parser makes of the result."""

from __future__ import annotations

import json
import random
import statistics
import time
from array import array
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from openjet_provider.chat.constraint import Constrainer
from openjet_provider.chat.parser import OutputParser
from openjet_provider.chat.prompt import PromptBuilder
from openjet_provider.chat.tokenizer import Tokenizer
from openjet_provider.chat.types import ChatRequest, ChatResult, Usage
from openjet_provider.errors import InvalidRequestError
from openjet_provider.masks import UNCONSTRAINED, Constraint, TokenMatcher
from tests.chat.conftest import vocabulary
from tests.reference import vocabulary as reference

TEMPLATE = Path(__file__).parents[2] / "tools" / "train_tiny" / "chat_template.jinja"

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "unit": {"enum": ["C", "F", "two\nlines", 7, None]},
        "code": {"type": "string", "pattern": "^[a-z]{2}/[0-9]+$"},
        "note": {"type": "string", "minLength": 2, "maxLength": 5},
        "where": {"$ref": "#/$defs/Point"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 2},
        "exact": {"type": "boolean"},
        "until": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "null"}]},
        "alias": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["city", "days", "where"],
    "$defs": {
        "Point": {
            "type": "object",
            "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 99}},
            "required": ["x"],
            "additionalProperties": False,
        }
    },
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "list_files"}},
]
PARAMETERS = {"weather": WEATHER, "list_files": {"type": "object", "maxProperties": 0}}

ANSWER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "kind": {"enum": ["cat", "dog"]},
        "age": {"type": "number", "minimum": 0, "maximum": 30},
        "friends": {"type": "array", "items": {"type": "string", "maxLength": 4}, "maxItems": 3},
    },
    "required": ["name", "kind"],
    "additionalProperties": False,
}
JSON_OBJECT = {"type": "json_object"}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "pet", "schema": ANSWER}}

CALL = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n"
    '<parameter=days>\n3\n</parameter>\n<parameter=where>\n{"x": 4}\n</parameter>\n'
    "</function>\n</tool_call>"
)
FILES = "<tool_call>\n<function=list_files>\n</function>\n</tool_call>"


@pytest.fixture(scope="module")
def constrainer(tokenizer: Tokenizer) -> Constrainer:
    return Constrainer(tokenizer)


class Asked:
    """One request's constraint, and the parser its output goes to."""

    def __init__(self, constrainer: Constrainer, tokenizer: Tokenizer, **options: Any) -> None:
        request = ChatRequest(messages=[{"role": "user", "content": "Hello"}], **options)
        prompt = PromptBuilder(tokenizer).build(request)
        self.tokenizer = tokenizer
        self.constraint: Constraint = constrainer.constraint(request, prompt)
        self.parser = OutputParser(
            tokenizer, tools=prompt.tools, reasoning_open=prompt.reasoning_open
        )

    @property
    def matcher(self) -> TokenMatcher:
        assert self.constraint.matcher is not None
        return self.constraint.matcher

    def accepts(self, text: str) -> bool:
        """The whole text and then the end of the turn."""
        ids = self.tokenizer.encode(text, parse_special=True)
        taken = all(self.matcher.try_advance(token) for token in ids)
        return taken and self.tokenizer.vocabulary.eos_id in self.mask()

    def mask(self, matcher: TokenMatcher | None = None) -> list[int]:
        words = array("I", [0]) * ((len(self.tokenizer) + 31) // 32)
        (matcher or self.matcher).fill(words.buffer_info()[0], 4 * len(words))
        return [id for id in range(len(self.tokenizer)) if words[id // 32] >> id % 32 & 1]

    def walk(self, rng: random.Random, most: int) -> ChatResult:
        """Random tokens under the masks, now and then some that would end a string."""
        eos = self.tokenizer.vocabulary.eos_id
        ends = [list(self.tokenizer.encode(text)) for text in ("\n</parameter>\n", '"')]
        wanted: list[int] = []
        for _ in range(most):
            forced, allowed = self.matcher.forced(), self.mask()
            assert set(forced[:1]) <= set(allowed)
            if not wanted and rng.random() < 0.2:
                wanted = list(rng.choice(ends))
            wish = wanted.pop(0) if wanted else -1
            token = forced[0] if forced else wish if wish in allowed else rng.choice(allowed)
            self.matcher.advance([token])
            if token == eos:
                self.parser.finish("stop")
                break
            self.parser.feed([token])
        else:
            self.parser.finish("length")
        return self.parser.result(Usage())


@pytest.fixture
def asked(constrainer: Constrainer, tokenizer: Tokenizer) -> Any:
    def ask(**options: Any) -> Asked:
        options.setdefault("enable_thinking", False)
        options.setdefault("tools", TOOLS)
        return Asked(constrainer, tokenizer, **options)

    return ask


# --- what is allowed ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said", "allowed"),
    [
        ({"tool_choice": "required"}, CALL, True),
        ({"tool_choice": "required"}, f"{CALL}\n{FILES}", True),
        ({"tool_choice": "required"}, "I will look.", False),
        ({"tool_choice": "required"}, f"I will look.{CALL}", False),
        ({"tool_choice": "required"}, CALL.replace("\n3\n", "\n15\n"), False),
        ({"tool_choice": "required"}, CALL.replace("city", "town"), False),
        ({"tool_choice": "required"}, CALL.replace("weather", "climate"), False),
        ({"tool_choice": "required", "parallel_tool_calls": False}, CALL, True),
        ({"tool_choice": "required", "parallel_tool_calls": False}, f"{FILES}\n{CALL}", False),
        ({"tool_choice": {"type": "function", "function": {"name": "list_files"}}}, FILES, True),
        ({"tool_choice": {"type": "function", "function": {"name": "list_files"}}}, CALL, False),
        ({"response_format": JSON_SCHEMA}, '{"name": "Mia", "kind": "cat"}', True),
        ({"response_format": JSON_SCHEMA}, '{"name": "Mia", "kind": "cow"}', False),
        ({"response_format": JSON_SCHEMA}, CALL, True),
        ({"response_format": JSON_SCHEMA}, f"{CALL}\n{FILES}", True),
        ({"response_format": JSON_SCHEMA, "parallel_tool_calls": False}, f"{CALL}\n{FILES}", False),
        ({"response_format": JSON_SCHEMA, "tool_choice": "none"}, CALL, False),
        ({"response_format": JSON_SCHEMA, "tool_choice": "required"}, CALL, True),
        (
            {"response_format": JSON_SCHEMA, "tool_choice": "required"},
            '{"name": "Mia", "kind": "cat"}',
            False,
        ),
        (
            {"response_format": {"type": "json_object"}, "tools": ()},
            '{"a": [1, {"b": null}]}',
            True,
        ),
        ({"response_format": {"type": "json_object"}, "tools": ()}, "[1]", False),
    ],
)
def test_what_may_be_said(asked: Any, options: dict[str, Any], said: str, allowed: bool) -> None:
    assert asked(**options).accepts(said) is allowed


@pytest.mark.parametrize(
    ("format_of", "longest"), [("email", "{}@example.com"), ("hostname", "{}.example.com")]
)
@pytest.mark.parametrize("given", [None, 20, 1000])
def test_formats_of_limited_length_end(
    asked: Any, format_of: str, longest: str, given: int | None
) -> None:
    """By their standards, or earlier if the schema says so; what only looks like a schema stays."""
    limit = min(given or 1000, {"email": 254, "hostname": 253}[format_of])
    schema = {"type": "string", "format": format_of, **({"maxLength": given} if given else {})}
    data = {"type": "string", "format": format_of}
    options = {
        "response_format": schema_format({"anyOf": [schema, {"const": data}]}),
        "tools": (),
    }
    label = ("abcdefghi." * 30)[: limit - len(longest.format(""))].strip(".")
    text = longest.format("x" * (limit - len(longest.format(label))) + label)
    assert len(text) == limit
    assert asked(**options).accepts(json.dumps(text))
    assert not asked(**options).accepts(json.dumps("x" + text))
    assert asked(**options).accepts(json.dumps(data))


@pytest.mark.parametrize(
    "value", ["", "a", "two\nlines\n", "<b>\n</b>", "x</parameter>y", "\n\n", "é漢🙂", "a\n</p"]
)
def test_a_string_value_is_written_as_it_is(asked: Any, value: str) -> None:
    said = CALL.replace("Paris", value)
    turn = asked(tool_choice="required")
    assert turn.accepts(said)
    turn.parser.feed(turn.tokenizer.encode(said, parse_special=True))
    turn.parser.finish("stop")
    (call,) = turn.parser.result(Usage()).tool_calls
    assert json.loads(call.arguments)["city"] == value


@pytest.mark.parametrize("value", ["a<parameter=b", "<function=f>", "a\n</parameter>\nb"])
def test_a_string_value_cannot_hold_what_would_be_read_as_its_end(asked: Any, value: str) -> None:
    assert not asked(tool_choice="required").accepts(CALL.replace("Paris", value))


def test_thinking_is_free_and_must_be_closed_first(asked: Any, tokenizer: Tokenizer) -> None:
    turn = asked(tool_choice="required", enable_thinking=True)
    assert turn.constraint.after == tokenizer.special["</think>"]
    allowed = turn.constraint.allowed
    banned = {id for id in range(len(tokenizer)) if not allowed[id // 32] >> id % 32 & 1}
    text = {tokenizer.special[tag] for tag in ("<|im_end|>", "<|im_start|>", "<tool_call>")}
    assert text <= banned
    assert banned <= set(tokenizer.special.values())
    assert turn.accepts(f"\n\n{CALL}")


def test_one_call_at_most_is_free_up_to_the_call(asked: Any, tokenizer: Tokenizer) -> None:
    turn = asked(parallel_tool_calls=False)
    assert (turn.constraint.after, turn.constraint.allowed) == (
        tokenizer.special["<tool_call>"],
        None,
    )
    assert turn.accepts(CALL.removeprefix("<tool_call>"))


def test_tool_choice_none_forbids_only_the_call_token(asked: Any, tokenizer: Tokenizer) -> None:
    constraint = asked(tool_choice="none").constraint
    banned = [id for id in range(len(tokenizer)) if not constraint.allowed[id // 32] >> id % 32 & 1]
    assert constraint.matcher is None
    assert banned == [tokenizer.special["<tool_call>"]]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tool_choice": "auto", "parallel_tool_calls": True},
        {"response_format": {"type": "text"}},
        {"tools": (), "parallel_tool_calls": False},
        {"tools": (), "tool_choice": "none"},
    ],
)
def test_other_requests_are_free(asked: Any, options: dict[str, Any]) -> None:
    assert asked(**options).constraint == UNCONSTRAINED


# --- refusals -----------------------------------------------------------------------------------


def schema_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


def one_tool(schema: Any) -> list[dict[str, Any]]:
    parameters = {"type": "object", "properties": {"p": schema}, "required": ["p"]}
    return [{"type": "function", "function": {"name": "f", "parameters": parameters}}]


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"response_format": schema_format({"not": {}})}, 'Unimplemented keys: ["not"]'),
        ({"response_format": schema_format({"type": "strin"})}, "response_format"),
        ({"response_format": schema_format({"$ref": "http://x/y"})}, "http://x/y"),
        ({"response_format": schema_format({"pattern": "(?=a)", "type": "string"})}, "look-around"),
        ({"response_format": schema_format(None)}, "json_schema"),
        ({"response_format": schema_format(nested(300))}, "recursion limit"),
        ({"response_format": schema_format(nested(3000))}, "nested too deeply"),
        ({"tool_choice": "required", "tools": one_tool(nested(3000))}, "nested too deeply"),
        ({"response_format": {"type": "grammar"}}, "text, json_object or json_schema"),
        ({"tool_choice": "required", "tools": one_tool({"type": "array", "not": {}})}, "'p'"),
        (
            {"tool_choice": "required", "tools": one_tool({"type": "string", "pattern": "(?=a)"})},
            "look-around",
        ),
        ({"tool_choice": "required", "tools": ()}, "has none"),
        ({"tool_choice": {"type": "function", "function": {"name": "g"}}}, "weather, list_files"),
        ({"tool_choice": "sometimes"}, "sometimes"),
        ({"tool_choice": "required", "ignore_eos": True}, "ignore_eos"),
        ({"parallel_tool_calls": False, "ignore_eos": True}, "ignore_eos"),
    ],
)
def test_what_cannot_be_enforced_is_refused(
    asked: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        asked(**options)
    assert words in str(refused.value)


def test_an_answer_begun_by_the_client_cannot_be_held_to_a_schema(
    constrainer: Constrainer, tokenizer: Tokenizer
) -> None:
    request = ChatRequest(
        messages=[{"role": "user", "content": "Go"}, {"role": "assistant", "content": '{"na'}],
        continue_final_message=True,
        response_format=JSON_SCHEMA,
    )
    with pytest.raises(InvalidRequestError, match="continue_final_message"):
        constrainer.constraint(request, PromptBuilder(tokenizer).build(request))


# --- any weights --------------------------------------------------------------------------------


def check(result: ChatResult, *, most_calls: int | None, answer: bool) -> None:
    for call in result.tool_calls:
        jsonschema.validate(json.loads(call.arguments), PARAMETERS[call.name])
    if result.tool_calls:
        assert result.content is None
        assert most_calls is None or len(result.tool_calls) <= most_calls
    else:
        assert answer
        jsonschema.validate(json.loads(result.content or ""), ANSWER)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("options", "most_calls", "answer"),
    [
        ({"tool_choice": "required"}, None, False),
        ({"tool_choice": "required", "parallel_tool_calls": False}, 1, False),
        ({"tool_choice": {"type": "function", "function": {"name": "weather"}}}, 1, False),
        ({"response_format": JSON_SCHEMA}, None, True),
        ({"response_format": JSON_SCHEMA, "tool_choice": "none"}, 0, True),
    ],
)
def test_random_tokens_under_masks_are_well_formed(
    asked: Any, options: dict[str, Any], most_calls: int | None, answer: bool, seed: int
) -> None:
    rng = random.Random(seed)
    ended = 0
    for _ in range(5):
        result = asked(**options).walk(rng, most=300)
        if result.finish_reason == "length":  # a call that was cut off has what was complete
            for call in result.tool_calls:
                json.loads(call.arguments)
            continue
        ended += 1
        check(result, most_calls=most_calls, answer=answer)
    assert ended >= 2


@pytest.mark.parametrize("draft", [' ["', ' {"', '": "', '", "', '"]', ""])
def test_looking_ahead_changes_no_mask(tiny: reference.Vocabulary, draft: str) -> None:
    """Masks along drafts leave the matcher where it was, right ones ("") and wrong ones. After a
    rollback over the mask of ` [\"`, llguidance 1.9.1 took the key behind ` {\"` for a value."""
    tokenizer = Tokenizer(vocabulary(tiny, TEMPLATE.read_text()))
    options = {"enable_thinking": False, "response_format": JSON_OBJECT}
    turn, alone = (Asked(Constrainer(tokenizer), tokenizer, **options) for _ in range(2))
    ids = list(tokenizer.encode('{"a": {"b": 1}, "c": ["d", {"e": null}]}'))
    for n, token in enumerate(ids):
        ahead = turn.matcher.copy()
        for wished in tokenizer.encode(draft) or ids[n : n + 4]:
            if ahead.try_advance(wished):
                turn.mask(ahead)
        assert turn.mask() == alone.mask()
        turn.matcher.advance([token])
        alone.matcher.advance([token])


@pytest.mark.slow
def test_a_mask_costs_little_with_the_real_vocabulary(qwen: reference.Vocabulary) -> None:
    """Median over the masks of a call and of a JSON answer at 248K ids: 0.2 ms on a machine that
    does nothing else."""
    tokenizer = Tokenizer(vocabulary(qwen, TEMPLATE.read_text()))
    constrainer = Constrainer(tokenizer)
    code = "def f(x):\n    return x < 3 and '</a>'\n" * 20
    said = {
        CALL.replace("Paris", code): {"tools": TOOLS, "tool_choice": "required"},
        json.dumps({"text": code}): {
            "response_format": schema_format(
                {"type": "object", "properties": {"text": {"type": "string"}}}
            )
        },
    }
    for text, options in said.items():
        turn = Asked(constrainer, tokenizer, enable_thinking=False, **options)
        words = array("I", [0]) * ((len(tokenizer) + 31) // 32)
        times = []
        for token in tokenizer.encode(text, parse_special=True):
            start = time.perf_counter()
            turn.matcher.fill(words.buffer_info()[0], 4 * len(words))
            times.append(time.perf_counter() - start)
            turn.matcher.advance([token])
        assert statistics.median(times) < 4e-3
