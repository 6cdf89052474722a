"""Waiting for what another thread or process does: for the event, never for a time that it takes.

Bounds are for what never comes; a loaded machine is slow. Where something ends by itself some day,
the bound comes before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from openjet_provider.engine import Engine

T = TypeVar("T")

#: Scripts that say "slowly" end by themselves after 20 seconds or more.
BEFORE_THE_END_S = 15.0
_PAUSE_S = 0.01


class _Bound:
    """Seconds from now on. What holds when they have passed is asked once more."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def ask(self, holds: Callable[[], T], otherwise: Callable[[], object]) -> T:
        late = time.monotonic() >= self._end
        found = holds()
        assert found or not late, f"not so within {self._seconds:g} s: {otherwise()}"
        return found


def wait_until(
    holds: Callable[[], T], seconds: float = 60.0, otherwise: Callable[[], object] = str
) -> T:
    """The first true value of `holds`; otherwise: what to say if there is none."""
    bound = _Bound(seconds)
    while not (found := bound.ask(holds, otherwise)):
        time.sleep(_PAUSE_S)
    return found


async def until(
    holds: Callable[[], T], seconds: float = 60.0, otherwise: Callable[[], object] = str
) -> T:
    """`wait_until` that leaves the event loop free."""
    bound = _Bound(seconds)
    while not (found := bound.ask(holds, otherwise)):
        await asyncio.sleep(_PAUSE_S)
    return found


def wait_until_idle(engine: Engine) -> None:
    """Until the engine runs nothing: a cancelled request ends at the next step, and what says
    "slowly" not before its end."""

    def idle() -> bool:
        stats = engine.stats()
        return not (stats.running or stats.waiting)

    wait_until(idle, BEFORE_THE_END_S, engine.stats)


def is_alive(pid: int) -> bool:
    """Whether a process runs: it is there, and not only waits to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the latter where it ends meanwhile
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
