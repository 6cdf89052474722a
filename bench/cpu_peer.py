"""Decode speed on this CPU beside llama.cpp's, same file and prompt, runs alternating.

    python -m bench.cpu_peer MODEL.gguf 0.8B:q4_k_m --peer-python /path/to/python [--json OUT]

A model is a GGUF file, `openjet-tiny`, or PRESET:TYPES for a random-weight file
(tests/reference/random_model.py). --peer-python has llama-cpp-python, built from source with its
default native flags; without it only our side runs. Both sides use the same number of threads
(--threads 2), greedy sampling, no drafts, float16 KV and one process each that stays open. A round
is one run of ours and one of theirs, then four conversations at once, ours only; medians over the
rounds (--rounds 5) are compared. On a machine that does other work the medians say little (threads
wait for each other at every barrier): read the best rounds, and the load in the record.

llama.cpp's AMX kernels fault where the machine does not grant tiles; then its run without repacked
weights (`use_extra_bufts` off) is what is compared with, and the record says so.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from openjet_provider._build_info import build_record
from openjet_provider.bench.record import commit, machine

ROOT = Path(__file__).resolve().parents[1]
PROMPT = [int(7 + 31 * i % 400) for i in range(64)]
AGENTS = 4


class Side:
    """A process that answers each line `TOKENS CONVERSATIONS` with a line of JSON."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, tokens: int, conversations: int = 1) -> dict[str, Any] | None:
        """One run's numbers; None if the process died."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            print(tokens, conversations, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            return None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def close(self) -> None:
        self.process.stdin.close()  # type: ignore[union-attr]
        self.process.wait(timeout=60)


def serve_ours(path: str, threads: int) -> None:
    """Our engine behind standard input and output."""
    from openjet_provider import Engine
    from openjet_provider._core import TokenRequest, TokenSampling

    greedy = TokenSampling(temperature=0.0)
    with Engine(path, threads=threads, drafts=0, agents=AGENTS, context=1024, kv="f16") as engine:
        for number, line in enumerate(sys.stdin):
            tokens, conversations = map(int, line.split())
            generations = []
            for i in range(conversations):
                prompt = [1 + (number * AGENTS + i) % 300, *PROMPT]  # never a cached prefix
                request = TokenRequest(
                    tokens=prompt, max_tokens=tokens, ignore_eos=True, sampling=greedy
                )
                generations.append(engine.generate(request))
            for generation in generations:
                while generation.finish is None:
                    generation.take()
            stats = [generation.stats for generation in generations]
            first = max(s.first_token_s or 0.0 for s in stats)
            rate = sum((s.generated - 1) / (s.total_s - (s.first_token_s or 0.0)) for s in stats)
            print(json.dumps({"tokens_per_s": rate, "prompt_s": first}), flush=True)


# Runs in the peer's Python, which has none of our packages.
PEER = """
import ctypes, json, sys, time
import llama_cpp as L
import numpy as np

path, threads, extra, prompt = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "1", sys.argv[4]
prompt = json.loads(prompt)
quiet = L.llama_log_callback(lambda *_: None)
L.llama_log_set(quiet, ctypes.c_void_p())
L.llama_backend_init()
model_params = L.llama_model_default_params()
model_params.n_gpu_layers = 0
model_params.use_extra_bufts = extra
model = L.llama_model_load_from_file(path.encode(), model_params)
params = L.llama_context_default_params()
params.n_ctx = 1024
params.n_threads = params.n_threads_batch = threads
context = L.llama_init_from_model(model, params)
n_vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))

def decode(tokens):
    array = (ctypes.c_int32 * len(tokens))(*tokens)
    assert L.llama_decode(context, L.llama_batch_get_one(array, len(tokens))) == 0
    logits = L.llama_get_logits_ith(context, -1)
    return int(np.ctypeslib.as_array(logits, shape=(n_vocab,)).argmax())

