"""How far from exact arithmetic are llama.cpp's and our logits, on the same file and text?

    python -m bench.parity MODEL.gguf micro:all [--kv f16 q8_0] [--positions 256] [--json OUT]

A model is a GGUF file, or PRESET:TYPES for a random-weight file (tests/reference/random_model.py;
`all` runs every type). The text is the licence. Per position the error is
|logits - exact| / |exact| with the float64 reference model as exact; the mean over positions is
compared. Both sides keep keys and values in the same format (default float16) and run on the CPU.

Needs llama-cpp-python beside the package; --no-peer leaves llama.cpp out. Exits with 1 where our
mean error breaks the promise: with float16 KV 1e-4 for F32, 2e-3 for F16 and BF16, else 1.1x
llama.cpp's; with q8_0 KV 1.2x llama.cpp's.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from tests.native.steps import open_stepper
from tests.reference import ReferenceModel
from tests.reference.random_model import PRESETS, RECIPES, write_model

Codec = Literal["f16", "q8_0"]
TEXT = Path(__file__).parents[1] / "LICENSE"
ALLOWED = {"f32": 1e-4, "f16": 2e-3, "bf16": 2e-3}
ALLOWED_RATIO = {"f16": 1.1, "q8_0": 1.2}


@dataclass(frozen=True)
class Distance:
    """Of some logits from the exact ones."""

    mean: float
    worst: float
    same_top: float  # share of positions with the same most likely token

    @classmethod
    def between(cls, logits: np.ndarray, exact: np.ndarray) -> Distance:
        errors = np.linalg.norm(logits - exact, axis=1) / np.linalg.norm(exact, axis=1)
        same = logits.argmax(axis=1) == exact.argmax(axis=1)
        return cls(float(errors.mean()), float(errors.max()), float(same.mean()))


@dataclass(frozen=True)
class Result:
    model: str
    kv: str  # format of keys and values, on both sides
    positions: int
    ours: Distance
    peer: Distance | None

    @property
    def ratio(self) -> float | None:
        return None if self.peer is None else self.ours.mean / self.peer.mean

    def holds(self) -> bool:
        limit = ALLOWED.get(self.model.rpartition(":")[2])
        if limit is not None and self.kv == "f16":
            return self.ours.mean < limit
        return self.ratio is None or self.ratio <= ALLOWED_RATIO[self.kv]

    def line(self) -> str:
        peer = "" if self.peer is None else f"  llama.cpp {self.peer.mean:.3e}"
        ratio = "" if self.ratio is None else f"  ratio {self.ratio:.3f}"
        verdict = "ok" if self.holds() else "TOO FAR"
        return f"{self.model:24} {self.kv:4} ours {self.ours.mean:.3e}{peer}{ratio}  {verdict}"


def measure(path: Path, name: str, kv: Codec, positions: int, with_peer: bool) -> Result:
    tokens = text_tokens(path, positions)
    exact, _ = ReferenceModel.load(path).forward(tokens)
    with open_stepper(path, kv=kv, n_slots=1, n_pages=-(-positions // 64)) as stepper:
        ours = Distance.between(stepper.prefill(tokens), exact)
    peer = None
    if with_peer:
        from tests.reference.peer import Peer

        with Peer(path) as llama:
            peer = Distance.between(llama.logits(tokens, kv=kv), exact)
    return Result(name, kv, positions, ours, peer)


def text_tokens(path: Path, positions: int, text: str | None = None) -> list[int]:
    """A text, or the licence, under the file's own vocabulary, cut to `positions` ids."""
    from openjet_provider.chat.tokenizer import Tokenizer, Vocabulary
    from tests.reference.gguf_file import GGUFFile

    metadata = GGUFFile(path).metadata
    vocabulary = Vocabulary(
        tokens=metadata["tokenizer.ggml.tokens"],
        merges=metadata["tokenizer.ggml.merges"],
        token_types=metadata["tokenizer.ggml.token_type"],
        pre=metadata["tokenizer.ggml.pre"],
        eos_id=metadata["tokenizer.ggml.eos_token_id"],
    )
    tokens = list(Tokenizer(vocabulary).encode(TEXT.read_text() if text is None else text))
    if len(tokens) < positions:
        raise SystemExit(f"the text has {len(tokens)} tokens, --positions wants {positions}")
    return tokens[:positions]


def measure_named(name: str, kv: Codec, positions: int, with_peer: bool) -> list[Result]:
    """All results of one command line argument."""
    if Path(name).is_file():
        result = measure(Path(name), Path(name).name, kv, positions, with_peer)
        print(result.line(), flush=True)
        return [result]
    preset, _, types = name.partition(":")
    if preset not in PRESETS or types not in ("all", *RECIPES):
        raise SystemExit(
            f"{name!r} is neither a file nor PRESET:TYPES with a preset of {', '.join(PRESETS)} "
            f"and types all, {', '.join(RECIPES)}"
        )
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in RECIPES if types == "all" else (types,):
            path = Path(folder) / "model.gguf"
            write_model(path, PRESETS[preset], kind, seed=1)
            results.append(measure(path, f"{preset}:{kind}", kv, positions, with_peer))
            print(results[-1].line(), flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--kv", nargs="+", choices=list(ALLOWED_RATIO), default=["f16"])
    parser.add_argument("--positions", type=int, default=256)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results = [
        result
        for kv in args.kv
        for name in args.models
        for result in measure_named(name, kv, args.positions, not args.no_peer)
    ]
    if args.json:
        args.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    raise SystemExit(0 if all(result.holds() for result in results) else 1)


if __name__ == "__main__":
    main()
