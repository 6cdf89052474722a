"""bench/gpu_check.py loses nothing and tells what happened, whatever a section does; and every line
of it runs before there is a GPU, on the emulator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.gpu import goals, oracle, sanitize, steps
from bench.gpu.record import NEEDED, Notes, NotRun, earlier_sections, unproven
from bench.gpu.setup import FULL, SHAPE_27B, Setup
from bench.gpu_check import SECTIONS, Check, Section, chosen, stop
from bench.parity import text_tokens
from tests.reference.random_model import GGML_QUANT_SIZES, tensor_specs
from tests.waiting import is_alive, wait_until


def check(tmp_path: Path, seconds: float = 600) -> Check:
    setup = Setup(files=str(tmp_path), programs=str(tmp_path), small=True)
    return Check(setup, seconds, tmp_path, {"source_hash": "1", "sections": {}})


def run(checked: Check, function: str, seconds: float = 600) -> dict[str, Any]:
    """The record's part of one section, read from its file."""
    checked.run(Section(function, f"tests.bench.gpu_sections:{function}", seconds))
    section: dict[str, Any] = json.loads(checked.target.read_text())["sections"][function]
    return section


def test_a_section_that_passes(tmp_path: Path) -> None:
    section = run(check(tmp_path), "passes")
    assert section["status"] == "passed"
    assert section["found"] == {"files": str(tmp_path)}


def test_a_failure_keeps_what_was_found_and_the_rest_goes_on(tmp_path: Path) -> None:
    checked = check(tmp_path)
    failed = run(checked, "raises")
    assert (failed["status"], failed["found"]) == ("failed", {"before": 1})
    assert "row 3 differs" in failed["reason"]
    crashed = run(checked, "crashes")
    assert (crashed["status"], crashed["found"]) == ("failed", {"before": 1})
    assert run(checked, "passes")["status"] == "passed"
    assert json.loads(checked.target.read_text())["failed"] == ["raises", "crashes"]


def test_a_section_that_takes_too_long(tmp_path: Path) -> None:
    section = run(check(tmp_path), "hangs", seconds=0.5)
    assert section["status"] == "out of time"
    assert section["reason"].startswith("killed after")


def test_a_hang_ends_with_its_children_and_what_it_found_is_kept(tmp_path: Path) -> None:
    checked = check(tmp_path)
    section = Section("hangs", "tests.bench.gpu_sections:hangs", 60)
    found = tmp_path / "found.json"
    process = checked.start_section(section, found, tmp_path / "errors")
    try:
        wait_until(found.exists, 100)

        def kept() -> bool:
            assert checked.follow(process, section, found, time.monotonic() + 0.5) is None
            return checked.target.exists()

        wait_until(kept)
    finally:
        stop(process)
    (section_kept,) = json.loads(checked.target.read_text())["sections"].values()
    assert section_kept["status"] == "running"
    wait_until(lambda: not is_alive(section_kept["found"]["child"]))


def test_what_cannot_run_here_and_what_has_no_time(tmp_path: Path) -> None:
    section = run(check(tmp_path), "is_not_for_here")
    assert (section["status"], section["reason"]) == ("not run", "no such tool")
    late = run(check(tmp_path, seconds=0), "passes")
    assert (late["status"], late["reason"]) == ("not run", "no time was left")


def test_sections_are_chosen_by_name() -> None:
    assert [section.name for section in chosen("steps, wide")] == ["device", "wide", "steps"]
    assert chosen(None) == SECTIONS
    with pytest.raises(SystemExit, match="no section widths; there are device, launch"):
        chosen("widths,wide")


def test_nothing_is_proven_until_every_needed_section_has_passed() -> None:
    assert set(NEEDED) < {section.name for section in SECTIONS}
    sections: dict[str, Any] = {name: {"status": "passed"} for name in NEEDED}
    assert unproven(sections) == []
    for status in ("failed", "out of time", "not run", "running"):
        assert unproven(sections | {"wide": {"status": status}}) == ["wide"]
    del sections["stress"]
    assert unproven(sections) == ["stress"]


def test_sections_of_earlier_calls_count_for_the_same_sources_only(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    path.write_text(json.dumps({"source_hash": "1", "sections": {"wide": {"status": "passed"}}}))
    assert list(earlier_sections(path, "1")) == ["wide"]
    assert earlier_sections(path, "2") == {}
    assert earlier_sections(tmp_path / "none.json", "1") == {}


def test_there_is_text_for_the_oracle() -> None:
    texts, tokens = FULL.oracle_texts, FULL.oracle_tokens
    assert texts * tokens >= 4000
    for path in (oracle.TINY, oracle.EARLY):
        ids = text_tokens(path, texts * tokens, oracle.documents())
        assert len(ids) == texts * tokens


def test_divergence_is_of_distributions() -> None:
    """Equal but for a constant: none; a hand-computed one of two tokens."""
    exact = np.array([[0.0, 1.0], [0.0, 0.0]])
    assert oracle.divergence(exact, exact + 3) == pytest.approx([0, 0])
    other = np.log(np.array([[0.25, 0.75]]))
    assert oracle.divergence(exact[1:], other) == pytest.approx(
        [0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75)]
    )


