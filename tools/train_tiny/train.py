"""Train openjet-tiny for a given time.

    python -m tools.train_tiny.train OUT [--seconds 300] [--workers 10] [--tokenizer FILE]
        [--after FILE] [--micro]

Writes OUT/tokenizer.json, OUT/early.pt (step 250: flat distributions, for sensitive parity
tests), OUT/final.pt (float16 matrices) and OUT/train.log. With --after it goes on from a final.pt,
with its tokenizer: on documents that it has not seen, warmed up anew.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from . import data
from . import tokenizer as vocabulary
from .generate.conversation import render
from .generate.corpus import document, draw_turns
from .model import TinyModel
from .shape import MICRO, TINY, Shape, keeps_float32

TOKENS = 65536  # per step
EARLY_STEP = 250
WARM_UP = 100
LONG_EVERY = 10  # one step in so many has rows of 8,192 tokens
MTP_WEIGHTS = (0.3, 0.2, 0.15)
MATRIX_RATE, OTHER_RATE = 2e-3, 2e-3


def train_tokenizer(path: Path, size: int, samples: int = 20000) -> None:
    """Train the vocabulary on generated documents."""
    rng = random.Random(20)

    def texts() -> Iterator[str]:
        for _ in range(samples):
            doc = document(rng, turns=draw_turns(rng, long=False))
            yield render(doc.messages, **doc.options()).replace("<|im_end|>", "")

    vocabulary.train(texts(), size).save(str(path))


def save(model: TinyModel, path: Path, **notes: Any) -> None:
    """Matrices in float16, the small tensors in float32."""
    state = {}
    for name, value in model.state_dict().items():
        kind = torch.float32 if keeps_float32(name, value.ndim) else torch.float16
        state[name] = value.detach().cpu().to(kind)
    torch.save({"shape": asdict(model.shape), "state": state, **notes}, path)


def load(model: TinyModel, path: Path) -> tuple[int, int]:
    """Takes what save() wrote; the steps and tokens that it was trained for."""
    saved = torch.load(path, map_location="cpu", weights_only=True)
    if saved["shape"] != asdict(model.shape):
        raise ValueError(f"{path} has another shape: {saved['shape']}")
    model.load_state_dict({name: value.float() for name, value in saved["state"].items()})
    return saved["step"], saved["tokens"]


def weighted_loss(hidden: Tensor, embedding: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    logits = functional.linear(hidden, embedding).flatten(0, 1)
    losses = functional.cross_entropy(logits.float(), targets.flatten(), reduction="none")
    return (losses * weights.flatten()).sum() / weights.sum().clamp(min=1.0)


def optimizers(model: TinyModel) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the blocks, AdamW for everything else."""
    matrices, others = [], []
    for name, p in model.named_parameters():
        inner = p.ndim == 2 and min(p.shape) >= 64 and "token_embd" not in name
        (matrices if inner else others).append(p)
    muon = torch.optim.Muon(
        matrices, lr=MATRIX_RATE, weight_decay=0.02, adjust_lr_fn="match_rms_adamw"
    )
    adam = torch.optim.AdamW(
        others,
        lr=OTHER_RATE,
        betas=(0.9, 0.98),
        weight_decay=0.0,
        fused=model.output_norm.weight.is_cuda,
    )
    return [muon, adam]


def rate(step: int, progress: float) -> float:
    """Warm-up by steps, then half a cosine over the time that is given, down to 2 %."""
    warm = min(1.0, (step + 1) / WARM_UP)
    return warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))


