"""Tools, tool choice and structured output: LangChain's ways to say them, in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.output_parsers import (
    BaseOutputParser,
    JsonOutputParser,
    PydanticOutputParser,
)
from langchain_core.output_parsers.base import BaseGenerationOutputParser
from langchain_core.output_parsers.openai_tools import (
    JsonOutputKeyToolsParser,
    PydanticToolsParser,
)
from langchain_core.utils.function_calling import (
    convert_to_openai_function,
    convert_to_openai_tool,
)
from langchain_core.utils.pydantic import is_basemodel_subclass

METHODS = ("json_schema", "function_calling", "json_mode")


def openai_tool(tool: Any, *, strict: bool | None = None) -> dict[str, Any]:
    return dict(convert_to_openai_tool(tool, strict=strict))


def tool_choice(
    choice: str | bool | Mapping[str, Any], tools: Sequence[Mapping[str, Any]]
) -> str | dict[str, Any]:
    """OpenAI's value; a name must be one of the tools'."""
    if choice is True or choice == "any":
        return "required"
    if isinstance(choice, Mapping):
        return dict(choice)
    if choice in ("auto", "none", "required"):
        return str(choice)
    names = [tool["function"]["name"] for tool in tools]
    if choice not in names:
        raise ValueError(f"tool_choice={choice!r} is no bound tool; the tools are {names}")
    return {"type": "function", "function": {"name": choice}}


def response_format(value: Any) -> dict[str, Any] | None:
    """OpenAI's `response_format` from itself, a JSON schema with a title, or a class."""
    if value is None or (isinstance(value, Mapping) and "type" in value and "title" not in value):
        return value if value is None else dict(value)
    return _json_schema(value, strict=None)


def options(schema: Any, *, method: str, strict: bool | None) -> dict[str, Any]:
    """What a request needs so that the answer has this schema."""
    if method == "function_calling":
        tool = openai_tool(schema, strict=strict)
        return {
            "tools": [tool],
            "tool_choice": tool_choice(tool["function"]["name"], [tool]),
            "parallel_tool_calls": False,
        }
    if method == "json_schema":
        return {"response_format": _json_schema(schema, strict=strict)}
    if method == "json_mode":
        if strict is not None:
            raise ValueError("strict has no meaning with method='json_mode'; leave it out")
        return {"response_format": {"type": "json_object"}}
    raise ValueError(f"method={method!r}: choose one of {', '.join(METHODS)}")


def parser(schema: Any, method: str) -> BaseOutputParser[Any] | BaseGenerationOutputParser[Any]:
    is_model = isinstance(schema, type) and is_basemodel_subclass(schema)
    if method == "function_calling":
        if is_model:
            return PydanticToolsParser(tools=[schema], first_tool_only=True)
        name = openai_tool(schema)["function"]["name"]
        return JsonOutputKeyToolsParser(key_name=name, first_tool_only=True)
    return PydanticOutputParser(pydantic_object=schema) if is_model else JsonOutputParser()


def _json_schema(schema: Any, *, strict: bool | None) -> dict[str, Any]:
    function = convert_to_openai_function(schema, strict=strict)
    named = {"name": function["name"], "schema": function.get("parameters", {})}
    if description := function.get("description"):
        named["description"] = description
    if strict is not None:
        named["strict"] = strict
    return {"type": "json_schema", "json_schema": named}
