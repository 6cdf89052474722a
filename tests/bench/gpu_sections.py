"""Sections for tests of bench/gpu_check.py: each ends in its own way."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from bench.gpu.record import Notes, NotRun
from bench.gpu.setup import Setup


def passes(setup: Setup, notes: Notes) -> None:
    notes["files"] = setup.files


def raises(setup: Setup, notes: Notes) -> None:
    notes["before"] = 1
    raise RuntimeError("row 3 differs")


def crashes(setup: Setup, notes: Notes) -> None:
    notes["before"] = 1
    os.abort()


def hangs(setup: Setup, notes: Notes) -> None:
    """With a child that would outlive it."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    notes["child"] = child.pid
    time.sleep(3600)


def is_not_for_here(setup: Setup, notes: Notes) -> None:
    raise NotRun("no such tool")
