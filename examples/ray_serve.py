"""Ray Serve: replicas of one engine each, requests routed to the replica that knows their prefix.

    pip install openjet-provider 'ray[serve]>=2.60,<2.61'
    python examples/ray_serve.py                        # openjet-tiny in two replicas, on the CPU
    python examples/ray_serve.py --model qwen3.8-27b --gpus 1    # one GPU for each replica

Each replica opens its own engine. Ray's `PrefixCacheAffinityRouter` remembers which replica has
read which prompts and sends there what begins alike: a crew goes where its system prompt is, a
follow-up where its conversation is. It reads `messages` of the request, which a ChatRequest has.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else Ray reports its use

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
SECONDS = 300  # after which it gives up
AGENTS = 3  # of each crew
CREWS = {
    "bakery": "Bread is baked at four. " * 12 + "You help in a bakery and answer briefly.",
    "harbour": "Ships come in with the tide. " * 12 + "You help in a harbour and answer briefly.",
}
TURNS = ("Hello!", "Tell me the capital of France.", "What is 3 + 4?")


@serve.deployment(
    num_replicas=REPLICAS,
    max_ongoing_requests=16,  # more than the engine has room for: the others wait in its queue
    request_router_config=RequestRouterConfig(
        request_router_class=PrefixCacheAffinityRouter,
        request_router_kwargs={"do_eviction": True},  # else what it remembers grows for ever
    ),
)
class Replica:
    """One engine, as many conversations at once as it has room for."""

    def __init__(self, model: str, threads: int) -> None:
        self.engine = Engine(model, agents=4, threads=threads)

    async def chat(self, request: ChatRequest) -> tuple[str, ChatResult, Any]:
        """The replica's name, its answer, and its engine's counters."""
        async with await self.engine.achat(request) as stream:
            result = await stream.aresult()
        return serve.get_replica_context().replica_id.unique_id, result, self.engine.stats()


@dataclass
class Agent:
    """A conversation: the replicas that answered it, and its prompt tokens that were reused."""

    crew: str
    replicas: set[str] = field(default_factory=set)
    reused: int = 0

    async def converse(self, handle: DeploymentHandle, counters: dict[str, Any]) -> None:
        messages: list[dict[str, Any]] = [{"role": "system", "content": CREWS[self.crew]}]
        for text in TURNS:
            messages.append({"role": "user", "content": text})
            request = ChatRequest(
                messages=list(messages), sampling=Sampling(temperature=0.0), max_tokens=256
            )
            replica, result, counters[replica] = await handle.chat.remote(request)
            messages.append({"role": "assistant", "content": result.content or ""})
            self.replicas.add(replica)
            self.reused += result.usage.cached_tokens


async def work(handle: DeploymentHandle) -> tuple[list[Agent], dict[str, Any]]:
    """All agents at the end, and the counters of each replica."""
    counters: dict[str, Any] = {}
    # An unknown prompt goes where the least was sent so far: one agent of each crew settles where.
    first = [Agent(crew) for crew in CREWS]
    for agent in first:
        await agent.converse(handle, counters)
    others = [Agent(crew) for crew in CREWS for _ in range(AGENTS - 1)]
    await asyncio.gather(*[agent.converse(handle, counters) for agent in others])
    return [*first, *others], counters


def give_up(*_: object) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    raise TimeoutError(f"not done after {SECONDS} s")


def main() -> None:
    parser = argparse.ArgumentParser(description="Two replicas with prefix-aware routing.")
    parser.add_argument("--model", default="openjet-tiny", help="a name or a GGUF file")
    parser.add_argument("--gpus", type=float, default=0, help="of each replica")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, give_up)  # Ray waits without a bound for what it cannot place
    signal.alarm(SECONDS)
    cores = os.cpu_count() or 1
    ray.init(
        include_dashboard=False,
        log_to_driver=False,
        num_cpus=REPLICAS,
        object_store_memory=100_000_000,  # bytes; requests and answers are small
    )
    try:
        serve.start(proxy_location="Disabled")  # no HTTP: this process calls the replicas
        placed = Replica.options(ray_actor_options={"num_cpus": 1, "num_gpus": options.gpus})
        handle = serve.run(placed.bind(options.model, max(1, cores // REPLICAS)))
        agents, counters = asyncio.run(work(handle))
    finally:
        signal.alarm(SECONDS // 5)  # a shutdown that hangs
        serve.shutdown()
        ray.shutdown()
    for agent in agents:
        print(f"{agent.crew}: replica {', '.join(agent.replicas)} ({agent.reused} cached)")
    for replica, stats in counters.items():
        print(f"replica {replica}: {stats.summary()}")


if __name__ == "__main__":
    main()
