"""The mean of two checkpoints of one training: it keeps what either of them does well.

python -m tools.train_tiny.average FIRST.pt SECOND.pt OUT.pt
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from .model import TinyModel
from .shape import Shape
from .train import load, save


def average(first: Path, second: Path, out: Path) -> None:
    """Steps and tokens of OUT are those of SECOND, which goes on from FIRST."""
    shape = Shape(**torch.load(first, map_location="cpu", weights_only=True)["shape"])
    models = [TinyModel(shape), TinyModel(shape)]
    load(models[0], first)
    step, tokens = load(models[1], second)
    with torch.no_grad():
        for mean, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
            mean.add_(other).div_(2)
    save(models[0], out, step=step, tokens=tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("first", "second", "out"):
        parser.add_argument(name, type=Path)
    args = parser.parse_args()
    average(args.first, args.second, args.out)


if __name__ == "__main__":
    main()
