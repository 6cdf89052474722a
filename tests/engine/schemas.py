"""Fifty JSON schemas of the kinds that agents send: nested, enums, arrays, unions, optional parts,
references, unicode, numbers with bounds, strings without any."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
BOOLEAN: Schema = {"type": "boolean"}
NULL: Schema = {"type": "null"}


def obj(required: Schema, optional: Schema | None = None, **more: Any) -> Schema:
    properties = {**required, **(optional or {})}
    return {"type": "object", "properties": properties, "required": list(required), **more}


def closed(required: Schema, optional: Schema | None = None, **more: Any) -> Schema:
    return obj(required, optional, additionalProperties=False, **more)


def array(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def one_of(*values: Any) -> Schema:
    return {"enum": list(values)}


def any_of(*options: Schema) -> Schema:
    return {"anyOf": list(options)}


POINT = closed({"x": NUMBER, "y": NUMBER})
PERSON = closed({"name": STRING, "age": {"type": "integer", "minimum": 0, "maximum": 130}})
TREE = {
    "$defs": {"Node": closed({"value": INTEGER}, {"left": {"$ref": "#/$defs/Node"}})},
    "$ref": "#/$defs/Node",
}

SCHEMAS: list[Schema] = [
    # flat objects
    closed({"answer": STRING}),
    obj({"answer": STRING}),
    closed({"answer": STRING, "sure": BOOLEAN}),
    closed({"count": INTEGER}),
    closed({"price": NUMBER, "currency": one_of("EUR", "USD")}),
    closed({"a": INTEGER, "b": INTEGER, "sum": INTEGER}),
    closed({"done": BOOLEAN, "reason": any_of(STRING, NULL)}),
    closed({}, {"note": STRING}),
    closed({"id": STRING}, {"title": STRING, "draft": BOOLEAN}),
    obj({"city": STRING, "country": STRING}),
    # enums and constants
    closed({"colour": one_of("red", "green", "blue")}),
    closed({"level": one_of(1, 2, 3)}),
    closed({"mixed": one_of("one", 2, None, True)}),
    closed({"kind": {"const": "event"}, "name": STRING}),
    closed({"grösse": one_of("klein", "groß"), "名前": STRING}),
    closed({"mood": one_of("🙂", "🙁")}),
    # numbers with bounds
    closed({"age": {"type": "integer", "minimum": 0, "maximum": 130}}),
    closed({"p": {"type": "number", "minimum": 0, "maximum": 1}}),
    closed({"t": {"type": "number", "exclusiveMinimum": -40, "exclusiveMaximum": 60}}),
    closed({"even": {"type": "integer", "multipleOf": 2, "minimum": 0, "maximum": 100}}),
    closed({"month": {"type": "integer", "minimum": 1, "maximum": 12}, "year": INTEGER}),
    # strings with bounds
    closed({"code": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{2}$"}}),
    closed({"short": {"type": "string", "maxLength": 10}}),
    closed({"pin": {"type": "string", "minLength": 4, "maxLength": 4}}),
    closed({"day": {"type": "string", "format": "date"}}),
    closed({"when": {"type": "string", "format": "date-time"}}),
    closed({"mail": {"type": "string", "format": "email"}}),
    # arrays
    closed({"words": array(STRING)}),
    closed({"words": array({"type": "string", "maxLength": 8}, minItems=1, maxItems=3)}),
    closed({"numbers": array(INTEGER, maxItems=4)}),
    closed({"pair": array(NUMBER, minItems=2, maxItems=2)}),
    closed({"grid": array(array(INTEGER, maxItems=3), maxItems=3)}),
    array(closed({"name": STRING}), maxItems=3),
    closed({"flags": array(BOOLEAN, minItems=1)}),
    # nested
    closed({"person": PERSON, "home": POINT}),
    closed({"people": array(PERSON, maxItems=3)}),
    closed({"outer": closed({"inner": closed({"value": STRING})})}),
    closed({"from": POINT, "to": POINT, "via": array(POINT, maxItems=2)}),
    obj({"user": obj({"name": STRING, "roles": array(one_of("admin", "guest"), maxItems=2)})}),
    closed({"file": STRING, "edits": array(closed({"line": INTEGER, "text": STRING}), maxItems=2)}),
    # unions
    closed({"value": any_of(INTEGER, STRING)}),
    closed({"value": any_of(closed({"number": INTEGER}), closed({"text": STRING}))}),
    closed({"value": {"type": ["integer", "null"]}}),
    any_of(closed({"ok": BOOLEAN}), closed({"error": STRING})),
    closed({"shape": any_of(POINT, array(POINT, maxItems=2))}),
    closed({"step": any_of(closed({"tool": STRING}), closed({"answer": STRING}), NULL)}),
    # references and the rest
    closed({"p": {"$ref": "#/$defs/Point"}}, **{"$defs": {"Point": POINT}}),
    TREE,
    {"type": "object", "additionalProperties": INTEGER, "maxProperties": 3},
    closed({"args": {"type": "object", "additionalProperties": STRING, "maxProperties": 2}}),
]
