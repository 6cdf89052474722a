"""What `openjet doctor` reports: the machine, the installation, or one model file."""

from __future__ import annotations

import os
import platform
import subprocess
from collections import Counter
from pathlib import Path

from openjet_provider import (
    __version__,
    _build_info,
    _native,
    defaults,
    devices,
    models,
    planning,
)
from openjet_provider.errors import BackendUnavailableError, ModelNotFoundError, OutOfMemoryError

Rows = list[tuple[str, str]]

NO_MTP = "no: drafts come from prompt lookup only, so decoding is slower"

# As native/cpu/kernels.cpp chooses, by the names that /proc/cpuinfo has.
_AVX2 = {"avx2", "fma", "f16c"}
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"}


def report_machine() -> tuple[str, bool]:
    """The report, and whether an engine can be opened here at all."""
    rows: Rows = [
        ("package", f"openjet-provider {__version__}, Python {platform.python_version()}"),
        ("system", platform.platform()),
        ("CPU", _cpu()),
        ("CPU kernels", _cpu_kernels()),
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
    """What a model file holds, and whether it fits this machine.

    name: a path, or a model's name. Raises ModelNotFoundError, or ModelFileError if it is not one
    this engine serves.
    """
    _, path = models.resolve(Path(name).absolute() if Path(name).is_file() else name)
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
    return _table([*rows, ("fits", _fits(path))])


def _fits(path: Path) -> str:
    """How an engine with the defaults would share out the memory here, or what keeps it from it."""
    try:
        backend = devices.choose_backend("auto", path.stat().st_size)
        native = _native.load("cuda" if backend == "cuda" else "cpu")
    except BackendUnavailableError as error:
        return f"no: {str(error).splitlines()[0]}"
    available = _free_gpu_memory() if backend == "cuda" else planning.available_memory()
    where = "the GPU" if backend == "cuda" else "the CPU"
    if available is None:
        return "unknown: the driver does not say how much of the GPU's memory is free"
    model = _native.Model(native, path)
    try:
        options = native.ffi.new("oj_backend_options *")
        options.kind = getattr(native.lib, f"OJ_BACKEND_{backend.upper()}")
        options.kv_codec = getattr(native.lib, f"OJ_KV_{defaults.KV.upper()}")
        options.n_slots = defaults.AGENTS
        options.mtp = model.info.has_mtp
        plan = planning.plan_memory(
            model, options, context=None, memory_budget=None, available=available
        )
    except OutOfMemoryError as error:
        return f"no, not on {where}: {error}"
    finally:
        model.close()
    return f"yes, on {where} with {defaults.AGENTS} agents: {plan}"


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
    fields = _cpu_fields()
    cores = len(os.sched_getaffinity(0))
    return f"{fields.get('model name', 'unknown')}, {cores} logical cores"


def _cpu_kernels() -> str:
    flags = set(_cpu_fields().get("flags", "").split())
    found = "avx512" if flags >= _AVX512 else "avx2" if flags >= _AVX2 else "portable: slow"
    asked = os.environ.get("OPENJET_CPU_ISA")
    return f"{asked}, as OPENJET_CPU_ISA says; else {found}" if asked else found


def _cpu_fields() -> dict[str, str]:
    """Of the last processor that /proc/cpuinfo lists."""
    text = Path("/proc/cpuinfo").read_text()
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _gpus() -> list[str]:
    """One line for each GPU as the driver's own tool names it, or why there is none."""
    found = devices.nvidia_devices()
    if not found:
        return ["no NVIDIA device: engines run on the CPU"]
    try:
        told = _nvidia_smi("name,memory.total,memory.free,driver_version,compute_cap")
    except FileNotFoundError:
        return [f"{found[0]} is there, nvidia-smi is not: install the NVIDIA driver's utilities"]
    except subprocess.TimeoutExpired:
        return [f"{found[0]} is there, but nvidia-smi does not answer: check the driver"]
    except subprocess.CalledProcessError as error:
        return [
            f"{found[0]} is there, but nvidia-smi says: {(error.stdout + error.stderr).strip()}"
        ]
    return [
        f"{name}, {total} ({free} free), driver {driver}, sm_{capability}"
        for name, total, free, driver, capability in told
    ]


def _free_gpu_memory() -> int | None:
    """Bytes of the first GPU; None if the driver does not say."""
    try:
        ((free, *_), *_) = _nvidia_smi("memory.free")
        return int(free.split()[0]) << 20
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def _nvidia_smi(fields: str) -> list[list[str]]:
    """These fields of every GPU."""
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    return [[part.strip() for part in line.split(",")] for line in done.stdout.strip().splitlines()]


def _cuda_engine() -> str:
    gpu = bool(devices.nvidia_devices())
    if not _build_info.library("cuda").exists():
        way = "; install nvcc 12.0 or newer and run `python build.py`, or reinstall" if gpu else ""
        return f"not available: libopenjet_cuda.so was not built{way}"
    if not gpu:
        return "not available: no NVIDIA device"
    try:
        _native.load("cuda")
    except BackendUnavailableError as error:
        return str(error).splitlines()[0]
    warning = _build_info.unproven_cuda()
    return f"loads, and matches its header{f'; {warning}' if warning else ''}"


def _where(name: str) -> str:
    try:
        _, path = models.resolve(name)
    except ModelNotFoundError:
        return "not found on this machine"
    return f"{path}, {_size(path.stat().st_size)}"
