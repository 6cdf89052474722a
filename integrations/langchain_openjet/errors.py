"""The engine's errors as LangChain's classes: each is both, so either can be caught.

An error that LangChain has no class for (device busy, out of memory, engine lost, ...) passes
unchanged as its `openjet_provider.errors` class.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from langchain_core import exceptions as langchain

from openjet_provider import errors as openjet


class OpenJetContextOverflowError(openjet.ContextOverflowError, langchain.ContextOverflowError):
    """The prompt does not fit the context; summarising middleware catches LangChain's class."""


class OpenJetInvalidRequestError(openjet.InvalidRequestError, langchain.ModelInvalidRequestError):
    """The request breaks a rule; trying again does not help."""


class OpenJetRateLimitError(openjet.EngineBusyError, langchain.ModelRateLimitError):
    """The engine's queue is full; try again later."""


class OpenJetTimeoutError(openjet.RequestTimeoutError, langchain.ModelTimeoutError):
    """The request's `timeout` passed; it was ended in the engine too."""


class OpenJetModelNotFoundError(openjet.ModelNotFoundError, langchain.ModelNotFoundError):
    """No model file by that name or path."""


@contextmanager
def langchain_errors() -> Iterator[None]:
    """Raises the classes above in place of the engine's own."""
    try:
        yield
    except openjet.ContextOverflowError as error:
        raise OpenJetContextOverflowError(str(error), error.prompt_tokens, error.context) from error
    except openjet.InvalidRequestError as error:
        raise OpenJetInvalidRequestError(str(error)) from error
    except openjet.EngineBusyError as error:
        raise OpenJetRateLimitError(str(error)) from error
    except openjet.RequestTimeoutError as error:
        raise OpenJetTimeoutError(str(error)) from error
    except openjet.ModelNotFoundError as error:
        raise OpenJetModelNotFoundError(str(error)) from error
