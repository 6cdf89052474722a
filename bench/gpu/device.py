"""Which card this is, and what the library makes of it."""

from __future__ import annotations

import os
import platform
import subprocess

from bench.gpu import files, memory
from bench.gpu.record import Notes
from bench.gpu.setup import Setup
from openjet_provider._build_info import build_record

QUERY = "name,driver_version,compute_cap,memory.total,clocks.max.sm,clocks.max.memory,power.limit"


def section(setup: Setup, notes: Notes) -> None:
    notes["host"] = f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}"
    if setup.emulated:
        card = dict.fromkeys(QUERY.split(","), "emulated")
    else:
        said = nvidia_smi(f"--query-gpu={QUERY}", "--format=csv,noheader")
        cells = said.splitlines()[0].split(",")
        card = dict(zip(QUERY.split(","), (cell.strip() for cell in cells), strict=True))
    for name, value in card.items():
        notes[name] = value
    if setup.library is None:
        notes["build"] = build_record().get("cuda")
    notes["free bytes"] = memory.plan(setup, files.micro(setup), draft_head_rows=0).available


def nvidia_smi(*arguments: str) -> str:
    return subprocess.run(
        ["nvidia-smi", *arguments], check=True, capture_output=True, text=True, timeout=60
    ).stdout
