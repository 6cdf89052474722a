"""What NVML tells, with a GPU, with one that hides something, and without."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from openjet_provider import gpu


class NVMLError(Exception):
    pass


def fake_nvml(**told: object) -> ModuleType:
    """A pynvml of one GPU; what is not told is an error, as on GPUs that do not support it."""
    module = ModuleType("pynvml")

    def answer(name: str) -> object:
        def ask(*_: object) -> object:
            if name not in told:
                raise NVMLError(name)
            return told[name]

        return ask

    names = (
        "nvmlDeviceGetUtilizationRates nvmlDeviceGetMemoryInfo nvmlDeviceGetPowerUsage"
        " nvmlDeviceGetEnforcedPowerLimit nvmlDeviceGetName nvmlDeviceGetTemperature nvmlInit"
    )
    for name in names.split():
        setattr(module, name, answer(name))
    module.NVMLError = NVMLError  # type: ignore[attr-defined]
    module.NVML_TEMPERATURE_GPU = 0  # type: ignore[attr-defined]
    module.nvmlDeviceGetCount = lambda: 1  # type: ignore[attr-defined]
    module.nvmlDeviceGetHandleByIndex = lambda index: index  # type: ignore[attr-defined]
    return module


FULL = {
    "nvmlInit": None,
    "nvmlDeviceGetName": "NVIDIA Test",
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=87, memory=12),
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=3 << 30, total=8 << 30),
    "nvmlDeviceGetPowerUsage": 212_500,
    "nvmlDeviceGetEnforcedPowerLimit": 350_000,
    "nvmlDeviceGetTemperature": 61,
}


def test_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(**FULL))
    assert gpu.Gpus().read() == [
        {
            "index": 0,
            "name": "NVIDIA Test",
            "load": 0.87,
            "memory_used": 3 << 30,
            "memory_total": 8 << 30,
            "power": 212.5,
            "power_limit": 350.0,
            "temperature": 61,
        }
    ]


def test_what_a_gpu_hides_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(nvmlInit=None, nvmlDeviceGetName="MIG"))
    (found,) = gpu.Gpus().read()
    assert found["name"] == "MIG"
    assert {found[name] for name in ("load", "memory_used", "power", "temperature")} == {None}


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    assert gpu.Gpus().read() == []


def test_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu.Gpus().read() == []


def test_the_driver_is_not_asked_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake_nvml(**FULL)
    asked: list[int] = []
    monkeypatch.setattr(module, "nvmlDeviceGetCount", lambda: asked.append(1) or 1, raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    times = [100.0, 100.1, 100.4, 100.6, 100.7]
    monkeypatch.setattr(gpu, "time", SimpleNamespace(monotonic=iter(times).__next__))
    gpus = gpu.Gpus()
    for _ in times:
        gpus.read()
    assert len(asked) == 2
