"""Where build.py put the native part of this installation, and what it wrote down about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LIB = Path(__file__).parent / "_lib"
HEADER = LIB / "openjet.h"


def library(kind: str) -> Path:
    """Path of the native library `kind`, "cpu" or "cuda"; it may not exist."""
    return LIB / f"libopenjet_{kind}.so"


def build_record() -> dict[str, Any]:
    """What build.py recorded; empty if nothing was built.

    `source_hash` of native/; `gpu_runs`: GPUs on which these sources passed their checks; `cpu`:
    compiler, flags; `cuda`: built, architectures, and as far as they apply nvcc, nvcc_version,
    skipped (architecture -> why), reason (not tried) or error.
    """
    try:
        record: dict[str, Any] = json.loads((LIB / "_build_record.json").read_text())
    except FileNotFoundError:
        return {}
    return record


def unproven_cuda() -> str:
    """What users of the CUDA backend are told while nobody has recorded a run of it on a GPU."""
    if build_record().get("gpu_runs"):
        return ""
    return (
        "the CUDA backend was never recorded on a GPU with these sources: its answers are proven on"
        " an emulator only. bench/gpu_check.sh checks this GPU; backend='cpu' does without it"
    )


def describe_build() -> str:
    """The build record in a few lines for people, with the way out of what is missing."""
    record = build_record()
    if not record:
        return (
            "native libraries: not built. Run `python build.py` in the source tree, or install the"
            " package again"
        )
    cpu, cuda = record["cpu"], record["cuda"]
    lines = [f"libopenjet_cpu.so: built with {cpu['compiler']}"]
    if cuda["built"]:
        archs = ", ".join(f"sm_{arch}" for arch in cuda["architectures"])
        lines.append(f"libopenjet_cuda.so: built with nvcc {cuda['nvcc_version']} for {archs}")
    else:
        why = cuda.get("error") or cuda["reason"]
        lines.append(f"libopenjet_cuda.so: not built ({why})")
        if "nvcc" in cuda:
            lines.append(f"nvcc: {cuda['nvcc']} {cuda.get('nvcc_version', '')}".rstrip())
    lines += [f"sm_{arch}: left out, {why}" for arch, why in cuda.get("skipped", {}).items()]
    return "\n".join(lines)
