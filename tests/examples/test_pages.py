"""The Python on the pages about frameworks runs as it is written there, on openjet-tiny."""

from __future__ import annotations

import re

import pytest

from openjet_provider.local_server import local_server
from tests.examples.conftest import finish, python, start

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1000)]  # installing included

# Each page, and the example in whose environment its code runs.
PAGES = {
    "docs/langchain.md": ["langgraph_supervisor"],
    "docs/langgraph.md": ["langgraph_supervisor"],
    "docs/litellm.md": ["litellm_asyncio"],
    "docs/deepagents.md": ["deep_agents"],
    "docs/crewai.md": ["crewai_crew"],
    "docs/openai-agents.md": ["openai_agents_handoff"],
    "docs/pydantic-ai.md": ["pydantic_ai_agents"],
    "docs/smolagents.md": ["smolagents_tools"],
    "docs/ray-serve.md": ["ray_serve"],
    "README.md": ["langgraph_supervisor", "litellm_asyncio", "litellm_asyncio"],
}


@pytest.fixture(scope="module")
def server():
    with local_server("openjet-tiny", "--context", "8192", attach=False) as found:
        yield found


@pytest.mark.parametrize("page", PAGES)
def test_its_code_runs(root, tmp_path, server, page):
    blocks = re.findall(r"```python\n(.*?)```", (root / page).read_text(), re.S)
    for number, (code, example) in enumerate(zip(blocks, PAGES[page], strict=True)):
        program = tmp_path / f"page{number}.py"
        program.write_text(on_openjet_tiny(code, server.url))
        finish(start(python(example), program, tmp_path, CREWAI_DISABLE_TELEMETRY="true"))


def on_openjet_tiny(code: str, url: str) -> str:
    """The code with the model and the machine that are here."""
    here = {
        "qwen3.8-27b": "openjet-tiny",
        "http://127.0.0.1:18080": url,
        '"context": 65536': '"context": 8192',
        '"num_gpus": 1': '"num_gpus": 0',
    }
    for there, ours in here.items():
        code = code.replace(there, ours)
    return code
