#!/usr/bin/env python3
"""Compile native/: libopenjet_cpu.so always, libopenjet_cuda.so where nvcc and CUDA sources are.

    python build.py                                  libraries into openjet_provider/_lib/
    python build.py --tests --out DIR                the programs of native/tests/ into DIR
    python build.py --sanitize address --out DIR     library and programs, instrumented (or thread)
    python build.py --emulate --out DIR              the CUDA library with its kernels on the host
    python build.py --gpu-tests --out DIR            the tests of kernels as programs for a GPU
    python build.py --hash [cpu]                     hash of the native sources, all or the CPU's

setup.py calls `build_package` for `pip install .`, wheels and editable installs. Needs only the
standard library. Objects are kept under build/native/, one folder per compiler and flags.

Environment: CXX, NVCC, OPENJET_CUDA=auto|0|1, OPENJET_CUDA_ARCHS="86 89", OPENJET_WERROR=1.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
NATIVE = ROOT / "native"
HEADER = NATIVE / "include" / "openjet.h"
PACKAGE_LIB = ROOT / "openjet_provider" / "_lib"
OBJECTS = ROOT / "build" / "native"

HOST_FLAGS = [
    "-fPIC",
    "-ffp-contract=off",  # the numeric contract: a fused multiply-add only where the source says so
    "-fno-math-errno",
    "-fvisibility=hidden",
    "-pthread",
    "-Wall",
    "-Wextra",
]
SANITIZERS = {
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    "thread": ["-fsanitize=thread"],
}
CUDA_ARCHS = ("86", "89", "90", "120")
OLDEST_NVCC = (12, 0)


class BuildError(Exception):
    """A build that cannot go on; the message says what failed and the way out."""


# --- running compilers --------------------------------------------------------------------------


def run(command: Sequence[str], log: Path | None = None) -> str:
    """Run `command` in the project's root and return its stdout; a failure carries its output.

    What it writes to stderr goes to `log`, or is printed.
    """
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    except OSError as error:
        raise BuildError(f"cannot run {command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip()
        raise BuildError(f"{shlex.join(command)}\nfailed with status {done.returncode}:\n{output}")
    if log is not None:
        log.write_text(done.stderr)
    elif done.stderr.strip():
        print(done.stderr.strip(), file=sys.stderr)  # warnings
    return done.stdout


def first_error(error: BuildError) -> str:
    """The line of a failed build worth recording: the first that names an error."""
    lines = str(error).splitlines()
    return next((line for line in lines if re.search(r"\b(error|fatal)\b", line, re.I)), lines[0])


def require_platform() -> None:
    system, machine = platform.system(), platform.machine()
    if system != "Linux" or machine not in ("x86_64", "AMD64"):
        raise BuildError(
            "openjet-provider builds on Linux x86-64 only (WSL2 included);"
            f" this is {system} {machine}"
        )


def find_cxx() -> list[str]:
    command = shlex.split(os.environ.get("CXX", "g++"))
    if not command or shutil.which(command[0]) is None:
        raise BuildError(
            f"no C++ compiler: '{' '.join(command)}' was not found. Install g++ 11 or newer"
            " (Debian, Ubuntu: apt install g++), or set CXX"
        )
    return command


@contextlib.contextmanager
def build_lock() -> Iterator[None]:
    """One build at a time over the shared object folder; the kernel frees a dead holder's lock."""
    OBJECTS.mkdir(parents=True, exist_ok=True)
    with open(OBJECTS / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Toolchain:
    """A compiler with its flags, and the folder that keeps what it compiled.

    Paths given to the compiler are relative to the root, so that objects do not depend on it.
    """

    def __init__(self, name: str, command: Sequence[str], flags: Sequence[str]) -> None:
        self.version = run([*command, "--version"]).strip()
        self.flags = list(flags)
        self.compile = [*command, *flags, "-Inative/include", "-Inative"]
        key = "\0".join([self.version, *self.compile])
        self.folder = OBJECTS / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"

    def objects(self, sources: Sequence[Path]) -> list[Path]:
        """Compile what is out of date, on every core this process may use."""
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return list(pool.map(self._object, sources))

    def _object(self, source: Path) -> Path:
        target = self.folder / source.relative_to(NATIVE).with_suffix(source.suffix + ".o")
        depends = target.with_suffix(".d")
        if not up_to_date(target, depends):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            files = ["-MF", str(depends), "-c", str(source.relative_to(ROOT)), "-o", str(target)]
            log = Path(f"{target}.log") if source.suffix == ".cu" else None
            started = time.time_ns()
            run([*self.compile, "-MMD", *files], log)
            os.utime(target, ns=(started, started))  # a source that was edited meanwhile is newer
        return target


def up_to_date(target: Path, depends: Path) -> bool:
    """Whether `target` is newer than every file its dependency record names."""
    try:
        built = target.stat().st_mtime_ns
        names = depends.read_text().replace("\\\n", " ").split(":", 1)[1]
        return all((ROOT / name).stat().st_mtime_ns < built for name in shlex.split(names))
    except (OSError, IndexError):
        return False


def link(command: Sequence[str], objects: Sequence[Path], flags: Sequence[str], out: Path) -> None:
    """Link beside `out`, then rename: a process that has the old library open keeps it whole."""
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f".{out.name}.part")
    run([*command, *map(str, objects), *flags, "-o", str(part)])
    os.replace(part, out)


