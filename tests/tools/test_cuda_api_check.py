"""native/cuda keeps to CUDA 12.0; what is newer is found unless a version guard encloses it."""

from __future__ import annotations

from tools.cuda_api_check import faults, main


def test_sources_keep_to_it() -> None:
    assert main() == 0


def test_newer_calls_are_found() -> None:
    call = "cudaGraphAddNode_v2(&node);"
    assert "cudaGraphAddNode_v2" in faults("a.cu", call)[0]
    assert faults("a.cu", f"#if CUDART_VERSION >= 12030\n{call}\n#endif") == []
    assert "tcgen05.mma" in faults("a.cuh", 'asm volatile("tcgen05.mma x;");')[0]
    assert faults("a.cuh", f"// {call}") == []
