"""What the terminal shows of one sample of statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from openjet_provider.monitor.source import Sample

_BARS = 10
_IDLE_S = 60.0  # agents that have been idle for longer come last

_PHASES = {
    "queued": "yellow",
    "prompt": "cyan",
    "thinking": "magenta",
    "writing": "green",
    "calling a tool": "blue",
}
_COLUMNS = (("AGENT", 18), ("PHASE", 18), ("TOK/S", -6), ("CONTEXT", -8), ("CACHED", -6))
_DRAFTS = ("DRAFTS", -6)
_NUMBERS = sum(abs(width) + 1 for _, width in (*_COLUMNS, _DRAFTS))
_WIDE = _NUMBERS + 40


def render(sample: Sample, before: Sample | None, width: int, height: int) -> Text:
    """Lines of at most `width` cells, at most `height` of them.

    before: an earlier sample; rates of the engine are those since then, without it the mean ones.
    """
    lines = [_title(sample), _engine(sample, before), *map(_gpu, sample.get("gpus") or ())]
    header = _cells([(name, size, "bold") for name, size in (*_COLUMNS, _DRAFTS)])
    if width >= _WIDE:
        header.append("TASK", "bold")
    lines += [Text(), header]
    agents = sample["conversations"]
    room = max(height - len(lines) - 1, 1)
    awake = sum(not _long_idle(agent) for agent in agents)
    each = 2 if 2 * awake <= room else 1
    shown = sorted(agents, key=_idle_for)[: room // each]
    for agent in in_order(shown):
        lines += _agent(agent, width)[:each]
    if not agents:
        lines.append(Text("no agent has asked for anything yet", "dim"))
    elif left := len(agents) - len(shown):
        lines.append(Text(f"and {left} more", "dim"))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(lines[:height])


def in_order(agents: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """By name, so that rows stay where they are; those long idle last."""
    return sorted(agents, key=lambda agent: (_long_idle(agent), agent["client"], agent["id"]))


def _idle_for(agent: Mapping[str, Any]) -> float:
    """Seconds; none while something runs."""
    return float(agent["unchanged_s"]) if agent["phase"] == "idle" else 0.0


def _long_idle(agent: Mapping[str, Any]) -> bool:
    return _idle_for(agent) > _IDLE_S


def phase(agent: Mapping[str, Any]) -> str:
    """What an agent does, in a word or two."""
    found: str = agent["phase"]
    if found == "prompt":
        return f"prompt {100 * agent['prompt_progress']:.0f} %"
    if found == "calling a tool" and agent["tools"]:
        return f"calling {agent['tools'][-1]}"
    if found == "idle" and agent["finish"] == "tool_calls" and agent["tools"]:
        return f"tool {agent['tools'][-1]}"
    if found == "idle" and agent["finish"] not in (None, "stop", "tool_calls"):
        return f"idle ({agent['finish']})"
    return found


def rates(sample: Sample, before: Sample | None) -> tuple[float, float]:
    """Rows per step and milliseconds per step: since `before`, or since the start."""
    now, then = sample["engine"] or {}, (before or {}).get("engine") or {}
    steps, rows, spent = (
        now.get(name, 0) - then.get(name, 0) for name in ("steps", "rows", "step_us")
    )
    if steps > 0:
        return rows / steps, spent / steps / 1000
    return (0.0, 0.0) if before is None else rates(sample, None)


def _title(sample: Sample) -> Text:
    hours, rest = divmod(int(sample["uptime_s"]), 3600)
    line = Text()
    line.append(f"{_clean(sample['model'])} ", "bold")
    line.append(
        f"on {sample['backend']}, {sample['agents']} agents, context {sample['context']:,},"
        f" up {hours}:{rest // 60:02}:{rest % 60:02}",
        "dim",
    )
    return line


def _engine(sample: Sample, before: Sample | None) -> Text:
    engine = sample["engine"]
    if engine is None:
        return Text("the engine does not answer", "red")
    speed = sum(agent["recent_tokens_per_second"] for agent in sample["conversations"])
    pages = max(engine["pages_total"], 1)
    used, cached = engine["pages_used"] / pages, engine["pages_cached"] / pages
    rows, step = rates(sample, before)
    line = Text()
    line.append(f"{speed:.1f} tok/s", "bold green")
    line.append(f"  running {engine['running']}")
    line.append(f"  queue {engine['waiting']}", "yellow" if engine["waiting"] else "")
    full, kept = round(used * _BARS), round((used + cached) * _BARS)
    line.append("  pool ")
    line.append("━" * full, "green")
    line.append("━" * (kept - full), "cyan")
    line.append("━" * (_BARS - kept), "bright_black")
    line.append(f" {100 * used:.0f}+{100 * cached:.0f} %")
    line.append(f"  step {step:.1f} ms  {rows:.1f} rows")
    return line


def _gpu(gpu: Mapping[str, Any]) -> Text:
    parts = [f"GPU {gpu['index']} {gpu['name'] or ''}".strip()]
    if gpu["load"] is not None:
        parts.append(f"load {100 * gpu['load']:.0f} %")
    if gpu["memory_used"] is not None:
        parts.append(f"{gpu['memory_used'] / 2**30:.1f}/{gpu['memory_total'] / 2**30:.1f} GiB")
    if gpu["power"] is not None:
        limit = "" if gpu["power_limit"] is None else f"/{gpu['power_limit']:.0f}"
        parts.append(f"{gpu['power']:.0f}{limit} W")
    if gpu["temperature"] is not None:
        parts.append(f"{gpu['temperature']} °C")
    return Text("  ".join(parts))


def _agent(agent: Mapping[str, Any], width: int) -> list[Text]:
    prompt, drafted = agent["prompt_tokens"], agent["drafted"]
    cached = f"{100 * agent['cached_tokens'] / prompt:.0f} %" if prompt else ""
    accepted = f"{100 * agent['accepted'] / drafted:.0f} %" if drafted else ""
    values = (
        (_clean(agent["client"]), "bold"),
        (phase(agent), _PHASES.get(agent["phase"], "dim")),
        (f"{agent['recent_tokens_per_second']:.1f}", ""),
        (f"{agent['context_used']:,}", ""),
        (cached, ""),
        (accepted, ""),
    )
    sizes = [size for _, size in (*_COLUMNS, _DRAFTS)]
    first = _cells([(text, size, style) for (text, style), size in zip(values, sizes, strict=True)])
    task, latest = _clean(agent["task"] or ""), _clean(agent["latest"] or "")
    second = Text("  ")
    if width >= _WIDE:
        first.append(task)
    else:
        second.append(_cut(task, width // 3), "italic")
        second.append(" │ " if latest else "", "dim")
    second.append(_tail(latest, width - second.cell_len - 1), "dim")
    return [first, second]


def _cells(cells: Sequence[tuple[str, int, str]]) -> Text:
    """Texts in cells of a size; a negative one puts the text to the right."""
    line = Text()
    for text, size, style in cells:
        room = abs(size)
        cut = _cut(text, room)
        space = " " * (room - cell_len(cut))
        line.append((space + cut if size < 0 else cut + space) + " ", style)
    return line


def _cut(text: str, cells: int) -> str:
    """The beginning of a text."""
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1) + "…"


def _tail(text: str, cells: int) -> str:
    """The end of a text."""
    if cell_len(text) <= cells:
        return text
    while text and cell_len(text) >= cells:
        text = text[cell_len(text) - cells + 1 :] if text.isascii() else text[1:]
    return "…" + text


def _clean(text: str) -> str:
    """In one line; what a client or a model wrote must not steer the terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
