"""What a GPU must show before its numbers count, in the order in which a fault is easiest to find:
a launch, a meeting of all blocks, every phase alone, whole steps, the equality suites; then times.

    bench/gpu_check.sh [--seconds 460] [--only SECTIONS] [--skip-build] [--out FOLDER]
    bench/gpu_check.sh --emulated        every line of it here, on the emulator with tiny models

Each section runs in a process and with a limit of its own: a crash, a hang or a lost device ends
that section only. What it has found so far is in FOLDER/<card>.json at once (its form is described
in bench/gpu/record.py), so a call that is cut off loses nothing. Sections that an earlier call
recorded in bench/results/ for the same native sources are kept: a check may take several calls.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gpu import goals
from bench.gpu.record import (
    FAILED,
    KILLED,
    NOT_RUN,
    PASSED,
    Notes,
    NotRun,
    earlier_sections,
    ended,
    unproven,
    write_json,
)
from bench.gpu.setup import ROOT, Setup
from openjet_provider.bench.record import commit

RESULTS = ROOT / "bench" / "results"
PROGRAMS = ROOT / "build" / "gpu-tests"
EMULATED = ROOT / "build" / "tests" / "emulated"  # where the tests build them too
EMULATED_PROGRAMS = ROOT / "build" / "tests" / "plain"
NOT_RUN_STATUS = 3  # of a section's process


@dataclass(frozen=True)
class Section:
    name: str
    run: str  # module:function
    seconds: float  # it gets at most


SECTIONS = [
    Section("device", "bench.gpu.device:section", 40),
    Section("launch", "bench.gpu.programs:launch", 60),
    Section("phases", "bench.gpu.programs:phases", 120),
    Section("micro", "bench.gpu.equality:micro", 40),
    Section("wide", "bench.gpu.equality:wide", 120),
    Section("suite", "bench.gpu.equality:suite", 240),
    Section("blocks", "bench.gpu.equality:blocks", 60),
    Section("faults", "bench.gpu.equality:faults", 60),
    Section("stress", "bench.gpu.equality:stress", 60),
    Section("large file", "bench.gpu.files:section", 90),
    Section("steps", "bench.gpu.steps:persistent", 90),
    Section("phase times", "bench.gpu.steps:phase_times", 60),
    Section("control", "bench.gpu.steps:control", 60),
    Section("draft passes", "bench.gpu.steps:draft_passes", 60),
    Section("prompts", "bench.gpu.agents:prompts", 90),
    Section("follow-ups", "bench.gpu.agents:follow_ups", 90),
    Section("overhead", "bench.gpu.agents:overhead", 60),
    Section("memory", "bench.gpu.memory:section", 60),
    Section("variants", "bench.gpu.steps:variants", 120),
    Section("clamped", "bench.gpu.steps:clamped", 90),
    Section("oracle", "bench.gpu.oracle:section", 120),
    Section("sanitizer", "bench.gpu.sanitize:section", 250),
    Section("peer", "bench.gpu.peer:section", 240),
]


def run_section(name: str, run: str, setup: Setup, found: Path) -> int:
    """In a process of its own: run it, and say how it ended."""
    module, _, function = run.partition(":")
    try:
        getattr(importlib.import_module(module), function)(setup, Notes(name, found))
    except NotRun as reason:
        print(reason, file=sys.stderr)
        return NOT_RUN_STATUS
    return 0


class Check:
    """Runs sections one after another and keeps the record on disk."""

    def __init__(
        self, setup: Setup, seconds: float, out: Path, record: dict[str, Any], patience: float = 1
    ) -> None:
        self.setup, self.out, self.record, self.patience = setup, out, record, patience
        self.start = time.monotonic()
        self.end = self.start + seconds
        self.temporary = tempfile.TemporaryDirectory(prefix="gpu-check-")
        self.folder = Path(self.temporary.name)
        self.target = out / "unknown-card.json"

    def run(self, section: Section) -> None:
        left = self.end - time.monotonic()
        limit = min(section.seconds * self.patience, left)
        self.say(f"{section.name}: at most {max(0, limit):.0f} s")
        found = self.folder / f"{section.name.replace(' ', '-')}.json"
        if left < 5:
            self.keep(section, ended(NOT_RUN, 0, found, "no time was left"))
            return
        started = time.monotonic()
        errors = self.folder / "errors"
        process = self.start_section(section, found, errors)
        try:
            status = self.follow(process, section, found, started + limit)
        finally:
            stop(process)
        took = time.monotonic() - started
        said = errors.read_text(errors="replace").strip()
        if status is None:
            result = ended(KILLED, took, found, f"killed after {took:.0f} s")
        elif status == NOT_RUN_STATUS:
            result = ended(NOT_RUN, took, found, said.splitlines()[-1])
        elif status != 0:
            result = ended(FAILED, took, found, f"status {status}: {said[-3000:]}")
        else:
            result = ended(PASSED, took, found)
        self.keep(section, result)
        self.say(f"{section.name}: {result['status']}, {took:.1f} s {result.get('reason', '')}")

    def start_section(self, section: Section, found: Path, errors: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "bench.gpu_check", "--section", section.name]
        command += ["--run", section.run, "--setup", self.setup.to_json(), "--found", str(found)]
        # Two emulated blocks are enough to wait for each other.
        env = os.environ | ({"OPENJET_CUDA_BLOCKS": "2"} if self.setup.emulated else {})
        with errors.open("wb") as stderr:
            return subprocess.Popen(
                command, cwd=ROOT, env=env, stderr=stderr, start_new_session=True
            )

    def follow(
        self, process: subprocess.Popen[bytes], section: Section, found: Path, end: float
    ) -> int | None:
        """Its exit status, or None if it took too long; what it finds goes into the record."""
        written = 0
        while time.monotonic() < end:
            try:
                return process.wait(timeout=0.25)
            except subprocess.TimeoutExpired:
                pass
            if found.exists() and found.stat().st_mtime_ns != written:
                written = found.stat().st_mtime_ns
                self.keep(section, ended("running", 0, found))
        return None

    def keep(self, section: Section, result: dict[str, Any]) -> None:
        self.record["sections"][section.name] = result
        if section.name == "device" and "name" in result["found"]:
            self.name_card(result["found"])
        self.write()

    def name_card(self, found: dict[str, Any]) -> None:
        """The record is the card's from now on, with what earlier calls found."""
        self.record["card"] = found["name"]
        self.record["driver"] = found["driver_version"]
        self.record["capability"] = found["compute_cap"]
        file = re.sub(r"[^a-z0-9]+", "-", found["name"].lower()).strip("-") + ".json"
        if self.target.name != file:
            self.target.unlink(missing_ok=True)
            self.target = self.out / file
            earlier = earlier_sections(RESULTS / file, self.record["source_hash"])
            self.record["sections"] = earlier | self.record["sections"]

    def write(self) -> None:
        sections = self.record["sections"]
        self.record["failed"] = [
            name for name, section in sections.items() if section["status"] in (FAILED, KILLED)
        ]
        self.record["unproven"] = unproven(sections)
        self.record["goals"] = goals.verdicts(sections)
        write_json(self.target, self.record)

    def say(self, text: str) -> None:
        print(f"== {time.monotonic() - self.start:5.0f} s  {text}", flush=True)


