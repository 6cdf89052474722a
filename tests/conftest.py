"""Shared by all tests: command-line options, hypothesis profiles, and an environment of our own."""

from __future__ import annotations

import gc
import importlib.util
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# Nothing may reach a network, and these are read when their libraries are imported.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

# `test` repeats the same examples on every run; `make soak` asks for the larger profile. How fast
# the machine makes them is no fault.
for name, count in (("test", 50), ("soak", 2000)):
    settings.register_profile(
        name,
        derandomize=True,
        deadline=None,
        database=None,
        max_examples=count,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("test")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sanitize",
        choices=("address", "thread"),
        help="build the programs of native/tests with this sanitizer",
    )


def pytest_collection_finish() -> None:
    """What the test modules imported lives on: collections of garbage need not look at it, which
    took a second or two each."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


def load_program(path: Path) -> ModuleType:
    """A file that is no module of a package."""
    name = f"program_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for theirs
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


@pytest.fixture
def nowhere() -> Iterator[str]:
    """The URL of a port that nobody listens on, nor can meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture(autouse=True, scope="module")
def no_engine_stays_open() -> Iterator[None]:
    """Adapters that nobody holds any more release their engine: other modules open it their own
    way."""
    yield
    wait_for_dropped()


def wait_for_dropped() -> None:
    """Until the engines of dropped adapters are closed."""
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "openjet-close":
            thread.join(60)
            assert not thread.is_alive()


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's OPENJET_* settings must not steer the tests."""
    for name in os.environ:
        if name.startswith("OPENJET_") and name != "OPENJET_WERROR":
            monkeypatch.delenv(name)
