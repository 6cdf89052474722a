"""LangChain's chat model for the OpenJet engine. Needs the extra `langchain`."""

from __future__ import annotations

try:
    import langchain_core as _langchain_core  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "langchain_core":
        raise
    raise ImportError(
        "langchain_openjet needs langchain-core: pip install 'openjet-provider[langchain]'"
    ) from error

from langchain_openjet.chat_models import ChatOpenJet
from langchain_openjet.errors import (
    OpenJetContextOverflowError,
    OpenJetInvalidRequestError,
    OpenJetModelNotFoundError,
    OpenJetRateLimitError,
    OpenJetTimeoutError,
)

__all__ = [
    "ChatOpenJet",
    "OpenJetContextOverflowError",
    "OpenJetInvalidRequestError",
    "OpenJetModelNotFoundError",
    "OpenJetRateLimitError",
    "OpenJetTimeoutError",
]
