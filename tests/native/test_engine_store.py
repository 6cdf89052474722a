"""Conversations that left the backend's memory go on with the same bits. On the CPU backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.native.engine_driver import Driver, Request

PROMPT = [(7 * i * i + 3 * i) % 500 for i in range(150)]


@pytest.mark.parametrize("where", ["memory", "files", "restart"])
def test_bits_after_spill_and_restore(
    library: Any, micro_model: Path, tmp_path: Path, where: str
) -> None:
    """From host memory, from a file of this engine, and from one of an engine before it."""
    first = Request(PROMPT, max_tokens=20)
    others = [Request([salt, *PROMPT[1:]], max_tokens=5) for salt in range(300, 304)]
    with Driver(library, micro_model, n_snapshots=0) as engine:
        history = [*PROMPT, *engine.run(first)[0].tokens]
        follow = Request([*history, 5, 6], max_tokens=20)
        expected = engine.run(follow)[0]
    small: dict[str, Any] = {"n_snapshots": 2, "n_slots": 1, "n_pages": 12}
    small["host_bytes"] = 1 << 30 if where == "memory" else 0
    small["state_dir"] = None if where == "memory" else tmp_path
    with Driver(library, micro_model, **small) as engine:
        engine.run(first)
        if where == "restart":
            engine.close()
            engine = Driver(library, micro_model, **small)
        for other in others:
            assert engine.run(other)[0].stats["cached_tokens"] < 64
        answer = engine.run(follow)[0]
        engine.close()
    assert answer.stats["cached_tokens"] == len(history) - 1
    assert (answer.tokens, answer.logprobs) == (expected.tokens, expected.logprobs)
