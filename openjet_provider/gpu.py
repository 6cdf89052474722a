"""Load, memory, power and temperature of this machine's NVIDIA GPUs, through NVML."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

_FRESH_S = 0.5  # a reading is good for that long: each one asks the driver
_AGAIN_S = 30.0  # what failed once is tried again then

Reading = dict[str, Any]


class Gpus:
    """The GPUs of this machine. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nvml: Any = None
        self._last: list[Reading] = []
        self._good_until = 0.0

    def read(self) -> list[Reading]:
        """One mapping per GPU; empty without a GPU, its driver or nvidia-ml-py.

        index, name; load (0-1), memory_used, memory_total (bytes), power, power_limit (W),
        temperature (deg C): None where the GPU does not tell.
        """
        with self._lock:
            now = time.monotonic()
            if now >= self._good_until:
                try:
                    self._last = self._ask()
                    self._good_until = now + _FRESH_S
                except Exception:  # no package, no driver, a GPU that fell off the bus
                    self._nvml, self._last = None, []
                    self._good_until = now + _AGAIN_S
            return self._last

    def _ask(self) -> list[Reading]:
        if self._nvml is None:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
        count = self._nvml.nvmlDeviceGetCount()
        return [_reading(self._nvml, index) for index in range(count)]


def _reading(nvml: Any, index: int) -> Reading:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def told(ask: Callable[..., Any], *more: Any) -> Any:
        with contextlib.suppress(nvml.NVMLError):
            return ask(handle, *more)
        return None

    load = told(nvml.nvmlDeviceGetUtilizationRates)
    memory = told(nvml.nvmlDeviceGetMemoryInfo)
    power = told(nvml.nvmlDeviceGetPowerUsage)
    limit = told(nvml.nvmlDeviceGetEnforcedPowerLimit)
    return {
        "index": index,
        "name": told(nvml.nvmlDeviceGetName),
        "load": None if load is None else load.gpu / 100,
        "memory_used": None if memory is None else int(memory.used),
        "memory_total": None if memory is None else int(memory.total),
        "power": None if power is None else power / 1000,
        "power_limit": None if limit is None else limit / 1000,
        "temperature": told(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
    }
