"""Take a training up again from a shipped file: checkpoints are not kept in this repository.

    python -m tools.train_tiny.from_gguf MODEL.gguf OUT --step N

Writes OUT/final.pt and OUT/tokenizer.json for `tools.train_tiny.train --after`. Quantised weights
come back rounded, which the first steps of the next training make up for. `--step` is what the
model was trained for (docs/openjet-tiny.md): it decides which documents are new to it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import numpy as np
import torch

from . import tokenizer as vocabulary
from .export import gguf_name
from .model import TinyModel
from .shape import TINY, Shape
from .train import TOKENS, save


def read_state(reader: gguf.GGUFReader, shape: Shape) -> dict[str, torch.Tensor]:
    """The parameters of TinyModel(shape), float32. Raises ValueError where the file has others."""
    found = {tensor.name: tensor for tensor in reader.tensors}
    state = {}
    for name, like in TinyModel(shape).state_dict().items():
        tensor = found.pop(gguf_name(name, shape), None)
        if tensor is None:
            raise ValueError(f"the file has no {gguf_name(name, shape)}")
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if values.size != like.numel():
            raise ValueError(f"{tensor.name} has {values.size} values, not {like.numel()}")
        if name.endswith("a_log"):
            values = np.log(-values)
        state[name] = torch.from_numpy(values.reshape(like.shape).copy())
    if found:
        raise ValueError(f"the file has more tensors than the model: {', '.join(sorted(found))}")
    return state


def convert(source: Path, out: Path, step: int, shape: Shape = TINY) -> None:
    out.mkdir(parents=True, exist_ok=True)
    reader = gguf.GGUFReader(str(source))
    model = TinyModel(shape)
    model.load_state_dict(read_state(reader, shape))
    save(model, out / "final.pt", step=step, tokens=step * TOKENS)
    vocabulary.read(reader).save(str(out / "tokenizer.json"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--step", type=int, required=True, help="steps that it was trained for")
    args = parser.parse_args()
    convert(args.model, args.out, args.step)


if __name__ == "__main__":
    main()
