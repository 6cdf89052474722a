"""OpenAI Agents SDK: a front desk hands each question to a colleague; three customers at once.

    pip install 'openjet-provider[server]' openai-agents
    python examples/openai_agents_handoff.py                        # openjet-tiny, on the CPU
    python examples/openai_agents_handoff.py --model qwen3.8-27b    # needs its GPU and its file

Starts `openjet serve` for the time it runs; with OPENJET_BASE_URL set it uses a running one. Every
agent shares that server's model, its steps and the prompts that they have in common.
"""

from __future__ import annotations

import argparse
import asyncio

from agents import (
    Agent,
    AgentsException,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from openjet_provider.local_server import local_server

TURNS = 6  # model calls of one conversation at most
QUESTIONS = (
    "Where is parcel 5120? Hand this to the courier.",
    "What does sending 12 kilos cost? Hand this to the accountant.",
    "Where is parcel 887? Hand this to the courier.",
)


@function_tool
def find_parcel(number: int) -> str:
    """Where is a parcel?

    Args:
        number: the parcel's number
    """
    return f"parcel {number} is on van {number % 89}"


@function_tool
def parcel_price(kilos: int) -> str:
    """What does it cost to send a parcel?

    Args:
        kilos: its weight
    """
    return f"{4 + 3 * kilos} euros"


def front_desk(model: OpenAIChatCompletionsModel) -> Agent:
    settings = ModelSettings(temperature=0, max_tokens=1024)
    shared = {"model": model, "model_settings": settings}
    courier = Agent(
        name="Courier",
        handoff_description="Knows where parcels are.",
        instructions="You know where parcels are. Use the tool, then answer in one sentence.",
        tools=[find_parcel],
        **shared,
    )
    accountant = Agent(
        name="Accountant",
        handoff_description="Knows what parcels cost.",
        instructions="You know what parcels cost. Use the tool, then answer in one sentence.",
        tools=[parcel_price],
        **shared,
    )
    return Agent(
        name="Front desk",
        instructions="You are the front desk. Hand every question to the colleague it is for.",
        handoffs=[courier, accountant],
        **shared,
    )


async def answer_all(url: str, model_name: str) -> None:
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="any")
    desk = front_desk(OpenAIChatCompletionsModel(model=model_name, openai_client=client))

    async def answer(question: str) -> str:
        try:
            run = await Runner.run(desk, question, max_turns=TURNS)
        except AgentsException as error:
            return f"gave up ({error})"
        return f"{run.last_agent.name}: {run.final_output}"

    answers = await asyncio.gather(*[answer(question) for question in QUESTIONS])
    for question, given in zip(QUESTIONS, answers, strict=True):
        print(f"{question}\n  {given}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Hand-offs between agents of the OpenAI SDK.")
    parser.add_argument("--model", default="openjet-tiny", help="a name or a GGUF file")
    model = parser.parse_args().model
    set_tracing_disabled(True)  # its traces would go to OpenAI
    with local_server(model) as server:
        asyncio.run(answer_all(server.url, server.model))
        print(server.stats().summary())


if __name__ == "__main__":
    main()
