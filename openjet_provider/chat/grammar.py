"""Grammars for llguidance: tool calls in the model's own form, and JSON by schema.

docs/chat-format.md, "Constrained output", has the rules.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openjet_provider.chat.schema import bounded, referenced
from openjet_provider.errors import InvalidRequestError

#: White space as models write it.
JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}

_END_VALUE = "\n</parameter>\n"
_DEPTH = 16  # of references and unions followed

# A raw value ends at the first closing tag on a line of its own; tags with which the output parser
# would read it differently cannot be in it.
_RAW_TEXT = r"/(?s:.*)/ & ~/(?s:.*)(\n<\/parameter>|<parameter=|<function=)(?s:.*)/"


@dataclass(frozen=True)
class Grammar:
    """A grammar in llguidance's Lark dialect, and the JSON schemas in it by the place in the
    request that they came from."""

    lark: str
    schemas: Mapping[str, Mapping[str, Any]]


@dataclass
class GrammarBuilder:
    """Rules of one grammar. `json`, `calls` and `call_rest` add some and return a reference."""

    open_call: int  # token ids
    close_call: int
    _rules: dict[str, str] = field(default_factory=dict)
    _schemas: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def json(self, schema: Mapping[str, Any], where: str) -> str:
        """JSON text that the schema allows."""
        self._schemas[where] = schema
        try:
            styled = {**bounded(schema), "x-guidance": JSON_STYLE}
            text = json.dumps(styled, ensure_ascii=False)
        except RecursionError as error:
            raise InvalidRequestError(f"{where}: this schema is nested too deeply") from error
        return self._rule("json", f"%json {text}")

    def calls(self, tools: Sequence[Mapping[str, Any]], *, parallel: bool) -> str:
        """One call, or with `parallel` one or more."""
        call = self._rule("call", f"<[{self.open_call}]> {self.call_rest(tools)}")
        return self._rule("calls", f'{call} ("\\n" {call})*') if parallel else call

    def call_rest(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """A call behind its opening tag."""
        functions = " | ".join(self._function(tool["function"]) for tool in tools)
        return self._rule("rest", f'"\\n" ({functions}) "</function>\\n" <[{self.close_call}]>')

    def finish(self, start: str) -> Grammar:
        rules = "".join(f"{name}: {body}\n" for name, body in self._rules.items())
        return Grammar(f"start: {start}\n{rules}", self._schemas)

    def _rule(self, kind: str, body: str) -> str:
        """A rule with this body; equal ones are shared. Upper-case kinds are one regex each."""
        for name, known in self._rules.items():
            if known == body:
                return name
        name = f"{kind}_{len(self._rules)}"
        self._rules[name] = body
        return name

    def _function(self, function: Mapping[str, Any]) -> str:
        """Parameters come in the order of the schema; those not required may be left out."""
        name = function["name"]
        root = function.get("parameters") or {}
        schema = _resolved(root, root)
        properties = schema.get("properties")
        properties = dict(properties) if isinstance(properties, Mapping) else {}
        required = [key for key in schema.get("required") or () if isinstance(key, str)]
        properties = {**properties, **{key: {} for key in required if key not in properties}}
        body = [_literal(f"<function={_tag_name(name, f'tool {name!r}')}>\n")]
        for key, value_schema in properties.items():
            where = f"tool {name!r}, parameter {key!r}"
            opening = _literal(f"<parameter={_tag_name(key, where)}>\n")
            value = self._value(value_schema, root, where)
            rule = self._rule("parameter", f"{opening} ({value})")
            body.append(rule if key in required else f"{rule}?")
        return self._rule("function", " ".join(body))

    def _value(self, schema: Any, root: Mapping[str, Any], where: str) -> str:
        """A parameter's value with its closing tag: strings as they are, all else as JSON."""
        options = list(_options(schema, root, _DEPTH))
        if any(_is_free_text(option) for option in options):
            return self._raw("")
        return " | ".join(self._option(option, root, where) for option in options)

    def _option(self, schema: Mapping[str, Any], root: Mapping[str, Any], where: str) -> str:
        if (values := _values(schema)) is not None:
            return " | ".join(_literal(_written(value) + _END_VALUE) for value in values)
        if schema.get("type") == "null":
            return _literal(f"null{_END_VALUE}")
        if schema.get("type") == "string":
            return self._raw(_limits(schema))
        definitions = {key: root[key] for key in ("$defs", "definitions") if key in root}
        return f"{self.json({**definitions, **schema}, where)} {_literal(_END_VALUE)}"

    def _raw(self, limits: str) -> str:
        return self._rule("RAW", f"({_RAW_TEXT}{limits}) {_literal(_END_VALUE)}")


def _options(schema: Any, root: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
    """The schema as alternatives of one type each."""
    if not isinstance(schema, Mapping) or depth == 0:
        yield {}
        return
    schema = _resolved(schema, root)
    if schema.get("nullable") is True:
        yield {"type": "null"}
    if _values(schema) is not None:
        yield schema
        return
    for union in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(union), list) and options:
            shared = {key: value for key, value in schema.items() if key != union}
            for option in options:
                merged = {**shared, **option} if isinstance(option, Mapping) else shared
                yield from _options(merged, root, depth - 1)
            return
    if isinstance(parts := schema.get("allOf"), list):
        merged = {key: value for key, value in schema.items() if key != "allOf"}
        for part in parts:
            merged.update(_resolved(part, root) if isinstance(part, Mapping) else {})
        textual = merged.get("type") == "string" or _values(merged) is not None
        yield merged if textual else schema
        return
    if isinstance(types := schema.get("type"), list):
        yield from ({**schema, "type": name} for name in types)
        return
    yield schema


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """With a local reference at its top replaced by what it refers to."""
    for _ in range(_DEPTH):
        if not isinstance(reference := schema.get("$ref"), str):
            break
        target = referenced(reference, root)
        if not isinstance(target, Mapping):
            break
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def _values(schema: Mapping[str, Any]) -> Sequence[Any] | None:
    """What `const` or `enum` allow; None if neither is there."""
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) and values else None


def _is_free_text(schema: Mapping[str, Any]) -> bool:
    """Without a declared type the parser takes any text as a string."""
    if _values(schema) is not None:
        return False
    if "type" in schema:
        return schema["type"] == "string" and not _limits(schema)
    return not {"properties", "items", "allOf", "$ref"} & schema.keys()


def _limits(schema: Mapping[str, Any]) -> str:
    """Further regexes that a raw string must match."""
    import llguidance

    limits = ""
    low, high = schema.get("minLength", 0), schema.get("maxLength", "")
    if low or high != "":
        limits += f" & /(?s:.{{{low},{high}}})/"
    if isinstance(pattern := schema.get("pattern"), str):
        # A search: anchors go, what was not anchored may have anything before or behind it.
        before = "" if pattern.startswith("^") else "(?s:.*)"
        behind = "" if pattern.endswith("$") and not pattern.endswith(r"\$") else "(?s:.*)"
        inner = pattern.removeprefix("^")[: None if behind else -1]
        limits += f" & /{llguidance.regex_to_lark(f'{before}({inner}){behind}', 'dw')}/"
    return limits


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _tag_name(name: str, where: str) -> str:
    if not name or any(char in name for char in "<>\n\"'") or name != name.strip():
        raise InvalidRequestError(
            f"{where}: such a name cannot be written in the model's call format; rename it"
        )
    return name
