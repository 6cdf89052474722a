"""Whether the engine's threads of this process had the cores that they asked for."""

from __future__ import annotations

from pathlib import Path

_TASKS = Path("/proc/self/task")
_TICK_S = 0.01  # of /proc/stat


class CoreWaits:
    """How long the step thread and the CPU backend's threads were ready to run and did not: behind
    other threads, or while the host of a virtual machine had taken a core (`steal`)."""

    def __init__(self) -> None:
        self._threads: list[Path] = []

    def seconds(self) -> float | None:
        """Of all these threads together, until now. None where it is not known: the engine is in
        another process or closed, or this is no Linux that counts it."""
        if not self._threads:
            self._threads = [task / "schedstat" for task in _TASKS.glob("*") if _is_engines(task)]
        try:
            times = [thread.read_text().split() for thread in self._threads]
            if not any(int(ran) for ran, *_ in times):  # a kernel that counts nothing says 0
                return None
            with open("/proc/stat") as file:
                steal = int(file.readline().split()[8]) * _TICK_S
            return sum(int(waited) for _, waited, *_ in times) / 1e9 + steal
        except (OSError, ValueError, IndexError):
            return None


def _is_engines(task: Path) -> bool:
    try:
        return (task / "comm").read_text().startswith("openjet-")
    except OSError:
        return False
