"""What a server costs and survives: an engine behind real HTTP.

    python -m bench.server_load [--seconds 600] [--clients 64] [--json OUT]

    streams  4 agents stream at 50 tokens a second each from the scripted engine, so that every
             token wakes the server: CPU time of its Python threads (event loop, event pump,
             workers; not the engine's own threads) per token
    model    the same of openjet-tiny, which streams as fast as it can: a step brings several
             tokens, and the cores do not sleep between them
    load     --clients at once over every interface, streamed or not, many of which leave early:
             before the answer, in the middle of it, or with half a request sent. Counted: what was
             answered, errors that are not 429, what is left running, and resident memory

The server is in this process, the clients are in another. Exits with 1 for an error, a leak, or
memory that grows by more than 5 % from the first third of the load to its end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import shlex
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from openjet_provider.bench.record import describe
from openjet_provider.engine import Engine, ScriptRule
from openjet_provider.server.background import serving

ROOT = Path(__file__).parents[1]
SETTLE_S = 60.0  # for what was aborted to end
GROWTH = 1.05
SCRIPT = (
    ScriptRule(match="For ever", reply="</think>\n\n" + "one two three four " * 500, delay_s=0.02),
    ScriptRule(reply="Well.\n</think>\n\n" + "A word and another. " * 12, delay_s=0.002),
)


def python_cpu_s() -> float:
    """CPU seconds of this process's Python threads."""
    total = 0
    for thread in threading.enumerate():
        with contextlib.suppress(OSError):  # ended meanwhile
            text = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text()
            total += int(text.split()[0])
    return total / 1e9


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def run_clients(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.server_load", "--as-clients", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def streams(engine: Engine, url: str, seconds: float) -> dict[str, Any]:
    """CPU per token while four agents stream."""
    with run_clients(url, "streams", seconds + 6, 4) as process:
        deadline = time.monotonic() + 100
        while engine.stats().running < 4:
            if time.monotonic() > deadline:
                raise RuntimeError("the clients do not come")
            time.sleep(0.05)
        time.sleep(1)
        cpu, tokens, start = python_cpu_s(), engine.stats().generated, time.monotonic()
        time.sleep(seconds)
        cpu, tokens = python_cpu_s() - cpu, engine.stats().generated - tokens
        took = time.monotonic() - start
        process.kill()
    return {
        "tokens": tokens,
        "tokens_per_second": round(tokens / took, 1),
        "cpu_ms_per_token": round(1000 * cpu / tokens, 4),
    }


def load(engine: Engine, url: str, seconds: float, clients: int) -> dict[str, Any]:
    """What becomes of a server that many clients use badly."""
    memory: list[int] = []
    with run_clients(url, "load", seconds, clients) as process:
        deadline = time.monotonic() + 1.5 * seconds + 60
        while process.poll() is None:
            if time.monotonic() > deadline:
                process.kill()
                raise RuntimeError("the clients do not end")
            memory.append(resident_bytes())
            time.sleep(min(1.0, seconds / 40))
        assert process.stdout is not None
        seen = json.loads(process.stdout.read())
    third = memory[len(memory) // 4 : len(memory) // 3] or memory
    return {
        "clients": clients,
        "seconds": seconds,
        **seen,
        **left_over(engine, url),
        "memory_bytes": [statistics.median(third), statistics.median(memory[-len(third) :])],
    }


def left_over(engine: Engine, url: str) -> dict[str, int]:
    """What still runs a while after the last client has left."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        stats = engine.stats()
        conversations = httpx.get(f"{url}/v1/stats", timeout=10).json()["conversations"]
        found = {
            "left_running": stats.running + stats.waiting,
            "left_pages": stats.pages_used,
            "left_conversations": sum(c["phase"] != "idle" for c in conversations),
        }
        if not any(found.values()) or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def faults(found: dict[str, Any]) -> list[str]:
    """What breaks the promise; empty when it holds."""
    wrong = [f"{name}: {count}" for name, count in found["errors"].items()]
    wrong += [
        f"{name}: {found[name]}" for name in found if name.startswith("left_") and found[name]
    ]
    before, after = found["memory_bytes"]
    if after > GROWTH * before:
        wrong.append(f"memory grew from {before:,} to {after:,} bytes")
    return wrong


# ---- the clients' process ------------------------------------------------------------------------


def request(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """A path and a body: every interface, a few dozen conversations."""
    text = f"Question {rng.randrange(40)}. " + "Please think well about it. " * rng.randrange(8)
    stream = rng.random() < 0.75
    messages = [{"role": "user", "content": text}]
    return rng.choice(
        [
            ("/v1/chat/completions", {"messages": messages, "stream": stream}),
            ("/v1/messages", {"messages": messages, "stream": stream, "max_tokens": 60}),
            ("/v1/responses", {"input": text, "stream": stream}),
            ("/v1/completions", {"prompt": text, "stream": stream, "max_tokens": 40}),
        ]
    )


class Clients:
    """Uses a server from many tasks until the time is up."""

    def __init__(self, url: str, until: float) -> None:
        self._url, self._until = url, until
        self.counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()

    async def use(self, number: int) -> None:
        rng = random.Random(number)
        limits = httpx.Limits(max_connections=4)
        async with httpx.AsyncClient(base_url=self._url, timeout=60, limits=limits) as client:
            while time.monotonic() < self._until:
                try:
                    await self._once(client, rng)
                except httpx.HTTPError as error:
                    self.errors[f"{type(error).__name__}: {error}"] += 1
                await asyncio.sleep(rng.random() * 0.05)

    async def _once(self, client: httpx.AsyncClient, rng: random.Random) -> None:
        path, body = request(rng)
        manner = rng.choice(["whole", "whole", "leaves early", "leaves", "half a request"])
        self.counts[manner] += 1
        if manner == "half a request":
            await self._half(path, body, rng)
        elif manner == "leaves early":
            # A connection of its own: a request that is cancelled may keep its place in a pool.
            async with httpx.AsyncClient(base_url=self._url, verify=False) as leaving:
                asked = leaving.post(path, json=body)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(asked, rng.random() * 0.05)
        else:
            pieces = 10**9 if manner == "whole" else rng.randrange(1, 6)
            await self._read(client, path, body, pieces)

    async def _read(
        self, client: httpx.AsyncClient, path: str, body: dict[str, Any], pieces: int
    ) -> None:
        async with client.stream("POST", path, json=body) as response:
            self.counts[str(response.status_code)] += 1
            text = ""
            async for piece in response.aiter_text():
                text += piece
                pieces -= 1
                if pieces == 0:
                    return
        failed = response.status_code != 200 or '"error":{' in text
        if failed and response.status_code != 429:
            self.errors[f"{response.status_code} {text[-200:]}"] += 1

    async def _half(self, path: str, body: dict[str, Any], rng: random.Random) -> None:
        url = httpx.URL(self._url)
        _, writer = await asyncio.open_connection(url.host, url.port)
        raw = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n\r\n".encode()
        writer.write((head + raw)[: rng.randrange(1, len(head) + len(raw))])
        await writer.drain()
        await asyncio.sleep(rng.random() * 0.02)
        writer.transport.abort()


async def stream_for_ever(url: str, number: int) -> None:
    messages = [{"role": "user", "content": f"For ever {number}"}]
    body = {"messages": messages, "stream": True, "ignore_eos": True, "max_tokens": 1500}
    async with httpx.AsyncClient(timeout=60) as client:
        while True:
            async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
                async for _ in response.aiter_raw():
                    pass


async def be_clients(url: str, what: str, seconds: float, count: int) -> dict[str, Any]:
    if what == "streams":
        await asyncio.gather(*(stream_for_ever(url, number) for number in range(count)))
        return {}
    clients = Clients(url, time.monotonic() + seconds)
    await asyncio.gather(*(clients.use(number) for number in range(count)))
    return {"counts": dict(sorted(clients.counts.items())), "errors": dict(clients.errors)}


def measure(seconds: float, clients: int, streaming_s: float = 15) -> dict[str, Any]:
    # Without drafts a step is a token; a cache that fills would look like a leak.
    options: dict[str, Any] = {"agents": 4, "drafts": 0, "host_cache": 0}
    options |= {"backend": "scripted", "script": SCRIPT}
    with Engine("openjet-tiny", **options) as engine, serving(engine) as url:
        found = {"streams": streams(engine, url, streaming_s)}
        found["load"] = load(engine, url, seconds, clients)
    with Engine("openjet-tiny", agents=4, backend="cpu") as engine, serving(engine) as url:
        found["model"] = streams(engine, url, streaming_s)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--as-clients", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.as_clients:
        url, what, seconds, count = args.as_clients
        print(json.dumps(asyncio.run(be_clients(url, what, float(seconds), int(count)))))
        return 0
    record = {
        **describe(),
        "command": f"python -m bench.server_load {shlex.join(sys.argv[1:])}".strip(),
    }
    record["results"] = measure(args.seconds, args.clients)
    record["faults"] = faults(record["results"]["load"])
    print(json.dumps({name: record[name] for name in ("results", "faults")}, indent=1))
    if args.json:
        args.json.write_text(json.dumps(record, indent=1) + "\n")
    return int(bool(record["faults"]))


if __name__ == "__main__":
    sys.exit(main())
