"""The engine's backend interface driven directly: what is held against the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np

from openjet_provider import _native

KV = {"q8_0": 0, "f16": 1, "f32": 2}  # oj_kv_codec
LOGITS, DRAFT_LOGITS, HIDDEN = 0, 1, 2  # what oj_backend_read gives


@dataclass(frozen=True)
class Chosen:
    """What followed a prompt: the greedy token, its chained MTP drafts, and the drafts' logits."""

    token: int
    drafts: list[int]
    draft_logits: np.ndarray  # float32 [drafts, vocabulary]


class NativeBackend:
    """A model file on one backend with one slot. Use as a context manager; one thread."""

    def __init__(
        self,
        path: str | Path,
        kv: Literal["f32", "f16", "q8_0"] = "f16",
        kind: _native.Kind = "cpu",
        context: int = 1024,
        chunk: int = 64,
        threads: int = 2,
        mtp: bool = False,
    ) -> None:
        self.native = _native.load(kind)
        self.ffi = self.native.ffi
        self.model = _native.Model(self.native, Path(path))
        self.chunk = chunk
        self.page_count = -(-context // 64)
        options = self.ffi.new(
            "oj_backend_options *",
            {
                "kind": 0 if kind == "cpu" else 1,
                "threads": threads,
                "kv_codec": KV[kv],
                "n_slots": 1,
                "n_pages": self.page_count,
                "n_snapshots": 1,
                "max_rows": max(chunk, 16),
                "mtp": int(mtp),
            },
        )
        out = self.ffi.new("oj_backend **")
        self.native.call("oj_backend_open", self.model.handle, options, out)
        self.handle = out[0]
        self.pages = self.ffi.new("int32_t[]", list(range(self.page_count)))

    def __enter__(self) -> NativeBackend:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.native.lib.oj_backend_close(self.handle)
        self.model.close()

    def forward(self, tokens: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """A fresh conversation, chunk by chunk: logits float32 [n, vocabulary] of every position
        and the rows that feed the LM head [n, hidden]."""
        self.native.call("oj_backend_reset", self.handle, 0)
        logits, hidden = [], []
        for start in range(0, len(tokens), self.chunk):
            part = tokens[start : start + self.chunk]
            self._step(part, start, sampled=0, drafts=0)
            logits += [self._read(LOGITS, i) for i in range(len(part))]
            hidden += [self._read(HIDDEN, i) for i in range(len(part))]
        return np.array(logits), np.array(hidden)

    def choose(self, tokens: Sequence[int], drafts: int) -> Chosen:
        """A fresh conversation up to its greedy next token and `drafts` MTP drafts after it."""
        self.native.call("oj_backend_reset", self.handle, 0)
        last = (len(tokens) - 1) // self.chunk * self.chunk
        for start in range(0, last, self.chunk):
            self._step(tokens[start : start + self.chunk], start, sampled=0, drafts=0)
        result = self._step(tokens[last:], last, sampled=1, drafts=drafts)
        return Chosen(
            token=result.tokens[0],
            drafts=list(result.drafts[0 : result.n_drafts]),
            draft_logits=np.array([self._read(DRAFT_LOGITS, i) for i in range(result.n_drafts)]),
        )

    def _step(self, tokens: Sequence[int], pos: int, sampled: int, drafts: int) -> Any:
        new = self.ffi.new
        greedy = new("oj_sampling *", {"top_p": 1.0, "repetition": 1.0, "coupled": 1})
        sequence: dict[str, Any] = {
            "pos": pos,
            "n_rows": len(tokens),
            "n_certain": len(tokens),
            "n_sampled": sampled,
            "n_draft": drafts,
            "n_pages": self.page_count,
            "pages": self.pages,
            "sampling": greedy if sampled else self.ffi.NULL,
        }
        sequences = new("oj_seq[]", [sequence])
        ids = new("int32_t[]", list(tokens))
        plan = new(
            "oj_plan *",
            {
                "tokens": ids,
                "n_rows": len(tokens),
                "n_seqs": 1,
                "seqs": sequences,
                "keep_logits": 1,
            },
        )
        results = new("oj_seq_result[]", 1)
        self.native.call("oj_backend_step", self.handle, plan, results)
        return results[0]

    def _read(self, which: int, index: int) -> np.ndarray:
        info = self.model.info
        row = np.empty(info.n_embd if which == HIDDEN else info.n_vocab, dtype=np.float32)
        self.native.call(
            "oj_backend_read", self.handle, which, index, self.ffi.from_buffer("float[]", row)
        )
        return row
