"""LangChain's own test suites for chat models, on openjet-tiny and the real engine."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("langchain_tests")

from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests

from langchain_openjet import ChatOpenJet


class TestUnit(ChatModelUnitTests):
    """Skipped: serialisation (LangChain loads only classes of packages on its own list), and
    settings from the environment (there is no key or address to read)."""

    @property
    def chat_model_class(self) -> type[ChatOpenJet]:
        return ChatOpenJet

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "openjet-tiny"}


class TestIntegration(ChatModelIntegrationTests):
    """Skipped: media, which the model cannot read."""

    @property
    def chat_model_class(self) -> type[ChatOpenJet]:
        return ChatOpenJet

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "openjet-tiny", "reasoning": False, "temperature": 0, "max_tokens": 200}

    @property
    def model_override_value(self) -> str:
        return "openjet-tiny"

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def supported_usage_metadata_details(self) -> dict[str, list[str]]:
        return {
            "invoke": ["reasoning_output", "cache_read_input"],
            "stream": ["reasoning_output", "cache_read_input"],
        }

    def invoke_with_reasoning_output(self, *, stream: bool = False) -> Any:
        llm = ChatOpenJet(model="openjet-tiny", reasoning=True, temperature=0, max_tokens=200)
        return _answer(llm, "How many days are in a week?", stream)

    def invoke_with_cache_read_input(self, *, stream: bool = False) -> Any:
        llm = ChatOpenJet(model="openjet-tiny", reasoning=False, temperature=0, max_tokens=20)
        question = "Which of these words is an animal: " + ", ".join(f"word{i}" for i in range(60))
        llm.invoke(question)
        return _answer(llm, question, stream)


def _answer(llm: ChatOpenJet, question: str, stream: bool) -> Any:
    if not stream:
        return llm.invoke(question)
    full = None
    for chunk in llm.stream(question):
        full = chunk if full is None else full + chunk
    return full
