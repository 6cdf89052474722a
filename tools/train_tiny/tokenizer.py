"""The vocabulary of openjet-tiny: byte-level BPE with Qwen's pre-split and special tokens."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import gguf
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

PRE_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

#: Qwen's special tokens, in the order of their ids.
SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>",
    "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>",
    "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>",
    "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
    "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>",
    "<think>", "</think>", "<|audio_start|>", "<|audio_end|>",
    "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>", "<tts_text_bos_single>", "<|audio_pad|>",
)  # fmt: skip
END = "<|im_end|>"
PAD = "<|endoftext|>"


def is_control(token: str) -> bool:
    """Control tokens never show in text; the others (tool calls, thinking) are ordinary text."""
    return token.startswith("<|")


def _with_pipeline(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _add_special(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens([AddedToken(t, special=is_control(t)) for t in SPECIAL])
    return tokenizer


def train(texts: Iterable[str], vocab: int) -> Tokenizer:
    """Train a vocabulary of exactly `vocab` ids: 256 bytes, merges, then the special tokens."""
    tokenizer = _with_pipeline(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab - len(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    _add_special(tokenizer)
    if tokenizer.get_vocab_size() != vocab:
        raise ValueError(
            f"the text gave {tokenizer.get_vocab_size()} ids, not {vocab}: train on more text"
        )
    return tokenizer


def read(reader: gguf.GGUFReader) -> Tokenizer:
    """The vocabulary of a file that export.py wrote: its tokens by id, its merges by rank."""

    def strings(key: str) -> list[str]:
        field = reader.fields[f"tokenizer.ggml.{key}"]
        return [bytes(field.parts[i]).decode() for i in field.data]

    tokens = strings("tokens")
    if tuple(tokens[-len(SPECIAL) :]) != SPECIAL:
        raise ValueError("the last tokens of the file are not Qwen's special tokens")
    ids = {token: i for i, token in enumerate(tokens[: -len(SPECIAL)])}
    merges = [(a, b) for a, _, b in (merge.partition(" ") for merge in strings("merges"))]
    return _add_special(_with_pipeline(models.BPE(vocab=ids, merges=merges)))


def load(path: Path) -> Tokenizer:
    return Tokenizer.from_file(str(path))
