"""smolagents: two tool-calling agents at once.

    pip install 'openjet-provider[server]' 'smolagents[openai]'
    python examples/smolagents_tools.py                        # openjet-tiny, on the CPU
    python examples/smolagents_tools.py --model qwen3.8-27b    # needs its GPU and its file

Starts `openjet serve` for the time it runs; with OPENJET_BASE_URL set it uses a running one.
smolagents forces a call in every turn (`tool_choice` "required"), `final_answer` being the last,
and sends calls and results back as plain text. Its long system prompt is read once for both agents.
Its other kind of agent, `CodeAgent`, runs code that the model wrote; this one does not.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor

from smolagents import LogLevel, OpenAIServerModel, ToolCallingAgent, tool

from openjet_provider.local_server import local_server

STEPS = 5  # model calls of one agent at most
RIVERS = {"Vistula": 1047, "Duero": 897}


@tool
def river_length(river: str) -> str:
    """How long is a river?

    Args:
        river: the river's name
    """
    return f"{RIVERS[river]} km" if river in RIVERS else f"Error: no river called {river}"


def ask(url: str, model_name: str, river: str) -> str:
    model = OpenAIServerModel(
        model_id=model_name, api_base=f"{url}/v1", api_key="any", temperature=0, max_tokens=1024
    )
    agent = ToolCallingAgent(
        tools=[river_length], model=model, max_steps=STEPS, verbosity_level=LogLevel.ERROR
    )
    return str(agent.run(f"Call river_length with river = {river} and give the length."))


def main() -> None:
    parser = argparse.ArgumentParser(description="Tool-calling agents of smolagents.")
    parser.add_argument("--model", default="openjet-tiny", help="a name or a GGUF file")
    model = parser.parse_args().model
    with local_server(model) as server, ThreadPoolExecutor() as pool:
        answers = pool.map(lambda river: ask(server.url, server.model, river), RIVERS)
        for river, answer in zip(RIVERS, answers, strict=True):
            print(f"{river}: {answer}")
        print(server.stats().summary())


if __name__ == "__main__":
    main()