class Trainer:
    """One model, its optimizers and its data."""

    def __init__(self, model: TinyModel, folder: Path, device: torch.device, tokens: int) -> None:
        self.device, self.cuda = device, device.type == "cuda"
        self.model = model.to(device)
        self.optimizers = optimizers(self.model)
        self.sources = {long: data.batches(folder, long, tokens) for long in (False, True)}
        self.loss = weighted_loss
        if self.cuda:
            self.compile()

    def compile(self) -> None:
        torch._dynamo.config.recompile_limit = 64
        for block in self.model.blk:
            block.compile(dynamic=False)
        self.model.nextn.compile(dynamic=False)
        self.loss = torch.compile(weighted_loss, dynamic=False)

    def batch(self, long: bool) -> dict[str, Tensor]:
        arrays = next(self.sources[long])
        made = {}
        for name, array in arrays.items():
            kind = np.float32 if name == "weights" else np.int64
            tensor = torch.from_numpy(array.astype(kind))
            made[name] = (
                tensor.pin_memory().to(self.device, non_blocking=True) if self.cuda else tensor
            )
        return made

    def losses(self, batch: dict[str, Tensor], drafts: int) -> list[Tensor]:
        """Main loss and the losses of the chained drafts (a part of the rows is enough)."""
        tokens, positions = batch["tokens"], batch["positions"]
        targets = torch.roll(tokens, -1, 1)
        weights = torch.roll(batch["weights"] * 0.1, -1, 1)
        weights = weights * (torch.roll(positions, -1, 1) > 0)
        embedding = self.model.token_embd.weight
        hidden = self.model(tokens, positions)
        found = [self.loss(hidden, embedding, targets, weights)]
        rows = max(1, len(tokens) // 3)
        drafted = self.model.draft(hidden[:rows], tokens[:rows], positions[:rows], drafts)
        found += [self.loss(d, embedding, targets[:rows], weights[:rows]) for d in drafted]
        return found

    def step(self, long: bool, scale: float) -> Tensor:
        batch = self.batch(long)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.cuda):
            found = self.losses(batch, drafts=1 if long else 3)
            total = found[0] + sum(w * d for w, d in zip(MTP_WEIGHTS, found[1:], strict=False))
        total.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer, base in zip(self.optimizers, (MATRIX_RATE, OTHER_RATE), strict=True):
            for group in optimizer.param_groups:
                group["lr"] = base * scale
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return torch.stack([f.detach() for f in found])


def train(
    out: Path,
    seconds: float,
    workers: int,
    shape: Shape,
    tokens: int,
    vocabulary_file: Path | None,
    after: Path | None = None,
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = out / "tokenizer.json"
    log = (out / "train.log").open("w", buffering=1)
    begin = time.monotonic()

    def note(**fields: Any) -> None:
        line = json.dumps({"t": round(time.monotonic() - begin, 1), **fields})
        log.write(line + "\n")
        print(line, flush=True)

    if vocabulary_file:
        shutil.copy(vocabulary_file, tokenizer)
    else:
        train_tokenizer(tokenizer, shape.vocab)
        note(event="tokenizer trained")
    folder = Path("/dev/shm") / f"openjet-tiny-{int(time.time())}"
    steps = int(seconds * 14) if device.type == "cuda" else 8
    per_shard = max(1, data.SHARD_TOKENS // tokens)
    torch.manual_seed(1)
    model = TinyModel(shape)
    before, seen = load(model, after) if after else (0, 0)
    processes = data.start(
        folder,
        tokenizer,
        workers,
        steps // per_shard + 2,
        steps // LONG_EVERY // per_shard + 2,
        -(-seen // data.SHARD_TOKENS),
    )
    trainer = Trainer(model, folder, device, tokens)
    for long in (False, True):
        trainer.step(long, 0.0)  # compiles
    note(event="compiled", parameters=sum(p.numel() for p in trainer.model.parameters()))
    start, step, seen_before = time.monotonic(), 0, seen
    while (progress := (time.monotonic() - start) / seconds) < 1.0:
        long = step % LONG_EVERY == LONG_EVERY - 1
        found = trainer.step(long, rate(step, progress))
        step, seen = step + 1, seen + tokens
        if step % 50 == 0 or device.type == "cpu":
            values = [round(x, 4) for x in found.tolist()]
            if not math.isfinite(sum(values)):
                raise FloatingPointError(f"the loss is {values} at step {step}")
            note(
                step=step,
                long=long,
                losses=values,
                tokens_s=round((seen - seen_before) / (time.monotonic() - start)),
            )
        if step == EARLY_STEP and not after:
            save(trainer.model, out / "early.pt", step=step, tokens=seen)
    save(trainer.model, out / "final.pt", step=before + step, tokens=seen)
    note(event="trained", step=before + step, tokens=seen)
    for process in processes:
        process.terminate()
    shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument(
        "--tokenizer", type=Path, help="a tokenizer.json to keep (default: train one)"
    )
    parser.add_argument("--after", type=Path, help="a final.pt to go on from; with its --tokenizer")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="per step")
    parser.add_argument("--micro", action="store_true", help="a four-layer model, for dry runs")
    args = parser.parse_args()
    shape = MICRO if args.micro else TINY
    if args.after and not args.tokenizer:
        parser.error("--after needs the --tokenizer of that file")
    train(args.out, args.seconds, args.workers, shape, args.tokens, args.tokenizer, args.after)


if __name__ == "__main__":
    main()
