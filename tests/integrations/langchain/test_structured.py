"""What bind_tools and with_structured_output send, without an engine."""

from __future__ import annotations

import pytest

pytest.importorskip("langchain_core")

from langchain_core.tools import tool
from pydantic import BaseModel
from typing_extensions import TypedDict

from langchain_openjet import ChatOpenJet, structured


class Wall(BaseModel):
    """A wall."""

    colour: str
    coats: int = 1


class WallDict(TypedDict):
    """A wall."""

    colour: str


SCHEMAS = [Wall, WallDict, Wall.model_json_schema()]


@tool
def paint(colour: str) -> str:
    """Paint the wall."""
    return colour


def test_tools_of_every_kind_become_openais():
    bound = ChatOpenJet().bind_tools([paint, Wall, WallDict], tool_choice="paint", strict=True)
    assert [t["function"]["name"] for t in bound.kwargs["tools"]] == ["paint", "Wall", "WallDict"]
    assert all(t["function"]["strict"] for t in bound.kwargs["tools"])
    assert bound.kwargs["tool_choice"] == {"type": "function", "function": {"name": "paint"}}


def test_parallel_calls_are_asked_for_only_when_said():
    assert "parallel_tool_calls" not in ChatOpenJet().bind_tools([paint]).kwargs
    assert (
        ChatOpenJet().bind_tools([paint], parallel_tool_calls=False).kwargs["parallel_tool_calls"]
        is False
    )


@pytest.mark.parametrize("schema", SCHEMAS, ids=["pydantic", "typeddict", "json schema"])
@pytest.mark.parametrize("method", structured.METHODS)
def test_what_a_schema_asks_of_the_engine(schema, method):
    sent = structured.options(schema, method=method, strict=None)
    if method == "function_calling":
        name = sent["tools"][0]["function"]["name"]
        assert sent["tool_choice"]["function"]["name"] == name
        assert sent["parallel_tool_calls"] is False
    elif method == "json_schema":
        described = sent["response_format"]["json_schema"]
        assert described["name"] in ("Wall", "WallDict")
        assert "colour" in described["schema"]["properties"]
    else:
        assert sent["response_format"] == {"type": "json_object"}


def test_response_format_may_be_a_class():
    given = structured.response_format(Wall)
    assert given["json_schema"]["name"] == "Wall"
    assert structured.response_format(given) == given
    assert structured.response_format(Wall.model_json_schema())["type"] == "json_schema"


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="json_schema, function_calling, json_mode"):
        ChatOpenJet().with_structured_output(Wall, method="xml")
