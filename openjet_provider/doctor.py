"""What `openjet doctor` reports: the machine, the installation, or one model file."""

from __future__ import annotations

import os
import platform
import subprocess
from collections import Counter
from pathlib import Path

from openjet_provider import __version__, _build_info, _native, devices, models, planning
from openjet_provider.errors import BackendUnavailableError, ModelNotFoundError

Rows = list[tuple[str, str]]

NO_MTP = "no: drafts come from prompt lookup only, so decoding is slower"


def report_machine() -> tuple[str, bool]:
    """The report, and whether an engine can be opened here at all."""
    rows: Rows = [
        ("package", f"openjet-provider {__version__}, Python {platform.python_version()}"),
        ("system", platform.platform()),
        ("CPU", _cpu()),
        ("memory", f"{_size(planning.available_memory())} available"),
    ]
    rows += [("GPU", line) for line in _gpus()]
    rows += [("build", line) for line in _build_info.describe_build().splitlines()]
    try:
        _native.load("cpu")
        rows.append(("CPU engine", "loads, and matches its header"))
        healthy = True
    except BackendUnavailableError as error:
        rows.append(("CPU engine", str(error).splitlines()[0]))
        healthy = False
    rows.append(("CUDA engine", _cuda_engine()))
    rows += [(name, _where(name)) for name in (*models.BUNDLED, *models.KNOWN)]
    return _table(rows), healthy


def report_file(name: str) -> str:
    """What a model file holds.

    Raises ModelNotFoundError, or ModelFileError if it is not one this engine serves.
    """
    _, path = models.resolve(name)
    model = _native.Model(_native.load("cpu"), path)
    try:
        info = model.info
        types = Counter(kind for _, kind, *_ in model.tensors())
        linear = info.n_layer - info.n_attention
        rows: Rows = [
            ("file", f"{path}, {_size(info.file_bytes)}"),
            ("name", str(model.metadata("general.name") or "not given")),
            ("architecture", str(model.metadata("general.architecture"))),
            ("parameters", f"{info.parameters / 1e6:,.1f} million"),
            ("layers", f"{info.n_layer}: {linear} DeltaNet, {info.n_attention} attention"),
            ("width", f"{info.n_embd}, feed-forward {info.n_ff}"),
            ("vocabulary", f"{info.n_vocab:,}{' (tied output)' if info.tied_output else ''}"),
            ("context", f"{info.context_length:,} positions"),
            ("MTP head", "yes" if info.has_mtp else NO_MTP),
            ("block types", ", ".join(f"{kind} x{n}" for kind, n in types.most_common())),
            ("state", f"{_size(info.state_bytes)} for each running conversation"),
        ]
    finally:
        model.close()
    return _table(rows)


def _table(rows: Rows) -> str:
    width = max(len(label) for label, _ in rows)
    lines = []
    before = ""
    for label, text in rows:
        lines.append(f"{'' if label == before else label:{width}}  {text}")
        before = label
    return "\n".join(lines)


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _cpu() -> str:
    text = Path("/proc/cpuinfo").read_text()
    values = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in values.items()}
    avx2 = "AVX2" if "avx2" in fields.get("flags", "").split() else "no AVX2: slower"
    cores = len(os.sched_getaffinity(0))
    return f"{fields.get('model name', 'unknown')}, {cores} logical cores, {avx2}"


def _gpus() -> list[str]:
    """One line for each GPU as the driver's own tool names it, or why there is none."""
    found = devices.nvidia_devices()
    if not found:
        return ["no NVIDIA device: engines run on the CPU"]
    query = "--query-gpu=name,memory.total,memory.free,driver_version,compute_cap"
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
        )
    except FileNotFoundError:
        return [f"{found[0]} is there, nvidia-smi is not: install the NVIDIA driver's utilities"]
    except subprocess.TimeoutExpired:
        return [f"{found[0]} is there, but nvidia-smi does not answer: check the driver"]
    if done.returncode != 0:
        return [f"{found[0]} is there, but nvidia-smi says: {(done.stdout or done.stderr).strip()}"]
    lines = []
    for line in done.stdout.strip().splitlines():
        name, total, free, driver, capability = (part.strip() for part in line.split(","))
        lines.append(f"{name}, {total} ({free} free), driver {driver}, sm_{capability}")
    return lines


def _cuda_engine() -> str:
    if not _build_info.library("cuda").exists():
        return "not available: libopenjet_cuda.so was not built"
    if not devices.nvidia_devices():
        return "not available: no NVIDIA device"
    try:
        _native.load("cuda")
    except BackendUnavailableError as error:
        return str(error).splitlines()[0]
    return "loads, and matches its header"


def _where(name: str) -> str:
    try:
        _, path = models.resolve(name)
    except ModelNotFoundError:
        return "not found on this machine"
    return f"{path}, {_size(path.stat().st_size)}"
