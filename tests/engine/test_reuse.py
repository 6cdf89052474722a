"""Prompt reuse in a whole conversation: the bundled model, tool calls that it really makes, and a
client that strips reasoning from the history it sends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import pytest

from openjet_provider._core import TokenRequest
from openjet_provider.chat.types import ChatRequest, ChatResult, Sampling
from openjet_provider.engine import Engine
from openjet_provider.generation import Generation

TURNS = 12
RUN = {
    "type": "function",
    "function": {
        "name": "run",
        "description": "Runs a command and returns what it prints.",
        "parameters": {
            "type": "object",
            "properties": {
                "command": {"type": "string", "maxLength": 24},
                "seconds": {"type": "integer", "minimum": 1, "maximum": 60},
            },
            "required": ["command", "seconds"],
            "additionalProperties": False,
        },
    },
}
SYSTEM = {
    "role": "system",
    "content": "You mend a program. Run commands to find out what is wrong.",
}


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


class Conversation:
    """Asks turn by turn, and counts from token ids what could have been reused."""

    def __init__(self, engine: Engine, **options: Any) -> None:
        self._engine, self._options = engine, options
        self._computed: list[list[int]] = []
        self._current: list[int] = []
        self.messages: list[dict[str, Any]] = [SYSTEM]
        self.reusable = self.reused = self.reasoning = self.extended = 0

    def turn(self, seed: int) -> ChatResult:
        request = ChatRequest(
            messages=self.messages,
            tools=[RUN],
            sampling=Sampling(temperature=1.0, seed=seed),
            thinking_budget=40,
            max_tokens=400,
            **self._options,
        )
        result = self._engine.format.start(request, self._submit).result()
        self._computed.append(self._current)
        self.reused += result.usage.cached_tokens
        self.reasoning += result.usage.reasoning_tokens
        self.messages.append(stripped(result))
        return result

    def _submit(self, request: TokenRequest) -> Generation:
        """As Engine.generate; prompt and output are noted."""
        prompt = list(request.tokens)
        self.reusable += max((common(prompt, old) for old in self._computed), default=0)
        if self._computed and prompt[: len(self._current)] == self._current:
            self.extended += 1
        generation = self._engine.generate(request)
        current, take = prompt, generation.take

        def noting() -> Any:
            tokens = take()
            current.extend(token.id for token in tokens)
            return tokens

        generation.take = noting  # type: ignore[method-assign]
        self._current = current
        return generation


def stripped(result: ChatResult) -> dict[str, Any]:
    """The answer as a client keeps it: no reasoning, arguments written in its own way."""
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": json.dumps(json.loads(call.arguments), separators=(",", ":")),
            },
        }
        for call in result.tool_calls
    ]
    return {"role": "assistant", "content": result.content, "tool_calls": calls}


@pytest.mark.parametrize(("preserve_thinking", "extended"), [(None, TURNS - 1), (False, TURNS - 2)])
def test_a_tool_conversation_reuses_its_prompt(
    tiny: Engine, preserve_thinking: bool | None, extended: int
) -> None:
    """At least 95 % of the reusable prompt tokens are no rows of a forward. A second question
    comes half way: with preserve_thinking off the template drops the thinking before it."""
    talk = Conversation(
        tiny, tool_choice="required", enable_thinking=True, preserve_thinking=preserve_thinking
    )
    prompts = 0
    for turn in range(TURNS):
        if turn in (0, TURNS // 2):
            question = f"The tests fail since change {turn}. Find out why."
            talk.messages.append({"role": "user", "content": question})
        result = talk.turn(seed=turn)
        assert result.finish_reason == "tool_calls", "the trace is one of tool calls"
        prompts += result.usage.prompt_tokens
        talk.messages += [
            {
                "role": "tool",
                "tool_call_id": call.id,
                "content": f"step {turn}: line {turn * 37} of the log\nexit status {turn % 3}",
            }
            for call in result.tool_calls
        ]
    assert talk.reasoning > 5 * TURNS, "there was reasoning to strip"
    assert talk.extended == extended, "reasoning is back in the prompt, token for token"
    assert talk.reusable > prompts / 2, "the trace has much to reuse"
    assert 0.95 * talk.reusable <= talk.reused <= talk.reusable
