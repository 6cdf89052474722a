"""A server of one's own for the length of a `with` block: for examples, notebooks and tests.

with local_server("openjet-tiny") as server:
    client = OpenAI(base_url=f"{server.url}/v1", api_key="any")
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from openjet_provider._core import EngineStats
from openjet_provider.errors import BackendUnavailableError
from openjet_provider.handles import server_url
from openjet_provider.monitor.source import Sample, Source

_READY = "export OPENJET_BASE_URL="
_STOP_S = 30.0


@dataclass(frozen=True)
class LocalServer:
    """A running `openjet serve`; `url` is without `/v1`."""

    url: str

    @property
    def model(self) -> str:
        """The name that requests ask for: of a file, its own without the ending."""
        return str(self._read()["model"])

    def stats(self) -> EngineStats:
        """The engine's counters since it opened; its `summary()` says them in a line."""
        return EngineStats(**self._read()["engine"])

    def _read(self) -> Sample:
        source = Source(self.url)
        try:
            return source.read()
        finally:
            source.close()


@contextlib.contextmanager
def local_server(
    model: str | None = None, *arguments: str, attach: bool = True
) -> Iterator[LocalServer]:
    """The server that OPENJET_BASE_URL names, else an `openjet serve` that lives as long as this.

    model, arguments: of `openjet serve`; it takes a free port. Blocks until the model is loaded.
    attach: False starts one in any case. Raises BackendUnavailableError with what the server said
    if it does not start.
    """
    if attach and (url := server_url(None)):
        yield LocalServer(url.rstrip("/").removesuffix("/v1"))
        return
    command = [sys.executable, "-m", "openjet_provider.cli", "serve", "--port", "0", *arguments]
    if model is not None:
        command += ["-m", model]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            yield LocalServer(_wait_until_ready(process.stdout, log))
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_S)
            process.kill()
            process.wait()


def _wait_until_ready(said: IO[str], log: IO[str]) -> str:
    for line in said:
        if line.startswith(_READY):
            return line.removeprefix(_READY).strip()
    log.seek(0)
    raise BackendUnavailableError(f"openjet serve has ended: {log.read()[-2000:].strip()}")
