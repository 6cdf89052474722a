"""Parameter values: from the text between two tags to what the tool's JSON schema declares."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_INTEGER = re.compile(r"[+-]?\d{1,400}(\.0*)?", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DEPTH = 16  # of references and unions followed; deeper schemas count as undeclared

# Of formats whose standards say so (RFC 5321, RFC 1035), the most characters.
_LONGEST = {"email": 254, "hostname": 253}
_DATA = ("const", "default", "enum", "examples")  # keywords whose values are no schemas

_JSON_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}


def coerce(text: str, schema: Any, root: Mapping[str, Any]) -> Any:
    """The value that `text` spells under `schema`, a parameter's schema inside `root`.

    Only a declared type changes anything: the types are tried in their order, null first where it
    is allowed, string last where the text is none of an enumeration's. What fits none of them, or
    is not declared, stays the text as it is.
    """
    values = schema.get("enum") if isinstance(schema, Mapping) else None
    may_be_text = not isinstance(values, list) or text in values
    types = list(dict.fromkeys(_types(schema, root, _DEPTH)))
    if "null" in types and text.strip() in ("null", "None"):
        return None
    for name in types:
        if name == "string":
            if may_be_text:
                return text
            continue
        try:
            return _READERS[name](text)
        except (KeyError, ValueError, RecursionError):
            continue
    return text


def parse_loosely(text: str) -> Any:
    """JSON, JSON with raw line breaks in its strings, or a Python literal; else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        pass
    try:
        value = ast.literal_eval(text.strip())
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text
    return value


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> Iterator[str]:
    """JSON types that the schema allows, in order."""
    if not isinstance(schema, Mapping) or depth == 0:
        return
    if isinstance(reference := schema.get("$ref"), str):
        yield from _types(referenced(reference, root), root, depth - 1)
    declared = schema.get("type")
    if isinstance(declared, str):
        yield declared
        if schema.get("nullable") is True:
            yield "null"
    elif isinstance(declared, list):
        yield from (name for name in declared if isinstance(name, str))
    else:
        for union in ("anyOf", "oneOf", "allOf"):
            for option in schema[union] if isinstance(schema.get(union), list) else ():
                yield from _types(option, root, depth - 1)
        values = schema["enum"] if isinstance(schema.get("enum"), list) else []
        values = [*values, schema["const"]] if "const" in schema else values
        yield from (_JSON_TYPES[type(v)] for v in values if type(v) in _JSON_TYPES)
        if "properties" in schema:
            yield "object"
        if "items" in schema:
            yield "array"


def bounded(schema: Any) -> Any:
    """A copy in which formats of limited length have that limit: a grammar library knows only their
    characters, with which a weak model need not come to an end."""
    if isinstance(schema, list):
        return [bounded(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {key: value if key in _DATA else bounded(value) for key, value in schema.items()}
    name = schema.get("format")
    longest = _LONGEST.get(name) if isinstance(name, str) else None
    given = schema.get("maxLength", longest)
    if longest is not None and isinstance(given, int):  # else the library says what is wrong
        found["maxLength"] = min(longest, given)
    return found


def referenced(reference: str, root: Mapping[str, Any]) -> Any:
    """The target of a local reference such as `#/$defs/Name`; None if there is none."""
    if not reference.startswith("#"):
        return None
    target: Any = root
    for step in reference[1:].split("/")[1:]:
        if not isinstance(target, Mapping):
            return None
        target = target.get(step.replace("~1", "/").replace("~0", "~"))
    return target


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text.strip()):
        raise ValueError(text)
    return int(text.strip().partition(".")[0])


def _number(text: str) -> int | float:
    if not _NUMBER.fullmatch(text.strip()):
        raise ValueError(text)
    if text.strip().lstrip("+-").isdigit():
        return _integer(text)
    value = float(text)
    if value in (float("inf"), float("-inf")):  # JSON has no way to write it
        raise ValueError(text)
    return value


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _container(text: str, kind: type) -> Any:
    value = parse_loosely(text)
    if kind is list and isinstance(value, tuple):
        value = list(value)
    if not isinstance(value, kind):
        raise ValueError(text)
    json.dumps(value, allow_nan=False)
    return value


_READERS: dict[str, Callable[[str], Any]] = {
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "object": lambda text: _container(text, dict),
    "array": lambda text: _container(text, list),
}
