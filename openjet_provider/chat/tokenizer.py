"""Text to token ids and back, exactly as the model file's own vocabulary has it.

The text is tokenised as it is: no Unicode normalisation. A file that an agent reads must come back
byte for byte in its edits, and llama.cpp does the same. Hugging Face's tokenizer of this family
applies NFC first, so ids differ for decomposed input only; `nfc=True` gives its ids.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from openjet_provider.errors import ModelFileError

if TYPE_CHECKING:
    import tokenizers

# Values of tokenizer.ggml.token_type.
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5

#: How text is split before merging, by `tokenizer.ggml.pre`. A combining mark stays with its
#: letter in `qwen35`; files converted before that name existed say `qwen2`.
PRE_SPLIT = {
    "qwen35": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
        r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "qwen2": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}

# Characters of text whose ids are kept, so that a history is not tokenised again every turn.
_CACHE_CHARS = 32_000_000
# Longer texts are tokenised piece by piece: the library takes a hundred bytes for each of a text.
_PIECE_CHARS = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The tokenizer's part of a model file.

    tokens: by id; normal ones in GPT-2's byte-level alphabet, the others as they are written.
    merges: "left right" in that alphabet, best rank first.
    token_types: values of `tokenizer.ggml.token_type`, one a token.
    eog_ids: ids that end a generation; eos_id is among them.
    """

    tokens: Sequence[str | bytes]
    merges: Sequence[str | bytes]
    token_types: Sequence[int]
    pre: str
    eos_id: int
    bos_id: int = -1
    pad_id: int = -1
    add_bos: bool = False
    eog_ids: Sequence[int] = ()
    chat_template: str = ""


class Tokenizer:
    """Immutable but for its cache; safe to use from many threads."""

    def __init__(self, vocabulary: Vocabulary, *, nfc: bool = False) -> None:
        """Takes about a second for 248K tokens. Raises ModelFileError for a vocabulary it cannot
        reproduce exactly."""
        self.vocabulary = vocabulary
        self._nfc = nfc
        self._texts = [_text(token) for token in vocabulary.tokens]
        if len(vocabulary.token_types) != len(self._texts):
            raise ModelFileError(
                f"tokenizer.ggml.token_type has {len(vocabulary.token_types)} entries for "
                f"{len(self._texts)} tokens"
            )
        #: Ids of the tokens that stand for themselves: control tokens and tags, by text.
        self.special: dict[str, int] = {
            self._texts[i]: i
            for i, kind in enumerate(vocabulary.token_types)
            if kind in (CONTROL, USER_DEFINED) and self._texts[i]
        }
        self._special_pattern = _alternatives(self.special)
        self._bpe = _byte_pair_encoder(self._texts, vocabulary)
        self._bytes: list[bytes | None] = [None] * len(self._texts)
        self._cache: OrderedDict[str, array[int]] = OrderedDict()
        self._cached_chars = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._texts)

    def split_special(self, text: str) -> list[str]:
        """Pieces of `text` in order; every second one (1, 3, ...) is a special token."""
        return self._special_pattern.split(text) if self._special_pattern else [text]

    def encode(
        self, text: str, *, parse_special: bool = False, most: int | None = None
    ) -> array[int]:
        """Ids of `text`. Special tokens written in it are plain text unless `parse_special`.
        most: what comes behind more ids than these may be left out; such a prompt fits nowhere."""
        if not parse_special:
            return self._encode_plain(text, most)
        ids = array("i")
        for i, piece in enumerate(self.split_special(text)):
            if i % 2:
                ids.append(self.special[piece])
            elif piece:
                ids.extend(self._encode_plain(piece, most))
            if most is not None and len(ids) > most:
                break
        return ids

    def _encode_plain(self, text: str, most: int | None) -> array[int]:
        with self._lock:
            if (ids := self._cache.get(text)) is not None:
                self._cache.move_to_end(text)
                return ids
        clean = without_surrogates(text)
        if self._nfc:
            clean = unicodedata.normalize("NFC", clean)
        ids = array("i")
        for piece in _pieces(clean):
            if most is not None and len(ids) > most:
                return ids
            ids.extend(self._bpe.encode_batch_fast([piece], add_special_tokens=False)[0].ids)
        with self._lock:
            if len(text) <= _CACHE_CHARS // 4 and text not in self._cache:
                self._cache[text] = ids
                self._cached_chars += len(text)
                while self._cached_chars > _CACHE_CHARS:
                    old, _ = self._cache.popitem(last=False)
                    self._cached_chars -= len(old)
        return ids

    def token_bytes(self, token: int) -> bytes:
        """What the token stands for in the output: not necessarily whole UTF-8 characters. Special
        tokens give their text, unused ids nothing."""
        known = self._bytes[token]
        if known is None:
            kind = self.vocabulary.token_types[token]
            text = self._texts[token]
            if kind == NORMAL:
                known = bytes(_BYTE_OF[c] for c in text)
            else:
                known = b"" if kind == UNUSED else text.encode()
            self._bytes[token] = known
        return known

    def decode(self, ids: Iterable[int]) -> str:
        """Bytes that are no UTF-8 become U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in of every byte, to the byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


_BYTE_OF = _byte_alphabet()


def _byte_pair_encoder(texts: list[str], vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    from tokenizers import Regex, models, pre_tokenizers
    from tokenizers import Tokenizer as Encoder

    pattern = PRE_SPLIT.get(vocabulary.pre)
    if pattern is None:
        raise ModelFileError(
            f"tokenizer.ggml.pre is {vocabulary.pre!r}; this engine knows "
            f"{', '.join(sorted(PRE_SPLIT))}"
        )
    types = vocabulary.token_types
    ids = {text: i for i, text in enumerate(texts) if types[i] == NORMAL}
    if missing := [byte for char, byte in _BYTE_OF.items() if char not in ids]:
        raise ModelFileError(f"tokenizer.ggml.tokens has no token for byte 0x{missing[0]:02x}")
    merges = [
        (left, right) for left, _, right in (_text(m).partition(" ") for m in vocabulary.merges)
    ]
    try:
        encoder = Encoder(models.BPE(ids, merges))
    except Exception as error:  # the library raises plain exceptions; it names the token
        raise ModelFileError(f"tokenizer.ggml.merges does not fit the tokens: {error}") from error
    encoder.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return encoder


def _pieces(text: str) -> Iterator[str]:
    """`text` cut between words, and in the middle of one only if it is longer than a piece."""
    start = 0
    while len(text) - start > _PIECE_CHARS:
        end = start + _PIECE_CHARS
        cuts = (at for at in range(end, start, -1) if _ends_word(text[at - 1], text[at]))
        cut = next(cuts, end)
        yield text[start:cut]
        start = cut
    yield text[start:]


def _ends_word(last: str, following: str) -> bool:
    """Whether no pattern of PRE_SPLIT matches across here, whatever is around."""
    if following == " ":
        return not last.isspace()
    return last in "0123456789" or (last == "\n" and not following.isspace())


def _alternatives(words: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(words, key=lambda word: (-len(word), word))
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if longest_first else None


def _text(token: str | bytes) -> str:
    return token if isinstance(token, str) else token.decode("utf-8", "replace")


def without_surrogates(text: str) -> str:
    """JSON can spell half a surrogate pair, UTF-8 cannot: pairs are joined, halves replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
