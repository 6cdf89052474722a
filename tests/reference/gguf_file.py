"""Reading GGUF files: metadata eagerly, tensors as memory-mapped bytes, weights in row blocks.

The file format is parsed here; the `gguf` package supplies block sizes and dequantisation, so that
the block formats have an implementation which nobody in this repository wrote.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

SCALAR_FORMATS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
BLOCK_ELEMENTS = 1 << 22  # weights dequantised at a time: 32 MB as float64


@dataclass(frozen=True)
class Tensor:
    """One tensor's bytes. `shape` is row-major: (rows, columns) for a matrix y = W x."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    data: np.ndarray  # uint8 [rows, bytes per row]

    def rows(self, ids: np.ndarray | slice) -> np.ndarray:
        """Dequantised rows, float64 [n, columns]."""
        return dequantize(np.ascontiguousarray(self.data[ids]), self.type).astype(np.float64)

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """(row range, float64 weights) over the whole matrix, a bounded piece at a time."""
        step = max(1, BLOCK_ELEMENTS // self.shape[-1])
        for start in range(0, len(self.data), step):
            part = slice(start, min(start + step, len(self.data)))
            yield part, self.rows(part)


class _Cursor:
    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def string(self) -> str:
        length = self.scalar("Q")
        self.at += length
        return bytes(self.data[self.at - length : self.at]).decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            element, count = self.scalar("I"), self.scalar("Q")
            if element in SCALAR_FORMATS:
                values = np.frombuffer(self.data, "<" + SCALAR_FORMATS[element], count, self.at)
                self.at += values.nbytes
                return values.tolist()
            return [self.value(element) for _ in range(count)]
        return self.scalar(SCALAR_FORMATS[kind])


class GGUFFile:
    """`metadata`: key -> value; `tensors`: name -> Tensor. The file stays mapped while in use."""

    def __init__(self, path: str | Path) -> None:
        mapped = np.memmap(path, dtype=np.uint8, mode="r")
        cursor = _Cursor(memoryview(mapped))
        magic, version = bytes(cursor.data[:4]), struct.unpack_from("<I", cursor.data, 4)[0]
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"{path}: not a GGUF file of version 2 or 3")
        cursor.at = 8
        tensor_count, key_count = cursor.scalar("Q"), cursor.scalar("Q")
        self.metadata: dict[str, Any] = {}
        for _ in range(key_count):
            key = cursor.string()
            self.metadata[key] = cursor.value(cursor.scalar("I"))
        infos = []
        for _ in range(tensor_count):
            name = cursor.string()
            ne = [cursor.scalar("Q") for _ in range(cursor.scalar("I"))]
            infos.append((name, ne, GGMLQuantizationType(cursor.scalar("I")), cursor.scalar("Q")))
        alignment = self.metadata.get("general.alignment", 32)
        base = -(-cursor.at // alignment) * alignment
        self.tensors: dict[str, Tensor] = {}
        for name, ne, kind, offset in infos:
            per_block, block_bytes = GGML_QUANT_SIZES[kind]
            row_bytes, rows = ne[0] // per_block * block_bytes, int(np.prod(ne[1:], dtype=np.int64))
            data = mapped[base + offset :][: rows * row_bytes].reshape(rows, row_bytes)
            self.tensors[name] = Tensor(name, tuple(reversed(ne)), kind, data)
