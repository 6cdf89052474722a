"""A whole coding agent on the server: opencode is asked for a file, and makes it with a tool.

Needs opencode on PATH (`npm install --prefix DIR opencode-ai`, then DIR/node_modules/.bin). On the
scripted engine the protocol alone is tested; on openjet-tiny the model has to find the call, which
it does for a tool and a task this simple.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from openjet_provider.engine import Engine, ScriptRule
from tests.server.conftest import live

OPENCODE = shutil.which("opencode")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        OPENCODE is None, reason="opencode (npm package opencode-ai) is not on PATH"
    ),
]

COMMAND = "echo hello > hello.txt"
SCRIPT = (
    ScriptRule(match="<tool_response>", reply="</think>\n\nThe file is there."),
    ScriptRule(
        reply="I run it.\n</think>\n\n<tool_call>\n<function=bash>\n<parameter=command>\n"
        f"{COMMAND}\n</parameter>\n</function>\n</tool_call>",
    ),
)


def configuration(url: str) -> dict[str, Any]:
    """One provider, one model, and an agent that has a shell and little to read."""
    model = {"name": "openjet-tiny", "limit": {"context": 8192, "output": 1024}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "OpenJet",
        "options": {"baseURL": f"{url}/v1", "apiKey": "any"},
        "models": {"openjet-tiny": model},
    }
    agent = {
        "prompt": "You are a coding agent.",
        "temperature": 0,
        "tools": {"*": False, "bash": True},
    }
    return {
        "provider": {"openjet": provider},
        "model": "openjet/openjet-tiny",
        "small_model": "openjet/openjet-tiny",
        "agent": {"build": agent},
        "permission": {"*": "allow"},
        "autoupdate": False,
        "share": "disabled",
        "snapshot": False,
    }


def run_agent(url: str, task: str, folder: Path) -> str:
    """opencode's output; it finds nothing of its user's, and needs no network."""
    work, home = folder / "work", folder / "home"
    work.mkdir()
    home.mkdir()
    config = home / "opencode.json"
    config.write_text(json.dumps(configuration(url)))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    switches = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    own = {f"OPENCODE_DISABLE_{name}": "1" for name in switches}
    own |= {"OPENCODE_CONFIG": str(config), "HOME": str(home), "PWD": str(work)}
    assert OPENCODE is not None
    done = subprocess.run(
        [OPENCODE, "run", "--model", "openjet/openjet-tiny", task],
        cwd=work,
        env={**kept, **own, "NO_PROXY": "127.0.0.1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"backend": "scripted", "script": SCRIPT}, id="scripted"),
        pytest.param({"backend": "cpu"}, id="openjet-tiny"),
    ],
)
def test_an_agent_makes_a_file(tmp_path: Path, options: dict[str, Any]) -> None:
    with Engine("openjet-tiny", **options) as engine, live(engine) as url:
        output = run_agent(url, f"Run `{COMMAND}`", tmp_path)
        seen = httpx.get(f"{url}/v1/stats").json()["conversations"]
    made = tmp_path / "work" / "hello.txt"
    assert made.exists(), output
    assert made.read_text() == "hello\n"
    agents = [conversation for conversation in seen if conversation["tool_calls"]]
    assert [agent["tools"][0] for agent in agents] == ["bash"]
    assert agents[0]["turns"] >= 2  # the call, and the answer to its result
