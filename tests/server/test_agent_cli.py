"""Whole coding agents on the server: each is asked for a file, and makes it with a tool.

Needs them on PATH (`npm install --prefix DIR opencode-ai @openai/codex`, then
DIR/node_modules/.bin). On the scripted engine the protocol alone is tested. On openjet-tiny the
model has to find the call, in a prompt that opencode makes of the day and the folder too: that
no change of the code can promise, so it is asked in the soak.
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

pytestmark = pytest.mark.slow

COMMAND = "echo hello > hello.txt"
TASK = f"Use bash to run `{COMMAND}`"  # openjet-tiny takes a tool that is not named for missing
PROMPT = "You are a coding agent."  # their own do not fit the context of openjet-tiny


def script(tool: str, parameter: str) -> tuple[ScriptRule, ...]:
    """A call of the agent's shell; then, behind its result, an answer."""
    call = (
        f"<tool_call>\n<function={tool}>\n<parameter={parameter}>\n{COMMAND}\n</parameter>\n"
        "</function>\n</tool_call>"
    )
    return (
        ScriptRule(match="<tool_response>", reply="</think>\n\nThe file is there."),
        ScriptRule(reply=f"I run it.\n</think>\n\n{call}"),
    )


def run_agent(name: str, arguments: list[str], folder: Path, **environment: str) -> None:
    """The command in folder/work. It finds nothing of its user's, and needs no network."""
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not on PATH")
    (folder / "work").mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
    own = {"HOME": str(folder), "PWD": str(folder / "work"), "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        [program, *arguments],
        cwd=folder / "work",
        env={**kept, **own, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout
    assert (folder / "work" / "hello.txt").exists(), done.stdout
    assert (folder / "work" / "hello.txt").read_text() == "hello\n"


def check_statistics(url: str, tool: str) -> None:
    """One conversation called the tool once, and went on with its result."""
    seen = httpx.get(f"{url}/v1/stats", timeout=60).json()["conversations"]
    agents = [conversation for conversation in seen if conversation["tool_calls"]]
    assert [agent["tools"][0] for agent in agents] == [tool]
    assert agents[0]["turns"] >= 2


def opencode_configuration(url: str) -> dict[str, Any]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "OpenJet",
        "options": {"baseURL": f"{url}/v1", "apiKey": "any"},
        "models": {
            "openjet-tiny": {"name": "tiny", "limit": {"context": 8192, "output": 1024}},
        },
    }
    agent = {"prompt": PROMPT, "temperature": 0, "tools": {"*": False, "bash": True}}
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


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"backend": "scripted", "script": script("bash", "command")}, id="scripted"),
        pytest.param({"backend": "cpu"}, id="openjet-tiny", marks=pytest.mark.soak),
    ],
)
def test_opencode(tmp_path: Path, options: dict[str, Any]) -> None:
    """Over chat completions."""
    config = tmp_path / "opencode.json"
    switches = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    environment = {f"OPENCODE_DISABLE_{name}": "1" for name in switches}
    arguments = ["run", "--model", "openjet/openjet-tiny", TASK]
    with Engine("openjet-tiny", **options) as engine, live(engine) as url:
        config.write_text(json.dumps(opencode_configuration(url)))
        run_agent("opencode", arguments, tmp_path, OPENCODE_CONFIG=str(config), **environment)
        check_statistics(url, "bash")


CODEX = """
model = "openjet-tiny"
model_provider = "openjet"
model_instructions_file = "{folder}/prompt.md"
model_context_window = 8192
web_search = "disabled"
[features]
multi_agent = false
goals = false
[model_providers.openjet]
name = "OpenJet"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "ANY_KEY"
"""


def test_codex(tmp_path: Path) -> None:
    """Over responses."""
    options = {"backend": "scripted", "script": script("exec_command", "cmd")}
    unguarded = "--dangerously-bypass-approvals-and-sandbox"  # the script says what is run
    with Engine("openjet-tiny", **options) as engine, live(engine) as url:
        (tmp_path / ".codex").mkdir()
        (tmp_path / ".codex" / "config.toml").write_text(CODEX.format(folder=tmp_path, url=url))
        (tmp_path / "prompt.md").write_text(PROMPT)
        arguments = ["exec", "--skip-git-repo-check", unguarded, TASK]
        run_agent("codex", arguments, tmp_path, ANY_KEY="any")
        check_statistics(url, "exec_command")
