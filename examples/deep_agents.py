"""deepagents: two agents at once, each with files and a sub-agent.

    pip install 'openjet-provider[langchain,server]' deepagents      # Python 3.11 or newer
    python examples/deep_agents.py                        # openjet-tiny, on the CPU
    python examples/deep_agents.py --model qwen3.8-27b    # needs its GPU and its file

Starts `openjet serve` for the time it runs; with OPENJET_BASE_URL set it uses a running one. Every
deep agent carries the same long block of tool descriptions: the engine reads it once and keeps it
for all of them. Files are deepagents' virtual ones: nothing is written and no code is run.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from deepagents import create_deep_agent

from openjet_provider import ChatOpenJet
from openjet_provider.local_server import LocalServer, local_server

LIMIT = {"recursion_limit": 60}
CONTEXT = 8192  # give a large model more
HEIGHTS = {"Elbrus": 5642, "Olympus": 2918}


def mountain_height(mountain: str) -> str:
    """Look up how high a mountain is."""
    if mountain in HEIGHTS:
        return f"{HEIGHTS[mountain]} metres"
    return f"Error: no mountain called {mountain}"


def deep_agent(server: LocalServer) -> Any:
    # The context decides when deepagents summarises: name it, or fixed counts are used.
    llm = ChatOpenJet(
        base_url=server.url,
        temperature=0,
        max_tokens=1024,
        engine_options={"context": CONTEXT},
    )
    climber = {
        "name": "climber",
        "description": "Knows how high mountains are.",
        "system_prompt": "You know mountains. Use the tool, then answer in one sentence.",
        "tools": [mountain_height],
    }
    return create_deep_agent(
        model=llm, subagents=[climber], system_prompt="You write a book about mountains."
    )


def ask(agent: Any, mountain: str) -> str:
    question = (
        f"Use the task tool with the description 'mountain_height {mountain}' and the"
        " subagent_type 'climber'."
    )
    return str(agent.invoke({"messages": [("user", question)]}, LIMIT)["messages"][-1].text)


def main() -> None:
    parser = argparse.ArgumentParser(description="deepagents with a sub-agent.")
    parser.add_argument("--model", default="openjet-tiny", help="a name or a GGUF file")
    model = parser.parse_args().model
    with local_server(model, "--context", str(CONTEXT)) as server, ThreadPoolExecutor() as pool:
        agent = deep_agent(server)
        answers = pool.map(lambda mountain: ask(agent, mountain), HEIGHTS)
        for mountain, answer in zip(HEIGHTS, answers, strict=True):
            print(f"{mountain}: {answer}")
        print(server.stats().summary())


if __name__ == "__main__":
    main()
