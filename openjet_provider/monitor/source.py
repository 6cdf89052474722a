"""Statistics of a running server."""

from __future__ import annotations

import os
from typing import Any

from openjet_provider.errors import BackendUnavailableError, InvalidRequestError

Sample = dict[str, Any]  # the body of /v1/stats

_TIMEOUT_S = 5.0


class Source:
    """A connection to the `/v1/stats` of one server. One thread at a time."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        """url: with or without `/v1`; api_key: None takes OPENJET_API_KEY."""
        import httpx

        self.url = url.rstrip("/").removesuffix("/v1")
        key = api_key or os.environ.get("OPENJET_API_KEY")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        try:
            self._http = httpx.Client(base_url=self.url, headers=headers, timeout=_TIMEOUT_S)
        except httpx.InvalidURL as error:
            raise InvalidRequestError(f"--url {url}: {error}") from None

    def read(self) -> Sample:
        """The statistics now. Raises BackendUnavailableError if there are none to be had, and
        InvalidRequestError when the server asks for another key."""
        import httpx

        try:
            response = self._http.get("/v1/stats")
            found = response.json() if response.status_code == 200 else None
        except (httpx.HTTPError, httpx.UnsupportedProtocol, ValueError) as error:
            raise BackendUnavailableError(
                f"no statistics from {self.url} ({type(error).__name__}: {error}); start a server"
                " with `openjet serve`, or name one with --url"
            ) from None
        if response.status_code in (401, 403):
            raise InvalidRequestError(f"{self.url} asks for a key: --api-key, or OPENJET_API_KEY")
        if not isinstance(found, dict) or "conversations" not in found:
            raise BackendUnavailableError(
                f"{self.url} answers /v1/stats with HTTP {response.status_code} and not with an"
                " OpenJet server's statistics"
            )
        return found

    def close(self) -> None:
        """Close the connection."""
        self._http.close()
