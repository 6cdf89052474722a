"""llama.cpp on the same card and file: run where its programs were carried along, else the numbers
that were measured before, which are named as such."""

from __future__ import annotations

import json
import subprocess
import threading
import urllib.request
from pathlib import Path
from typing import Any

from bench.gpu import files
from bench.gpu.agents import text
from bench.gpu.record import Notes
from bench.gpu.setup import Setup
from bench.llama_cpp import serving, version

# Measured on an NVIDIA H200 (driver 580.159.04) on 2026-11-29 with a random 27B-shaped Q4_K_M file.
MEASURED_BEFORE = {
    "llama.cpp": "0c1e57098, CUDA 13.0, sm_90",
    "card": "NVIDIA H200",
    "flags": "-ngl 99 -fa on -ctk q8_0 -ctv q8_0 -b 2048 -ub 512",
    "ms a step": {
        "1": 12.1,
        "2": 13.4,
        "3": 16.3,
        "4": 19.4,
        "8": 29.3,
        "12": 29.8,
        "16": 32.9,
        "24": 41.0,
    },
    "ms a step, 23K": {"1": 14.4, "4": 26.9},
    "prompt tokens/s": 2549,
    "server, 4 agents, steps/s each": {"without drafts": 41.8, "with MTP": 26.6},
}
FLAGS = ["-ngl", "99", "-fa", "on", "-ctk", "q8_0", "-ctv", "q8_0", "-b", "2048", "-ub", "512"]
AGENTS = 4
START_S = 90.0


def section(setup: Setup, notes: Notes) -> None:
    if setup.peer is None:
        notes["measured before"] = MEASURED_BEFORE
        return
    folder = Path(setup.peer)
    path = files.large(setup)
    notes["flags"] = " ".join(FLAGS)
    notes["version"] = version(folder / "llama-server")
    rows = [str(row) for row in setup.sizes.rows]
    notes["ms a step"] = batched(folder, path, rows, 128, 64)
    notes["prompt tokens/s"] = batched_prompt(folder, path, setup.sizes.prompt)
    notes["server, 4 agents, tokens/s each"] = serve(folder, path, setup.sizes.decode)


def bench(folder: Path, path: Path, prompt: int, answer: int, rows: list[str]) -> list[Any]:
    """The lines of llama-batched-bench."""
    context = max(map(int, rows)) * (prompt + answer) + 512
    command: list[str | Path] = [folder / "llama-batched-bench", "-m", path, *FLAGS]
    command += ["-c", str(context), "-npp", str(prompt), "-ntg", str(answer)]
    command += ["-npl", ",".join(rows), "--output-format", "jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"llama-batched-bench: {done.stderr[-1000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def batched(
    folder: Path, path: Path, rows: list[str], prompt: int, answer: int
) -> dict[str, float]:
    """Milliseconds of a step by its rows, each of a conversation of its own."""
    lines = bench(folder, path, prompt, answer, rows)
    return {str(line["pl"]): round(1e3 * line["t_tg"] / line["tg"], 3) for line in lines}


def batched_prompt(folder: Path, path: Path, tokens: int) -> float:
    return round(float(bench(folder, path, tokens, 1, ["1"])[0]["speed_pp"]), 1)


def post(url: str, body: Any) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def serve(folder: Path, path: Path, tokens: int) -> list[float]:
    """Tokens/s of every one of four agents at once on llama-server."""
    command: list[str | Path] = [folder / "llama-server", "-m", path, *FLAGS]
    command += ["--parallel", str(AGENTS), "-c", str(AGENTS * (tokens + 512)), "--no-webui"]
    with serving(command, START_S) as url:
        speeds: list[float] = []

        def ask(agent: int) -> None:
            body = {"prompt": text(64, agent, 10_000), "n_predict": tokens, "ignore_eos": True}
            body |= {"temperature": 0, "cache_prompt": False}
            speeds.append(post(f"{url}/completion", body)["timings"]["predicted_per_second"])

        agents = [threading.Thread(target=ask, args=(agent,)) for agent in range(AGENTS)]
        for agent in agents:
            agent.start()
        for agent in agents:
            agent.join()
    if len(speeds) != AGENTS:
        raise RuntimeError(f"{AGENTS - len(speeds)} of {AGENTS} agents got no answer")
    return [round(speed, 1) for speed in speeds]
