"""Pydantic AI: three agents at once, each with a tool and an answer of a declared type.

    pip install 'openjet-provider[server]' 'pydantic-ai-slim[openai]'
    python examples/pydantic_ai_agents.py                        # openjet-tiny, on the CPU
    python examples/pydantic_ai_agents.py --model qwen3.8-27b    # needs its GPU and its file

Starts `openjet serve` for the time it runs; with OPENJET_BASE_URL set it uses a running one. The
typed answer is a tool call that Pydantic AI forces (`tool_choice` "required"): the engine enforces
it token by token, so that it always has the declared fields.
"""

from __future__ import annotations

import argparse
import asyncio

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.exceptions import AgentRunError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits

from openjet_provider.local_server import local_server

LIMITS = UsageLimits(request_limit=6)  # model calls of one agent at most
GREENHOUSE = {"basil": 23, "mint": 61, "thyme": 7}


class Stock(BaseModel):
    plant: str
    pots: int


def count_pots(plant: str) -> int:
    """How many pots of a plant are there?"""
    return GREENHOUSE.get(plant, 0)


async def ask_all(url: str, model_name: str) -> list[str]:
    provider = OpenAIProvider(base_url=f"{url}/v1", api_key="any")
    agent = Agent(
        OpenAIChatModel(model_name, provider=provider),
        output_type=Stock,
        tools=[count_pots],
        system_prompt="You look after a greenhouse. Count with the tool, then give the result.",
        model_settings=ModelSettings(temperature=0, max_tokens=1024),
        retries=2,
    )

    async def ask(plant: str) -> str:
        try:
            run = await agent.run(f"How many pots of {plant} are there?", usage_limits=LIMITS)
        except AgentRunError as error:
            return f"{plant}: gave up ({error.message})"
        return f"{run.output.plant}: {run.output.pots} pots"

    return await asyncio.gather(*[ask(plant) for plant in GREENHOUSE])


def main() -> None:
    parser = argparse.ArgumentParser(description="Typed answers with Pydantic AI.")
    parser.add_argument("--model", default="openjet-tiny", help="a name or a GGUF file")
    model = parser.parse_args().model
    with local_server(model) as server:
        print("\n".join(asyncio.run(ask_all(server.url, server.model))))
        print(server.stats().summary())


if __name__ == "__main__":
    main()