def stop(process: subprocess.Popen[bytes]) -> None:
    """It and whatever it has started: a section has a process group of its own. A kernel that does
    not end may keep its process; the check goes on without it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=30)


def build(emulated: bool) -> None:
    """The libraries and the test programs, for the card of this machine or for the emulator."""
    commands = [["--emulate", "--out", str(EMULATED)], ["--tests", "--out", str(EMULATED_PROGRAMS)]]
    env = dict(os.environ)
    if not emulated:
        commands = [[], ["--gpu-tests", "--out", str(PROGRAMS)]]
        env = {"OPENJET_CUDA": "1", "OPENJET_CUDA_ARCHS": architecture()} | env
    for arguments in commands:
        subprocess.run([sys.executable, "build.py", *arguments], cwd=ROOT, env=env, check=True)


def architecture() -> str:
    from bench.gpu.device import nvidia_smi

    said = nvidia_smi("--query-gpu=compute_cap", "--format=csv,noheader")
    return said.splitlines()[0].strip().replace(".", "")


def source_hash() -> str:
    command = [sys.executable, "build.py", "--hash"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def chosen(only: str | None) -> list[Section]:
    """`only` names sections with commas between; device always runs, for the record's name."""
    if only is None:
        return SECTIONS
    wanted = [name.strip() for name in only.split(",")]
    unknown = sorted(set(wanted) - {section.name for section in SECTIONS})
    if unknown:
        known = ", ".join(section.name for section in SECTIONS)
        raise SystemExit(f"no section {', '.join(unknown)}; there are {known}")
    return [section for section in SECTIONS if section.name in ("device", *wanted)]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("gpu_check.sh", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=460, help="for everything but the build")
    parser.add_argument("--patience", type=float, default=1, help="times every section's limit")
    parser.add_argument("--only", help="sections, with commas between")
    parser.add_argument("--skip-build", action="store_true", help="it was built before")
    parser.add_argument("--emulated", action="store_true", help="on the emulator, tiny models")
    parser.add_argument("--files", type=Path, default=Path("/tmp/openjet-gpu-check"))
    parser.add_argument("--out", type=Path, help="folder of the record (bench/results)")
    parser.add_argument("--peer", type=Path, help="folder with llama-server, llama-batched-bench")
    parser.add_argument("--commit", help="of these sources, where there is no git")
    parser.add_argument("--section", help=argparse.SUPPRESS)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--setup", help=argparse.SUPPRESS)
    parser.add_argument("--found", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.emulated and args.out is None and args.section is None:
        parser.error("--emulated needs --out: its record is none of a card's")
    return args


def main() -> int:
    args = arguments()
    if args.section:
        return run_section(args.section, args.run, Setup.from_json(args.setup), args.found)
    sections = chosen(args.only)
    if not args.skip_build:
        build(args.emulated)
    setup = Setup(
        files=str(args.files),
        programs=str(EMULATED_PROGRAMS if args.emulated else PROGRAMS),
        library=str(EMULATED / "libopenjet_cuda_emulated.so") if args.emulated else None,
        peer=str(args.peer) if args.peer else None,
        small=args.emulated,
        emulated=args.emulated,
    )
    out = args.out or RESULTS
    out.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {
        "card": "unknown",
        "emulated": args.emulated,
        "source_hash": source_hash(),
        "commit": args.commit or commit(),
        "date": time.strftime("%Y-%m-%d"),
        "command": shlex.join(["bench/gpu_check.sh", *sys.argv[1:]]),
        "sections": {},
    }
    check = Check(setup, args.seconds, out, record, args.patience)
    for section in sections:
        check.run(section)
    if not args.emulated:
        print(goals.table(record["goals"]))
    failed = record["failed"]
    check.say(f"{check.target}: {'FAILED: ' + ', '.join(failed) if failed else 'nothing failed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
