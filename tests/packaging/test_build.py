"""build.py: what it compiles, what it records, and how it fails."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import load_program
from tests.packaging.conftest import run

KERNEL = """
__global__ void twice(int* x) { x[threadIdx.x] *= 2; }
extern "C" __attribute__((visibility("default"))) int oj_launch(int* x) {
    twice<<<1, 32>>>(x);
    return cudaGetLastError();
}
"""


@pytest.fixture
def build_module(root: Path) -> ModuleType:
    return load_program(root / "build.py")


def build(tree: Path, *arguments: str, **env: str) -> tuple[int, str]:
    done = run(sys.executable, "build.py", *arguments, cwd=tree, env=env)
    return done.returncode, done.stdout + done.stderr


def record(tree: Path) -> dict[str, Any]:
    return json.loads((tree / "openjet_provider/_lib/_build_record.json").read_text())


def add_kernel(tree: Path) -> None:
    (tree / "native/cuda").mkdir()
    (tree / "native/cuda/kernel.cu").write_text(KERNEL)


def object_times(tree: Path) -> dict[str, int]:
    objects = (tree / "build/native").rglob("*.o")
    return {path.name: path.stat().st_mtime_ns for path in objects}


def test_library_header_and_record(stub_tree: Path) -> None:
    status, output = build(stub_tree)
    assert status == 0, output
    out = stub_tree / "openjet_provider/_lib"
    assert ctypes.CDLL(str(out / "libopenjet_cpu.so")).oj_answer() == 42
    assert (out / "openjet.h").read_text() == "int oj_answer(void);\n"
    assert record(stub_tree)["cuda"]["reason"] == "no CUDA sources in this version"
    assert "g++" in record(stub_tree)["cpu"]["compiler"]


def test_only_what_changed_is_compiled(stub_tree: Path) -> None:
    build(stub_tree)
    before = object_times(stub_tree)
    header = stub_tree / "native/engine/answer.h"
    header.write_text("#define ANSWER 43\n")
    status, output = build(stub_tree)
    assert status == 0, output
    after = object_times(stub_tree)
    assert {name for name in after if after[name] != before[name]} == {"answer.cpp.o"}


def test_test_programs_under_a_sanitizer(stub_tree: Path) -> None:
    status, output = build(stub_tree, "--tests", "--sanitize", "address", "--out", "programs")
    assert status == 0, output
    assert run(stub_tree / "programs/test_answer", cwd=stub_tree).returncode == 0


def test_a_sanitizer_build_finds_what_it_is_for(stub_tree: Path) -> None:
    (stub_tree / "native/engine/answer.cpp").write_text(
        "int answer() { int* p = new int[4]; int v = p[4]; delete[] p; return v; }\n"
    )
    build(stub_tree, "--tests", "--sanitize", "address", "--out", "programs")
    done = run(stub_tree / "programs/test_answer", cwd=stub_tree)
    assert done.returncode != 0
    assert "answer.cpp" in done.stderr


def test_hash_follows_the_sources_but_not_their_tests(stub_tree: Path) -> None:
    before = build(stub_tree, "--hash")
    (stub_tree / "native/tests/test_answer.cpp").write_text("int main() { return 0; }\n")
    assert build(stub_tree, "--hash") == before
    (stub_tree / "native/engine/answer.h").write_text("#define ANSWER 43\n")
    assert build(stub_tree, "--hash") != before


def test_the_cpu_library_has_a_hash_without_kernels(stub_tree: Path) -> None:
    before = build(stub_tree, "--hash", "cpu")
    (stub_tree / "native/cuda").mkdir(exist_ok=True)
    (stub_tree / "native/cuda/more.cuh").write_text("// a kernel\n")
    assert build(stub_tree, "--hash", "cpu") == before
    (stub_tree / "native/engine/answer.h").write_text("#define ANSWER 43\n")
    assert build(stub_tree, "--hash", "cpu") != before


def test_compile_error_is_shown(stub_tree: Path) -> None:
    (stub_tree / "native/api.cpp").write_text("nonsense;\n")
    status, output = build(stub_tree)
    assert status == 1
    assert "native/api.cpp" in output
    assert "error" in output


def test_missing_compiler_names_the_way_out(stub_tree: Path) -> None:
    status, output = build(stub_tree, CXX="no-such-g++")
    assert status == 1
    assert "apt install g++" in output


def test_other_platforms_are_refused(
    build_module: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    with pytest.raises(build_module.BuildError, match=r"Linux x86-64 only.*this is Darwin arm64"):
        build_module.build_package(tmp_path)


def test_failing_nvcc_is_recorded_and_the_build_goes_on(
    stub_tree: Path, fake_nvcc: Callable[[str], Path]
) -> None:
    add_kernel(stub_tree)
    status, output = build(stub_tree, NVCC=str(fake_nvcc("12.4")))
    assert status == 0, output
    assert "going on without it" in output
    cuda = record(stub_tree)["cuda"]
    assert cuda["built"] is False
    assert cuda["error"] == "kernel.cu(1): error: out of luck"
    assert cuda["nvcc_version"] == "12.4"
    assert set(cuda["skipped"]) == {"90", "120"}
    assert (stub_tree / "openjet_provider/_lib/libopenjet_cpu.so").is_file()


def test_failing_nvcc_fails_a_build_that_asked_for_cuda(
    stub_tree: Path, fake_nvcc: Callable[[str], Path]
) -> None:
    add_kernel(stub_tree)
    status, output = build(stub_tree, NVCC=str(fake_nvcc("12.4")), OPENJET_CUDA="1")
    assert status == 1
    assert "out of luck" in output


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        ({}, "nvcc 11.8 is older than 12.0"),
        ({"OPENJET_CUDA": "0"}, "switched off by OPENJET_CUDA=0"),
    ],
)
def test_skipped_cuda_says_why(
    stub_tree: Path, fake_nvcc: Callable[[str], Path], env: dict[str, str], reason: str
) -> None:
    add_kernel(stub_tree)
    status, output = build(stub_tree, NVCC=str(fake_nvcc("11.8")), **env)
    assert status == 0, output
    assert record(stub_tree)["cuda"]["reason"] == reason


def test_unknown_cuda_mode_is_refused(stub_tree: Path) -> None:
    status, output = build(stub_tree, OPENJET_CUDA="yes")
    assert status == 1
    assert "must be auto, 0 or 1, not 'yes'" in output


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on PATH")
def test_cuda_library_loads_without_a_device(stub_tree: Path) -> None:
    add_kernel(stub_tree)
    status, output = build(stub_tree, OPENJET_CUDA="1", OPENJET_CUDA_ARCHS="86,1234,80")
    assert status == 0, output
    cuda = record(stub_tree)["cuda"]
    assert cuda["architectures"] == ["86"]
    assert cuda["skipped"] == {
        "1234": "not known to this nvcc",
        "80": "not supported yet: 86, 89, 90, 120 are",
    }
    library = ctypes.CDLL(str(stub_tree / "openjet_provider/_lib/libopenjet_cuda.so"))
    if not os.path.exists("/dev/nvidia0"):
        assert library.oj_launch(None) != 0  # an error code, not a crash


def test_pypa_build_by_mistake_gets_a_hint(stub_tree: Path) -> None:
    status, output = build(stub_tree, "--wheel")
    assert status == 2
    assert "pip wheel" in output


def test_slow_memory_of_kernels_is_named(build_module: ModuleType) -> None:
    report = (
        "ptxas info    : Function properties for {3}\n"
        "    {0} bytes stack frame, {1} bytes spill stores, {0} bytes spill loads\n"
        "ptxas info    : Used 255 registers, used 1 barriers{2}\n"
    )

    def faults(stack: int, spilled: int, shared: str = "", kernel: str = "oj_step") -> list[str]:
        found: list[str] = build_module.kernel_faults(report.format(stack, spilled, shared, kernel))
        return found

    assert faults(0, 0) == []
    assert faults(320, 1024) == []  # kept across calls
    assert "oj_step spills registers: 1028 bytes spill stores" in faults(8, 1028)[0]
    assert "oj_step has arrays in memory: 328 bytes stack frame" in faults(328, 0)[0]
    assert "oj_step has static shared memory: 64 bytes smem" in faults(0, 0, ", 64 bytes smem")[0]
    assert faults(400, 0, kernel="oj_repack") == []  # no part of a step
