"""Names every call of the CUDA runtime and every PTX instruction in native/cuda, and fails on one
that CUDA 12.0 (PTX ISA 8.0) lacks, unless it stands behind a CUDART_VERSION or __CUDA_ARCH__ guard.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CUDA = Path(__file__).resolve().parent.parent / "native" / "cuda"

RUNTIME = set(
    """
    cudaFree cudaFreeHost cudaFuncSetAttribute cudaGetDeviceCount cudaGetDeviceProperties
    cudaGetErrorName cudaGetErrorString cudaGetLastError cudaGraphDestroy cudaGraphExecDestroy
    cudaGraphInstantiateWithFlags cudaGraphLaunch cudaHostAlloc cudaLaunchCooperativeKernel
    cudaLaunchKernelEx cudaMalloc cudaMemGetInfo cudaMemcpyAsync cudaMemsetAsync
    cudaOccupancyMaxActiveBlocksPerMultiprocessor cudaSetDevice cudaStreamBeginCapture
    cudaStreamCreateWithFlags cudaStreamDestroy cudaStreamEndCapture cudaStreamSynchronize
    """.split()
)
PTX = set(
    """
    cp.async cvt.f32.f16 fence.acq_rel.gpu ld.acquire.gpu.global.u32 ld.global.u32
    ld.global.v2.u32 ld.global.v4.u32 ld.relaxed.gpu.global.u32
    mma.sync.aligned mov.u32 mov.u64 prefetch.global.L2 prmt.b32 red.release.gpu.global.add.u32
    st.release.gpu.global.u32
    """.split()
)


def unguarded(text: str) -> str:
    """`text` without what a version guard encloses, and without comments."""
    text = re.sub(r"//.*", "", text)
    return re.sub(r"#if (?:CUDART_VERSION|__CUDA_ARCH__) >=.*?#endif", "", text, flags=re.DOTALL)


def faults(name: str, text: str) -> list[str]:
    """What is in a source that CUDA 12.0 does not have."""
    text = unguarded(text)
    found = [
        f"{name}: {call} is not in the list of CUDA 12.0's runtime calls that we use"
        for call in sorted(set(re.findall(r"\b(cuda[A-Z]\w*)\(", text)) - RUNTIME)
    ]
    for line in re.findall(r'asm(?: volatile)?\(\s*"([^"]*)', text):
        instruction = line.split()[0].rstrip(";") if line.split() else ""
        if instruction and not any(instruction.startswith(known) for known in PTX):
            found.append(f"{name}: {instruction} is not in the list of PTX 8.0's that we use")
    return found


def main() -> int:
    sources = [path for kind in ("cu", "cuh", "h") for path in sorted(CUDA.glob(f"*.{kind}"))]
    found = [fault for path in sources for fault in faults(path.name, path.read_text())]
    print("\n".join(found) or "native/cuda needs nothing newer than CUDA 12.0")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
