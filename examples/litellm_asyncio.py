"""Four agents as plain asyncio tasks, LiteLLM in between: no framework, one engine.

    pip install 'openjet-provider[litellm]'
    python examples/litellm_asyncio.py                        # openjet-tiny (bundled), on the CPU
    python examples/litellm_asyncio.py --model qwen3.8-27b    # the model the engine is made for

Each agent asks the model, runs the tools it calls for, and asks again until it answers in words.
The engine lives in this process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # no look-up of prices at import

import litellm

import litellm_openjet  # noqa: F401  (registers openjet/...)
from openjet_provider import Engine

TURNS = 6  # model calls of one agent at most
SHELVES = {"B-204": 17, "C-881": 250, "A-119": 4, "D-530": 96}
SYSTEM = "You look after a store room. Use the tool, then answer in one sentence."


def count_boxes(shelf: str) -> str:
    return f"{SHELVES[shelf]} boxes" if shelf in SHELVES else f"Error: no shelf {shelf}"


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "count_boxes",
            "description": "Count the boxes on a shelf.",
            "parameters": {
                "type": "object",
                "properties": {"shelf": {"type": "string", "description": "the shelf's number"}},
                "required": ["shelf"],
            },
        },
    }
]


async def agent(model: str, shelf: str) -> str:
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"Call count_boxes with shelf = {shelf} and report the count."},
    ]
    for _ in range(TURNS):
        answer = await litellm.acompletion(
            model=f"openjet/{model}", messages=messages, tools=TOOLS, temperature=0, max_tokens=1024
        )
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return str(message.content)
        for call in message.tool_calls:
            result = count_boxes(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return f"gave up after {TURNS} turns"


async def crew(model: str) -> list[str]:
    return await asyncio.gather(*[agent(model, shelf) for shelf in SHELVES])


def main() -> None:
    parser = argparse.ArgumentParser(description="Four agents on one engine, with LiteLLM.")
    parser.add_argument("--model", default="openjet-tiny", help="a name or a GGUF file")
    model = parser.parse_args().model
    os.environ.pop("OPENJET_BASE_URL", None)  # this one shows an engine in its own process
    with Engine(model) as engine:
        for shelf, answer in zip(SHELVES, asyncio.run(crew(model)), strict=True):
            print(f"{shelf}: {answer}")
        print(engine.stats().summary())


if __name__ == "__main__":
    main()