for number, line in enumerate(sys.stdin):
    tokens = int(line.split()[0])
    L.llama_memory_clear(L.llama_get_memory(context), True)
    start = time.perf_counter()
    token = decode([1 + number % 300, *prompt])
    first = time.perf_counter()
    for _ in range(tokens - 1):
        token = decode([token])
    took = time.perf_counter() - first
    answer = {"tokens_per_s": (tokens - 1) / took, "prompt_s": first - start}
    print(json.dumps(answer), flush=True)
"""


PEER_BUILD = """
import json, llama_cpp as L
info = L.llama_print_system_info().decode().strip()
print(json.dumps({"llama-cpp-python": L.__version__, "system_info": info}))
"""


def peer_build(python: str) -> dict[str, str]:
    """Version and instruction sets of the peer, in its own words."""
    run = [python, "-c", PEER_BUILD]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=True)
    build: dict[str, str] = json.loads(done.stdout)
    return build


def open_peer(python: str, path: Path, threads: int) -> tuple[Side, bool]:
    """The peer, and whether it uses its repacked weights."""
    for extra in ("1", "0"):
        command = [python, "-c", PEER, str(path), str(threads), extra, json.dumps(PROMPT)]
        side = Side(command)
        if side.run(2) is not None:
            return side, extra == "1"
        side.close()
    raise SystemExit(f"{python} cannot run llama.cpp on {path}; is llama-cpp-python installed?")


def compare(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    serve = ["--serve", str(path), "--threads", str(args.threads)]
    ours = Side([sys.executable, "-m", "bench.cpu_peer", *serve])
    peer, repacked = None, None
    if args.peer_python:
        peer, repacked = open_peer(args.peer_python, path, args.threads)
    ours.run(8)
    rounds: dict[str, list[float]] = {"ours": [], "peer": [], "ours_prompt": [], "peer_prompt": []}
    crew: list[float] = []
    for _ in range(args.rounds):
        for name, side in (("ours", ours), ("peer", peer)):
            if side is None:
                continue
            answer = side.run(args.tokens)
            if answer is None:
                raise SystemExit(f"the process of {name} died on {path}")
            rounds[name].append(answer["tokens_per_s"])
            rounds[f"{name}_prompt"].append((len(PROMPT) + 1) / answer["prompt_s"])
        answer = ours.run(args.tokens, AGENTS)
        assert answer is not None
        crew.append(answer["tokens_per_s"])
    ours.close()
    if peer is not None:
        peer.close()
    median = {name: statistics.median(values) for name, values in rounds.items() if values}
    result: dict[str, Any] = {
        "ours_tokens_per_s": median["ours"],
        "ours_best_tokens_per_s": max(rounds["ours"]),
        "ours_four_total_tokens_per_s": statistics.median(crew),
        "four_over_one": statistics.median(crew) / median["ours"],
        "ours_prompt_tokens_per_s": median["ours_prompt"],
        "rounds": rounds | {"ours_four": crew},
    }
    if peer is not None:
        result |= {
            "peer_tokens_per_s": median["peer"],
            "peer_best_tokens_per_s": max(rounds["peer"]),
            "ours_over_peer": median["ours"] / median["peer"],
            "peer_prompt_tokens_per_s": median["peer_prompt"],
            "peer_repacked_weights": repacked,
        }
    return result


def resolve(model: str, folder: Path) -> Path:
    if Path(model).exists():
        return Path(model).resolve()
    if ":" in model:
        from tests.reference.random_model import PRESETS, write_model

        preset, types = model.split(":")
        path = folder / f"{preset}-{types}.gguf"
        write_model(path, PRESETS[preset], types)
        return path
    from openjet_provider import models

    return models.resolve(model)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--peer-python")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="record, for example in bench/results/")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve_ours(args.models[0], args.threads)
        return
    record: dict[str, Any] = {
        "command": " ".join(["python -m bench.cpu_peer", *sys.argv[1:]]),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "native": build_record().get("source_hash"),
        "machine": machine(),
        "peer": peer_build(args.peer_python) if args.peer_python else None,
        "threads": args.threads,
        "results": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        for model in args.models:
            record["results"][model] = result = compare(resolve(model, Path(folder)), args)
            print(model, json.dumps({k: v for k, v in result.items() if k != "rounds"}, indent=2))
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
