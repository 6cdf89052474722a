"""Writes random-weight qwen35 GGUF files: any shape of the family, any tensor types, quickly.

    python -m tests.reference.random_model --preset 0.8B --types q4_k_m OUT.gguf

Quantised tensors are random blocks (random codes, scales set for the wanted standard deviation), so
half a gigabyte takes seconds. A file's tensors depend only on shape, types and seed: they are made
from raw generator bits, which NumPy keeps stable over versions. The weights are scaled like a
trained model's (unit-variance activations), so that logits are neither flat nor saturated.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import quantize

from tests.reference.vocabulary import (
    Vocabulary,
    qwen_vocabulary,
    qwen_vocabulary_available,
    small_vocabulary,
)

Type = GGMLQuantizationType
TYPES = (
    "F32",
    "F16",
    "BF16",
    "Q8_0",
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "IQ4_NL",
    "IQ4_XS",
)
RECIPES = ("q4_k_m", "mixed", *(name.lower() for name in TYPES))

CHAT_TEMPLATE = (
    "{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content"
    " + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}"
)


@dataclass(frozen=True)
class Shape:
    """A model's shape. 64 dims of attention heads are rotated; DeltaNet heads are 128 wide."""

    hidden: int
    layers: int
    ffn: int
    heads: int
    kv_heads: int
    key_heads: int
    value_heads: int
    vocabulary: int
    tied: bool
    mtp: bool = True
    fused_qkv: bool = False  # attention blocks hold one attn_qkv matrix
    own_draft_head: bool = False
    context: int = 32_768
    head_size: int = 256  # of attention

    @property
    def blocks(self) -> int:
        return self.layers + self.mtp

    def recurrent(self, block: int) -> bool:
        return block < self.layers and (block + 1) % 4 != 0


PRESETS = {
    "micro": Shape(256, 4, 512, 4, 2, 2, 4, 512, tied=True),
    "micro_untied": Shape(256, 8, 768, 2, 1, 2, 6, 512, tied=False),
    "grouped": Shape(256, 4, 512, 6, 1, 16, 48, 248_320, tied=False),
    "0.8B": Shape(1024, 24, 3584, 8, 2, 16, 16, 248_320, tied=True, context=262_144),
}


@dataclass(frozen=True)
class Spec:
    """A tensor to write. `std` 0 means a vector with its own rule in `_vector`."""

    name: str
    shape: tuple[int, ...]
    type: Type
    std: float


