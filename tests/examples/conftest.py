"""Programs as a user runs them, each in the environment of its framework."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.examples.envs import NotInstallable, python_of


def python(name: str) -> Path:
    """The Python of an example's environment. Skips where its packages cannot be had."""
    try:
        return python_of(name)
    except (NotInstallable, subprocess.TimeoutExpired) as error:
        pytest.skip(f"its packages cannot be installed here: {error}")


def start(python: Path, program: Path, folder: Path, **environment: str) -> subprocess.Popen[str]:
    """The program in a folder of its own, with nothing of this process's environment."""
    return subprocess.Popen(
        [str(python), str(program)],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], timeout: float = 600) -> str:
    """What it printed, after it has ended well."""
    try:
        said, errors = process.communicate(timeout=timeout)
    finally:
        process.kill()
    assert process.returncode == 0, said + errors
    return said
