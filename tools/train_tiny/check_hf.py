"""Compare the torch model with Hugging Face transformers' Qwen3.5 text model, same weights.

    python -m tools.train_tiny.check_hf [CHECKPOINT] [--length 320]

Without a checkpoint the weights are random. Prints the relative error by norm of the logits and
the largest absolute difference of log-probabilities, in float32 and float64. Needs transformers.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from .model import TinyModel
from .shape import TINY, Shape

_NAMES = {
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "mixer.attn_q": "self_attn.q_proj",
    "mixer.attn_k": "self_attn.k_proj",
    "mixer.attn_v": "self_attn.v_proj",
    "mixer.attn_output": "self_attn.o_proj",
    "mixer.attn_q_norm": "self_attn.q_norm",
    "mixer.attn_k_norm": "self_attn.k_norm",
    "mixer.attn_qkv": "linear_attn.in_proj_qkv",
    "mixer.attn_gate": "linear_attn.in_proj_z",
    "mixer.ssm_alpha": "linear_attn.in_proj_a",
    "mixer.ssm_beta": "linear_attn.in_proj_b",
    "mixer.ssm_norm": "linear_attn.norm",
    "mixer.ssm_out": "linear_attn.out_proj",
}


def grouped(x: Tensor, shape: Shape, size: int, dim: int = 0) -> Tensor:
    """V heads from GGUF's tiled order to Hugging Face's grouped order, along `dim`."""
    ratio = shape.ssm_v_heads // shape.ssm_k_heads
    parts = x.unflatten(dim, (ratio, shape.ssm_k_heads, size)).transpose(dim, dim + 1)
    return parts.flatten(dim, dim + 2)


def converted(model: TinyModel) -> dict[str, Tensor]:
    """The weights under Hugging Face's names and in its order; norms as w - 1."""
    shape = model.shape
    keys, dim = 2 * shape.ssm_k_heads * shape.ssm_head_dim, shape.ssm_head_dim
    out = {}
    for name, x in model.state_dict().items():
        x = x.detach().clone()
        if name.startswith("nextn."):
            continue
        if name == "token_embd.weight":
            out["model.embed_tokens.weight"] = out["lm_head.weight"] = x
            continue
        if name == "output_norm.weight":
            out["model.norm.weight"] = x - 1
            continue
        _, layer, rest = name.split(".", 2)
        prefix = f"model.layers.{layer}."
        if rest == "mixer.ssm_conv1d":
            x = torch.cat([x[:keys], grouped(x[keys:], shape, dim)])
            out[prefix + "linear_attn.conv1d.weight"] = x[:, None]
        elif rest in ("mixer.a_log", "mixer.ssm_dt"):
            leaf = "A_log" if rest.endswith("a_log") else "dt_bias"
            out[prefix + "linear_attn." + leaf] = grouped(x, shape, 1)
        else:
            stem = rest.removesuffix(".weight")
            if stem == "mixer.attn_qkv":
                x = torch.cat([x[:keys], grouped(x[keys:], shape, dim)])
            elif stem == "mixer.attn_gate":
                x = grouped(x, shape, dim)
            elif stem in ("mixer.ssm_alpha", "mixer.ssm_beta"):
                x = grouped(x, shape, 1)
            elif stem == "mixer.ssm_out":
                x = grouped(x, shape, dim, dim=1)
            elif stem.endswith("_norm") and stem != "mixer.ssm_norm":
                x = x - 1
            out[prefix + _NAMES[stem] + ".weight"] = x
    return out


def reference(model: TinyModel) -> torch.nn.Module:
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    s = model.shape
    config = Qwen3_5TextConfig(
        vocab_size=s.vocab,
        hidden_size=s.hidden,
        intermediate_size=s.ffn,
        num_hidden_layers=s.layers,
        num_attention_heads=s.heads,
        num_key_value_heads=s.kv_heads,
        head_dim=s.head_dim,
        max_position_embeddings=s.context,
        rms_norm_eps=s.eps,
        tie_word_embeddings=True,
        linear_conv_kernel_dim=s.conv_kernel,
        linear_key_head_dim=s.ssm_head_dim,
        linear_value_head_dim=s.ssm_head_dim,
        linear_num_key_heads=s.ssm_k_heads,
        linear_num_value_heads=s.ssm_v_heads,
        full_attention_interval=s.attention_interval,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": s.rope_base,
            "partial_rotary_factor": s.rope_dims / s.head_dim,
            "mrope_section": list(s.rope_sections[:3]),
            "mrope_interleaved": True,
        },
    )
    peer = Qwen3_5ForCausalLM(config)
    missing, unexpected = peer.load_state_dict(converted(model), strict=False)
    if missing or unexpected:
        raise ValueError(f"weights do not match: missing {missing}, unexpected {unexpected}")
    return peer.eval()


@torch.no_grad()
def compare(model: TinyModel, length: int, kind: torch.dtype) -> tuple[float, float]:
    """(relative error by norm of the logits, largest difference of log-probabilities)."""
    model, peer = model.to(kind), reference(model).to(kind)
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, model.shape.vocab, (2, length), generator=generator)
    positions = torch.arange(length)[None].repeat(2, 1)
    ours = model.logits(model(tokens, positions))
    theirs = peer(input_ids=tokens).logits
    error = float((ours - theirs).norm() / theirs.norm())
    return error, float(
        (functional.log_softmax(ours, -1) - functional.log_softmax(theirs, -1)).abs().max()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path, nargs="?")
    parser.add_argument("--length", type=int, default=320)
    args = parser.parse_args()
    torch.manual_seed(0)
    if args.checkpoint:
        from .evaluate import load

        model = load(args.checkpoint, torch.device("cpu"))
    else:
        model = TinyModel(TINY)
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p) * 0.02)
    for kind in (torch.float32, torch.float64):
        error, largest = compare(model, args.length, kind)
        print(
            f"{kind}: relative error {error:.3e}, largest log-probability difference {largest:.3e}"
        )


if __name__ == "__main__":
    main()
