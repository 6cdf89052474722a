"""Write a checkpoint as GGUF: F16 (or F32) matrices, then the Q4_K_M recipe on request.

python -m tools.train_tiny.export CHECKPOINT TOKENIZER OUT.gguf [--type f16|f32|q4_k_m]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer

from . import tokenizer as vocabulary
from .shape import Shape, keeps_float32

TEMPLATE = Path(__file__).with_name("chat_template.jinja")
_LEAF_NAMES = {
    "mixer.ssm_conv1d": "ssm_conv1d.weight",
    "mixer.ssm_dt": "ssm_dt.bias",
    "mixer.a_log": "ssm_a",
}


def gguf_name(name: str, shape: Shape) -> str:
    """The GGUF tensor name of a parameter of TinyModel."""
    mtp = f"blk.{shape.layers}."
    if name.startswith("nextn.block."):
        name = mtp + name.removeprefix("nextn.block.")
    elif name.startswith("nextn."):
        name = mtp + name
    for leaf, target in _LEAF_NAMES.items():
        if name.endswith(leaf):
            return name.removesuffix(leaf) + target
    return name.replace("mixer.", "")


def tensors(state: dict[str, torch.Tensor], shape: Shape) -> dict[str, np.ndarray]:
    """GGUF names and float32 arrays, in the order of the file."""
    arrays = {}
    for name, value in state.items():
        array = value.detach().to(torch.float32).cpu()
        if name.endswith("a_log"):
            array = -array.exp()
        arrays[gguf_name(name, shape)] = array.numpy()
    return arrays


def add_metadata(writer: gguf.GGUFWriter, shape: Shape, name: str, file_type: int) -> None:
    writer.add_name(name)
    writer.add_description("A model to test and try the engine with, not an assistant.")
    writer.add_license("apache-2.0")
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers + 1)
    writer.add_nextn_predict_layers(1)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(shape.eps)
    writer.add_rope_dimension_count(shape.rope_dims)
    writer.add_rope_dimension_sections(list(shape.rope_sections))
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_ssm_conv_kernel(shape.conv_kernel)
    writer.add_ssm_inner_size(shape.ssm_inner)
    writer.add_ssm_state_size(shape.ssm_head_dim)
    writer.add_ssm_time_step_rank(shape.ssm_v_heads)
    writer.add_ssm_group_count(shape.ssm_k_heads)
    writer.add_full_attention_interval(shape.attention_interval)
    writer.add_int32("general.sampling.top_k", 20)
    writer.add_float32("general.sampling.top_p", 0.95)
    writer.add_float32("general.sampling.temp", 1.0)


def add_vocabulary(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    model = json.loads(tokenizer.to_str())["model"]
    size = tokenizer.get_vocab_size()
    tokens = [tokenizer.id_to_token(i) for i in range(size)]
    types = [gguf.TokenType.NORMAL] * size
    for token in vocabulary.SPECIAL:
        control = vocabulary.is_control(token)
        kind = gguf.TokenType.CONTROL if control else gguf.TokenType.USER_DEFINED
        types[tokenizer.token_to_id(token)] = kind
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(tokenizer.token_to_id(vocabulary.END))
    writer.add_bos_token_id(tokenizer.token_to_id(vocabulary.PAD))
    writer.add_pad_token_id(tokenizer.token_to_id(vocabulary.PAD))
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    writer.add_chat_template(TEMPLATE.read_text())


def write(
    state: dict[str, torch.Tensor],
    shape: Shape,
    tokenizer: Tokenizer,
    out: Path,
    name: str = "openjet-tiny",
    half: bool = True,
) -> None:
    """Write a complete GGUF file with F16 (half) or F32 matrices."""
    kind = gguf.LlamaFileType.MOSTLY_F16 if half else gguf.LlamaFileType.ALL_F32
    writer = gguf.GGUFWriter(str(out), "qwen35")
    add_metadata(writer, shape, name, int(kind))
    add_vocabulary(writer, tokenizer)
    for tensor_name, array in tensors(state, shape).items():
        narrow = half and not keeps_float32(tensor_name, array.ndim)
        writer.add_tensor(tensor_name, array.astype(np.float16 if narrow else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantise(source: Path, out: Path) -> None:
    """llama.cpp's Q4_K_M recipe over a float GGUF (needs llama-cpp-python)."""
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M
    params.nthread = 2
    status = llama_cpp.llama_model_quantize(str(source).encode(), str(out).encode(), params)
    if status != 0:
        raise RuntimeError(f"llama_model_quantize failed on {source} with status {status}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--type", choices=("f16", "f32", "q4_k_m"), default="q4_k_m")
    parser.add_argument("--name", default="openjet-tiny")
    args = parser.parse_args()
    saved = torch.load(args.checkpoint, map_location="cpu", weights_only=True)
    shape = Shape(**saved["shape"])
    tokenizer = vocabulary.load(args.tokenizer)
    if args.type != "q4_k_m":
        write(saved["state"], shape, tokenizer, args.out, args.name, half=args.type == "f16")
        return
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "f32.gguf"
        write(saved["state"], shape, tokenizer, source, args.name, half=False)
        quantise(source, args.out)


if __name__ == "__main__":
    main()
