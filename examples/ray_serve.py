"""Ray Serve: replicas of one engine each, requests routed to the replica that knows their prefix.

    pip install openjet-provider 'ray[serve]>=2.60,<2.61'
    python examples/ray_serve.py                        # openjet-tiny in two replicas, on the CPU
    python examples/ray_serve.py --model qwen3.8-27b --gpus 1    # one GPU for each replica

Each replica opens its own engine. Ray's `PrefixCacheAffinityRouter` remembers which replica has
read which prompts and sends a follow-up there, as long as the replicas are about equally busy; it
reads `messages` of the request, which is what a ChatRequest has.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import Any

import ray
from ray import serve
from ray.llm._internal.serve.routing_policies.prefix_aware.prefix_aware_router import (
    PrefixCacheAffinityRouter,  # ray.serve.llm has it too, but cannot be imported without vLLM
)
from ray.serve.config import RequestRouterConfig
from ray.serve.handle import DeploymentHandle

from openjet_provider import Engine
from openjet_provider.chat.types import ChatRequest, ChatResult, Sampling

REPLICAS = 2
CONVERSATIONS = 4
TURNS = ("Hello!", "Tell me the capital of France.", "What is 3 + 4?")


@serve.deployment(
    num_replicas=REPLICAS,
    max_ongoing_requests=8,
    request_router_config=RequestRouterConfig(request_router_class=PrefixCacheAffinityRouter),
)
class Agents:
    """One engine, as many conversations at once as it has room for."""

    def __init__(self, model: str) -> None:
        self.engine = Engine(model, agents=4)

    async def chat(self, request: ChatRequest) -> tuple[int, ChatResult, Any]:
        """The process that answered, its answer, and its engine's counters."""
        async with await self.engine.achat(request) as stream:
            result = await stream.aresult()
        return os.getpid(), result, self.engine.stats()


async def converse(
    handle: DeploymentHandle, name: str, counters: dict[int, Any]
) -> tuple[list[int], int]:
    """The processes that answered a conversation's turns, and its cached tokens."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": f"You are {name}'s helper."}]
    places, cached = [], 0
    for text in TURNS:
        messages.append({"role": "user", "content": text})
        request = ChatRequest(
            messages=list(messages), sampling=Sampling(temperature=0.0), max_tokens=256
        )
        place, result, counters[place] = await handle.chat.remote(request)
        messages.append({"role": "assistant", "content": result.content or ""})
        places.append(place)
        cached += result.usage.cached_tokens
    return places, cached


async def crew(handle: DeploymentHandle) -> dict[int, Any]:
    """The counters of each process at the end."""
    names = [f"agent {number}" for number in range(CONVERSATIONS)]
    counters: dict[int, Any] = {}
    found = await asyncio.gather(*[converse(handle, name, counters) for name in names])
    for name, (places, cached) in zip(names, found, strict=True):
        print(f"{name}: processes {places}, {cached} prompt tokens reused")
    return counters


def main() -> None:
    parser = argparse.ArgumentParser(description="Two replicas with prefix-aware routing.")
    parser.add_argument("--model", default="openjet-tiny", help="a name or a GGUF file")
    parser.add_argument("--gpus", type=float, default=0, help="of each replica")
    options = parser.parse_args()
    ray.init(include_dashboard=False, log_to_driver=False, num_cpus=max(2, os.cpu_count() or 2))
    placed = Agents.options(ray_actor_options={"num_cpus": 0.5, "num_gpus": options.gpus})
    handle = serve.run(placed.bind(options.model))
    for place, stats in asyncio.run(crew(handle)).items():
        print(
            f"process {place}: {stats.steps} steps, {stats.rows / stats.steps:.1f} rows per step,"
            f" {stats.cached_tokens} prompt tokens reused"
        )
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
