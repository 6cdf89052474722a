"""What agents send, made uniform so that the model file's own template renders it.

After `normalise_messages` there is at most one system message and it comes first; every content is
a string; every assistant message has `reasoning_content` and every call a mapping of arguments.
docs/chat-format.md lists the decisions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from openjet_provider.chat.schema import parse_loosely
from openjet_provider.defaults import REASONING_EFFORT
from openjet_provider.errors import InvalidRequestError

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}

# Parts this model cannot read. They are refused: an answer that ignores an image is wrong.
_MEDIA = ("image", "audio", "video", "file", "document", "pdf")

_REASONING_PARTS = {"thinking": "thinking", "reasoning": "reasoning"}
_CALL_PARTS = ("tool_use", "tool_call")

# A client writes a new hash into this first line at every request, which would cost the prefix.
_BILLING_HEADER = "x-anthropic-billing-header:"

# Of a request: each costs a template a tenth of a millisecond.
_MOST_MESSAGES = 100_000

_EFFORTS = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "xhigh",
    "max": "xhigh",
    "xhigh": "xhigh",
}


def normalise_messages(
    messages: Sequence[Mapping[str, Any]], *, keep_billing_header: bool = False
) -> list[dict[str, Any]]:
    """Raises InvalidRequestError, which names the message, for what no template can render."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise InvalidRequestError("messages: must be a list of messages with `role` and `content`")
    if not messages:
        raise InvalidRequestError("messages: is empty; send at least one message")
    contents = (m.get("content") if isinstance(m, Mapping) else None for m in messages)
    parts = sum(len(content) for content in contents if isinstance(content, list))
    _check_number("messages", len(messages) + parts)
    out: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        out.extend(_message(message, f"messages[{index}]"))
    clean = str if keep_billing_header else _without_billing_header
    return _in_call_order(_leading_system(out, clean))


def _check_number(name: str, number: int) -> None:
    if number > _MOST_MESSAGES:
        raise InvalidRequestError(
            f"{name}: {number:,} with their parts; send at most {_MOST_MESSAGES:,}"
        )


