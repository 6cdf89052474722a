"""Reading tests/goldens/tokenizer.json: what ids llama.cpp and Hugging Face give for the corpus.

A golden set belongs to one vocabulary: "small" (small_vocabulary(512)), "openjet-tiny" (the bundled
file) or "qwen" (qwen_vocabulary()).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.reference.tokenizer_corpus import TEXTS
from tests.reference.vocabulary import Vocabulary

PATH = Path(__file__).parent.parent / "goldens" / "tokenizer.json"
LISTED_IDS = 300  # longer lists are stored as their count and hash


@dataclass(frozen=True)
class TokenizerGolden:
    """Expected ids of `text`, in stored form (compare with `matches`).

    special: special tokens written in the text are those tokens, no normalisation;
    plain: nothing in the text is a special token, no normalisation;
    nfc: like special, after Unicode NFC, which Hugging Face's tokenizer of this family applies.
    """

    text: str
    special: Any
    plain: Any
    nfc: Any


def matches(ids: Sequence[int], stored: Any) -> bool:
    return bool(pack(ids) == stored)


def pack(ids: Sequence[int]) -> Any:
    """The stored form of an id list: itself, or its count and hash when it is long."""
    listed = [int(i) for i in ids]
    if len(listed) <= LISTED_IDS:
        return listed
    digest = hashlib.sha256(np.array(listed, dtype="<i4").tobytes()).hexdigest()
    return {"count": len(listed), "sha256": digest}


def digest(vocabulary: Vocabulary | None = None) -> str:
    """Of a vocabulary, or of the corpus: goldens are refused when these have changed."""
    subject: Any = TEXTS if vocabulary is None else [vocabulary.tokens, vocabulary.merges]
    return hashlib.sha256(json.dumps(subject).encode()).hexdigest()


def tokenizer_goldens(name: str, vocabulary: Vocabulary) -> Iterator[TokenizerGolden]:
    """The goldens of a vocabulary, one per text of the corpus."""
    stored = json.loads(PATH.read_text())
    if stored["corpus"] != digest() or stored[name]["vocabulary"] != digest(vocabulary):
        raise ValueError(
            f"the corpus or the vocabulary {name!r} has changed: "
            "run python -m tests.reference.make_tokenizer_goldens"
        )
    for text, entry in zip(TEXTS, stored[name]["ids"], strict=True):
        special = entry["special"]
        yield TokenizerGolden(text, special, entry.get("plain", special), entry.get("nfc", special))
