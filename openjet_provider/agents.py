"""A coding agent as a plain loop: ask the model, do what it calls for, ask again."""

from __future__ import annotations

import inspect
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from openjet_provider.chat.stream import TurnStream
from openjet_provider.chat.types import ChatRequest, ChatResult, Sampling, ToolCall, Usage
from openjet_provider.errors import OpenJetError
from openjet_provider.tasks import SYSTEM_PROMPT, Workspace

TURNS = 8  # model calls of one agent at most
MAX_TOKENS = 1024  # of one model call
TURN_SECONDS = 600.0

Tool = Callable[..., str]


class ChatEngine(Protocol):
    """What Engine and RemoteEngine have in common."""

    def chat(self, request: ChatRequest) -> TurnStream[Any]: ...


@dataclass(frozen=True)
class Turn:
    """One model call as the agent saw it; seconds from the call on."""

    first_s: float
    seconds: float
    usage: Usage


@dataclass
class Agent:
    """Works on one task until it answers in words or reaches a limit. `run` in a thread of its own;
    the rest may be read meanwhile."""

    engine: ChatEngine
    workspace: Workspace
    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=0.0))
    system: str = SYSTEM_PROMPT
    turns: list[Turn] = field(default_factory=list)
    tool_seconds: float = 0.0
    outcome: str = ""
    _stopped: threading.Event = field(default_factory=threading.Event)
    _stream: TurnStream[Any] | None = None

    @property
    def name(self) -> str:
        """The task's, and the client's name for the engine."""
        return self.workspace.task.name

    def run(self) -> None:
        """Sets `outcome` at the end. Errors of the engine are outcomes too."""
        try:
            self.outcome = self._work()
        except OpenJetError as error:
            self.outcome = f"failed: {error}"

    def stop(self) -> None:
        """End at the next token. From any thread."""
        self._stopped.set()
        if self._stream is not None:
            self._stream.cancel()

    def _work(self) -> str:
        tools = {tool.__name__: tool for tool in self.workspace.tools}
        specs = [_spec(tool) for tool in tools.values()]
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": self.system},
            {"role": "user", "content": self.workspace.task.request},
        ]
        for _ in range(TURNS):
            if self._stopped.is_set():
                return "out of time"
            result = self._turn(messages, specs)
            if self._stopped.is_set():
                return "out of time"
            if not result.tool_calls:
                return "finished"
            messages.append(_message(result))
            start = time.perf_counter()
            for call in result.tool_calls:
                answer = _use(tools, call)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": answer})
            self.tool_seconds += time.perf_counter() - start
        return f"gave up after {TURNS} turns"

    def _turn(self, messages: list[dict[str, Any]], specs: list[dict[str, Any]]) -> ChatResult:
        request = ChatRequest(
            messages=list(messages),
            tools=specs,
            sampling=self.sampling,
            max_tokens=MAX_TOKENS,
            timeout=TURN_SECONDS,
            client=self.name,
        )
        start = time.perf_counter()
        first = None
        self._stream = self.engine.chat(request)
        for _ in self._stream:
            first = first or time.perf_counter()
        result = self._stream.result()
        end = time.perf_counter()
        self.turns.append(Turn((first or end) - start, end - start, result.usage))
        return result


def _spec(tool: Tool) -> dict[str, Any]:
    """A function of text arguments as a tool definition."""
    names = list(inspect.signature(tool).parameters)
    parameters = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "required": names,
    }
    function = {"name": tool.__name__, "description": tool.__doc__, "parameters": parameters}
    return {"type": "function", "function": function}


def _message(result: ChatResult) -> dict[str, Any]:
    """The turn as a message of the history."""
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in result.tool_calls
    ]
    message: dict[str, Any] = {"role": "assistant", "content": result.content, "tool_calls": calls}
    if result.reasoning:
        message["reasoning_content"] = result.reasoning
    return message


def _use(tools: dict[str, Tool], call: ToolCall) -> str:
    """What the tool says; what is wrong with the call is something for the model to read."""
    if call.name not in tools:
        return f"Error: there is no tool {call.name}; there are {', '.join(tools)}"
    tool = tools[call.name]
    try:
        given = {name: str(value) for name, value in json.loads(call.arguments or "{}").items()}
        inspect.signature(tool).bind(**given)
    except (TypeError, ValueError, AttributeError) as error:
        return f"Error: {call.name}: {error}"
    return tool(**given)
