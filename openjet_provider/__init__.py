"""Several agents at once on one local model.

`Engine` opens a model once per process and serves it to many threads and tasks; `ChatOpenJet` is
its LangChain chat model (extra `langchain`), `import litellm_openjet` its LiteLLM provider (extra
`litellm`). Names below are imported at first use: this module loads no model and no framework.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from openjet_provider._build_info import build_record as _build_record

if TYPE_CHECKING:
    from langchain_openjet import ChatOpenJet
    from openjet_provider.engine import Engine
    from openjet_provider.errors import (
        BackendUnavailableError,
        ContextOverflowError,
        DeviceBusyError,
        EngineBusyError,
        EngineClosedError,
        EngineLost,
        InvalidRequestError,
        ModelFileError,
        ModelNotFoundError,
        OpenJetError,
        OutOfMemoryError,
        RequestTimeoutError,
    )

__version__ = "0.1.0"

__all__ = [
    "BackendUnavailableError",
    "ChatOpenJet",
    "ContextOverflowError",
    "DeviceBusyError",
    "Engine",
    "EngineBusyError",
    "EngineClosedError",
    "EngineLost",
    "InvalidRequestError",
    "ModelFileError",
    "ModelNotFoundError",
    "OpenJetError",
    "OutOfMemoryError",
    "RequestTimeoutError",
    "_build_record",
]

_HOMES = {"ChatOpenJet": "langchain_openjet", "Engine": "openjet_provider.engine"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES.get(name, "openjet_provider.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
