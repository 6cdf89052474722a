"""Does `openjet eval` compute what `llama-perplexity --kl-divergence` does?

    python -m bench.eval_peer /path/to/llama-perplexity [--model openjet-tiny] [--json OUT]

llama.cpp predicts the licence with an f16 and with a q8_0 KV cache and saves both; its own
comparison of q8_0 with the f16 file and ours of the two files must agree within 1 %. For
information, also this engine (f16, q8_0) against llama.cpp's f16 file, and its q8_0 against its own
f16. CPU only; exits with 1 where the statistics differ.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.llama_cpp import version
from openjet_provider import models
from openjet_provider.bench.record import describe
from openjet_provider.evaluation.compare import evaluate
from openjet_provider.evaluation.logits_file import LogitsFile
from openjet_provider.evaluation.run import ModelRun, Setting

TEXT = Path(__file__).parents[1] / "LICENSE"
ALLOWED = 0.01  # relative
# As llama-perplexity prints them. Its lines have six decimals: no more is compared.
LINES = {
    "mean": r"^Mean +KLD: +(\S+)",
    "median": r"^Median +KLD: +(\S+)",
    "p99": r"^99\.0% +KLD: +(\S+)",
    "p99_9": r"^99\.9% +KLD: +(\S+)",
    "max": r"^Maximum KLD: +(\S+)",
    "same_top": r"^Same top p: +(\S+)",
}


def peer(program: str, model: Path, *arguments: str) -> str:
    """The output of llama-perplexity. Repacked weights are off: its AMX kernels fault where the
    machine does not grant tiles (seen in a sandbox)."""
    command = [program, "-m", str(model), "--no-repack", "-ngl", "0", "-c", "512", "-b", "512"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=3600)
    if done.returncode != 0:
        sys.exit(f"llama-perplexity failed:\n{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def kv(codec: str) -> list[str]:
    return ["-ctk", codec, "-ctv", codec, "-fa", "on"]


def their_statistics(program: str, model: Path, *arguments: str) -> dict[str, float]:
    """What a comparison prints. Its last lines are lost now and then, when the process ends before
    its logging thread has written them."""
    for _ in range(8):
        output = peer(program, model, *arguments)
        matches = {name: re.search(line, output, re.MULTILINE) for name, line in LINES.items()}
        found = {name: float(match[1]) for name, match in matches.items() if match is not None}
        if len(found) == len(LINES):
            return found | {"same_top": found["same_top"] / 100}
    sys.exit(f"llama-perplexity prints no statistics:\n{output[-2000:]}")


def measure(program: str, model: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        files = {codec: Path(folder, f"{codec}.kld") for codec in ("f16", "q8_0")}
        for codec, path in files.items():
            text = ["-f", str(TEXT), "--kl-divergence-base", str(path)]
            peer(program, model, *kv(codec), *text)
        compared = ["--kl-divergence", "--kl-divergence-base", str(files["f16"])]
        theirs = their_statistics(program, model, *kv("q8_0"), *compared)
        with LogitsFile(files["f16"]) as base:
            with LogitsFile(files["q8_0"]) as side:
                ours = evaluate(side, base)
            with (
                ModelRun(model, base.tokens, Setting(kv="f16", backend="cpu")) as f16,
                ModelRun(model, base.tokens, Setting(kv="q8_0", backend="cpu")) as q8_0,
            ):
                engine = {
                    "f16, base llama.cpp f16": evaluate(f16, base),
                    "q8_0, base llama.cpp f16": evaluate(q8_0, base),
                    "q8_0, base f16": evaluate(q8_0, f16),
                }
    return {"llama_perplexity": theirs, "openjet_eval": ours, "this_engine": engine}


def differences(results: dict[str, Any]) -> dict[str, float]:
    theirs, ours = results["llama_perplexity"], results["openjet_eval"]["kl_divergence"]
    return {name: abs(ours[name] - value) / value for name, value in theirs.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--model", default="openjet-tiny")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    record = {
        **describe(timed=False),
        "command": f"python -m bench.eval_peer {shlex.join(sys.argv[1:])}",
        "peer": version(args.program),
    }
    record["results"] = measure(args.program, models.resolve(args.model)[1])
    record["differences"] = differences(record["results"])
    print(json.dumps({name: record[name] for name in ("results", "differences")}, indent=1))
    if args.json:
        args.json.write_text(json.dumps(record, indent=1) + "\n")
    return int(max(record["differences"].values()) > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
