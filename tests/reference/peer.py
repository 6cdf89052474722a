"""llama.cpp through llama-cpp-python's low-level binding: the oracle's first outside witness.

Only the golden makers and benchmarks import this module; the test suite does not need the package.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import llama_cpp
import numpy as np

KV_TYPES = {"f32": 0, "f16": 1, "q8_0": 8}  # ggml type ids


class Peer:
    """One file on llama.cpp's CPU backend. Use as a context manager."""

    def __init__(self, path: str | Path, threads: int = 2, vocabulary_only: bool = False) -> None:
        llama_cpp.llama_log_set(_silent, ctypes.c_void_p())
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        # AMX kernels fault where the machine does not grant tiles (seen in a sandbox).
        params.use_extra_bufts = False
        params.vocab_only = vocabulary_only
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
        self, tokens: Sequence[int], kv: Literal["f32", "f16", "q8_0"], batch_size: int = 512
    ) -> np.ndarray:
        """Logits of every position of one fresh sequence, float32 [n, vocabulary]."""
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = len(tokens) + 8
        params.n_batch = params.n_ubatch = batch_size
        params.n_threads = params.n_threads_batch = self.threads
        params.type_k = params.type_v = KV_TYPES[kv]
        if kv == "f32":
            params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        context = llama_cpp.llama_init_from_model(self.model, params)
        if not context:
            raise RuntimeError("llama.cpp makes no context")
        try:
            parts = [
                self._decode(context, tokens[start : start + batch_size], start)
                for start in range(0, len(tokens), batch_size)
            ]
        finally:
            llama_cpp.llama_free(context)
        return np.concatenate(parts)

    def _decode(self, context: Any, tokens: Sequence[int], start: int) -> np.ndarray:
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, start + i
            batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, 0, 1
        code = llama_cpp.llama_decode(context, batch)
        llama_cpp.llama_batch_free(batch)
        if code != 0:
            raise RuntimeError(f"llama_decode returned {code}")
        width = llama_cpp.llama_vocab_n_tokens(self.vocab)
        rows = llama_cpp.llama_get_logits(context)
        return np.ctypeslib.as_array(rows, shape=(len(tokens), width)).copy()

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


@llama_cpp.llama_log_callback
def _silent(level: int, text: bytes, data: ctypes.c_void_p) -> None:
    pass
