"""llama.cpp's programs, and servers that are measured: what all comparisons need of them. Only the
standard library, because bench/gpu_check.sh runs where there is little else."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path


def version(program: str | Path) -> str:
    """What the program says of itself."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
    found = re.search(r"^version: (.*)$", done.stdout + done.stderr, re.MULTILINE)
    return found[1] if found else "unknown"


@contextlib.contextmanager
def serving(command: Sequence[str | Path], seconds: float) -> Iterator[str]:
    """A server that is started with `--port` and answers within so many seconds; its URL. Raises
    RuntimeError with what it said last."""
    port = _free_port()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([*command, "--port", str(port)], stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + seconds
            while not _healthy(url):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    said = log.read().decode(errors="replace")[-2000:]
                    raise RuntimeError(f"{command[0]} does not serve:\n{said}")
                time.sleep(0.2)
            yield url
        finally:
            process.terminate()
            process.wait(60)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5):
            return True
    except OSError:  # URLError is one
        return False
