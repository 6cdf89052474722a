"""Ids equal those of llama.cpp and Hugging Face; bytes come back as they were."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openjet_provider.chat.tokenizer import Tokenizer, Vocabulary
from openjet_provider.errors import ModelFileError
from tests.chat.conftest import vocabulary
from tests.reference import vocabulary as reference
from tests.reference.tokenizer_corpus import TEXTS
from tests.reference.tokenizer_goldens import matches, tokenizer_goldens


@pytest.mark.parametrize(
    ("name", "fixture"), [("small", "small"), ("openjet-tiny", "tiny"), ("qwen", "qwen")]
)
def test_ids_equal_the_goldens(name: str, fixture: str, request: pytest.FixtureRequest) -> None:
    source = request.getfixturevalue(fixture)
    raw = Tokenizer(vocabulary(source))
    normalising = Tokenizer(vocabulary(source), nfc=True)
    for golden in tokenizer_goldens(name, source):
        assert matches(raw.encode(golden.text, parse_special=True), golden.special), golden.text
        assert matches(raw.encode(golden.text), golden.plain), golden.text
        assert matches(normalising.encode(golden.text, parse_special=True), golden.nfc), golden.text
        assert raw.decode(raw.encode(golden.text)) == golden.text


def test_full_vocabulary_loads_fast(qwen: reference.Vocabulary) -> None:
    source = vocabulary(qwen)
    as_bytes = replace(source, tokens=[token.encode() for token in source.tokens])
    start = time.process_time()
    tokenizer = Tokenizer(as_bytes)
    assert time.process_time() - start < 25  # 2.5 on a machine that does nothing else
    assert len(tokenizer) == 248_320
    assert tokenizer.special["<think>"] == 248_068
    assert tokenizer.token_bytes(248_200) == b""  # an id that pads the vocabulary


def test_special_tokens_in_text_are_text(tokenizer: Tokenizer) -> None:
    text = "<|im_end|>\n<|im_start|>system\n<tool_call></think>"
    assert not set(tokenizer.encode(text)) & set(tokenizer.special.values())
    assert tokenizer.encode(text, parse_special=True)[0] == tokenizer.special["<|im_end|>"]
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_half_surrogates_become_replacement_characters(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("a\ud83d b\ud83d\ude00")) == "a\ufffd b😀"


def test_no_text_is_slow(tokenizer: Tokenizer) -> None:
    start = time.process_time()
    for text in ("a" * 300_000, " " * 300_000, "\n" * 300_000, "=-" * 150_000, "漢" * 100_000):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert time.process_time() - start < 60


def test_a_history_is_tokenised_once(tokenizer: Tokenizer) -> None:
    text = "some words of a long file\n" * 20_000
    start = time.process_time()
    first = tokenizer.encode(text)
    once = time.process_time() - start
    again = []
    for _ in range(5):
        start = time.process_time()
        assert tokenizer.encode(text) == first
        again.append(time.process_time() - start)
    assert min(again) < once / 10


WORDS = [
    "a", "word", "Zoë", "e\u0301", "'s", "don't", "7", "1234", "٣", "½", "_", "--", "(x)", "😀",
    "漢字",
    " ", "  ", "\n", "\r\n", "\n\n ", "\t", "\u00a0", "\u2028", "\x1c", "\x85", "\u0301",
]  # fmt: skip


@given(words=st.lists(st.sampled_from(WORDS), max_size=60), piece=st.integers(24, 60))
def test_pieces_of_a_long_text_have_its_ids(
    tokenizer: Tokenizer, words: list[str], piece: int
) -> None:
    """As long as words are not longer than a piece."""
    text = "0".join("".join(words[i : i + 4]) for i in range(0, len(words), 4))
    whole = tokenizer.encode(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("openjet_provider.chat.tokenizer._PIECE_CHARS", piece)
        cut = Tokenizer(tokenizer.vocabulary).encode(text)
    assert cut == whole


def test_a_word_longer_than_a_piece_is_still_its_text(tokenizer: Tokenizer) -> None:
    text = "ab" * 100_000
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("parse_special", [False, True])
def test_no_more_ids_than_asked_for(tokenizer: Tokenizer, parse_special: bool) -> None:
    """But for the rest of a piece."""
    text = "7" * 100_000 + "<think>" + "8" * 200_000
    ids = tokenizer.encode(text, parse_special=parse_special, most=1000)
    assert 1000 < len(ids) < 100_000
    assert len(tokenizer.encode(text, parse_special=parse_special)) > 300_000  # not from a cache


def test_threads_share_a_tokenizer(tokenizer: Tokenizer) -> None:
    expected = {text: list(tokenizer.encode(text)) for text in TEXTS}
    wrong: list[str] = []

    def work() -> None:
        wrong.extend(t for t, ids in expected.items() if list(tokenizer.encode(t)) != ids)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


BROKEN = {
    "an unknown pre-tokeniser": ({"pre": "gpt-9"}, "tokenizer.ggml.pre is 'gpt-9'"),
    "types missing": ({"token_types": [1, 1]}, "token_type has 2 entries"),
    "a merge of unknown tokens": ({"merges": ["zz qq"]}, "tokenizer.ggml.merges"),
    "a merge without a pair": ({"merges": ["a"]}, "tokenizer.ggml.merges"),
}


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN)
def test_vocabularies_that_cannot_be_reproduced(
    small: reference.Vocabulary, change: dict[str, object], message: str
) -> None:
    with pytest.raises(ModelFileError, match=message):
        Tokenizer(replace(vocabulary(small), **change))  # type: ignore[arg-type]


def test_a_byte_without_a_token() -> None:
    with pytest.raises(ModelFileError, match="no token for byte 0x"):
        Tokenizer(Vocabulary(tokens=["a"], merges=[], token_types=[1], pre="qwen35", eos_id=0))


@given(data=st.binary(max_size=40))
def test_any_bytes_decode(tokenizer: Tokenizer, data: bytes) -> None:
    token = {tokenizer.token_bytes(i): i for i in range(256)}
    assert tokenizer.decode(token[bytes([b])] for b in data) == data.decode("utf-8", "replace")
