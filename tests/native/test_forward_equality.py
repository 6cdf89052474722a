"""What must never differ: a row's bits alone or among others, in any chunks, on any threads and
instruction set, after a fold, a snapshot or a page copy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from openjet_provider.errors import InvalidRequestError
from tests.native.steps import Part, Stepper, open_stepper, supported_isas
from tests.reference.golden_cases import MICRO, TOKENS
from tests.reference.random_model import PRESETS, write_model

PROMPT = (TOKENS * 4)[:300]  # over a split edge at 256
OTHERS = [TOKENS[::-1], [(7 * t + 3) % 500 for t in TOKENS], [(t + 11) % 500 for t in TOKENS]]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every block type in one file, MTP included."""
    path = tmp_path_factory.mktemp("equality") / "mixed.gguf"
    write_model(path, PRESETS["micro_untied"], "mixed", seed=6)
    return path


@pytest.fixture(scope="module")
def alone(mixed: Path) -> np.ndarray:
    """The prompt's logits, read alone in one piece."""
    with open_stepper(mixed, kv="q8_0", max_rows=512) as stepper:
        return stepper.prefill(PROMPT, chunk=512)


@pytest.mark.parametrize("chunk", [1, 7, 64, 100])
def test_any_chunking(mixed: Path, alone: np.ndarray, chunk: int) -> None:
    with open_stepper(mixed, kv="q8_0") as stepper:
        assert np.array_equal(stepper.prefill(PROMPT, chunk=chunk), alone)


@pytest.mark.parametrize("threads", [1, 3, 5])
def test_any_thread_count(mixed: Path, alone: np.ndarray, threads: int) -> None:
    with open_stepper(mixed, kv="q8_0", threads=threads) as stepper:
        assert np.array_equal(stepper.prefill(PROMPT), alone)


@pytest.mark.parametrize("isa", supported_isas())
def test_any_instruction_set(mixed: Path, alone: np.ndarray, isa: str) -> None:
    n = 270 if isa != "portable" else 40
    with open_stepper(mixed, isa=isa, kv="q8_0") as stepper:
        assert np.array_equal(stepper.prefill(PROMPT[:n]), alone[:n])


@pytest.mark.parametrize("size", [64, 128, 256])
def test_head_sizes_around_a_split_edge(size: int, tmp_path: Path) -> None:
    """Positions 254 to 257 read alone, together and from both sides of the edge at 256, on every
    instruction set behind a short context and on the best one behind a long one."""
    path = tmp_path / "heads.gguf"
    write_model(path, replace(MICRO, head_size=size), "q8_0", seed=8)
    with open_stepper(path, kv="q8_0", max_rows=512) as stepper:
        whole = stepper.prefill(PROMPT[:258], chunk=512)
    for length in (254, 255, 256, 257):
        with open_stepper(path, kv="q8_0", max_rows=512) as stepper:
            stepper.step([Part(0, 0, PROMPT[:length])])
            stepper.step([Part(0, length, PROMPT[length:258])])
            rest = np.stack([stepper.logits(r) for r in range(258 - length)])
        assert np.array_equal(rest, whole[length:])
    for isa in supported_isas():
        with open_stepper(path, isa=isa, kv="q8_0") as stepper:
            assert np.array_equal(stepper.prefill(PROMPT[:70]), whole[:70])


@pytest.mark.parametrize("kv", ["f16", "f32"])
def test_codecs_on_any_instruction_set(mixed: Path, kv: str) -> None:
    logits = []
    for isa in supported_isas():
        with open_stepper(mixed, isa=isa, kv=kv) as stepper:
            logits.append(stepper.prefill(TOKENS[:20]))
    assert all(np.array_equal(logits[0], other) for other in logits[1:])


