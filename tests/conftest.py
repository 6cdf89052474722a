"""Shared by all tests: command-line options, hypothesis profiles, and an environment of our own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

# `test` repeats the same examples on every run; `make soak` asks for the larger profile.
settings.register_profile("test", derandomize=True, deadline=None, database=None, max_examples=50)
settings.register_profile("soak", derandomize=True, deadline=None, database=None, max_examples=2000)
settings.load_profile("test")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sanitize",
        choices=("address", "thread"),
        help="build the programs of native/tests with this sanitizer",
    )


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's OPENJET_* settings must not steer the tests; nothing may reach a network."""
    for name in os.environ:
        if name.startswith("OPENJET_") and name != "OPENJET_WERROR":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
