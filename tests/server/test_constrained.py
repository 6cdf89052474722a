"""What must be said is said: forced calls and schemas, through the official clients, on the CPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from openjet_provider.engine import Engine
from tests.server.conftest import live, say
from tests.server.script import MODEL, WEATHER
from tests.server.test_messages import WEATHER as ANTHROPIC_WEATHER
from tests.server.test_responses import WEATHER as FLAT_WEATHER

openai = pytest.importorskip("openai")

ASKED = {"model": MODEL, "temperature": 0}


class City(BaseModel):
    """A place."""

    name: str
    inhabitants: int


@pytest.fixture(scope="module")
def tiny() -> Iterator[str]:
    """The URL of a server of the bundled model."""
    with Engine(MODEL, backend="cpu") as engine, live(engine) as url:
        yield url


@pytest.fixture(scope="module")
def sdk(tiny: str) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{tiny}/v1", api_key="unused", max_retries=0) as client:
        yield client


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "get_weather"}}]
)
def test_a_forced_call(sdk: Any, choice: Any) -> None:
    asked = say("Hello!", **ASKED, tools=[WEATHER], tool_choice=choice, max_tokens=300)
    choice = sdk.chat.completions.create(**asked).choices[0]
    assert choice.finish_reason == "tool_calls"
    for call in choice.message.tool_calls:
        assert call.function.name == "get_weather"
        assert isinstance(json.loads(call.function.arguments)["city"], str)


def test_a_schema_in_chats(sdk: Any) -> None:
    asked = say("A town?", **ASKED, max_completion_tokens=300)
    answer = sdk.chat.completions.parse(**asked, response_format=City)
    assert isinstance(answer.choices[0].message.parsed, City)


def test_a_schema_in_responses(sdk: Any) -> None:
    answer = sdk.responses.parse(input="A town?", text_format=City, max_output_tokens=300, **ASKED)
    assert isinstance(answer.output_parsed, City)


def test_one_call_at_a_time(sdk: Any) -> None:
    """Codex always asks for it."""
    answer = sdk.responses.create(
        **ASKED,
        input="Weather in Oslo and in Rome?",
        tools=[FLAT_WEATHER],
        tool_choice="auto",
        parallel_tool_calls=False,
        max_output_tokens=300,
    )
    assert len([item for item in answer.output if item.type == "function_call"]) <= 1


def test_a_schema_that_cannot_be_enforced(sdk: Any) -> None:
    schema = {"name": "r", "schema": {"type": "nonsense"}}
    wanted = {"type": "json_schema", "json_schema": schema}
    with pytest.raises(openai.BadRequestError, match="nonsense"):
        sdk.chat.completions.create(**say("A town?", **ASKED), response_format=wanted)


def test_anthropics_any(tiny: str) -> None:
    anthropic = pytest.importorskip("anthropic")
    with anthropic.Anthropic(base_url=tiny, api_key="unused", max_retries=0) as client:
        answer = client.messages.create(
            **say("Hello!", model=MODEL, max_tokens=300),
            extra_body={"temperature": 0},
            tools=[ANTHROPIC_WEATHER],
            tool_choice={"type": "any"},
        )
    assert answer.stop_reason == "tool_use"
    assert answer.content[-1].name == "get_weather"
