"""What the scripted engine of these tests says. Processes that serve it import nothing else."""

from __future__ import annotations

from typing import Any

from openjet_provider.engine import ScriptRule

MODEL = "openjet-tiny"
CONTEXT = 4096

# The chat format starts an answer inside the thinking.
THOUGHT = "I should answer.\n</think>\n\n"
ANSWER = "The wall is blue now."
CALL = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\n{city}\n</parameter>\n</function>\n"
    "</tool_call>"
)
ONE_CALL = CALL.format(city="Oslo")
TWO_CALLS = ONE_CALL + "\n" + CALL.format(city="Rome")
PING_CALL = "<tool_call>\n<function=ping>\n</function>\n</tool_call>"

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
PING: dict[str, Any] = {"type": "function", "function": {"name": "ping", "parameters": {}}}

SCRIPT = (
    ScriptRule(
        match="Weather in Oslo?", reply=f"Use the tool.\n</think>\n\n{CALL.format(city='Oslo')}"
    ),
    ScriptRule(match="two cities", reply=f"{THOUGHT}I look.\n\n{TWO_CALLS}"),
    ScriptRule(match="Look and say so", reply=f"{THOUGHT}I look.\n{ONE_CALL}\nI looked."),
    ScriptRule(
        match="Alive?", reply="</think>\n\n<tool_call>\n<function=ping>\n</function>\n</tool_call>"
    ),
    ScriptRule(match="slowly", reply=THOUGHT + "one two three four five " * 400, delay_s=0.02),
    ScriptRule(match="in a while", reply=f"{THOUGHT}{ANSWER}", delay_s=0.05),
    ScriptRule(match="break down", reply=THOUGHT + ANSWER, fault_after=8),
    ScriptRule(match="2+2=", reply="4. And 3+3=6."),
    ScriptRule(reply=f"{THOUGHT}{ANSWER}"),
)

OPTIONS: dict[str, Any] = {"backend": "scripted", "script": SCRIPT, "context": CONTEXT}