@pytest.mark.parametrize(("kv", "size"), [("f16", 1e5), ("q8_0", 1e9)])
def test_values_beyond_the_codec(kv: str, size: float, tmp_path: Path) -> None:
    """Values of about this size in every row. A later row of the same step has weight 0 in an
    earlier one, and 0 times a stored infinity would be NaN there."""
    path = tmp_path / "huge.gguf"
    write_model(path, MICRO, "f32", seed=2)
    for tensor in GGUFReader(path, "r+").tensors:
        if tensor.name.endswith("attn_v.weight"):
            tensor.data[:] *= size
    with open_stepper(path, kv=kv) as stepper:
        together = stepper.prefill(TOKENS[:12])
        single = stepper.prefill(TOKENS[:12], chunk=1)
    assert np.array_equal(together, single)
    assert np.isfinite(together).all()


@pytest.mark.parametrize("kv", ["f16", "q8_0", "f32"])
def test_a_row_that_is_not_finite_reaches_no_earlier_row(kv: str, tmp_path: Path) -> None:
    path = tmp_path / "poison.gguf"
    write_model(path, MICRO, "f32", seed=2)
    (embed,) = [t for t in GGUFReader(path, "r+").tensors if t.name == "token_embd.weight"]
    embed.data[500] = np.inf
    with open_stepper(path, kv=kv) as stepper:
        alone = stepper.forward(TOKENS[:11])[1]
        before = stepper.forward([*TOKENS[:11], 500])[1]
    assert not np.isfinite(before[11]).any()
    assert np.array_equal(before[:11], alone)
    assert np.isfinite(alone).all()


@pytest.mark.parametrize("row_counts", [(1, 1, 1), (3, 5, 9), (17, 2, 30)])
def test_beside_others(mixed: Path, alone: np.ndarray, row_counts: tuple[int, int, int]) -> None:
    """Ragged steps: our rows lie among three other conversations' rows."""
    with open_stepper(mixed, kv="q8_0") as stepper:
        ours: list[np.ndarray] = []
        for step in range(6):
            parts, first = [], 0
            for slot, (other, count) in enumerate(zip(OTHERS, row_counts, strict=True)):
                start = step * count
                if start + count <= len(other):
                    parts.append(Part(slot, start, other[start : start + count]))
            first = sum(len(part.certain) for part in parts)
            n = 4 + step
            parts.append(Part(3, len(ours), PROMPT[len(ours) : len(ours) + n]))
            stepper.step(parts)
            ours += [stepper.logits(first + r) for r in range(n)]
    assert np.array_equal(np.stack(ours), alone[: len(ours)])


def decode(stepper: Stepper, tokens: list[int], start: int) -> np.ndarray:
    """Logits of `tokens` read one a step from position `start` of slot 0."""
    rows = []
    for i, token in enumerate(tokens):
        stepper.step([Part(0, start + i, [token])])
        rows.append(stepper.logits(0))
    return np.stack(rows)


@pytest.mark.parametrize("kept", [0, 1, 3, 4])
def test_fold_equals_plain_decoding(mixed: Path, alone: np.ndarray, kept: int) -> None:
    """Draft rows have the logits of plain decoding; after folding some of them the conversation
    goes on as if they had been read one by one, and the rest as if they had never been there."""
    with open_stepper(mixed, kv="q8_0") as stepper:
        stepper.prefill(PROMPT[:40])
        drafts = PROMPT[41 : 41 + kept] + [t ^ 1 for t in PROMPT[41 + kept : 45]]
        stepper.step([Part(0, 40, PROMPT[40:41], drafts, sampled=True)])
        assert all(np.array_equal(stepper.logits(r), alone[40 + r]) for r in range(1 + kept))
        position = 41 + kept
        stepper.step([Part(0, position, PROMPT[position : position + 3], fold=kept)])
        assert all(np.array_equal(stepper.logits(r), alone[position + r]) for r in range(3))