# --- what is built ------------------------------------------------------------------------------


def sources(*folders: str, suffix: str = "cpp") -> list[Path]:
    """The sources of native/'s `folders`, "." being native/ itself."""
    return sorted(path for folder in folders for path in (NATIVE / folder).glob(f"*.{suffix}"))


def source_hash(*without: str) -> str:
    """sha256 over the paths and contents of the native sources, but of no tests and of no folder
    in `without`."""
    digest = hashlib.sha256()
    for path in sorted(NATIVE.rglob("*")):
        name = path.relative_to(NATIVE).as_posix()
        if path.suffix not in (".h", ".hpp", ".cuh", ".cpp", ".cu"):
            continue
        if name.partition("/")[0] not in ("tests", *without):
            content = path.read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def gpu_runs(source: str) -> list[str]:
    """GPUs on which bench/gpu_check.py was recorded with these sources and nothing that equal
    results rest on was left unproven."""
    records = [json.loads(path.read_text()) for path in (ROOT / "bench" / "results").glob("*.json")]
    return sorted(
        record["card"]
        for record in records
        if isinstance(record, dict)
        and record.get("source_hash") == source
        and "card" in record
        and not record.get("emulated")
        and record.get("unproven") == []
    )


def cxx_toolchain(sanitize: str | None = None, emulate: bool = False) -> Toolchain:
    flags = ["-std=c++17", *HOST_FLAGS]
    if emulate:
        flags.append("-DOJ_EMULATE=")
    if sanitize:
        flags += ["-O1", "-g", "-fno-omit-frame-pointer", *SANITIZERS[sanitize]]
    else:
        flags.append("-O3")
    if os.environ.get("OPENJET_WERROR") == "1":
        flags.append("-Werror")
    name = (sanitize or "cpu") + ("-emulate" if emulate else "")
    return Toolchain(name, find_cxx(), flags)


def cpu_objects(tools: Toolchain) -> list[Path]:
    found = sources(".", "engine", "model", "cpu", "scripted")
    if not found:
        raise BuildError(f"no C++ sources under {NATIVE}: the source tree is not complete")
    return tools.objects(found)


def build_cpu(out: Path, sanitize: str | None = None) -> dict[str, Any]:
    tools = cxx_toolchain(sanitize)
    link([*tools.compile, "-shared"], cpu_objects(tools), [], out / "libopenjet_cpu.so")
    return {"compiler": tools.version.splitlines()[0], "flags": tools.flags}