def test_bytes_of_a_step_of_the_27b() -> None:
    """As the goals count them: 15.82 GB, 0.263 a draft pass, 0.3 a conversation, 36,992 a
    position."""

    class Plan:
        state_bytes = 48 * 48 * 128 * 128 * 4
        page_bytes = 64 * 36_992

    sizes = []
    for spec in tensor_specs(SHAPE_27B, "q4_k_m"):
        block, size = GGML_QUANT_SIZES[spec.type]
        count = 1
        for n in spec.shape:
            count *= n
        sizes.append((spec.name, count // block * size))
    moved = steps.StepBytes.of(sizes, 248_320, Plan())
    assert moved.main == pytest.approx(15.82e9, rel=0.01)
    assert moved.mtp == pytest.approx(0.263e9, rel=0.02)
    assert moved.step(1, 2, 256, 40_960) == pytest.approx(16.99e9, rel=0.01)
    assert moved.step(4, 0, 23_000, 0) - moved.step(4, 0, 0, 0) == 4 * 23_000 * 36_992


def test_where_the_time_goes() -> None:
    """Sums of each kind of phase, the median of the steps."""
    names = steps.phase_names()
    embed, multiply = names.index("embed"), names.index("multiply")
    lines = [
        {"phases": [[embed, 10, 0], [multiply, 2000 * n, 4000], [multiply, 1000, 2000]]}
        for n in (1, 2, 9)
    ]
    first, second = steps.phase_table(lines, names)
    assert (first["phase"], first["visits"], first["us"]) == ("multiply", 2, 5.0)
    assert first["GB/s"] == pytest.approx(6000 / 5000, abs=0.1)
    assert (second["phase"], second["share"]) == ("embed", 0.002)


def test_goals_are_judged_by_what_was_measured() -> None:
    found = {
        "steps": {
            "bytes": {"3 rows, short": 16.99e9},
            "3 rows, short": 4.0,
            "12 rows, short": 5.0,
        },
        "launch": {"read_gb_per_s": 4610},
        "control": {"3 rows, short": 3.9},
    }
    verdicts = {
        goal["measure"]: goal
        for goal in goals.verdicts({name: {"found": value} for name, value in found.items()})
    }
    assert verdicts["3 rows + 2 draft passes, short, ms"]["holds"] is True
    assert verdicts["12 rows / 3 rows, short"]["holds"] is False
    assert verdicts["share of the read bandwidth, 3 rows, short"]["measured"] == 0.9214
    assert verdicts["persistent / control, 3 rows"]["holds"] is False
    assert verdicts["ms / llama.cpp's, 3 rows"]["measured"] == pytest.approx(4.0 / 16.3, abs=1e-4)
    assert verdicts["device bytes of the 24 GB plan"]["holds"] is None
    assert "not measured" in goals.table(list(verdicts.values()))


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("steps done\n========= ERROR SUMMARY: 0 errors", "clean: 0 errors"),
        ("steps done\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors)", "clean: 0 haz"),
        (
            "========= Invalid __global__ write of size 4 bytes\n========= ERROR SUMMARY: 3 errors",
            "3 errors; ========= Invalid __global__ write",
        ),
        ("========= ERROR SUMMARY: 0 errors", "not run: the steps did not end"),
        ("========= Error: Device not supported", "not run: ========= Error: Device"),
    ],
)
def test_what_the_sanitizer_says(said: str, verdict: str) -> None:
    assert sanitize.verdict(said).startswith(verdict)


def test_without_the_sanitizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sanitize, "CUDA_BIN", str(tmp_path))
    setup = Setup(files=str(tmp_path), programs="")
    with pytest.raises(NotRun, match="no compute-sanitizer"):
        sanitize.section(setup, Notes("sanitizer", tmp_path / "found.json"))


def add_tool(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


SANITIZER = """#!/bin/sh
shift 2
"$@" && echo "========= ERROR SUMMARY: 0 errors"
"""
PEER = """#!{python}
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
arguments = sys.argv[1:]
if "--version" in arguments:
    print("version: 1 (0c1e57098)", file=sys.stderr)
elif "--output-format" in arguments:
    for rows in arguments[arguments.index("-npl") + 1].split(","):
        print(json.dumps(dict(pl=int(rows), tg=2, t_tg=0.01, speed_pp=2400.0)))
else:
    class Handler(BaseHTTPRequestHandler):
        def answer(self, body):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())
        def do_GET(self):
            self.answer(dict(status="ok"))
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(dict(timings=dict(predicted_per_second=41.8)))
        def log_message(self, *arguments):
            pass
    port = int(arguments[arguments.index("--port") + 1])
    HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_section_runs_on_the_emulator(root: Path, tmp_path: Path) -> None:
    """With programs in place of llama.cpp and compute-sanitizer that answer as they do."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("llama-server", "llama-batched-bench"):
        add_tool(tools / name, PEER.format(python=sys.executable))
    add_tool(tools / sanitize.TOOL, SANITIZER)
    command = [sys.executable, "-m", "bench.gpu_check", "--emulated", "--seconds", "3600"]
    command += ["--patience", "30"]
    command += ["--files", str(tmp_path / "files"), "--out", str(tmp_path), "--peer", str(tools)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("OPENJET_")}
    env["PATH"] = f"{tools}:{env['PATH']}"
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    record = json.loads((tmp_path / "emulated.json").read_text())
    assert record["emulated"] is True
    assert record["failed"] == []
    sections = record["sections"]
    assert list(sections) == [section.name for section in SECTIONS]
    for name, section in sections.items():
        assert section["status"] == "passed", (name, section)
        assert section["found"]
    assert sections["stress"]["found"]["steps"] == "2 with equal bits"
    assert set(sections["peer"]["found"]["ms a step"]) == {"1", "3"}
    assert sections["sanitizer"]["found"]["racecheck"] == "clean: 0 errors"
