"""`openjet serve` has a flag for every option of an engine."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

import pytest

from openjet_provider import engine as engine_module
from openjet_provider import serve
from openjet_provider.engine import EngineOptions
from openjet_provider.errors import InvalidRequestError
from tests.engine.conftest import TINY

OF_TESTS = {"script"}


def options_of(*flags: str, monkeypatch: pytest.MonkeyPatch) -> EngineOptions:
    """What the command would open its engine with."""
    seen: list[EngineOptions] = []

    def refuse(options: EngineOptions) -> Any:
        seen.append(options)
        raise InvalidRequestError("not today")

    monkeypatch.setattr(engine_module, "resolve_options", refuse)
    parser = argparse.ArgumentParser()
    serve.add_parser(parser.add_subparsers())
    with pytest.raises(InvalidRequestError, match="not today"):
        serve.run(parser.parse_args(["serve", "-m", str(TINY), *flags]))
    return seen[0]


def test_every_option_has_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {field.name: "3" for field in fields(EngineOptions) if field.name not in OF_TESTS}
    flags = [
        part for name, value in values.items() for part in (f"--{name.replace('_', '-')}", value)
    ]
    options = options_of(*flags, monkeypatch=monkeypatch)
    assert {name: str(getattr(options, name)).removesuffix(".0") for name in values} == values


def test_what_is_not_said_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options_of(monkeypatch=monkeypatch) == EngineOptions()
