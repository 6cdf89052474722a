"""LangGraph: supervisors that ask a sub-agent through a tool; three of them at once on one engine.

    pip install 'openjet-provider[demo]'
    python examples/langgraph_supervisor.py                      # openjet-tiny, on the CPU
    python examples/langgraph_supervisor.py --model qwen3.8-27b  # needs its GPU and its file

The engine lives in this process. All supervisors, and all sub-agents, have the same system prompt
and tools: the engine reads each once.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool

from openjet_provider import ChatOpenJet, Engine

LIMIT = {"recursion_limit": 13}  # six model calls of one agent at most
DEPTHS = {"Ness": 230, "Tahoe": 501, "Erie": 64}


@tool
def lake_depth(lake: str) -> str:
    """Look up how deep a lake is."""
    return f"{DEPTHS[lake]} metres" if lake in DEPTHS else f"Error: no lake called {lake}"


def supervisor(llm: ChatOpenJet) -> Any:
    geographer = create_agent(
        llm, [lake_depth], system_prompt="You are a geographer. Use the tool, then answer."
    )

    @tool
    def ask_geographer(question: str) -> str:
        """Ask the geographer, who knows about lakes."""
        result = geographer.invoke({"messages": [("user", question)]}, LIMIT)
        return str(result["messages"][-1].text)

    return create_agent(
        llm,
        [ask_geographer],
        system_prompt="You are a supervisor. Ask the geographer, then answer.",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Supervisors with a sub-agent in LangGraph.")
    parser.add_argument("--model", default="openjet-tiny", help="a name or a GGUF file")
    model = parser.parse_args().model
    os.environ.pop("OPENJET_BASE_URL", None)  # this one shows an engine in its own process
    agent = supervisor(ChatOpenJet(model=model, temperature=0, max_tokens=1024))

    def ask(lake: str) -> str:
        question = f"Call ask_geographer with the question 'lake_depth {lake}'."
        return str(agent.invoke({"messages": [("user", question)]}, LIMIT)["messages"][-1].text)

    with Engine(model) as engine, ThreadPoolExecutor(len(DEPTHS)) as pool:
        for lake, answer in zip(DEPTHS, pool.map(ask, DEPTHS), strict=True):
            print(f"{lake}: {answer}")
        print(engine.stats().summary())


if __name__ == "__main__":
    main()