def write_model(
    path: str | Path,
    shape: Shape,
    types: str = "q4_k_m",
    seed: int = 0,
    vocabulary: Vocabulary | None = None,
    data_of: Callable[[Spec, int], np.ndarray] | None = None,
) -> None:
    """Writes a GGUF file at `path`. `types` is one of RECIPES: a block type for every matrix, the
    Q4_K_M recipe, or "mixed" (every type in turn). `data_of` stands in for tensor_bytes()."""
    if vocabulary is None:
        real = shape.vocabulary == 248_320 and qwen_vocabulary_available()
        vocabulary = qwen_vocabulary() if real else small_vocabulary(shape.vocabulary)
    writer = GGUFWriter(path, "qwen35")
    _add_metadata(writer, shape)
    _add_vocabulary(writer, vocabulary)
    specs = list(tensor_specs(shape, types))
    for spec in specs:
        block, block_bytes = GGML_QUANT_SIZES[spec.type]
        size = int(np.prod(spec.shape)) // block * block_bytes
        writer.add_tensor_info(spec.name, spec.shape, np.dtype(np.float32), size, spec.type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for spec in specs:
        writer.write_tensor_data((data_of or tensor_bytes)(spec, seed))
    writer.close()


def tensor_specs(shape: Shape, types: str) -> Iterator[Spec]:
    """Every tensor of the file in order, with its type under the recipe."""
    if types not in RECIPES:
        raise ValueError(f"unknown types {types!r}: use one of {', '.join(RECIPES)}")
    turn = iter(range(1 << 30))

    def matrix_type(name: str, block: int) -> Type:
        if types == "mixed":
            return Type[TYPES[next(turn) % len(TYPES)]]
        if types != "q4_k_m":
            return Type[types.upper()]
        if name == "output" or (name == "token_embd" and shape.tied):
            return Type.Q6_K
        more_bits = name in ("attn_v", "attn_qkv", "ffn_down") and _more_bits(block, shape.blocks)
        return Type.Q6_K if more_bits else Type.Q4_K

    def matrix(name: str, rows: int, columns: int, block: int = -1, gain: float = 1.0) -> Spec:
        prefix = "" if block < 0 else f"blk.{block}."
        kind = matrix_type(name, block)
        return Spec(f"{prefix}{name}.weight", (rows, columns), kind, gain / columns**0.5)

    def vector(name: str, *dims: int) -> Spec:
        return Spec(name, dims, Type.F32, 0.0)

    hidden, size = shape.hidden, shape.vocabulary
    yield matrix("token_embd", size, hidden, gain=2 if shape.tied else hidden**0.5 / 2)
    yield vector("output_norm.weight", hidden)
    if not shape.tied:
        yield matrix("output", size, hidden, gain=2)
    for block in range(shape.blocks):
        yield vector(f"blk.{block}.attn_norm.weight", hidden)
        if shape.recurrent(block):
            key_rows, value_rows = 128 * shape.key_heads, 128 * shape.value_heads
            yield matrix("attn_qkv", 2 * key_rows + value_rows, hidden, block)
            yield matrix("attn_gate", value_rows, hidden, block)
            yield vector(f"blk.{block}.ssm_conv1d.weight", 2 * key_rows + value_rows, 4)
            yield vector(f"blk.{block}.ssm_dt.bias", shape.value_heads)
            yield vector(f"blk.{block}.ssm_a", shape.value_heads)
            yield matrix("ssm_beta", shape.value_heads, hidden, block)
            yield matrix("ssm_alpha", shape.value_heads, hidden, block, gain=0.5)
            yield vector(f"blk.{block}.ssm_norm.weight", 128)
            yield matrix("ssm_out", hidden, value_rows, block)
        else:
            head_size = shape.head_size
            query_rows, kv_rows = 2 * head_size * shape.heads, head_size * shape.kv_heads
            if shape.fused_qkv:
                yield matrix("attn_qkv", query_rows + 2 * kv_rows, hidden, block)
            else:
                yield matrix("attn_q", query_rows, hidden, block)
                yield matrix("attn_k", kv_rows, hidden, block)
                yield matrix("attn_v", kv_rows, hidden, block)
            yield vector(f"blk.{block}.attn_q_norm.weight", head_size)
            yield vector(f"blk.{block}.attn_k_norm.weight", head_size)
            yield matrix("attn_output", hidden, head_size * shape.heads, block)
        yield vector(f"blk.{block}.post_attention_norm.weight", hidden)
        yield matrix("ffn_gate", shape.ffn, hidden, block)
        yield matrix("ffn_up", shape.ffn, hidden, block)
        yield matrix("ffn_down", hidden, shape.ffn, block)
        if block >= shape.layers:
            yield matrix("nextn.eh_proj", hidden, 2 * hidden, block)
            for name in ("enorm", "hnorm", "shared_head_norm"):
                yield vector(f"blk.{block}.nextn.{name}.weight", hidden)
            if shape.own_draft_head:
                yield matrix("nextn.shared_head_head", shape.vocabulary, hidden, block)


def _more_bits(block: int, blocks: int) -> bool:
    eighth = blocks // 8
    return block < eighth or block >= 7 * blocks // 8 or (block - eighth) % 3 == 2


def tensor_bytes(spec: Spec, seed: int) -> np.ndarray:
    """The tensor's data as written to the file; a function of (spec, seed) alone."""
    bits = np.random.PCG64([seed, zlib.crc32(spec.name.encode())])
    count = int(np.prod(spec.shape))
    if spec.std == 0:
        return _vector(spec, bits).astype(np.float32)
    if spec.type in (Type.F32, Type.F16, Type.BF16):
        values = (_normal(bits, count) * spec.std).astype(np.float32).reshape(spec.shape)
        return values if spec.type == Type.F32 else quantize(values, spec.type)
    return _random_blocks(bits, spec.type, count, spec.std)


def _vector(spec: Spec, bits: np.random.PCG64) -> np.ndarray:
    noise = _normal(bits, int(np.prod(spec.shape))).reshape(spec.shape)
    if spec.name.endswith("ssm_conv1d.weight"):
        return 0.4 * noise + np.array([0, 0, 0.2, 0.6])
    if spec.name.endswith("ssm_a"):  # -exp(A_log): half-lives from a few to thousands of tokens
        return -np.exp(noise)
    if spec.name.endswith("ssm_dt.bias"):
        return noise - 3
    return 1 + 0.1 * noise  # norm weights


def _uniform_bytes(bits: np.random.PCG64, count: int) -> np.ndarray:
    return np.asarray(bits.random_raw(-(-count // 8))).view(np.uint8)[:count]


def _normal(bits: np.random.PCG64, count: int) -> np.ndarray:
    """Nearly normal: sums of four uniform 16-bit numbers (exactly reproducible everywhere)."""
    sums = np.asarray(bits.random_raw(count)).view(np.uint16).reshape(count, 4).sum(1, np.float64)
    return (sums - 2 * 65_535) / (65_536 * (4 / 12) ** 0.5)


def _random_blocks(bits: np.random.PCG64, kind: Type, count: int, std: float) -> np.ndarray:
    """Random codes under scales that give zero mean and the wanted standard deviation, each block's
    scale varying by a quarter either way."""
    per_block, block_bytes = GGML_QUANT_SIZES[kind]
    n = count // per_block
    blocks = _uniform_bytes(bits, n * block_bytes).reshape(n, block_bytes).copy()
    vary = 1 + (_uniform_bytes(bits, n).astype(np.float64) - 127.5) / 512
    sign = 1 - 2.0 * (_uniform_bytes(bits, n) & 1)  # where the codes' mean is not zero

    def put(offset: int, scale: np.ndarray) -> None:
        blocks[:, offset : offset + 2] = scale.astype("<f2").view(np.uint8).reshape(n, 2)

    uniform_4, uniform_5 = (255 / 12) ** 0.5, (1023 / 12) ** 0.5  # deviation of uniform codes
    if kind == Type.Q8_0:
        put(0, vary * std / (65_535 / 12) ** 0.5)
    elif kind in (Type.Q4_0, Type.Q5_0):
        put(0, sign * vary * std / (uniform_4 if kind == Type.Q4_0 else uniform_5))
    elif kind in (Type.Q4_1, Type.Q5_1):
        scale = vary * std / (uniform_4 if kind == Type.Q4_1 else uniform_5)
        put(0, scale)
        put(2, -scale * (7.5 if kind == Type.Q4_1 else 15.5))
    elif kind == Type.IQ4_NL:
        put(0, sign * vary * std / 67.3)  # deviation of the code table
    elif kind == Type.IQ4_XS:  # sub-scales are uniform in -32..31
        put(0, vary * std / (67.3 * 18.5))
    elif kind == Type.Q6_K:  # sub-scales of 32..95
        blocks[:, 192:208] = 32 + blocks[:, 192:208] % 64
        put(208, vary * std / (66.1 * (4095 / 12) ** 0.5))
    elif kind in (Type.Q4_K, Type.Q5_K):  # sub-scales and sub-mins are uniform in 0..63
        scale = vary * std / (258.3 if kind == Type.Q4_K else 526.9)
        put(0, scale)
        put(2, scale * (7.5 if kind == Type.Q4_K else 15.5))
    return blocks.reshape(-1)


def _add_metadata(writer: GGUFWriter, shape: Shape) -> None:
    writer.add_name("random")
    writer.add_quantization_version(2)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.blocks)
    if shape.mtp:
        writer.add_uint32("qwen35.nextn_predict_layers", 1)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(64)
    writer.add_rope_dimension_sections([11, 11, 10, 0])
    writer.add_rope_freq_base(1e7)
    writer.add_ssm_conv_kernel(4)
    writer.add_ssm_inner_size(128 * shape.value_heads)
    writer.add_ssm_state_size(128)
    writer.add_ssm_time_step_rank(shape.value_heads)
    writer.add_ssm_group_count(shape.key_heads)
    writer.add_full_attention_interval(4)


def _add_vocabulary(writer: GGUFWriter, vocabulary: Vocabulary) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    writer.add_token_merges(vocabulary.merges)
    writer.add_bos_token_id(vocabulary.id("<|endoftext|>"))
    writer.add_eos_token_id(vocabulary.id("<|im_end|>"))
    writer.add_pad_token_id(vocabulary.id("<|endoftext|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--preset", choices=PRESETS, default="micro")
    parser.add_argument("--types", choices=RECIPES, default="q4_k_m")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-mtp", action="store_true", help="leave out the MTP block")
    parser.add_argument("--fused-qkv", action="store_true", help="fuse q, k, v of attention blocks")
    args = parser.parse_args()
    shape = PRESETS[args.preset]
    shape = replace(shape, mtp=not args.no_mtp, fused_qkv=args.fused_qkv)
    write_model(args.out, shape, args.types, args.seed)


if __name__ == "__main__":
    main()
