"""Training batches: processes that write shards of packed rows, and an iterator over them."""

from __future__ import annotations

import multiprocessing as mp
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from . import tokenizer as vocabulary
from .generate.corpus import LONG_ROW, SHORT_ROW, documents, pack

SHARD_TOKENS = 512 * 1024


def shard_path(folder: Path, long: bool, index: int) -> Path:
    return folder / f"{'long' if long else 'short'}-{index:05}.npz"


def produce(
    folder: Path, tokenizer: Path, first: int, step: int, short: int, long: int, seen: int
) -> None:
    """Write every `step`-th shard from `first` on: long ones first in proportion, then short;
    of documents that come after those of `seen` shards."""
    os.nice(10)  # the trainer and its compiler come first
    vocab = vocabulary.load(tokenizer)
    pad = vocab.token_to_id(vocabulary.PAD)
    every = max(1, short // max(1, long))
    for index in range(first, short, step):
        kinds = [False] + ([True] if index % every == 0 and index // every < long else [])
        for is_long in kinds:
            number = index // every if is_long else index
            length = LONG_ROW if is_long else SHORT_ROW
            source = documents(1_000_003 * (seen + number) + 7 * is_long + 1, vocab, is_long)
            arrays = pack(source, SHARD_TOKENS // length, length, pad)
            path = shard_path(folder, is_long, number)
            temporary = path.with_suffix(".tmp.npz")
            np.savez(temporary, tokens=arrays[0], weights=arrays[1], positions=arrays[2])
            temporary.rename(path)


def start(
    folder: Path, tokenizer: Path, workers: int, short: int, long: int, seen: int = 0
) -> list[mp.Process]:
    """Generate `short` and `long` shards with this many processes, after `seen` shards."""
    folder.mkdir(parents=True, exist_ok=True)
    context = mp.get_context("spawn")
    processes = [
        context.Process(
            target=produce, args=(folder, tokenizer, i, workers, short, long, seen), daemon=True
        )
        for i in range(workers)
    ]
    for process in processes:
        process.start()
    return processes


def batches(folder: Path, long: bool, tokens: int) -> Iterator[dict[str, np.ndarray]]:
    """Batches of `tokens` tokens in shard order; waits (at most two minutes) for a shard."""
    index = 0
    while True:
        path = shard_path(folder, long, index)
        deadline = time.monotonic() + 120
        while not path.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"no shard {path} after two minutes")
            time.sleep(0.02)
        with np.load(path) as shard:
            arrays = {name: shard[name] for name in shard.files}
        rows = max(1, tokens // arrays["tokens"].shape[1])
        for at in range(0, len(arrays["tokens"]), rows):
            yield {name: a[at : at + rows] for name, a in arrays.items()}
        index += 1
