"""llama.cpp through llama-cpp-python's low-level binding: the oracle's first outside witness.

Only the golden makers and benchmarks import this module; the test suite does not need the package.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import llama_cpp
import numpy as np
from llama_cpp import llama_cpp_ext

KV = Literal["f32", "f16", "q8_0"]
KV_TYPES = {"f32": 0, "f16": 1, "q8_0": 8}  # ggml type ids


class Peer:
    """One file on llama.cpp's CPU backend, or with `gpu` on its GPU's, where it was built with
    one (`on_gpu`). Use as a context manager."""

    def __init__(
        self,
        path: str | Path,
        threads: int = 2,
        vocabulary_only: bool = False,
        gpu: bool = False,
    ) -> None:
        llama_cpp.llama_log_set(_silent, ctypes.c_void_p())
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        self.on_gpu = gpu and bool(llama_cpp.llama_supports_gpu_offload())
        params.n_gpu_layers = 999 if self.on_gpu else 0
        # AMX kernels fault where the machine does not grant tiles (seen in a sandbox).
        params.use_extra_bufts = False
        params.vocab_only = vocabulary_only
        params.load_mtp = True
        self.threads = threads
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {path}")
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        llama_cpp.llama_model_free(self.model)

    def logits(
        self, tokens: Sequence[int], kv: KV, batch_size: int = 512, with_hidden: bool = False
    ) -> Any:
        """Logits of every position of one fresh sequence, float32 [n, vocabulary]; with_hidden:
        also the rows that feed the LM head, float32 [n, hidden]."""
        with self._context(kv, len(tokens)) as context:
            if with_hidden:
                llama_cpp_ext.llama_set_embeddings_nextn(context, True, False)
            parts = [
                self._decode(context, tokens[start : start + batch_size], start, with_hidden)
                for start in range(0, len(tokens), batch_size)
            ]
        logits, hidden = (np.concatenate(rows) for rows in zip(*parts, strict=True))
        return (logits, hidden) if with_hidden else logits

    def mtp(
        self, tokens: Sequence[int], hidden: np.ndarray, start: int, kv: KV
    ) -> tuple[np.ndarray, np.ndarray]:
        """The MTP head over rows (tokens[i], hidden[i]) at positions start, start + 1, ... of a
        fresh MTP cache: logits [n, vocabulary] and the rows that feed its LM head [n, hidden]."""
        with (
            self._context(kv, start + len(tokens)) as target,
            self._context(kv, start + len(tokens), target) as context,
        ):
            llama_cpp_ext.llama_set_embeddings_nextn(context, True, False)
            return self._decode(context, tokens, start, True, hidden)

    @contextmanager
    def _context(self, kv: KV, length: int, mtp_of: Any = None) -> Iterator[Any]:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = length + 8
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = self.threads
        params.type_k = params.type_v = KV_TYPES[kv]
        if kv == "f32":
            params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        if mtp_of is not None:
            params.ctx_type = llama_cpp.LLAMA_CONTEXT_TYPE_MTP
            params.ctx_other = mtp_of
        context = llama_cpp.llama_init_from_model(self.model, params)
        if not context:
            raise RuntimeError("llama.cpp makes no context")
        try:
            yield context
        finally:
            llama_cpp.llama_free(context)

    def _decode(
        self,
        context: Any,
        tokens: Sequence[int],
        start: int,
        with_hidden: bool,
        hidden: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        n, width = len(tokens), llama_cpp.llama_model_n_embd(self.model)
        batch = llama_cpp.llama_batch_init(n, 0, 1)
        batch.n_tokens = n
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, start + i
            batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, 0, 1
        if hidden is not None:
            rows = np.ascontiguousarray(hidden, dtype=np.float32)
            batch.embd = rows.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        code = llama_cpp.llama_decode(context, batch)
        batch.embd = None  # not llama.cpp's to free
        llama_cpp.llama_batch_free(batch)
        if code != 0:
            raise RuntimeError(f"llama_decode returned {code}")
        vocabulary = llama_cpp.llama_vocab_n_tokens(self.vocab)
        logits = _rows(llama_cpp.llama_get_logits(context), n, vocabulary)
        if not with_hidden:
            return logits, np.empty((n, 0))
        return logits, _rows(llama_cpp_ext.llama_get_embeddings_nextn(context), n, width)

    def tokenize(self, text: str, parse_special: bool) -> list[int]:
        """Token ids of text, without adding BOS or EOS."""
        data = text.encode()
        room = len(data) + 8
        ids = (llama_cpp.llama_token * room)()
        count = llama_cpp.llama_tokenize(
            self.vocab, data, len(data), ids, room, False, parse_special
        )
        if count < 0:
            raise RuntimeError(f"llama_tokenize wants {-count} ids, more than {room}")
        return list(ids[:count])


def _rows(pointer: Any, n: int, width: int) -> np.ndarray:
    return np.ctypeslib.as_array(pointer, shape=(n, width)).copy()


@llama_cpp.llama_log_callback
def _silent(level: int, text: bytes, data: ctypes.c_void_p) -> None:
    pass
