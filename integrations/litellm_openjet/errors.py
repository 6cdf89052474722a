"""The engine's errors as LiteLLM's classes, which pass through LiteLLM unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from litellm import exceptions as litellm

from openjet_provider import errors as openjet

PROVIDER = "openjet"

# First match counts: a subclass stands before its base.
_CLASSES: tuple[tuple[type[openjet.OpenJetError], Any], ...] = (
    (openjet.ContextOverflowError, litellm.ContextWindowExceededError),
    (openjet.InvalidRequestError, litellm.BadRequestError),
    (openjet.EngineBusyError, litellm.RateLimitError),
    (openjet.RequestTimeoutError, litellm.Timeout),
    (openjet.ModelNotFoundError, litellm.NotFoundError),
    (openjet.ModelFileError, litellm.BadRequestError),
    (openjet.OpenJetError, litellm.ServiceUnavailableError),
)


@contextmanager
def litellm_errors(model: str) -> Iterator[None]:
    """Raises LiteLLM's classes in place of the engine's own."""
    try:
        yield
    except openjet.OpenJetError as error:
        found = next(theirs for ours, theirs in _CLASSES if isinstance(error, ours))
        raise found(message=str(error), model=model, llm_provider=PROVIDER) from error
