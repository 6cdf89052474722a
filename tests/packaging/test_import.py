"""Importing the package is cheap and pulls in no framework."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import openjet_provider

PROBE = """
import json, sys, time
start = time.process_time()
import openjet_provider
seconds = time.process_time() - start
print(json.dumps({"seconds": seconds, "modules": sorted(sys.modules)}))
"""


def probe(root: Path) -> tuple[float, set[str]]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    told = json.loads(done.stdout)
    return told["seconds"], {name.split(".")[0] for name in told["modules"]}


def test_import_is_quick(root: Path) -> None:
    assert min(probe(root)[0] for _ in range(3)) < 3


def test_import_loads_no_framework_and_no_model(root: Path) -> None:
    heavy = {
        "litellm",
        "langchain",
        "langchain_core",
        "numpy",
        "tokenizers",
        "cffi",
        "gguf",
        "httpx",
    }
    assert probe(root)[1] & heavy == set()


def test_exports_resolve() -> None:
    for name in openjet_provider.__all__:
        assert getattr(openjet_provider, name) is not None


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Enginee'"):
        openjet_provider.Enginee  # noqa: B018
