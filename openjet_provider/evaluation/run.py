"""What a model predicts at every position of a text, through the backend interface."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openjet_provider._native import Kind, Model, load
from openjet_provider.devices import choose_backend
from openjet_provider.errors import InvalidRequestError
from openjet_provider.evaluation.logits_file import Floats, Tokens, predicted
from openjet_provider.planning import PAGE

_ROWS = 128  # of a step; their logits are kept, a megabyte each at 248K ids


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What makes one side of a comparison; None and 0 are the engine's own defaults.

    kv: "q8_0", "f16" or "f32". backend: "auto", "cpu" or "cuda".
    """

    kv: str
    backend: str = "auto"
    device: int = 0
    threads: int = 0

    def chosen(self, path: Path) -> Kind:
        """The backend that would run this model file. Raises BackendUnavailableError."""
        return "cuda" if choose_backend(self.backend, path.stat().st_size) == "cuda" else "cpu"


class ModelRun:
    """Predictions of a model file for `tokens`. One thread; close it, or use it as a context
    manager. Whoever runs it on a GPU holds the device's lock."""

    def __init__(self, path: Path, tokens: Tokens, setting: Setting) -> None:
        """tokens: [chunks, positions]; every chunk is read by itself.

        Raises InvalidRequestError for a text that is not of this model's vocabulary, and what
        opening a backend raises.
        """
        self.tokens = tokens
        backend = setting.chosen(path)
        self._native = load(backend)
        self._model: Model | None = None
        self._backend: Any = None
        try:
            self._model = Model(self._native, path)
            self.n_vocab: int = self._model.info.n_vocab
            self._backend = self._open(self._model, backend, setting)
        except BaseException:
            self.close()
            raise

    def _open(self, model: Model, backend: str, setting: Setting) -> Any:
        positions = self.tokens.shape[1]
        if self.tokens.max() >= self.n_vocab:
            raise InvalidRequestError(
                f"the text's tokens are not of {model.path.name}: its vocabulary has"
                f" {self.n_vocab:,} ids"
            )
        if positions > model.info.context_length:
            raise InvalidRequestError(
                f"chunks of {positions:,} positions do not fit the context of {model.path.name},"
                f" {model.info.context_length:,}; give a smaller --context"
            )
        self._n_pages = -(-positions // PAGE)
        options = {
            "kind": getattr(self._native.lib, f"OJ_BACKEND_{backend.upper()}"),
            "device": setting.device,
            "threads": setting.threads,
            "kv_codec": getattr(self._native.lib, f"OJ_KV_{setting.kv.upper()}"),
            "n_slots": 1,
            "n_pages": self._n_pages,
            "n_snapshots": 1,
            "max_rows": min(_ROWS, positions),
        }
        packed = self._native.ffi.new("oj_backend_options *", options)
        out = self._native.ffi.new("oj_backend **")
        self._native.call("oj_backend_open", model.handle, packed, out)
        return out[0]

    def rows(self, chunk: int) -> Iterator[Floats]:
        """Log-probabilities [n_vocab] at each predicted position of a chunk."""
        tokens = self.tokens[chunk]
        asked = predicted(len(tokens))
        self._native.call("oj_backend_reset", self._backend, 0)
        for start in range(0, asked.start, _ROWS):
            self._step(tokens, start, min(start + _ROWS, asked.start), keep=False)
        for start in range(asked.start, asked.stop, _ROWS):
            end = min(start + _ROWS, asked.stop)
            self._step(tokens, start, end, keep=True)
            for row in range(end - start):
                yield _log_softmax(self._logits(row))

    def _step(self, tokens: Tokens, start: int, end: int, *, keep: bool) -> None:
        """Read the tokens [start, end) of the conversation in slot 0."""
        new = self._native.ffi.new
        rows = new("int32_t[]", tokens[start:end].tolist())
        pages = new("int32_t[]", list(range(self._n_pages)))
        part = {"slot": 0, "pos": start, "n_rows": end - start, "n_certain": end - start}
        seqs = new("oj_seq[]", [part | {"n_pages": self._n_pages, "pages": pages}])
        plan = new("oj_plan *", [rows, end - start, 1, seqs, int(keep)])
        self._native.call("oj_backend_step", self._backend, plan, new("oj_seq_result[]", 1))

    def _logits(self, row: int) -> NDArray[np.float32]:
        out = np.empty(self.n_vocab, np.float32)
        pointer = self._native.ffi.cast("float *", out.ctypes.data)
        self._native.call("oj_backend_read", self._backend, 0, row, pointer)
        return out

    def close(self) -> None:
        """Free the backend and the model. Idempotent."""
        if self._backend is not None:
            self._native.lib.oj_backend_close(self._backend)
            self._backend = None
        if self._model is not None:
            self._model.close()

    def __enter__(self) -> ModelRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _log_softmax(logits: NDArray[np.float32]) -> Floats:
    shifted = logits.astype(np.float64) - logits.max()
    found: Floats = shifted - np.log(np.exp(shifted).sum())
    return found
