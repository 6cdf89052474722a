"""What evictions cost somebody who writes: his pauses while others' prompts push stored
conversations out of the pool, with host memory that keeps them and without.

    python -m bench.evictions [-m openjet-tiny] [--new 100] [--between 40] [--json OUT]

One conversation writes throughout. Beside it come prompts of `--new` tokens, each with an answer of
one token, the next when `--between` tokens more are written. Conversations of `--stored` tokens
filled the pool before, so that new pages and snapshots are taken from others. A pause is the time
between two of the engine's own moments of having tokens; `ordinary` is its median without any
prompt. `kept` has the pauses where what leaves the pool goes to host memory, `dropped` those where
it does not: the difference is what keeping costs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

from openjet_provider._native import load
from openjet_provider.bench.record import describe
from openjet_provider.models import resolve
from tests.native.engine_driver import Driver, Request

PAGE = 64
STORED = 12  # conversations that fill the pool
PROMPTS = 24


def pauses(engine: Driver, request: int, until: Any) -> list[float]:
    """Milliseconds between the moments at which the engine had tokens of `request`."""
    moments: list[int] = []
    answer = engine.answers[request]
    while not until() and not answer.finish:
        n = len(answer.tokens)
        engine.poll(most=1)
        if len(answer.tokens) > n:
            moments.append(answer.stats["total_us"])
    return [float(b - a) / 1e3 for a, b in itertools.pairwise(moments) if b > a]


def measure(
    model: Path, stored: int, new: int, host_bytes: int, between: int = 40
) -> dict[str, float]:
    """One engine's pauses, ms."""
    native = load("cpu")
    random = np.random.default_rng(0)

    def prompt(n: int) -> Request:
        tokens = random.integers(300, 4000, n).tolist()
        return Request(tokens, max_tokens=1, boundaries=[n // 2], draft=0)

    n_pages = STORED * (stored // PAGE + 1)
    with Driver(
        (native.ffi, native.lib),
        model,
        context=PAGE * n_pages,
        n_slots=2,
        n_pages=n_pages,
        n_snapshots=3 * STORED,
        max_rows=256,
        threads=0,
        min_prompt_rows=1,
        host_bytes=host_bytes,
    ) as engine:
        for _ in range(STORED):
            engine.run(prompt(stored))
        writer = engine.submit(Request(prompt(20).tokens, max_tokens=100_000, draft=0))
        answer = engine.answers[writer]
        ordinary = pauses(engine, writer, lambda: len(answer.tokens) >= 100)
        evicted = engine.stats()["evicted_pages"]
        beside: list[float] = []
        for _ in range(PROMPTS):
            other = engine.submit(prompt(new))
            beside += pauses(engine, writer, lambda: bool(engine.answers[other].finish))  # noqa: B023
            go_on = len(answer.tokens) + between
            beside += pauses(engine, writer, lambda: len(answer.tokens) >= go_on)  # noqa: B023
        stats = engine.stats()
        engine.lib.oj_cancel(engine.engine, writer)
        engine.wait(writer)
    usual = statistics.median(ordinary)
    beside.sort()
    return {
        "ordinary_ms": round(usual, 2),
        "median_beside": round(statistics.median(beside) / usual, 2),
        "99th_of_100_beside": round(beside[int(len(beside) * 0.99)] / usual, 2),
        "longest_beside": round(beside[-1] / usual, 2),
        "pauses": len(beside),
        "evicted_pages": stats["evicted_pages"] - evicted,
        "kept_bytes": stats["host_bytes"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-m", "--model", default="openjet-tiny")
    parser.add_argument("--stored", type=int, default=400)
    parser.add_argument("--new", type=int, default=100)
    parser.add_argument("--between", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    record: dict[str, Any] = {
        **describe(),
        "command": f"python -m bench.evictions {shlex.join(sys.argv[1:])}".strip(),
        "in_ordinary_steps": {"kept": [], "dropped": []},
    }
    model = resolve(args.model)[1]
    for _ in range(args.rounds):
        for name, host_bytes in (("kept", 1 << 32), ("dropped", 0)):
            found = measure(model, args.stored, args.new, host_bytes, args.between)
            record["in_ordinary_steps"][name].append(found)
            print(name, json.dumps(found), flush=True)
    if args.json:
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
