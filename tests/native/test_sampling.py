"""native/engine/sampling.h against a NumPy re-implementation, and its distribution under drafts."""

from __future__ import annotations

import math
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openjet_provider._native import declarations

NATIVE = Path(__file__).resolve().parents[2] / "native"
SHIM = Path(__file__).with_name("sampling_shim.cpp")
PROTOTYPES = """
    void shim_philox(uint64_t, uint32_t, uint32_t, uint32_t, uint32_t *);
    float shim_gumbel(uint32_t);
    float shim_log(float);
    void shim_verify(const float *, int32_t, int32_t, int32_t, const int32_t *,
                     const oj_sampling *, const int32_t *, const int32_t *, int32_t,
                     const uint32_t *, oj_seq_result *);
    int32_t shim_trials(const float *, const float *, int32_t, const oj_sampling *, int32_t,
                        int32_t, int64_t *);
"""
CHOICE = 0  # Purpose::choice
VOCAB = 97

pytestmark = pytest.mark.timeout(1800)  # the first test waits for the compiler


def build(out: Path, engine: Path) -> Any:
    """(ffi, lib) of the shim, compiled against the headers in `engine`'s parent."""
    command = [*shlex.split(os.environ.get("CXX", "g++")), "-std=c++17", "-O1", "-shared", "-fPIC"]
    command += ["-ffp-contract=off", "-I", str(engine.parent), "-I", str(NATIVE / "include")]
    library = out / "shim.so"
    subprocess.run([*command, str(SHIM), "-o", str(library)], check=True)
    ffi = cffi.FFI()
    ffi.cdef(declarations(NATIVE / "include" / "openjet.h") + PROTOTYPES)
    return ffi, ffi.dlopen(str(library))


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return build(tmp_path_factory.mktemp("shim"), NATIVE / "engine")


def sampling(ffi: Any, keep: list[Any], **fields: Any) -> Any:
    """An oj_sampling; bias as {id: value}."""
    out = ffi.new("oj_sampling *", {"temperature": 1, "top_p": 1, "repetition": 1, "coupled": 1})
    for name, value in fields.items():
        if name == "bias":
            keep += [ffi.new("int32_t[]", list(value)), ffi.new("float[]", list(value.values()))]
            out.bias_ids, out.bias_values, out.n_bias = keep[-2], keep[-1], len(value)
        else:
            setattr(out, name, value)
    return out


# ---------------------------------------------------------------- the same, to be read


def philox(seed: int, position: int, purpose: int, index: int) -> list[int]:
    low = 0xFFFFFFFF
    counter, key = [index, position, purpose, 0], [seed & low, seed >> 32]
    for _ in range(10):
        first, second = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = [
            (second >> 32) ^ counter[1] ^ key[0],
            second & low,
            (first >> 32) ^ counter[3] ^ key[1],
            first & low,
        ]
        key = [(key[0] + 0x9E3779B9) & low, (key[1] + 0xBB67AE85) & low]
    return counter


def gumbel(word: int) -> float:
    return -math.log(-math.log1p(-((0xFFFFFFFF - word) + 0.5) / 2**32))


def penalised(logits: np.ndarray, generated: list[int], fields: dict[str, Any]) -> np.ndarray:
    """Logit bias, then penalties."""
    scores = logits.astype(np.float64)
    for token, value in fields.get("bias", {}).items():
        scores[token] += value
    for token in set(generated):
        repetition = fields.get("repetition", 1)
        scores[token] = (
            scores[token] / repetition if scores[token] > 0 else (scores[token] * repetition)
        )
        scores[token] -= fields.get("frequency", 0) * generated.count(token)
        scores[token] -= fields.get("presence", 0)
    return scores


