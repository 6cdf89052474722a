"""Conversations that left the backend's memory go on with the same bits. On the CPU backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openjet_provider.errors import InvalidRequestError
from tests.native.engine_driver import Driver, Request
from tests.native.steps import Part, Stepper, open_stepper

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


def test_pages_and_snapshots_mean_the_same_elsewhere(micro_model: Path) -> None:
    """Exported from one backend and imported into other places of another: the same logits, draft
    logits too."""
    follow = [5, 6, 7]

    def go_on(stepper: Stepper, slot: int, pages: list[int]) -> tuple[np.ndarray, np.ndarray]:
        part = Part(slot, len(PROMPT), follow, sampled=True, n_draft=1, pages=pages)
        stepper.step([part])
        return stepper.logits(len(follow) - 1), stepper.draft_logits(0, 0)

    with open_stepper(micro_model, mtp=1, kv="q8_0") as stepper:
        stepper.step([Part(0, 0, PROMPT[:100], pages=[3, 4, 5])])
        stepper.step([Part(0, 100, PROMPT[100:], pages=[3, 4, 5])])
        stepper.save(0, 1)
        call, ffi = stepper.native.call, stepper.ffi
        form = ffi.new("oj_state_format *")
        call("oj_backend_state_format", stepper.handle, form)
        pages = [ffi.new("uint8_t[]", form.page_bytes) for _ in range(3)]
        state = ffi.new("uint8_t[]", form.snapshot_bytes)
        for page, out in zip((3, 4, 5), pages, strict=True):
            call("oj_backend_export_page", stepper.handle, page, out)
        call("oj_backend_export_snapshot", stepper.handle, 1, state)
        expected = go_on(stepper, 0, [3, 4, 5])
        for function, index in (("export_page", 64), ("export_snapshot", 2), ("import_page", -1)):
            with pytest.raises(InvalidRequestError, match=f"is {index}; this backend has"):
                call(f"oj_backend_{function}", stepper.handle, index, state)

    with open_stepper(micro_model, mtp=1, kv="q8_0", threads=1) as stepper:
        for page, data in zip((9, 1, 30), pages, strict=True):
            call("oj_backend_import_page", stepper.handle, page, data)
        call("oj_backend_import_snapshot", stepper.handle, 0, state)
        stepper.load(0, 2)
        found = go_on(stepper, 2, [9, 1, 30])
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
