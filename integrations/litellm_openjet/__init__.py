"""The OpenJet engine as a LiteLLM provider: importing this package registers `openjet/<model>`.

    import litellm, litellm_openjet
    litellm.completion(model="openjet/openjet-tiny", messages=[{"role": "user", "content": "Hi"}])

Needs the extra `litellm`. Importing opens no model. In a proxy's config.yaml the handler is
`litellm_openjet.openjet_llm`.
"""

from __future__ import annotations

try:
    import litellm as _litellm  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "litellm":
        raise
    raise ImportError(
        "litellm_openjet needs LiteLLM: pip install 'openjet-provider[litellm]'"
    ) from error

from litellm_openjet.provider import OpenJetLLM, openjet_llm, register

__all__ = ["OpenJetLLM", "openjet_llm", "register"]

register()
