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

    def seconds(self) -> float:
        """Of all these threads together, until now; 0 where there are none."""
        if not self._threads:
            self._threads = [task / "schedstat" for task in _TASKS.glob("*") if _is_engines(task)]
        if not self._threads:
            return 0.0
        try:
            waited = sum(int(thread.read_text().split()[1]) for thread in self._threads) / 1e9
            with open("/proc/stat") as file:
                return waited + int(file.readline().split()[8]) * _TICK_S
        except (OSError, IndexError):  # the engine is closed, or no Linux as we know it
            return 0.0


def _is_engines(task: Path) -> bool:
    try:
        return (task / "comm").read_text().startswith("openjet-")
    except OSError:
        return False
