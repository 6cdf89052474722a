"""What a result must name to be believed: machine, commit, command, model and settings."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from openjet_provider import __version__
from openjet_provider._build_info import build_record
from openjet_provider.gpu import Gpus

ROOT = Path(__file__).resolve().parents[2]


def describe(*, timed: bool = True) -> dict[str, Any]:
    """This run's beginning: call it before the work, for the load of the machine. timed: as of
    `machine`."""
    return {
        "command": shlex.join(["openjet", *sys.argv[1:]]),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "version": __version__,
        "commit": commit(),
        "native": build_record().get("source_hash"),
        "machine": machine(timed=timed),
    }


def machine(*, timed: bool = True) -> dict[str, Any]:
    """The machine of this process. timed: seconds or speeds are measured, which its `longest_wait`
    (takes a second) can explain."""
    cpu, memory = platform.processor() or platform.machine(), 0
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemTotal:"):
            memory = int(line.split()[1]) * 1024
    found = {
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory,
        "gpus": [{name: gpu[name] for name in ("name", "memory_total")} for gpu in Gpus().read()],
        "load_before": os.getloadavg()[0],
    }
    return found | {"longest_wait_s": longest_wait()} if timed else found


def longest_wait(seconds: float = 1.0) -> float:
    """How long a thread that only reads the clock was kept from it, at worst: other processes, or
    the host of a virtual machine, can make any pause measured here that much longer."""
    longest, last = 0.0, time.perf_counter()
    end = last + seconds
    while last < end:
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return longest


def commit() -> str | None:
    """The commit of the source tree this runs from; None for an installed package."""
    if not (ROOT / ".git").exists():
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def table(results: dict[str, dict[str, Any]]) -> str:
    """The medians and their spread as text."""
    rows = [("", "", "median", "least", "most", "")]
    for scenario, numbers in results.items():
        for name, number in numbers.items():
            values = [_short(number[key]) for key in ("median", "min", "max")]
            first = scenario if name == next(iter(numbers)) else ""
            rows.append((first, name, values[0], values[1], values[2], number["unit"]))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]

    def line(row: tuple[str, ...]) -> str:
        cells = [
            text.rjust(width) if 2 <= i <= 4 else text.ljust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    return "\n".join(map(line, rows))


def _short(value: float | None) -> str:
    """Three digits that mean something, and no exponent."""
    if value is None:
        return "not known"
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.4f}"