def normalise_tools(tools: Iterable[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """OpenAI's `{"type": "function", "function": {...}}`, also from its flat and Anthropic's form.
    Definitions are kept as they are, in their order: the model reads them as JSON."""
    tools = list(tools or ())
    _check_number("tools", len(tools))
    out = []
    for index, tool in enumerate(tools):
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise InvalidRequestError(
                f'tools[{index}]: must be {{"type": "function", "function": {{"name": ...}}}}'
            )
        if function is tool:
            schema = tool.get("parameters", tool.get("input_schema"))
            kept = {name: tool[name] for name in ("name", "description") if name in tool}
            function = kept if schema is None else {**kept, "parameters": schema}
        if not isinstance(function.get("parameters", {}), (Mapping, type(None))):
            raise InvalidRequestError(f"tools[{index}].function.parameters: must be a JSON schema")
        out.append({"type": "function", "function": dict(function)})
    return out


def thinking_variables(
    enable_thinking: bool | None, reasoning_effort: str | None, preserve_thinking: bool | None
) -> dict[str, Any]:
    """Template variables of the thinking options. What is not set is left to the template, but for
    the effort: Qwen3.8's own default (xhigh) overthinks, medium adds no text."""
    effort = REASONING_EFFORT
    if reasoning_effort == "none":
        enable_thinking = False
    elif reasoning_effort is not None:
        if reasoning_effort not in _EFFORTS:
            raise InvalidRequestError(
                f"reasoning_effort: {reasoning_effort!r} is not one of none, {', '.join(_EFFORTS)}"
            )
        effort = _EFFORTS[reasoning_effort]
        enable_thinking = True if enable_thinking is None else enable_thinking
    variables: dict[str, Any] = {"reasoning_effort": effort}
    if enable_thinking is not None:
        variables["enable_thinking"] = enable_thinking
    if preserve_thinking is not None:
        variables["preserve_thinking"] = preserve_thinking
    return variables


def _message(message: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    if not isinstance(message, Mapping):
        raise InvalidRequestError(f"{where}: must be a mapping, not {type(message).__name__}")
    role = _ROLES.get(str(message.get("role")))
    if role is None:
        raise InvalidRequestError(
            f"{where}.role: {message.get('role')!r} is not one of {', '.join(_ROLES)}"
        )
    parts = _parts(message.get("content"), role, f"{where}.content")
    text = _joined(parts, where)
    if role == "assistant":
        return [_assistant(message, parts, text, where)]
    if role == "tool":
        call_id = _id(message.get("tool_call_id"), f"{where}.tool_call_id")
        return [{"role": "tool", "content": text, "tool_call_id": call_id}]
    results = [
        _tool_result(part, where)
        for part in parts
        if isinstance(part, Mapping) and part.get("type") == "tool_result"
    ]
    if results and not text:
        return results
    return [*results, {"role": role, "content": text}]


def _tool_result(part: Mapping[str, Any], where: str) -> dict[str, Any]:
    content = _joined(_parts(part.get("content"), "tool", where), where)
    call_id = _id(part.get("tool_use_id"), f"{where}.tool_use_id")
    return {"role": "tool", "content": content, "tool_call_id": call_id}


def _assistant(
    message: Mapping[str, Any], parts: Sequence[Any], text: str, where: str
) -> dict[str, Any]:
    given = message.get("reasoning_content", message.get("reasoning"))
    reasoning = given if isinstance(given, str) else _part_reasoning(parts)
    if not reasoning and text.lstrip().startswith("<think>") and "</think>" in text:
        # A client that was given the thinking inside the text sends it back that way.
        inside, _, text = text.lstrip().removeprefix("<think>").partition("</think>")
        reasoning, text = inside.strip("\n"), text.lstrip("\n")
    calls = _list(message.get("tool_calls") or (), f"{where}.tool_calls")
    if not calls and isinstance(message.get("function_call"), Mapping):
        calls = [{"function": message["function_call"]}]
    known = [call.get("id") for call in calls if isinstance(call, Mapping)]
    calls += [
        {"id": p.get("id"), "name": p.get("name"), "arguments": p.get("input", p.get("args"))}
        for p in parts
        if isinstance(p, Mapping) and p.get("type") in _CALL_PARTS and p.get("id") not in known
    ]
    out: dict[str, Any] = {"role": "assistant", "content": text, "reasoning_content": reasoning}
    if calls:
        out["tool_calls"] = [
            _call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls)
        ]
    return out


def _part_reasoning(parts: Sequence[Any]) -> str:
    texts = [
        part.get(_REASONING_PARTS[kind])
        for part in parts
        if isinstance(part, Mapping) and (kind := str(part.get("type"))) in _REASONING_PARTS
    ]
    return "".join(str(text) for text in texts if text)


def _call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InvalidRequestError(f"{where}: has no function name")
    return {
        "id": _id(call.get("id"), f"{where}.id"),
        "type": "function",
        "function": {"name": function["name"], "arguments": _arguments(function.get("arguments"))},
    }


def _list(value: Any, where: str) -> list[Any]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence):
        raise InvalidRequestError(f"{where}: must be a list, not {type(value).__name__}")
    return list(value)


def _id(value: Any, where: str) -> str | int | None:
    if value is None or isinstance(value, (str, int)):
        return value
    raise InvalidRequestError(f"{where}: must be text, not {type(value).__name__}")


def _arguments(value: Any) -> dict[str, Any]:
    """Templates want a mapping; clients send JSON text, sometimes quoted twice, cut or empty."""
    for _ in range(2):
        if isinstance(value, str):
            value = parse_loosely(value) if value.strip() else {}
    if value is None:
        return {}
    return dict(value) if isinstance(value, Mapping) else {"arguments": value}


def _parts(content: Any, role: str, where: str) -> Sequence[Any]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (content,)
    if isinstance(content, Sequence) and not isinstance(content, (bytes, bytearray)):
        return content
    if role == "tool":
        return (json.dumps(content, ensure_ascii=False, default=str),)
    if isinstance(content, Mapping) and "type" in content:
        return (content,)
    raise InvalidRequestError(
        f"{where}: must be text or a list of parts, not {type(content).__name__}"
    )


def _joined(parts: Sequence[Any], where: str) -> str:
    """The text of the parts, one after another. Parts of unknown kinds add nothing."""
    texts = []
    for index, part in enumerate(parts):
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, Mapping):
            raise InvalidRequestError(f"{where}.content[{index}]: must be text or a mapping")
        kind = str(part.get("type", "text"))
        if any(word in kind for word in _MEDIA):
            raise InvalidRequestError(
                f"{where}.content[{index}]: this model reads text only, not {kind}; remove it"
            )
        text = part.get("refusal") if kind == "refusal" else part.get("text")
        if isinstance(text, str) and kind not in _REASONING_PARTS:
            texts.append(text)
    return "".join(texts)


def _leading_system(
    messages: list[dict[str, Any]], clean: Callable[[str], str]
) -> list[dict[str, Any]]:
    """Leading system messages become one. A later one stays where it is, as a user message: moved
    to the front it would change the prefix that all earlier turns were computed with."""
    count = next((i for i, m in enumerate(messages) if m["role"] != "system"), len(messages))
    texts = [clean(message["content"]) for message in messages[:count]]
    out = [{**m, "role": "user"} if m["role"] == "system" else m for m in messages[count:]]
    if count:
        out.insert(0, {"role": "system", "content": "\n\n".join(filter(None, texts))})
    return out


def _without_billing_header(text: str) -> str:
    if text.startswith(_BILLING_HEADER):
        return text.partition("\n")[2].lstrip("\n")
    return text


def _in_call_order(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The format has no ids, so results are told apart by their order: that of the calls."""
    out: list[dict[str, Any]] = []
    order: dict[Any, int] = {}
    for message in messages:
        if message["role"] == "assistant":
            order = {call["id"]: i for i, call in enumerate(message.get("tool_calls", ()))}
        out.append(message)
        if message["role"] == "tool" and message["tool_call_id"] in order:
            i = len(out) - 1
            rank = order[message["tool_call_id"]]
            while (
                i
                and out[i - 1]["role"] == "tool"
                and (order.get(out[i - 1]["tool_call_id"], -1) > rank)
            ):
                out[i - 1], out[i] = out[i], out[i - 1]
                i -= 1
    return out
