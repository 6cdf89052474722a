"""Every framework's example, each in an environment of its own, as a user runs it.

It starts, asks, is answered, its agents share steps and prompts, their answers are right, it ends.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from openjet_provider.local_server import local_server
from tests.examples.conftest import finish, python, start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]  # installing included

# What the output of an example says when its agents have done their work.
RIGHT = {
    "langgraph_supervisor": [r"Ness: .*\b230\b", r"Tahoe: .*\b501\b", r"Erie: .*\b64\b"],
    "litellm_asyncio": [r"B-204: .*\b17\b", r"C-881: .*\b250\b", r"A-119: .*\b4\b"],
    "deep_agents": [r"Elbrus: .*\b5642\b", r"Olympus: .*\b2918\b"],
    "crewai_crew": [r"IC-77: .*09:42", r"RE-15: .*17:08"],
    "crewai_crew, the writer": [r"notice: .*09:42", r"notice: .*17:08"],
    "openai_agents_handoff": [r"Courier: .*van 47", r"Accountant: .*\b40\b", r"Courier: .*van 86"],
    "pydantic_ai_agents": [r"basil: 23 pots", r"mint: 61 pots", r"thyme: 7 pots"],
    "smolagents_tools": [r"Vistula: .*\b1047\b", r"Duero: .*\b897\b"],
}  # fmt: skip

# EngineStats.summary(): rows per step, prompt tokens reused.
COUNTERS = r"\d+ steps \(\d+ of several agents\), ([\d.]+) rows per step, (\d+) prompt tokens"

EXAMPLES = {name.partition(",")[0] for name in RIGHT}


def start_example(name: str, root: Path, folder: Path, **variables: str) -> subprocess.Popen[str]:
    return start(python(name), root / "examples" / f"{name}.py", folder, **variables)


def assert_shared(counters: tuple[str, str]) -> None:
    rows_per_step, reused = counters
    assert float(rows_per_step) > 1
    assert int(reused) > 0


def missing(said: str, name: str) -> list[str]:
    return [pattern for pattern in RIGHT[name] if not re.search(pattern, said)]


@pytest.fixture(scope="module")
def outputs(root, tmp_path_factory):
    """Each example's output; it runs once."""
    known: dict[str, str] = {}

    def output(name: str) -> str:
        if name not in known:
            known[name] = finish(start_example(name, root, tmp_path_factory.mktemp(name)))
        return known[name]

    return output


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_its_agents_share_steps_and_prompts(outputs, name):
    said = outputs(name)
    (counters,) = re.findall(COUNTERS, said)
    assert_shared(counters)


@pytest.mark.parametrize("name", sorted(RIGHT))
def test_its_agents_do_their_work(outputs, name):
    said = outputs(name.partition(",")[0])
    assert not missing(said, name), said


def test_two_at_once_on_one_server_finish_both(root, tmp_path):
    """Their processes hold no engine: both attach to the server, and it steps for both."""
    names = ("deep_agents", "pydantic_ai_agents")
    for name in names:
        python(name)
    with local_server("openjet-tiny", "--context", "8192", "--agents", "4") as server:
        running = [
            start_example(name, root, tmp_path, OPENJET_BASE_URL=server.url) for name in names
        ]
        said = [finish(process) for process in running]
        stats = server.stats()
    for name, output in zip(names, said, strict=True):
        assert not missing(output, name), output
    assert stats.shared_steps > 0
    assert stats.running == stats.waiting == 0


def test_a_proxy_keeps_each_conversation_on_one_of_two_servers(root, tmp_path):
    said = finish(start_example("litellm_proxy", root, tmp_path), timeout=390)
    kept = re.findall(r"^conversation-\d: (http://\S+) \((\d+) cached\)$", said, re.M)
    assert len(kept) == 4, said
    assert all(int(cached) > 0 for _, cached in kept)
    assert len(re.findall(COUNTERS, said)) == 2


def test_ray_sends_each_crew_to_the_replica_that_knows_its_prompt(root, tmp_path):
    said = finish(start_example("ray_serve", root, tmp_path), timeout=390)
    agents = re.findall(r"^(\w+): replica (\w+) \((\d+) cached\)$", said, re.M)
    assert len(agents) == 6, said
    assert all(int(cached) > 0 for *_, cached in agents)
    assert len({replica for _, replica, _ in agents}) == 2
    assert len({(crew, replica) for crew, replica, _ in agents}) == 2
    replicas = re.findall(rf"^replica \w+: {COUNTERS}", said, re.M)
    assert len(replicas) == 2, said
    for counters in replicas:
        assert_shared(counters)


def test_a_server_that_cannot_start_says_why():
    from openjet_provider.errors import BackendUnavailableError

    with (
        pytest.raises(BackendUnavailableError, match=r"nothing\.gguf"),
        local_server("nothing.gguf"),
    ):
        pass


def test_every_example_says_how_to_run_it(root):
    for path in sorted((root / "examples").glob("*.py")):
        text = path.read_text()
        head = text.split('"""')[1]
        assert "pip install" in head or path.stem == "coding_crew", path.name
        assert f"python examples/{path.name}" in head
        assert "--model qwen3.8-27b" in head


def test_a_server_says_what_its_model_is_called(root, tmp_path):
    """`--model` of the examples may be a file: requests ask for the name that it is served by."""
    path = tmp_path / "my-model.gguf"
    path.symlink_to(root / "openjet_provider" / "data" / "openjet-tiny.gguf")
    with local_server(str(path), attach=False) as server:
        assert server.model == "my-model"
