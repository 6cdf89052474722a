"""`openjet serve` and llama.cpp's llama-server measured by the same `openjet bench --url`.

    python -m bench.server_peer /path/to/llama-server [--bench '--context 2000'] [--json OUT]

Both serve the same file on the CPU, one after the other, each started for its run alone: as many
conversations of the same context, as many threads. Everything else is each one's own default: here
an 8-bit KV cache and drafts by the MTP head, there an f16 cache and none. `--plain` gives this one
f16 and no drafts too. --bench holds options of `openjet bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.llama_cpp import serving, version
from openjet_provider import models
from openjet_provider.bench.record import describe

AGENTS = 4
START_S = 120.0


def measure(command: Sequence[str], options: Sequence[str]) -> dict[str, Any]:
    with serving(command, START_S) as url:
        bench = [sys.executable, "-m", "openjet_provider.cli", "bench", "--url", url]
        done = subprocess.run([*bench, *options, "--json", "-"], stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return {"server": shlex.join(command), **{key: found[key] for key in ("settings", "results")}}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("program", help="llama-server")
    parser.add_argument("--model", default="openjet-tiny")
    parser.add_argument("--positions", type=int, default=8192, help="of a conversation")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--plain", action="store_true", help="f16 and no drafts on both sides")
    parser.add_argument("--bench", type=shlex.split, default=[], help="options, in one argument")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    name, path = models.resolve(args.model)
    ours = [sys.executable, "-m", "openjet_provider.cli", "serve", "-m", str(path)]
    ours += ["--backend", "cpu", "--agents", str(AGENTS), "--context", str(args.positions)]
    ours += ["--threads", str(args.threads)]
    ours += ["--kv", "f16", "--drafts", "0"] if args.plain else []
    theirs = [args.program, "-m", str(path), "--alias", name, "-t", str(args.threads)]
    theirs += ["-np", str(AGENTS), "-c", str(AGENTS * args.positions)]
    record = {
        **describe(),
        "command": f"python -m bench.server_peer {shlex.join(sys.argv[1:])}",
        "peer": version(args.program),
        "model": name,
        "openjet": measure(ours, args.bench),
        "llama_server": measure(theirs, args.bench),
    }
    for side in ("openjet", "llama_server"):
        print(side)
        for scenario, numbers in record[side]["results"].items():
            for what, found in numbers.items():
                print(f"  {scenario:10} {what:32} {found['median']:10.4g} {found['unit']}")
    if args.json:
        args.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