def filtered(scores: np.ndarray, fields: dict[str, Any]) -> np.ndarray:
    """The distribution after temperature, top-k, top-p and min-p, or temperature behind them."""
    last = fields.get("temperature_last", 0)
    scaled = scores - scores.max() if last else (scores - scores.max()) / fields["temperature"]
    order = sorted(range(len(scores)), key=lambda i: (-scaled[i], i))
    p = np.exp(scaled)
    kept = order[: fields.get("top_k", 0) or len(order)]
    mass, most = 0.0, fields.get("top_p", 1.0) * p[kept].sum()
    for n, token in enumerate(kept):
        mass += p[token]
        if mass >= most:
            kept = kept[: n + 1]
            break
    kept = [token for token in kept if p[token] >= fields.get("min_p", 0.0)]
    if last:
        p = np.exp(scaled / fields["temperature"])
    out = np.zeros(len(scores))
    out[kept] = p[kept] / p[kept].sum()
    return out


def chosen(p: np.ndarray, seed: int, position: int) -> tuple[int, float]:
    """argmax of log p + G, and by how much it wins."""
    noise = np.array([gumbel(philox(seed, position, CHOICE, i // 4)[i % 4]) for i in range(len(p))])
    with np.errstate(divide="ignore"):
        score = np.log(p) + noise
    first, second = np.sort(score)[::-1][:2]
    return int(score.argmax()), first - second


# ---------------------------------------------------------------- equality with it


def test_philox_is_the_published_one(shim: Any) -> None:
    """Known answers of Random123 for the all-ones and all-zeros counters and keys."""
    ffi, lib = shim
    words = ffi.new("uint32_t[4]")
    lib.shim_philox(0, 0, 0, 0, words)
    assert list(words) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    lib.shim_philox(0x0123456789ABCDEF, 77, 3, 1234, words)
    assert list(words) == philox(0x0123456789ABCDEF, 77, 3, 1234)


def test_gumbel_and_log_are_accurate(shim: Any) -> None:
    """Also where the noise is largest: there the winners are made."""
    _, lib = shim
    generator = np.random.Generator(np.random.PCG64(1))
    words = [0, 1, 2**32 - 1, 2**32 - 2, 2**31, *map(int, generator.integers(0, 2**32, 20_000))]
    for word in words:
        assert lib.shim_gumbel(word) == pytest.approx(gumbel(word), rel=2e-6, abs=2e-5)
    for x in np.exp(generator.uniform(-80, 80, 20_000)).astype(np.float32):
        assert lib.shim_log(x) == pytest.approx(math.log(float(x)), rel=3e-7, abs=1e-7)


FIELDS = st.fixed_dictionaries(
    {"temperature": st.sampled_from([0.3, 0.7, 1.0, 1.5])},
    optional={
        "temperature_last": st.just(1),
        "adjusted_logprobs": st.just(1),
        "top_k": st.integers(1, VOCAB + 3),
        "top_p": st.floats(0.0625, 0.9375, width=32),
        "min_p": st.floats(2**-10, 0.5, width=32),
        "presence": st.floats(-1, 1, width=32),
        "frequency": st.floats(-1, 1, width=32),
        "repetition": st.floats(0.5, 2, width=32),
        "bias": st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-5, 5, width=32), max_size=4),
    },
)


@given(fields=FIELDS, seed=st.integers(0, 2**64 - 1), generated=st.lists(st.integers(0, 20)))
def test_choice_and_logprobs(
    shim: Any, fields: dict[str, Any], seed: int, generated: list[int]
) -> None:
    """The token and its log-probabilities, for any mix of filters and penalties, which move the
    log-probabilities only if asked to."""
    ffi, lib = shim
    keep: list[Any] = []
    position = seed % 5000
    logits = np.random.Generator(np.random.PCG64(seed)).normal(0, 3, VOCAB).astype(np.float32)
    asked = sampling(ffi, keep, seed=seed, top_logprobs=5, **fields)
    ids = sorted(set(generated))
    result = ffi.new("oj_seq_result *")
    lib.shim_verify(
        ffi.from_buffer("float[]", logits), 1, VOCAB, position, ffi.NULL, asked,
        ids, [generated.count(i) for i in ids], len(ids), ffi.NULL, result,
    )  # fmt: skip
    scores = penalised(logits, generated, fields)
    token, margin = chosen(filtered(scores, fields), seed, position)
    assert result.n_tokens == 1
    if margin > 1e-4:
        assert result.tokens[0] == token
    of = scores if "adjusted_logprobs" in fields else logits.astype(np.float64)
    logprobs = of - of.max()
    logprobs -= math.log(np.exp(logprobs).sum())
    found = result.logprobs[0]
    assert found.logprob == pytest.approx(logprobs[result.tokens[0]], abs=2e-5)
    top = sorted(range(VOCAB), key=lambda i: -logprobs[i])[:5]
    assert [found.top_logprobs[i] for i in range(5)] == pytest.approx(logprobs[top], abs=2e-5)


def test_ties_masks_and_greedy(shim: Any) -> None:
    """Ties go to the lowest id, in filters too; a mask holds at any temperature."""
    ffi, lib = shim
    logits = ffi.new("float[]", [1.0, 5.0, 5.0, 5.0, 0.0, 5.0])
    result = ffi.new("oj_seq_result *")

    def choose(position: int, mask: Any = ffi.NULL, **fields: Any) -> int:
        asked = sampling(ffi, [], **fields)
        lib.shim_verify(logits, 1, 6, position, [], asked, [], [], 0, mask, result)
        return int(result.tokens[0])

    assert choose(0, temperature=0) == 1
    assert {choose(i, top_k=2) for i in range(64)} == {1, 2}
    assert {choose(i, top_p=0.6) for i in range(64)} == {1, 2, 3}
    assert {choose(i, min_p=0.9) for i in range(64)} == {1, 2, 3, 5}
    mask = ffi.new("uint32_t[]", [0b010001])
    assert choose(0, mask, temperature=0) == 0
    assert {choose(i, mask, temperature=9) for i in range(64)} == {0, 4}
    assert result.logprobs[0].n_top == 0


def test_drafts_change_nothing_when_coupled(shim: Any) -> None:
    """Whatever is drafted, the accepted tokens are a beginning of those without drafts, and
    penalties count the tokens accepted inside the block."""
    ffi, lib = shim
    generator = np.random.Generator(np.random.PCG64(5))
    asked = sampling(ffi, [], temperature=0.8, top_k=8, presence=0.7, frequency=0.3, seed=11)
    result = ffi.new("oj_seq_result *")
    lengths = []
    for trial in range(300):
        logits = generator.normal(0, 2, (4, 12)).astype(np.float32)
        alone: list[int] = []
        for row in range(4):
            ids = sorted(set(alone))
            counts = [alone.count(i) for i in ids]
            data = ffi.from_buffer("float[]", logits[row].copy())
            lib.shim_verify(
                data, 1, 12, trial + row, [], asked, ids, counts, len(ids), ffi.NULL, result
            )
            alone.append(result.tokens[0])
        drafts = [t if generator.random() < 0.7 else int(generator.integers(12)) for t in alone[:3]]
        data = ffi.from_buffer("float[]", logits)
        lib.shim_verify(data, 4, 12, trial, drafts, asked, [], [], 0, ffi.NULL, result)
        matching = next((i for i in range(3) if drafts[i] != alone[i]), 3)
        assert list(result.tokens)[: result.n_tokens] == alone[: matching + 1]
        lengths.append(result.n_tokens)
    assert set(lengths) == {1, 2, 3, 4}


# ---------------------------------------------------------------- distribution under drafts

FILTERS: list[dict[str, Any]] = [
    {"temperature": 1.0},
    {"temperature": 0.6, "top_k": 5},
    {"temperature": 1.3, "top_p": 0.9},
    {"temperature": 1.0, "top_k": 8, "top_p": 0.95, "min_p": 0.02},
    {"temperature": 1.4, "top_p": 0.9, "min_p": 0.02, "temperature_last": 1},
]
TRIALS = 20_000


def chi_square(
    shim: Any,
    fields: dict[str, Any],
    lookup: bool,
    coupled: bool,
    undraftable: Sequence[int] = (),
) -> float:
    """How unlikely the counts are under p: chi-square in standard deviations from its mean."""
    ffi, lib = shim
    generator = np.random.Generator(np.random.PCG64(3))
    target = generator.normal(0, 1.5, 12).astype(np.float32)
    draft = (target + generator.normal(0, 0.7, 12)).astype(np.float32)
    draft[list(undraftable)] = -np.inf
    asked = sampling(ffi, [], seed=99, coupled=coupled, **fields)
    counts = np.zeros(12, np.int64)
    accepted = lib.shim_trials(
        ffi.from_buffer("float[]", target), ffi.from_buffer("float[]", draft), 12, asked,
        lookup, TRIALS, ffi.from_buffer("int64_t[]", counts),
    )  # fmt: skip
    p = filtered(target, fields)
    assert counts[p == 0].sum() == 0 or not coupled, "a token that is filtered out"
    assert accepted >= 0.3 * TRIALS
    expected = p[p > 0] * TRIALS
    degrees = len(expected) - 1
    statistic = float(((counts[p > 0] - expected) ** 2 / expected).sum())
    statistic += float("inf") if counts[p == 0].sum() else 0.0
    return (statistic - degrees) / math.sqrt(2 * degrees)


@pytest.mark.parametrize("coupled", [True, False])
@pytest.mark.parametrize("lookup", [True, False])
@pytest.mark.parametrize("fields", FILTERS)
def test_drafted_tokens_have_the_target_distribution(
    shim: Any, fields: dict[str, Any], lookup: bool, coupled: bool
) -> None:
    """For both rules and both sources, with many accepted drafts."""
    assert abs(chi_square(shim, fields, lookup, coupled)) < 4


@pytest.mark.parametrize("coupled", [True, False])
@pytest.mark.parametrize("fields", FILTERS)
def test_a_reduced_draft_head_keeps_the_distribution(
    shim: Any, fields: dict[str, Any], coupled: bool
) -> None:
    """Tokens that it cannot draft, the second likeliest among them, are said as often as ever."""
    assert abs(chi_square(shim, fields, False, coupled, undraftable=(0, 2, 7, 10))) < 4


def replace_once(old: str, new: str) -> Callable[[str], str]:
    def replace(text: str) -> str:
        assert text.count(old) == 1, old
        return text.replace(old, new)

    return replace


MUTANTS = {
    "always accept": replace_once(
        "return u * draft_probability(q, draft, draft) < p.probability(draft);", "return true;"
    ),
    "residual = p": replace_once(
        "p.probability(id) - draft_probability(q, draft, id)", "p.probability(id)"
    ),
    "unfiltered q": replace_once(
        "if (q) *q = d;",
        "if (q) { *q = d; q->cutoff = {-INFINITY, -1}; q->mass = 0;"
        " for (int32_t i = 0; i < n_vocab; ++i) q->mass += token_mass(q->scaled(i)); }",
    ),
    "shared counter": replace_once("Purpose::accept);", "Purpose::draft);"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_distribution_test_finds_mutants(mutant: str, tmp_path: Path) -> None:
    """The test above fails on wrong sampling code."""
    engine = tmp_path / "engine"
    engine.mkdir()
    for name in ("numerics.h", "random.h"):
        shutil.copy(NATIVE / "engine" / name, engine)
    text = (NATIVE / "engine" / "sampling.h").read_text()
    (engine / "sampling.h").write_text(MUTANTS[mutant](text))
    mutated = build(tmp_path, engine)
    assert max(abs(chi_square(mutated, fields, False, False)) for fields in FILTERS) > 6