def build_tests(out: Path, sanitize: str | None = None) -> list[Path]:
    """Every native/tests/*.cpp becomes one program that exits with 0 when it passes.

    Those named cuda_* have the CUDA backend's host code and its device code on the emulator.
    """
    plain, emulated = cxx_toolchain(sanitize), cxx_toolchain(sanitize, emulate=True)
    common = cpu_objects(plain)
    of_cuda = [source for source in sources("tests") if source.stem.startswith("cuda_")]
    others = [source for source in sources("tests") if source not in of_cuda]
    cuda = emulated.objects(sources("cuda", "cuda/emulator"))
    for source, test in zip(others, plain.objects(others), strict=True):
        link(plain.compile, [test, *common], [], out / source.stem)
    for source, test in zip(of_cuda, emulated.objects(of_cuda), strict=True):
        link(plain.compile, [test, *cuda, *common], [], out / source.stem)
    return [out / source.stem for source in others + of_cuda]


# Programs of native/tests/ that nvcc compiles too: their kernels run on the emulator or on a GPU.
GPU_TESTS = ("device", "phase", "sample", "delta", "attention", "gemm")


def build_gpu_tests(out: Path) -> list[Path]:
    """What cuda_*_test.cpp run on the emulator, as programs that run it on a GPU."""
    try:
        nvcc = find_nvcc()
    except CudaSkipped as skipped:
        raise BuildError(str(skipped)) from skipped
    archs, _ = cuda_archs(nvcc)
    device = cuda_toolchain(nvcc, archs, ["-x", "cu"])
    common = cpu_objects(cxx_toolchain())
    tests = [NATIVE / "tests" / f"cuda_{name}_test.cpp" for name in GPU_TESTS]
    for source, test in zip(tests, device.objects(tests), strict=True):
        link([nvcc, "-cudart", "static"], [test, *common], [], out / source.stem)
    return [out / source.stem for source in tests]


def build_emulated(out: Path, sanitize: str | None = None) -> Path:
    """The CUDA library with its kernels run on the host by the emulator: for tests."""
    host, device = cxx_toolchain(sanitize), cxx_toolchain(sanitize, emulate=True)
    objects = host.objects(sources(".", "engine", "model"))
    objects += device.objects(sources("cuda", "cuda/library", "cuda/emulator"))
    library = out / "libopenjet_cuda_emulated.so"
    link([*host.compile, "-shared"], objects, [], library)
    return library


class CudaSkipped(Exception):
    """Why there is no CUDA library although nothing failed."""


def find_nvcc() -> str:
    if path := os.environ.get("NVCC"):
        return path
    if path := shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc"):
        return path
    raise CudaSkipped("no nvcc on PATH or in /usr/local/cuda/bin; set NVCC to its path")


def cuda_archs(nvcc: str) -> tuple[list[str], dict[str, str]]:
    """The architectures to build, and those left out with the reason."""
    wanted = os.environ.get("OPENJET_CUDA_ARCHS", "").replace(",", " ").split() or CUDA_ARCHS
    known = run([nvcc, "--list-gpu-arch"]).split()
    skipped: dict[str, str] = {}
    for arch in wanted:
        if f"compute_{arch}" not in known:
            skipped[arch] = "not known to this nvcc"
        elif arch not in CUDA_ARCHS:  # the kernel takes what these cards have for granted
            skipped[arch] = f"not supported yet: {', '.join(CUDA_ARCHS)} are"
    build = [arch for arch in wanted if arch not in skipped]
    if not build:
        reasons = [f"sm_{arch} is {reason}" for arch, reason in skipped.items()]
        raise BuildError("no architecture is left to build for: " + "; ".join(reasons))
    return build, skipped


