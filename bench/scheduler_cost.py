"""What the engine itself costs a step, beside the backend: planning, pages, commit, events.

    python -m bench.scheduler_cost [--pages 32768] [--conversations 8] [--steps 1000]
                                   [--host-bytes 1073741824] [--json OUT]

The backend is the scripted one, which computes nothing and sleeps 200 us a step. First the pool is
filled with stored conversations, then so many at once read a long prompt and decode:

    room   while the pool has free pages
    full   while every new page is another conversation's, which is dropped for it
    admit  one follow-up of a stored conversation, from admission to its first token, others idle

All of it without a store (`us_a_step`), and with one of `--host-bytes` (`us_a_step_with_store`):
then what would make room next is copied there, for at most a fifth of an ordinary step in each,
which is part of these times. A state has 256 bytes for each page of the pool.

Times are CPU microseconds of the engine's own thread, the scripted backend's part included, so that
other work on the machine counts little; medians over rounds, and the worst.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

from openjet_provider._native import load
from openjet_provider.bench.record import describe
from openjet_provider.models import resolve
from tests.native.engine_driver import Driver, Request, Rule
from tests.native.steps import SCRIPTED

PAGE = 64
LONG = 8000  # tokens of a stored conversation
ROUNDS = 7


class Measured:
    """An engine whose step thread's time is read; one client at a time."""

    def __init__(self, model: Path, pages: int, conversations: int, host_bytes: int) -> None:
        native = load("cpu")
        self.pages = pages + 128 * conversations * (ROUNDS + 1)
        before = set(os.listdir("/proc/self/task"))
        self.engine = Driver(
            (native.ffi, native.lib),
            model,
            kind=SCRIPTED,
            script=[Rule([], [300 + i % 64 for i in range(8192)], delay_us=200)],
            context=8192,
            n_slots=conversations,
            n_pages=self.pages,
            n_snapshots=4 * self.pages * PAGE // LONG,
            max_rows=512,
            draft=2,
            host_bytes=host_bytes,
        )
        (thread,) = set(os.listdir("/proc/self/task")) - before
        self._times = Path(f"/proc/self/task/{thread}/schedstat")

    def thread_us(self) -> float:
        return int(self._times.read_text().split()[0]) / 1e3

    def fill(self, pages: int, prompt: Any) -> None:
        """Store conversations until so many pages are kept for reuse."""
        for _ in range(pages * PAGE // LONG + 1):
            if self.engine.stats()["pages_cached"] < pages:
                self.engine.run(Request(prompt(), max_tokens=1))

    def converse(self, conversations: int, steps: int, prompt: Any) -> float:
        """Microseconds a step, from the first prompt's reading to the last token of all."""
        prompts = [prompt()[:-steps] for _ in range(conversations)]
        at, us = self.engine.stats()["steps"], self.thread_us()
        self.engine.run(*[Request(p, max_tokens=steps, draft=0) for p in prompts])
        return (self.thread_us() - us) / int(self.engine.stats()["steps"] - at)

    def admit(self, history: list[int]) -> float:
        """Microseconds for a follow-up of one token."""
        us = self.thread_us()
        answer = self.engine.run(Request(history, max_tokens=1))[0]
        assert answer.stats["cached_tokens"] >= LONG
        return self.thread_us() - us


def summary(times: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(times), 1), "worst": round(max(times), 1)}


def measure(
    model: Path, pages: int, conversations: int, steps: int, host_bytes: int = 0
) -> dict[str, Any]:
    """Microseconds by case; host_bytes: of the store, 0 for none."""
    random = np.random.default_rng(0)

    def prompt() -> list[int]:
        return random.integers(300, 4000, LONG).tolist()  # type: ignore[no-any-return]

    measured = Measured(model, pages, conversations, host_bytes)
    with measured.engine as engine:
        history = prompt()
        history += engine.run(Request(history, max_tokens=1))[0].tokens
        measured.fill(pages, prompt)
        found: dict[str, Any] = {"pages_cached": engine.stats()["pages_cached"]}
        found["admit"] = summary([measured.admit([*history, 300 + i]) for i in range(20)])
        found["room"] = summary(
            [measured.converse(conversations, steps, prompt) for _ in range(ROUNDS)]
        )
        measured.fill(measured.pages, prompt)
        evicted = engine.stats()["evicted_pages"]
        found["full"] = summary(
            [measured.converse(conversations, steps, prompt) for _ in range(ROUNDS)]
        )
        found["full"]["evicted_pages"] = engine.stats()["evicted_pages"] - evicted
        names = ("snapshots_used", "prefixes_kept", "host_bytes")
        found |= {name: engine.stats()[name] for name in names[: 3 if host_bytes else 1]}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pages", type=int, default=32_768)
    parser.add_argument("--conversations", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--host-bytes", type=int, default=1 << 30)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    record = {
        **describe(),
        "command": f"python -m bench.scheduler_cost {shlex.join(sys.argv[1:])}".strip(),
    }
    model = resolve("openjet-tiny")[1]
    for name, host_bytes in (("us_a_step", 0), ("us_a_step_with_store", args.host_bytes)):
        record[name] = measure(model, args.pages, args.conversations, args.steps, host_bytes)
        print(name, json.dumps(record[name], indent=1), flush=True)
    if args.json:
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
