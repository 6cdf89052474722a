"""The reduced draft head: drafts come from part of the vocabulary, by the same numbers, and nothing
that is said changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openjet_provider._native import load
from openjet_provider.errors import InvalidRequestError
from tests.native.engine_driver import Driver, Request
from tests.native.steps import Part, memory_plan, open_stepper
from tests.reference.random_model import PRESETS, write_model

PROMPT = list(range(1, 40))
ROWS = 300


@pytest.fixture(scope="module", params=["q8_0", "f32", "q4_k_m"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed, an unpacked and a mixed type; the last is not tied."""
    path = tmp_path_factory.mktemp("draft_head") / "model.gguf"
    preset = "micro_untied" if request.param == "q4_k_m" else "micro"
    write_model(path, PRESETS[preset], request.param, seed=3)
    return path


def draft_logits(path: Path, rows: int) -> np.ndarray:
    """Of the first draft after the prompt."""
    with open_stepper(path, mtp=1, draft_head_rows=rows) as stepper:
        stepper.step([Part(0, 0, PROMPT, sampled=True, n_draft=1)])
        return stepper.draft_logits(0, 0)


def test_the_same_numbers_at_fewer_tokens(model: Path) -> None:
    """Bit for bit where the head reaches, -inf elsewhere; every special and byte token is there."""
    whole, part = draft_logits(model, 0), draft_logits(model, ROWS)
    kept = np.isfinite(part)
    assert kept.sum() == ROWS
    assert np.array_equal(part[kept], whole[kept])
    with open_stepper(model) as stepper:
        types = np.array(stepper.model.metadata("tokenizer.ggml.token_type"))
        texts = stepper.model.metadata("tokenizer.ggml.tokens")
    single = np.array([len(bytes(text).decode()) == 1 for text in texts])
    needed = (types == 1) & single | np.isin(types, (3, 4, 6))
    assert needed.sum() > 256
    assert kept[needed].all()
    others = np.flatnonzero((types == 1) & ~single)  # lowest ids first
    assert kept[others].tolist() == sorted(kept[others], reverse=True)
    few = np.isfinite(draft_logits(model, 1))
    assert np.array_equal(few, needed)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.8, "seed": 5}])
def test_answers_do_not_depend_on_it(
    library: Any, micro_model: Path, sampling: dict[str, Any]
) -> None:
    answers = []
    for rows in (0, 280, 400):
        with Driver(library, micro_model, draft_head_rows=rows) as engine:
            requests = [
                Request(PROMPT[i:], max_tokens=30, draft=draft, sampling=sampling)
                for i, draft in enumerate((0, 1, 4))
            ]
            answers.append([answer.tokens for answer in engine.run(*requests)])
    assert answers[0] == answers[1] == answers[2]


def test_drafts_drawn_from_it_are_verified_against_it(model: Path) -> None:
    """Without a seed, when it can say all that the target can: every draft comes from its rows, and
    many are accepted."""
    allowed = np.flatnonzero(np.isfinite(draft_logits(model, ROWS)))
    flat = {"temperature": 50.0, "coupled": 0, "seed": 1}
    drafted, accepted, said = 0, 0, 0
    with open_stepper(model, mtp=1, draft_head_rows=ROWS) as stepper:
        pos, certain, drafts, fold = 0, PROMPT, list[int](), 0
        for _ in range(40):
            part = Part(0, pos, certain, drafts, fold, sampled=True, n_draft=2, sampling=flat)
            result = stepper.step([part], keep=False)[0]
            assert np.isin(result.drafts, allowed).all()
            fold = len(result.tokens) - 1
            drafted, accepted = drafted + len(drafts), accepted + fold
            said += sum(token not in allowed for token in result.tokens)
            pos, certain, drafts = pos + len(certain) + fold, result.tokens[-1:], result.drafts
    assert accepted > 0.3 * drafted
    assert said > 0, "what the head cannot draft is said nevertheless"


def test_a_head_of_its_own_is_packed_in_part(tmp_path: Path) -> None:
    """Where the MTP block has its own output matrix, only what is read of it takes memory."""
    path = tmp_path / "model.gguf"
    write_model(path, replace(PRESETS["micro"], own_draft_head=True), "q8_0", seed=3)
    whole, part = draft_logits(path, 0), draft_logits(path, ROWS)
    kept = np.isfinite(part)
    assert kept.sum() == ROWS
    assert np.array_equal(part[kept], whole[kept])
    bytes_of = [memory_plan(path, mtp=1, draft_head_rows=n)["weights"] for n in (0, ROWS)]
    assert bytes_of[1] < bytes_of[0]


def test_a_list_of_tokens(model: Path) -> None:
    """In place of a number of rows: exactly these, with the same numbers."""
    ids = [3, 4, 77, 300, 499]
    listed = load("cpu").ffi.new("int32_t[]", ids)
    with open_stepper(model, mtp=1, draft_head_ids=listed, n_draft_head_ids=len(ids)) as stepper:
        stepper.step([Part(0, 0, PROMPT, sampled=True, n_draft=1)])
        part = stepper.draft_logits(0, 0)
    assert np.flatnonzero(np.isfinite(part)).tolist() == ids
    assert np.array_equal(part[ids], draft_logits(model, 0)[ids])
    for wrong in ([5, 5], [0, 1 << 20]):
        listed = load("cpu").ffi.new("int32_t[]", wrong)
        with (
            pytest.raises(InvalidRequestError, match=r"draft_head_ids\[1\]"),
            open_stepper(model, mtp=1, draft_head_ids=listed, n_draft_head_ids=len(wrong)),
        ):
            pass


@pytest.mark.parametrize("rows", [-1, 1 << 20])
def test_rows_out_of_range(micro_model: Path, rows: int) -> None:
    with (
        pytest.raises(InvalidRequestError, match=f"draft_head_rows is {rows}"),
        open_stepper(micro_model, draft_head_rows=rows),
    ):
        pass
