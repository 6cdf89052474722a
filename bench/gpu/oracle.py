"""How far the device's next-token distributions are from exact arithmetic: KL divergence from the
float64 reference model, over texts of openjet-tiny and its early checkpoint."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu import files
from bench.gpu.record import Notes
from bench.gpu.setup import PAGE, ROOT, Setup, environment
from bench.parity import text_tokens
from tests.native.steps import Stepper

TINY = ROOT / "openjet_provider" / "data" / "openjet-tiny.gguf"
EARLY = ROOT / "tests" / "data" / "openjet-tiny-early.gguf"
FIRST_TOKENS = (3, 71, 200, 404, 17)
SAME_ROUNDINGS = 1e-5


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def divergence(exact: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """KL(exact || softmax(logits)) in nats of every position."""
    p, q = log_softmax(exact), log_softmax(logits)
    return np.asarray((np.exp(p) * (p - q)).sum(axis=-1))


def summary(values: Sequence[np.ndarray]) -> dict[str, float]:
    joined = np.concatenate(values)
    return {"mean": float(joined.mean()), "99.9 %": float(np.quantile(joined, 0.999))}


def exact_logits(path: Path, tokens: Sequence[int]) -> np.ndarray:
    from tests.reference import ReferenceModel

    return ReferenceModel.load(path).forward(tokens)[0]


def device_logits(stepper: Stepper, tokens: Sequence[int]) -> np.ndarray:
    return stepper.prefill(tokens, chunk=64)


def first_rows(setup: Setup) -> list[float]:
    """Distances, by norm, of first rows of prompts from the float64 model with the same roundings.
    Where no value lies at a tie of a rounding, only float32 noise is left."""
    from tests.reference import ReferenceModel, Rounding

    path = files.micro(setup)
    model = ReferenceModel.load(path, Rounding(activations="int8", kv="q8_0"))
    distances = []
    with setup.stepper(path, n_slots=1) as stepper:
        for token in FIRST_TOKENS:
            exact = model.forward([token])[0]
            error = stepper.prefill([token], chunk=64) - exact
            distances.append(float(np.linalg.norm(error) / np.linalg.norm(exact)))
    return distances


def section(setup: Setup, notes: Notes) -> None:
    sizes = setup.sizes
    distances = first_rows(setup)
    notes["first rows, same roundings"] = distances
    if min(distances) > SAME_ROUNDINGS:
        raise RuntimeError(f"no first row is within {SAME_ROUNDINGS} of the float64 model")
    paths = [files.micro(setup)] if setup.small else [TINY, EARLY]
    for path in paths:
        ids = text_tokens(path, sizes.oracle_texts * sizes.oracle_tokens, documents())
        texts = [ids[i : i + sizes.oracle_tokens] for i in range(0, len(ids), sizes.oracle_tokens)]
        exact = reference(path, texts)
        notes.say(f"{path.name}: exact logits done")
        pages = -(-sizes.oracle_tokens // PAGE)
        with setup.stepper(path, n_slots=1, n_pages=pages) as stepper:
            ours = [device_logits(stepper, tokens) for tokens in texts]
        divergences = [divergence(e, o) for e, o in zip(exact, ours, strict=True)]
        notes[path.name] = {"positions": len(ids)} | summary(divergences)
        notes[f"{path.name}, llama.cpp"] = peer_divergence(path, texts, exact, ours)


def documents() -> str:
    """This repository's own, which are longer than its licence."""
    return "\n".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))


def reference(path: Path, texts: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Every text in a process of its own, started anew: this one may hold a device."""
    start = multiprocessing.get_context("spawn")
    cores = len(os.sched_getaffinity(0))
    workers = min(len(texts), cores)
    threads = str(max(1, cores // workers))
    with (
        environment(OMP_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads),
        ProcessPoolExecutor(workers, mp_context=start) as pool,
    ):
        return list(pool.map(exact_logits, [path] * len(texts), texts))


def peer_divergence(
    path: Path, texts: Sequence[Sequence[int]], exact: list[np.ndarray], ours: list[np.ndarray]
) -> dict[str, Any] | str:
    """llama.cpp's on the same file, where its Python package is: from the oracle, between its own
    batches of 512 and 1, and ours from it."""
    try:
        from tests.reference.peer import Peer
    except ImportError as error:
        return f"not compared: {error}"
    with Peer(path, gpu=True) as llama:
        theirs = [llama.logits(tokens, kv="q8_0") for tokens in texts]
        one = [llama.logits(tokens, kv="q8_0", batch_size=1) for tokens in texts]
        where = "GPU" if llama.on_gpu else "CPU"

    def over(a: list[np.ndarray], b: list[np.ndarray]) -> dict[str, float]:
        return summary([divergence(x, y) for x, y in zip(a, b, strict=True)])

    return {
        "backend": where,
        "from the oracle": over(exact, theirs),
        "batch 512 from batch 1": over(one, theirs),
        "ours from it": over(theirs, ours),
    }
