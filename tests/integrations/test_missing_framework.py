"""Without its framework an adapter says which extra to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
sys.path[:0] = {path!r}
sys.modules[{framework!r}] = None
import {package}
"""


@pytest.mark.parametrize(
    ("package", "framework", "extra"),
    [
        ("langchain_openjet", "langchain_core", "langchain"),
        ("litellm_openjet", "litellm", "litellm"),
    ],
)
def test_the_error_names_the_extra(root, package, framework, extra):
    code = CODE.format(
        path=[str(root), str(root / "integrations")], framework=framework, package=package
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    assert f"pip install 'openjet-provider[{extra}]'" in done.stderr
