"""Which backend serves a model, and the lock that keeps a GPU to one process."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from typing import Literal

from openjet_provider import _build_info
from openjet_provider.errors import BackendUnavailableError, DeviceBusyError, InvalidRequestError

Backend = Literal["cpu", "cuda", "scripted"]

_LARGE_FILE = 2_000_000_000  # bytes; a model this large on a CPU beside a GPU is a mistake


def nvidia_devices() -> list[Path]:
    """Device nodes of NVIDIA GPUs, WSL2's included. Loads no driver."""
    found = sorted(Path("/dev").glob("nvidia[0-9]*"))
    if not found and Path("/dev/dxg").exists() and Path("/usr/lib/wsl/lib/libcuda.so.1").exists():
        found = [Path("/dev/dxg")]
    return found


def choose_backend(wanted: str, file_bytes: int) -> Backend:
    """The backend for `wanted` ("auto", "cpu", "cuda" or "scripted").

    "auto" takes CUDA when the library and a device are there. Raises BackendUnavailableError with
    the build's record when CUDA is asked for and missing, or when a GPU is there, its library is
    not, and the file is too large to have been meant for the CPU.
    """
    if wanted not in ("auto", "cpu", "cuda", "scripted"):
        raise InvalidRequestError(f"backend={wanted!r} is unknown: use auto, cpu, cuda or scripted")
    if wanted == "cpu" or wanted == "scripted":
        return "scripted" if wanted == "scripted" else "cpu"
    library, devices = _build_info.library("cuda").exists(), nvidia_devices()
    if library and devices:
        return "cuda"
    if wanted == "cuda":
        missing = "no NVIDIA device was found" if library else "libopenjet_cuda.so is not built"
        raise BackendUnavailableError(
            f"backend='cuda', but {missing}; use backend='cpu' to run without it.\n"
            + _build_info.describe_build()
        )
    if devices and file_bytes > _LARGE_FILE:
        raise BackendUnavailableError(
            f"there is an NVIDIA device ({devices[0]}), but no CUDA library to use it, and a file"
            f" of {file_bytes / 1e9:.1f} GB is slow on a CPU. Install nvcc 12.0 or newer and run"
            " `python build.py` (or reinstall), or say backend='cpu' to run on the CPU anyway.\n"
            + _build_info.describe_build()
        )
    return "cpu"


def _physical(device: int) -> str:
    """What this process calls `device`, as others call it too: schedulers give each its own."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    name = visible[device].strip() if device < len(visible) else ""
    return name.replace("/", "-") or str(device)


class DeviceLock:
    """An exclusive lock on one CUDA device, held until `release()` or the process ends."""

    def __init__(self, device: int, model: str) -> None:
        """Raises DeviceBusyError naming the holder's pid and model."""
        folder = Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp")
        self._path = folder / f"openjet-{os.getuid()}-device{_physical(device)}.lock"
        self._file = open(self._path, "a+", encoding="utf-8")  # noqa: SIM115 - held open on purpose
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = self._holder()
            self._file.close()
            raise DeviceBusyError(
                f"device {device} is in use by {holder}; close it, choose another device=, or"
                " share one engine between processes by attaching to `openjet serve`"
            ) from None
        # A forked child shares the open file, and with it the lock, which is not its to keep.
        os.register_at_fork(after_in_child=self._file.close)
        self.describe(model)

    def describe(self, model: str, serves: str | None = None) -> None:
        """Record who holds the lock; `serves` is the URL others may attach to."""
        self._file.truncate(0)
        json.dump({"pid": os.getpid(), "model": model, "serves": serves}, self._file)
        self._file.flush()

    def release(self) -> None:
        """Let the next process have the device."""
        self._file.close()

    def _holder(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            self._file.seek(0)
            holder = json.load(self._file)
            attach = f" (export OPENJET_BASE_URL={holder['serves']})" if holder["serves"] else ""
            return f"process {holder['pid']} with model {holder['model']}{attach}"
        return "another process"
