"""Two processes with ChatOpenJet on one server: one model, one prefix, common steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

pytest.importorskip("langchain_core")
pytest.importorskip("uvicorn")

from openjet_provider.engine import Engine
from tests.integrations.conftest import SCRIPT, script_options
from tests.server.conftest import live
from tests.waiting import wait_until

AGENT = """\
import json, sys
from openjet_provider import ChatOpenJet
from openjet_provider.engine import _registry

system = " ".join(f"Rule {i}: keep the workshop tidy." for i in range(60))
llm = ChatOpenJet(max_tokens=150, client=sys.argv[1])
llm.get_num_tokens("everything is imported and connected then")
print("ready", flush=True)
sys.stdin.readline()
answer = llm.invoke([("system", system), ("user", f"{sys.argv[1]}\\nslowly")])
own = len(_registry()._cores)
print(json.dumps({"usage": answer.usage_metadata, "text": answer.text, "own": own}))
"""


def start(url: str, name: str, root) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "OPENJET_BASE_URL": url,
        "PYTHONPATH": f"{root}:{root}/integrations",
    }
    return subprocess.Popen(
        [sys.executable, "-c", AGENT, name],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    if process.stdout.readline() != "ready\n":
        pytest.fail(process.communicate(timeout=60)[1])


def go(process: subprocess.Popen[str]) -> None:
    """What it then waits for is the server."""
    process.stdin.write("\n")
    process.stdin.flush()


def finish(process: subprocess.Popen[str]) -> dict:
    try:
        said, errors = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    return json.loads(said)


def test_they_share_a_prefix_and_steps(root):
    """The first process holds its conversation's pages and steps while the second one joins.

    It has 150 steps of 50 ms to go by then; the second one only has its request left to send.
    """
    (slow,) = (rule for rule in SCRIPT if rule.match == "slowly")
    options = script_options(context=8192, drafts=0, script=(replace(slow, delay_s=0.05),))
    with Engine("openjet-tiny", **options) as engine, live(engine) as url:
        first, second = start(url, "one", root), start(url, "two", root)
        for process in (first, second):
            wait_until_ready(process)
        go(first)
        wait_until(lambda: engine.stats().generated > 0 or first.poll() is not None)
        go(second)
        said = [finish(first), finish(second)]
        stats = engine.stats()
    assert stats.shared_steps > 0
    alone, joined = (each["usage"]["input_token_details"]["cache_read"] for each in said)
    assert alone == 0
    assert joined > 0.8 * said[1]["usage"]["input_tokens"]
    assert said[0]["text"] == said[1]["text"]
    assert [each["own"] for each in said] == [0, 0]
