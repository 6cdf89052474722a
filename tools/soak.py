"""Run every test at full size, in parts, and record each in bench/results/soak.json.

    python tools/soak.py [--only PART ...]

Hours, not minutes. The record is written after every part, so what was done stays when a run is
interrupted. Each part names the hash of the native sources that it ran (for some only the CPU
library's: build.py --hash cpu), its command, commit, uncommitted files, date, machine and outcome;
a part of other sources than today's is dropped, and the record is `complete` with all of them.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "bench" / "results" / "soak.json"
PROGRAMS = "tests/native/test_programs.py"
# Tests that are parts of their own.
SINGLE = {
    "schedules": ["tests/native/test_engine_schedules.py"],
    "native-schedules": [f"{PROGRAMS}::test_engine_for_long[schedules]"],
    "cancels": [f"{PROGRAMS}::test_engine_for_long[cancels]"],
    "constrained": ["tests/engine/test_schemas.py"],
    "damaged-files": [
        f"{PROGRAMS}::test_damaged_model_files",
        "tests/native/test_gguf.py::test_every_damage_is_refused_or_harmless",
    ],
}
OF_CPU = set(SINGLE)  # they run nothing of native/cuda
# What pytest is given.
PARTS: dict[str, list[str]] = {
    **SINGLE,
    "others": [f"--deselect={test}" for tests in SINGLE.values() for test in tests],
    "address": [f"{PROGRAMS}::test_program_passes", "--sanitize=address"],
    "thread": [f"{PROGRAMS}::test_program_passes", "--sanitize=thread"],
}


def output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def machine() -> str:
    names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    cpu = names[0] if names else "unknown CPU"
    return f"{cpu}, {len(os.sched_getaffinity(0))} cores, {platform.platform()}"


def pytest_counts(report: Path) -> dict[str, int]:
    suite = ET.parse(report).getroot()[0]
    return {key: int(suite.attrib[key]) for key in ("tests", "failures", "errors", "skipped")}


def run(part: str) -> dict[str, Any]:
    arguments = ["-m", "pytest", "-m", "", "--hypothesis-profile=soak", "--timeout=0", *PARTS[part]]
    found = {
        "command": shlex.join(["python", *arguments]),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(),
        "load_before": os.getloadavg()[0],
    }
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        done = subprocess.run([sys.executable, *arguments, f"--junitxml={report}"], cwd=ROOT)
        counts = pytest_counts(report) if report.exists() else {}
    seconds = round(time.monotonic() - started)
    return {**found, "status": done.returncode, "seconds": seconds, **counts}


def source_hashes() -> dict[str, str]:
    """Of what each part runs, as the sources are now."""
    of_all = output(sys.executable, "build.py", "--hash")
    of_cpu = output(sys.executable, "build.py", "--hash", "cpu")
    return {part: of_cpu if part in OF_CPU else of_all for part in PARTS}


def record_part(part: str, found: dict[str, Any], hashes: dict[str, str]) -> None:
    """Beside the parts that are of today's sources."""
    parts = json.loads(RECORD.read_text())["parts"] if RECORD.exists() else {}
    parts[part] = {"source_hash": hashes[part], **found}
    kept = {
        name: parts[name]
        for name in PARTS
        if name in parts and parts[name]["source_hash"] == hashes[name]
    }
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    new = RECORD.with_suffix(".part")
    new.write_text(
        json.dumps({"complete": len(kept) == len(PARTS), "parts": kept}, indent=2) + "\n"
    )
    new.replace(RECORD)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("soak.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", action="append", choices=list(PARTS), help="this part; repeatable (default all)"
    )
    chosen = parser.parse_args(argv).only or list(PARTS)
    status = 0
    for part in chosen:
        hashes = source_hashes()
        commit = output("git", "rev-parse", "HEAD")
        uncommitted = output("git", "status", "--porcelain").splitlines()
        print(f"soak: {part}", flush=True)
        found = {"commit": commit, "uncommitted": uncommitted, **run(part)}
        record_part(part, found, hashes)
        status |= int(found["status"] != 0)
    print(f"recorded in {RECORD}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
