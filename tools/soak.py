"""Run every test at full size and record it in bench/results/soak.json. Hours, not minutes.

The record names what was run and on what: command, hash of native/, commit, machine, outcome.
"""

from __future__ import annotations

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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "bench" / "results" / "soak.json"
NATIVE = ["tests/native/test_programs.py"]
COMMANDS = [
    ["-m", "pytest", "-m", "", "--hypothesis-profile=soak", "--timeout=0"],
    ["-m", "pytest", "-m", "", "--timeout=0", *NATIVE, "--sanitize=address"],
    ["-m", "pytest", "-m", "", "--timeout=0", *NATIVE, "--sanitize=thread"],
]


def output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def cpu_model() -> str:
    names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return names[0] if names else "unknown CPU"


def pytest_counts(report: Path) -> dict[str, int]:
    suite = ET.parse(report).getroot()[0]
    return {key: int(suite.attrib[key]) for key in ("tests", "failures", "errors", "skipped")}


def run(arguments: list[str]) -> dict[str, object]:
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        done = subprocess.run([sys.executable, *arguments, f"--junitxml={report}"], cwd=ROOT)
        counts = pytest_counts(report) if report.exists() else {}
    return {
        "command": shlex.join(["python", *arguments]),
        "status": done.returncode,
        "seconds": round(time.monotonic() - started),
        **counts,
    }


def main() -> int:
    record = {
        "source_hash": output(sys.executable, "build.py", "--hash"),
        "commit": output("git", "rev-parse", "HEAD"),
        "uncommitted": output("git", "status", "--porcelain").splitlines(),
        "date": datetime.date.today().isoformat(),
        "machine": f"{cpu_model()}, {len(os.sched_getaffinity(0))} cores, {platform.platform()}",
        "runs": [run(command) for command in COMMANDS],
    }
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=2) + "\n")
    print(f"recorded in {RECORD.relative_to(ROOT)}")
    return max(int(entry["status"] != 0) for entry in record["runs"])


if __name__ == "__main__":
    sys.exit(main())
