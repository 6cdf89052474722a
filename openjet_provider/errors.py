"""Everything this package raises on purpose. Adapters translate these into their own classes."""

from __future__ import annotations


class OpenJetError(Exception):
    """Base class. The message names the input, the rule and the way out."""


class ModelNotFoundError(OpenJetError, FileNotFoundError):
    """No model file by that name or path; the message lists the places searched."""


class ModelFileError(OpenJetError, ValueError):
    """The file is not a GGUF this engine can serve: damaged, truncated or of another kind."""


class BackendUnavailableError(OpenJetError, RuntimeError):
    """The native library or the device is missing; the message shows the build's own record."""


class DownloadError(OpenJetError, RuntimeError):
    """A model file could not be fetched; the message says why and what to do."""


class DeviceBusyError(OpenJetError, RuntimeError):
    """Another process holds the device's lock."""


class OutOfMemoryError(OpenJetError, MemoryError):
    """No room for the weights, the KV pool or the states; the message names the option to lower."""


class InvalidRequestError(OpenJetError, ValueError):
    """A request breaks a rule: unknown option, value out of range, messages that make no prompt."""


class ContextOverflowError(InvalidRequestError):
    """The prompt does not fit the context.

    Attributes: prompt_tokens, context (tokens).
    """

    def __init__(self, message: str, prompt_tokens: int = 0, context: int = 0) -> None:
        super().__init__(message)
        self.prompt_tokens = prompt_tokens
        self.context = context


class EngineBusyError(OpenJetError, RuntimeError):
    """The queue is full; try again later."""


class RequestTimeoutError(OpenJetError, TimeoutError):
    """The request's deadline passed before it finished."""


class ConstraintError(OpenJetError, RuntimeError):
    """A request's output could not be held to its tool choice or response format: the grammar
    library gave up. Only that request ends."""


class EngineClosedError(OpenJetError, RuntimeError):
    """The engine was closed, or belongs to the process this one was forked from."""


class EngineLost(OpenJetError, RuntimeError):
    """The backend failed for good; this process must be restarted to serve again."""
