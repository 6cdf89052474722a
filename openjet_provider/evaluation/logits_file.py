"""The file in which `llama-perplexity --kl-divergence-base` keeps predictions, read and written.

Little-endian throughout:

    8 bytes   _logits_
    3 x i32   positions of a chunk, vocabulary, chunks
    i32[]     the text's tokens: chunks x positions
    records   of every chunk, for each position of its second half but the last: f32 step, f32
              lowest, u16[vocabulary, rounded up to an even number]

Log-probability i is lowest + step * u16[i]. Those more than 16 below the likeliest have become the
lowest: such a file does not know them, and perplexities from it are somewhat too low.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openjet_provider.errors import InvalidRequestError

_MAGIC = b"_logits_"
_HEADER = struct.Struct("<8siii")
_SCALE = struct.Struct("<ff")
_DEPTH = 16.0  # of the log-probabilities that are told apart
_LEVELS = 65535

Floats = NDArray[np.float64]
Tokens = NDArray[np.int32]


def predicted(positions: int) -> range:
    """The positions of a chunk whose next token is predicted: with half a chunk before them."""
    return range(positions // 2, positions - 1)


def _record_size(n_vocab: int) -> int:
    return _SCALE.size + 2 * (n_vocab + n_vocab % 2)


class LogitsFile:
    """Predictions from a file. One thread at a time; close it, or use it as a context manager."""

    def __init__(self, path: Path) -> None:
        """Raises InvalidRequestError for a file that is not one of these, or not complete."""
        self.path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise InvalidRequestError(f"{path} cannot be read: {error.strerror}") from error
        try:
            self.tokens, self.n_vocab = self._read_head()
        except BaseException:
            self._file.close()
            raise

    def _read_head(self) -> tuple[Tokens, int]:
        head = self._file.read(_HEADER.size)
        if len(head) < _HEADER.size or not head.startswith(_MAGIC):
            raise InvalidRequestError(
                f"{self.path} holds no predictions; give a file that `openjet eval --save` or"
                " `llama-perplexity --kl-divergence-base` has written"
            )
        _, positions, n_vocab, chunks = _HEADER.unpack(head)
        if positions < 4 or n_vocab < 1 or chunks < 1:
            raise InvalidRequestError(
                f"{self.path} is damaged: {chunks} chunks of {positions} positions, vocabulary"
                f" {n_vocab}"
            )
        self._start = _HEADER.size + 4 * positions * chunks
        records = chunks * len(predicted(positions))
        expected = self._start + records * _record_size(n_vocab)
        found = os.fstat(self._file.fileno()).st_size
        if found != expected:
            raise InvalidRequestError(
                f"{self.path} has {found:,} bytes where {expected:,} belong: it was cut off while"
                " it was written; write it again"
            )
        tokens = np.frombuffer(self._file.read(4 * positions * chunks), "<i4").astype(np.int32)
        if tokens.min() < 0 or tokens.max() >= n_vocab:
            raise InvalidRequestError(f"{self.path} is damaged: a token is outside its vocabulary")
        return tokens.reshape(chunks, positions), n_vocab

    def rows(self, chunk: int) -> Iterator[Floats]:
        """Log-probabilities [n_vocab] at each predicted position of a chunk."""
        size = _record_size(self.n_vocab)
        count = len(predicted(self.tokens.shape[1]))
        self._file.seek(self._start + chunk * count * size)
        for _ in range(count):
            record = self._file.read(size)
            step, lowest = _SCALE.unpack_from(record)
            levels = np.frombuffer(record, "<u2", self.n_vocab, _SCALE.size)
            yield step * levels.astype(np.float64) + lowest

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> LogitsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LogitsWriter:
    """Writes such a file row by row; the file has its name only once it is complete."""

    def __init__(self, path: Path, tokens: Tokens, n_vocab: int) -> None:
        """tokens: [chunks, positions]. Raises InvalidRequestError if it cannot be written."""
        self._path = path
        self._part = path.with_name(path.name + ".part")
        try:
            self._file = self._part.open("wb")
        except OSError as error:
            raise InvalidRequestError(f"{path} cannot be written: {error.strerror}") from error
        chunks, positions = tokens.shape
        self._file.write(_HEADER.pack(_MAGIC, positions, n_vocab, chunks))
        self._file.write(tokens.astype("<i4").tobytes())

    def add(self, log_probs: Floats) -> None:
        """The next row."""
        highest = log_probs.max()
        lowest = max(log_probs.min(), highest - _DEPTH)
        step = (highest - lowest) / _LEVELS
        levels = np.zeros(len(log_probs) + len(log_probs) % 2, "<u2")
        if step > 0:
            scaled = np.rint((log_probs - lowest) / step)
            levels[: len(log_probs)] = np.clip(scaled, 0, _LEVELS)
        self._file.write(_SCALE.pack(step, lowest) + levels.tobytes())

    def __enter__(self) -> LogitsWriter:
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        self._file.close()
        if failed is None:
            self._part.replace(self._path)
        else:
            self._part.unlink()


def split(tokens: Sequence[int], positions: int, chunks: int | None) -> Tokens:
    """The text as [chunks, positions], what is left over at its end dropped.

    Raises InvalidRequestError for a text shorter than one chunk.
    """
    most = len(tokens) // positions
    if most == 0:
        raise InvalidRequestError(
            f"the text has {len(tokens):,} tokens, fewer than one chunk of {positions:,}; give a"
            " longer text or a smaller --context"
        )
    count = most if chunks is None else min(chunks, most)
    return np.array(tokens[: count * positions], np.int32).reshape(count, positions)
