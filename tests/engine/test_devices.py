"""Backend choice and the device lock, without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from openjet_provider import devices
from openjet_provider.errors import BackendUnavailableError, DeviceBusyError, InvalidRequestError

GIGABYTE = 10**9


def machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, library: bool, device: bool
) -> None:
    file = tmp_path / "libopenjet_cuda.so"
    if library:
        file.touch()
    monkeypatch.setattr(devices._build_info, "library", lambda kind: file)
    nodes = [Path("/dev/nvidia0")] if device else []
    monkeypatch.setattr(devices, "nvidia_devices", lambda: nodes)


@pytest.mark.parametrize(
    ("library", "device", "size", "expected"),
    [
        (True, True, 17, "cuda"),
        (True, False, 17, "cpu"),
        (False, False, 17, "cpu"),
        (False, True, 1, "cpu"),
    ],
)
def test_auto(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    library: bool,
    device: bool,
    size: int,
    expected: str,
) -> None:
    machine(monkeypatch, tmp_path, library=library, device=device)
    assert devices.choose_backend("auto", size * GIGABYTE) == expected


def test_a_large_file_beside_an_unused_gpu_is_refused_with_the_build_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine(monkeypatch, tmp_path, library=False, device=True)
    with pytest.raises(BackendUnavailableError, match=r"17\.0 GB.*\n.*native librar|libopenjet"):
        devices.choose_backend("auto", 17 * GIGABYTE)
    assert devices.choose_backend("cpu", 17 * GIGABYTE) == "cpu"


@pytest.mark.parametrize(("library", "missing"), [(True, "no NVIDIA device"), (False, "not built")])
def test_cuda_asked_for_and_missing_says_which_half(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: bool, missing: str
) -> None:
    machine(monkeypatch, tmp_path, library=library, device=not library)
    with pytest.raises(BackendUnavailableError, match=missing):
        devices.choose_backend("cuda", GIGABYTE)


def test_an_unknown_backend_is_named() -> None:
    with pytest.raises(InvalidRequestError, match="'vulkan'"):
        devices.choose_backend("vulkan", GIGABYTE)


def test_a_second_process_is_told_who_holds_the_device(
    monkeypatch: pytest.MonkeyPatch, root: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    lock = devices.DeviceLock(0, "big.gguf")
    lock.describe("big.gguf", serves="http://127.0.0.1:18080")
    code = "from openjet_provider.devices import DeviceLock; DeviceLock(0, 'other.gguf')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=300
    )
    holder = json.loads(next(tmp_path.glob("*.lock")).read_text())
    assert "DeviceBusyError" in done.stderr
    for part in (str(holder["pid"]), "big.gguf", "export OPENJET_BASE_URL=http://127.0.0.1:18080"):
        assert part in done.stderr
    with pytest.raises(DeviceBusyError):
        devices.DeviceLock(0, "again.gguf")
    lock.release()
    devices.DeviceLock(0, "next.gguf").release()


def test_a_device_is_locked_whatever_the_process_calls_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ray and others show each worker one GPU, which is its number 0."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    lock = devices.DeviceLock(0, "one.gguf")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    devices.DeviceLock(0, "two.gguf").release()
    with pytest.raises(DeviceBusyError):
        devices.DeviceLock(1, "three.gguf")
    lock.release()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_keep_the_lock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    lock = devices.DeviceLock(0, "big.gguf")
    ready, forked = os.pipe()
    wait, end = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        os.close(end)
        os.write(forked, b"!")
        os.read(wait, 1)  # lives on, as a worker process does
        os._exit(0)
    os.read(ready, 1)
    lock.release()
    try:
        devices.DeviceLock(0, "next.gguf").release()
    finally:
        for descriptor in (ready, forked, wait, end):
            os.close(descriptor)
        os.waitpid(child, 0)
