"""How many MTP drafts are accepted, by their place in the block and by the rule that verifies them.

    python -m bench.acceptance [MODEL] [--tokens 96] [--depth 4] [--rounds 4]
                               [--head-rows N ...] [--json OUT]

MODEL is a GGUF file or a name (default openjet-tiny). Answers to a fixed set of prompts are
generated with always `depth` drafts a step and no prompt lookup, on the CPU:

    greedy     temperature 0
    coupled    temperature 1, drafts drawn with the target's own noise (requests with a seed)
    rejection  temperature 1, accepted with min(1, p/q) (requests without one)
    argmax     temperature 1, drafts are what the head finds likeliest: what sampling them is
               worth is the difference to this

--head-rows: sizes of the draft head to measure with, 0 (the default) for the whole vocabulary.

Per place d: `reached` drafts there whose predecessors were all accepted, and the share of them that
was accepted too; `share` is of all blocks. At temperature 1 each prompt is answered --rounds times;
each answer has a seed of its own, from 0, so a run repeats exactly.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openjet_provider import models
from openjet_provider.bench.record import describe
from openjet_provider.chat.session import ChatFormat
from openjet_provider.chat.types import ChatRequest
from openjet_provider.tasks import SYSTEM_PROMPT, TASKS
from tests.native.steps import Part, Stepper, open_stepper

PLAIN = (
    "Explain what a hash table is in two sentences.",
    "List three fruits and a colour for each of them.",
    "What does the function sorted() do in Python?",
    "Write a function that reverses a string.",
)
RULES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "coupled": {"temperature": 1, "coupled": 1},
    "rejection": {"temperature": 1, "coupled": 0},
    "argmax": {"temperature": 1, "coupled": 1},
}
MOST_ROWS = 512  # a prompt is read in one step


@dataclass
class Counts:
    """Blocks of `depth` drafts, and how many of them had at least d accepted."""

    depth: int
    blocks: int = 0
    at_least: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.at_least = [0] * self.depth

    def add(self, accepted: int) -> None:
        self.blocks += 1
        for d in range(accepted):
            self.at_least[d] += 1

    def places(self) -> list[dict[str, float]]:
        reached = [self.blocks, *self.at_least]
        return [
            {
                "reached": before,
                "accepted": round(here / max(before, 1), 4),
                "share": round(here / max(self.blocks, 1), 4),
            }
            for before, here in zip(reached, self.at_least, strict=False)
        ]

    @property
    def tokens_per_step(self) -> float:
        return round(1 + sum(self.at_least) / max(self.blocks, 1), 4)


class Drafter:
    """The likeliest drafts after a history: a second conversation, told what the first has said."""

    SLOT = 1

    def __init__(self, stepper: Stepper, depth: int) -> None:
        self._stepper, self._depth = stepper, depth
        self._known = 0
        stepper.reset(self.SLOT)

    def drafts(self, history: Sequence[int]) -> list[int]:
        new = history[self._known : -1]
        part = Part(self.SLOT, self._known, new, sampled=True, n_draft=self._depth)
        part.allowed = history[-1:]  # it has to choose what the first has chosen
        self._known = len(history) - 1
        return self._stepper.step([part], keep=False)[0].drafts


def count(
    stepper: Stepper,
    prompt: Sequence[int],
    rule: str,
    seed: int,
    counts: Counts,
    tokens: int,
    ends: set[int],
) -> None:
    """Generate up to `tokens` after the prompt, and count what became of the drafts."""
    stepper.reset(0)
    drafter = Drafter(stepper, counts.depth) if rule == "argmax" else None
    history, certain = list(prompt), prompt
    pos, fold, drafts = 0, 0, list[int]()
    while len(history) < len(prompt) + tokens and not ends.intersection(history[len(prompt) :]):
        part = Part(0, pos, certain, drafts, fold, sampled=True, n_draft=counts.depth)
        part.sampling = {**RULES[rule], "seed": seed}
        result = stepper.step([part], keep=False)[0]
        fold = len(result.tokens) - 1
        if drafts:
            counts.add(fold)
        history += result.tokens
        pos, certain = pos + len(certain) + fold, history[-1:]
        drafts = drafter.drafts(history) if drafter else result.drafts
    stepper.step([Part(0, pos, [], fold=fold)], keep=False)  # no slot is left with drafts pending


def prompts(form: ChatFormat) -> list[list[int]]:
    asked = [
        *([{"role": "system", "content": SYSTEM_PROMPT}, user(task.request)] for task in TASKS),
        *([user(text)] for text in PLAIN),
    ]
    return [list(form.prompt(ChatRequest(messages=messages)).tokens) for messages in asked]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def measure(
    path: Path, tokens: int, depth: int, head_rows: int = 0, rounds: int = 1
) -> dict[str, Any]:
    """By rule: tokens per step and the places."""
    options: dict[str, Any] = {"max_rows": MOST_ROWS, "mtp": 1, "draft_head_rows": head_rows}
    with open_stepper(path, n_slots=2, n_pages=64, **options) as stepper:
        form = ChatFormat.of_model(stepper.model)
        ends = set(form.tokenizer.vocabulary.eog_ids)
        found = {}
        for rule in RULES:
            counts = Counts(depth)
            for seed, prompt in enumerate(prompts(form) * (1 if rule == "greedy" else rounds)):
                count(stepper, prompt, rule, seed, counts, tokens, ends)
            found[rule] = {"tokens_per_step": counts.tokens_per_step, "places": counts.places()}
            shares = "  ".join(f"{place['share']:.3f}" for place in counts.places())
            print(f"{rule:10} {counts.tokens_per_step:.2f} tokens a step; {shares}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", nargs="?", default="openjet-tiny")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--head-rows", type=int, nargs="+", default=[0])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    name, path = models.resolve(args.model)
    record = {
        **describe(timed=False),
        "command": f"python -m bench.acceptance {shlex.join(sys.argv[1:])}".strip(),
        "model": name,
        "prompts": len(TASKS) + len(PLAIN),
        "results": {
            f"head of {rows or 'all'} tokens": measure(
                path, args.tokens, args.depth, rows, args.rounds
            )
            for rows in args.head_rows
        },
    }
    if args.json:
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
