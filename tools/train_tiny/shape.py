"""The shape of openjet-tiny: one small instance of the qwen35 architecture."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """Sizes of a dense qwen35 model. Every matrix has an input width that is a multiple of 256,
    so that the K-quant formats apply to all of them."""

    vocab: int = 6144
    hidden: int = 256
    layers: int = 8
    attention_interval: int = 4
    ffn: int = 768
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 256
    rope_dims: int = 64
    rope_sections: tuple[int, int, int, int] = (11, 11, 10, 0)
    rope_base: float = 1e7
    ssm_k_heads: int = 2
    ssm_v_heads: int = 6
    ssm_head_dim: int = 128
    conv_kernel: int = 4
    eps: float = 1e-6
    context: int = 8192

    @property
    def ssm_inner(self) -> int:
        """Width of V (and of the DeltaNet output)."""
        return self.ssm_v_heads * self.ssm_head_dim

    @property
    def conv_channels(self) -> int:
        """Channels of the causal convolution: Q, K and V side by side."""
        return 2 * self.ssm_k_heads * self.ssm_head_dim + self.ssm_inner

    def is_attention(self, layer: int) -> bool:
        """Whether main layer `layer` is full attention (the others are DeltaNet)."""
        return (layer + 1) % self.attention_interval == 0


TINY = Shape()
MICRO = Shape(vocab=6144, hidden=256, layers=4, ffn=256)  # dry runs on a CPU


def keeps_float32(name: str, dimensions: int) -> bool:
    """The tensors that llama.cpp's converter never narrows: vectors, norms, convolutions."""
    return dimensions == 1 or "_norm." in name or "ssm_conv1d" in name