def test_fold_alone_then_snapshot(mixed: Path, alone: np.ndarray) -> None:
    """A fold without rows makes the state savable; a loaded snapshot continues with equal bits."""
    with open_stepper(mixed, kv="q8_0") as stepper:
        stepper.prefill(PROMPT[:70])
        stepper.step([Part(0, 70, PROMPT[70:71], PROMPT[71:73], sampled=True)])
        with pytest.raises(InvalidRequestError, match="pending"):
            stepper.save(0, 0)
        stepper.step([Part(0, 73, [], fold=2)])
        stepper.save(0, 0)
        decode(stepper, TOKENS[:5], 73)  # moves slot 0 on, over its own pages
        # Slot 1 resumes on the shared first page and a copy of the partial second one.
        stepper.load(0, 1)
        stepper.copy_page(1, 20)
        stepper.step([Part(1, 73, PROMPT[73:76], pages=[0, 20])])
        assert all(np.array_equal(stepper.logits(r), alone[73 + r]) for r in range(3))


def test_greedy_decoding_is_the_same_with_mtp_drafts(mixed: Path) -> None:
    """Drafts change nothing but the number of steps, whatever depth is asked for."""

    def generate(depth: int, mtp: int) -> tuple[list[int], int]:
        with open_stepper(mixed, kv="q8_0", mtp=mtp) as stepper:
            result = stepper.step([Part(0, 0, TOKENS, sampled=True, n_draft=depth)])[0]
            out, fold, steps = list(result.tokens), 0, 1
            while len(out) < 24:
                position = len(TOKENS) + len(out) - 1
                part = Part(0, position, out[-1:], result.drafts, fold, True, depth)
                result = stepper.step([part])[0]
                out += result.tokens
                fold, steps = len(result.tokens) - 1, steps + 1
            return out[:24], steps

    plain, _ = generate(0, 0)
    assert generate(1, 1)[0] == plain
    assert generate(3, 1)[0] == plain


def test_mtp_state_does_not_depend_on_how_rows_came(mixed: Path) -> None:
    """Draft logits after chunks, single rows and folded drafts, and after a redone chosen token."""

    def drafts(parts: list[Part]) -> np.ndarray:
        with open_stepper(mixed, kv="q8_0", mtp=1) as stepper:
            for part in parts:
                stepper.step([part])
            return np.stack([stepper.draft_logits(0, d) for d in range(2)])

    last = Part(0, 60, PROMPT[60:61], sampled=True, n_draft=2)
    expected = drafts([Part(0, 0, PROMPT[:60]), last])
    chunked = [Part(0, start, PROMPT[start : start + 12]) for start in range(0, 60, 12)]
    assert np.array_equal(drafts([*chunked, last]), expected)
    single = [Part(0, i, PROMPT[i : i + 1], sampled=True, n_draft=1) for i in range(40, 60)]
    assert np.array_equal(drafts([Part(0, 0, PROMPT[:40]), *single, last]), expected)


def test_micro_shapes_with_wide_groups(tmp_path: Path) -> None:
    """16 K and 48 V heads, six query heads a KV head: portable equals the best instruction set."""
    path = tmp_path / "grouped.gguf"
    write_model(path, replace(PRESETS["grouped"], vocabulary=512), "q4_k_m", seed=8)
    logits = []
    for isa in (supported_isas()[0], supported_isas()[-1]):
        with open_stepper(path, isa=isa, kv="q8_0") as stepper:
            logits.append(stepper.prefill(TOKENS[:12]))
    assert np.array_equal(logits[0], logits[1])


def test_decode_beside_decode_with_drafts(tmp_path: Path) -> None:
    """Drafting conversations in one step do not disturb each other's drafts."""
    path = tmp_path / "micro.gguf"
    write_model(path, MICRO, "q4_k_m", seed=9)
    prompts = [TOKENS[:30], TOKENS[30:70], TOKENS[50:90]]

    def run(slots: list[int]) -> dict[int, tuple[list[int], list[int]]]:
        with open_stepper(path, mtp=1, kv="q8_0") as stepper:
            parts = [Part(s, 0, prompts[s], sampled=True, n_draft=2) for s in slots]
            results = stepper.step(parts)
            return {s: (r.tokens, r.drafts) for s, r in zip(slots, results, strict=True)}

    together = run([0, 1, 2])
    assert {s: run([s])[s] for s in range(3)} == together