# What a thread may keep in memory across calls: on sm_120 up to 42 registers.
KEPT_ACROSS_CALLS = 320  # bytes of a thread
# What a function's instructions may store or load of that: products save a dozen registers around
# each of their variants (sm_120: 552 bytes). A loop that spills has been more, by its loads.
SPILL_CODE = 1024


# Packs weights while a model is loaded; arrays in memory do not slow steps down.
NOT_IN_STEPS = ("oj_repack",)


def kernel_faults(report: str) -> list[str]:
    """What `ptxas -v` says that no kernel of a step may have: registers that spill, arrays in
    memory, and shared memory beside what a launch asks for (step_kernel.cuh keeps that to what
    every card has)."""
    faults, function = [], ""
    for line in report.splitlines():
        if match := re.search(
            r"(?:Function properties for|Compiling entry function) '?(\S+)", line
        ):
            function = match[1].strip("'")
        if function in NOT_IN_STEPS:
            continue
        match = re.search(r"(\d+) bytes stack frame", line)
        if match and int(match[1]) > KEPT_ACROSS_CALLS:
            faults.append(f"{function} has arrays in memory: {match[0]}")
        if match := re.search(r"\b([1-9]\d*) bytes smem", line):
            faults.append(f"{function} has static shared memory: {match[0]}")
        match = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)
        if match and max(int(match[1]), int(match[2])) > SPILL_CODE:
            faults.append(f"{function} spills registers: {match[0]}")
    return faults


def cuda_toolchain(nvcc: str, archs: Sequence[str], more: Sequence[str] = ()) -> Toolchain:
    """nvcc for these architectures, one a process."""
    flags = ["-std=c++17", "-O3", "-fmad=false", "-ccbin", find_cxx()[0], *more]
    flags += ["-Xcompiler", ",".join(HOST_FLAGS), f"--threads={len(os.sched_getaffinity(0))}"]
    flags += [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in archs]
    return Toolchain("cuda", [nvcc], flags)


def compile_kernels(nvcc: str, archs: Sequence[str], record: dict[str, Any]) -> list[Path]:
    """The device code; the machine code of all architectures in one object each."""
    device = cuda_toolchain(nvcc, archs, ["-Xptxas=-v"])
    objects = device.objects(sources("cuda", suffix="cu"))
    reports = [Path(f"{target}.log") for target in objects]
    text = "\n".join(path.read_text() for path in reports if path.exists())
    record["spills"] = kernel_faults(text)
    if record["spills"] and os.environ.get("OPENJET_WERROR") == "1":
        raise BuildError("\n".join(["error: kernels use slow memory", *record["spills"]]))
    return objects


def build_cuda(out: Path, record: dict[str, Any]) -> None:
    """Build libopenjet_cuda.so, filling `record` as far as it comes."""
    record["nvcc"] = nvcc = find_nvcc()
    match = re.search(r"release (\d+)\.(\d+)", run([nvcc, "--version"]))
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    record["nvcc_version"] = "{}.{}".format(*version)
    if version < OLDEST_NVCC:
        raise CudaSkipped("nvcc {}.{} is older than 12.0".format(*version))
    archs, record["skipped"] = cuda_archs(nvcc)
    tools = cxx_toolchain()
    objects = compile_kernels(nvcc, archs, record)
    objects += tools.objects(sources(".", "engine", "model", "cuda", "cuda/library"))
    link([nvcc, "-shared", "-cudart", "static"], objects, [], out / "libopenjet_cuda.so")
    record.update(built=True, architectures=archs)


