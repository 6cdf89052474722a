"""What a run of gpu_check writes down: sections, how each ended, and what it found until then.

{"card", "driver", "capability", "emulated", "source_hash", "commit", "date", "command",
 "sections": {NAME: {"status", "reason", "seconds", "found": {...}}},
 "goals": [{"measure", "goal", "measured", "holds"}], "failed": [NAME], "unproven": [NAME]}
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

PASSED, FAILED, KILLED, NOT_RUN = "passed", "failed", "out of time", "not run"


# Sections without which nothing is proven: equal bits, and the ways out.
NEEDED = ("launch", "phases", "micro", "wide", "suite", "blocks", "faults", "stress")


def unproven(sections: dict[str, Any]) -> list[str]:
    """Needed sections that have not passed."""
    return [name for name in NEEDED if sections.get(name, {}).get("status") != PASSED]


class NotRun(Exception):
    """Why a section cannot be run here, which is no failure."""


def write_json(path: Path, value: Any) -> None:
    """Whoever reads `path` meanwhile sees the old file or the new one."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(value, indent=2) + "\n")
    os.replace(part, path)


class Notes:
    """What one section has found; every note is in its file before the next line runs."""

    def __init__(self, section: str, path: Path) -> None:
        self.section, self.path = section, path
        self.started = time.monotonic()
        self.found: dict[str, Any] = {}

    def __setitem__(self, name: str, value: Any) -> None:
        self.found[name] = value
        write_json(self.path, self.found)
        self.say(f"{name}: {json.dumps(value)[:400]}")

    def say(self, text: str) -> None:
        """A line of progress."""
        print(f"[{time.monotonic() - self.started:6.1f} s] {self.section}: {text}", flush=True)


def ended(status: str, seconds: float, found: Path, reason: str = "") -> dict[str, Any]:
    """A section's part of the record."""
    try:
        values = json.loads(found.read_text())
    except (OSError, ValueError):
        values = {}
    result = {"status": status, "seconds": round(seconds, 1), "found": values}
    return result | ({"reason": reason} if reason else {})


def earlier_sections(path: Path, source_hash: str) -> dict[str, Any]:
    """Sections of an earlier run with the same sources, so that a check may take several calls."""
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    if record.get("source_hash") != source_hash:
        return {}
    sections: dict[str, Any] = record.get("sections", {})
    return sections
