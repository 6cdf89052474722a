"""What a record says about each goal: measured, wanted, held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.gpu.peer import MEASURED_BEFORE

TOKENS_A_STEP = 2.24  # accepted with two drafts on the real model, as others reported


class Sections:
    """A record's sections by name; what is missing raises KeyError."""

    def __init__(self, sections: dict[str, Any]) -> None:
        self.sections = sections

    def __call__(self, section: str, *path: str) -> Any:
        value = self.sections[section]["found"]
        for name in path:
            value = value[name]
        return value


def steps(of: Sections, name: str) -> float:
    return float(of("steps", name))


def share_of_bandwidth(of: Sections, name: str) -> float:
    """Of the bandwidth that was measured in the same run, by the bytes that a step must move."""
    bandwidth = float(of("launch", "read_gb_per_s")) * 1e9
    return float(of("steps", "bytes", name)) / bandwidth / (steps(of, name) / 1e3)


def host_share(of: Sections) -> float:
    """Of a step of four agents, the time in which the device does nothing of it."""
    wall = float(of("overhead", "4 agents", "ms a step"))
    between = wall - float(of("overhead", "4 agents", "ms in the backend"))
    within = steps(of, "12 rows, short") - float(of("phase times", "12 rows", "kernel ms"))
    return (between + within) / wall


def peer_steps(of: Sections, rows: str) -> float:
    try:
        return float(of("peer", "ms a step", rows))
    except KeyError:
        before: Any = MEASURED_BEFORE["ms a step"]
        return float(before[rows])


def peer_prompt(of: Sections) -> float:
    try:
        return float(of("peer", "prompt tokens/s"))
    except KeyError:
        before: Any = MEASURED_BEFORE["prompt tokens/s"]
        return float(before)


def server_ratio(of: Sections) -> float:
    """Tokens/s of four agents beside llama-server's at equal accepted tokens a step."""
    before: Any = MEASURED_BEFORE["server, 4 agents, steps/s each"]
    theirs = max(before["without drafts"], before["with MTP"] * TOKENS_A_STEP)
    return float(1e3 / steps(of, "12 rows, short") * TOKENS_A_STEP / theirs)


@dataclass(frozen=True)
class Goal:
    measure: str
    goal: float
    at_most: bool
    measured: Callable[[Sections], float]

    def verdict(self, of: Sections) -> dict[str, Any]:
        says: dict[str, Any] = {
            "measure": self.measure,
            "goal": f"{'<=' if self.at_most else '>='} {self.goal:g}",
        }
        try:
            value = self.measured(of)
        except (KeyError, ZeroDivisionError):
            return says | {"measured": None, "holds": None}
        holds = value <= self.goal if self.at_most else value >= self.goal
        return says | {"measured": round(value, 4), "holds": holds}


def most(measure: str, goal: float, measured: Callable[[Sections], float]) -> Goal:
    return Goal(measure, goal, True, measured)


def least(measure: str, goal: float, measured: Callable[[Sections], float]) -> Goal:
    return Goal(measure, goal, False, measured)


def bandwidth(rows: int, depth: str) -> Goal:
    name = f"{rows} rows, {depth}"
    measure = f"share of the read bandwidth, {name}"
    return least(measure, 0.85, lambda of: share_of_bandwidth(of, name))


def beside_control(rows: int) -> Goal:
    name = f"{rows} rows, short"
    measure = f"persistent / control, {rows} rows"
    return most(measure, 1.0, lambda of: steps(of, name) / float(of("control", name)))


def beside_peer(rows: int) -> Goal:
    name = f"{rows} rows, short"
    measure = f"ms / llama.cpp's, {rows} rows"
    return most(measure, 1.0, lambda of: steps(of, name) / peer_steps(of, str(rows)))


BESIDE = "agent beside the prompt"
GOALS = [
    most("3 rows + 2 draft passes, short, ms", 4.35, lambda of: steps(of, "3 rows, short")),
    most("12 rows, short, ms", 5.0, lambda of: steps(of, "12 rows, short")),
    most(
        "12 rows / 3 rows, short",
        1.15,
        lambda of: steps(of, "12 rows, short") / steps(of, "3 rows, short"),
    ),
    most("24 rows, short, ms", 5.9, lambda of: steps(of, "24 rows, short")),
    most(
        "24 rows / 3 rows, short",
        1.35,
        lambda of: steps(of, "24 rows, short") / steps(of, "3 rows, short"),
    ),
    most(
        "12 rows, 23K / short",
        1.30,
        lambda of: steps(of, "12 rows, 23K") / steps(of, "12 rows, short"),
    ),
    *[bandwidth(rows, depth) for depth in ("short", "23K") for rows in (1, 3, 12, 24)],
    *[beside_control(rows) for rows in (3, 12, 24)],
    *[beside_peer(rows) for rows in (1, 3, 12, 24)],
    least(
        "prompt tokens/s / llama.cpp's",
        2.0,
        lambda of: float(of("prompts", "prompt alone", "tokens/s")) / peer_prompt(of),
    ),
    least("kept beside a prompt", 0.40, lambda of: float(of("prompts", BESIDE, "kept"))),
    most(
        "longest pause beside a prompt, ms",
        60,
        lambda of: float(of("prompts", BESIDE, "longest pause ms")),
    ),
    most(
        "prompt beside an agent / alone",
        1.6,
        lambda of: float(of("prompts", "prompt beside the agent", "times alone")),
    ),
    most(
        "first token of a follow-up, ms (worst)",
        40,
        lambda of: float(of("follow-ups", "first token ms", "worst")),
    ),
    least("4 agents / llama-server's, tokens/s", 6.0, server_ratio),
    most("host time of a step", 0.03, host_share),
    most(
        "device bytes of the 24 GB plan",
        23.5e9,
        lambda of: float(of("memory", "device bytes")),
    ),
]


def verdicts(sections: dict[str, Any]) -> list[dict[str, Any]]:
    of = Sections(sections)
    return [goal.verdict(of) for goal in GOALS]


def table(found: list[dict[str, Any]]) -> str:
    width = max(len(row["measure"]) for row in found)
    words = {True: "holds", False: "MISSED", None: "not measured"}
    return "\n".join(
        f"{row['measure']:{width}}  {row['measured'] if row['measured'] is not None else '-'!s:>12}"
        f"  {row['goal']:>10}  {words[row['holds']]}"
        for row in found
    )