def try_cuda(out: Path) -> dict[str, Any]:
    """Build the CUDA library as OPENJET_CUDA asks; under `auto` a failure is only recorded."""
    mode = os.environ.get("OPENJET_CUDA", "auto")
    if mode not in ("auto", "0", "1"):
        raise BuildError(f"OPENJET_CUDA must be auto, 0 or 1, not '{mode}'")
    record: dict[str, Any] = {"built": False, "architectures": []}
    (out / "libopenjet_cuda.so").unlink(missing_ok=True)
    try:
        if mode == "0":
            raise CudaSkipped("switched off by OPENJET_CUDA=0")
        if not sources("cuda", suffix="cu"):
            raise CudaSkipped("no CUDA sources in this version")
        build_cuda(out, record)
    except CudaSkipped as skipped:
        record["reason"] = str(skipped)
    except BuildError as error:
        if mode == "1":
            raise
        record["error"] = first_error(error)
        print(f"warning: no CUDA library, going on without it.\n{error}", file=sys.stderr)
    if mode == "1" and not record["built"]:
        raise BuildError(f"OPENJET_CUDA=1, but: {record['reason']}")
    return record


def build_package(out: Path) -> list[Path]:
    """Build everything the package ships into `out` and return those files.

    The libraries, the header they were compiled with (cffi reads its declarations from it) and
    `_build_record.json`, which `openjet doctor` and Engine errors print.
    """
    require_platform()
    if not HEADER.is_file():
        raise BuildError(f"{HEADER} is missing: the source tree is not complete")
    with build_lock():
        source = source_hash()
        record: dict[str, Any] = {"source_hash": source, "gpu_runs": gpu_runs(source)}
        record["cpu"] = build_cpu(out)
        record["cuda"] = try_cuda(out)
        shutil.copyfile(HEADER, out / HEADER.name)
        with tempfile.NamedTemporaryFile("w", dir=out, suffix=".part", delete=False) as part:
            json.dump(record, part, indent=2)
        os.chmod(part.name, 0o644)
        os.replace(part.name, out / "_build_record.json")
    names = ["libopenjet_cpu.so", HEADER.name, "_build_record.json"]
    names += ["libopenjet_cuda.so"] if record["cuda"]["built"] else []
    return [out / name for name in names]


# --- command line -------------------------------------------------------------------------------


def main(argv: Sequence[str]) -> int:
    if any(arg in ("--wheel", "-w", "--sdist", "-s", "--no-isolation", "-n") for arg in argv):
        print(
            "This is the project's own build.py: in this folder it hides the PyPA 'build' module.\n"
            "For a wheel use `pip wheel --no-deps .`, or the script `pyproject-build`.",
            file=sys.stderr,
        )
        return 2
    parser = argparse.ArgumentParser("build.py", description="Compile the native libraries.")
    parser.add_argument("--out", type=Path, help="folder for the results")
    parser.add_argument("--tests", action="store_true", help="build the programs of native/tests")
    parser.add_argument(
        "--sanitize", choices=list(SANITIZERS), help="instrumented library and tests"
    )
    parser.add_argument(
        "--emulate", action="store_true", help="the CUDA library with emulated kernels"
    )
    parser.add_argument(
        "--gpu-tests", action="store_true", help="the tests of kernels as programs for a GPU"
    )
    parser.add_argument(
        "--hash",
        nargs="?",
        const="all",
        choices=["all", "cpu"],
        help="print the hash of the native sources, or of the CPU library's",
    )
    args = parser.parse_args(argv)
    out: Path | None = args.out and args.out.absolute()
    try:
        if args.hash:
            print(source_hash(*(["cuda"] if args.hash == "cpu" else [])))
        elif not (args.tests or args.sanitize or args.emulate or args.gpu_tests):
            print("\n".join(map(str, build_package(out or PACKAGE_LIB))))
        elif out is None:
            parser.error("--tests, --sanitize, --emulate and --gpu-tests need --out DIR")
        elif args.gpu_tests:
            require_platform()
            with build_lock():
                print("\n".join(map(str, build_gpu_tests(out))))
        elif args.emulate:
            require_platform()
            with build_lock():
                print(build_emulated(out, args.sanitize))
        else:
            require_platform()
            with build_lock():
                if not args.tests:
                    build_cpu(out, args.sanitize)
                print("\n".join(map(str, build_tests(out, args.sanitize))))
    except BuildError as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
