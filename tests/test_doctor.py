"""`openjet doctor` says what is there, what is missing and how to get it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from openjet_provider import _build_info, _native, devices, doctor, planning
from openjet_provider.cli import main
from openjet_provider.errors import BackendUnavailableError
from tests.native.steps import supported_isas

CPU_RECORD = {"compiler": "g++ 12.2", "flags": []}


SMI = "echo 'NVIDIA Card, 24564 MiB, 24000 MiB, 580.65, 8.9'"
NO_NVCC = {"built": False, "reason": "no nvcc"}
BUILT = {"built": True, "architectures": ["89"], "nvcc_version": "13.0"}


@dataclass(frozen=True)
class Machine:
    """gpu: its device node is there. smi: what nvidia-smi runs; None: it is missing. libraries:
    those that were built. loads: those that can be loaded."""

    cuda: dict[str, Any]
    gpu: bool = True
    smi: str | None = SMI
    libraries: tuple[str, ...] = ("cpu",)
    loads: tuple[str, ...] = ("cpu", "cuda")
    gpu_runs: tuple[str, ...] = ()

    def fake(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        def load(kind: str) -> None:
            if kind not in self.libraries or kind not in self.loads:
                raise BackendUnavailableError(f"libopenjet_{kind}.so cannot be loaded: broken")

        for name in self.libraries:
            (folder / f"libopenjet_{name}.so").touch()
        if self.smi is not None:
            (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{self.smi}\n")
            (folder / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        monkeypatch.setattr(_build_info, "LIB", folder)
        record = {"cpu": CPU_RECORD, "cuda": self.cuda, "gpu_runs": self.gpu_runs}
        record = record if self.libraries else {}
        monkeypatch.setattr(_build_info, "build_record", lambda: record)
        monkeypatch.setattr(_native, "load", load)
        nodes = [Path("/dev/nvidia0")] if self.gpu else []
        monkeypatch.setattr(devices, "nvidia_devices", lambda: nodes)


# A machine, what the report says, and whether an engine can be opened.
MACHINES = {
    "no GPU": (
        Machine(NO_NVCC, gpu=False, smi=None),
        [
            "no NVIDIA device: engines run on the CPU",
            "libopenjet_cuda.so: not built (no nvcc)",
            "CPU engine    loads, and matches its header",
            "CUDA engine   not available: libopenjet_cuda.so was not built",
        ],
        True,
    ),
    "GPU, driver and CUDA build": (
        Machine(BUILT, libraries=("cpu", "cuda")),
        [
            "NVIDIA Card, 24564 MiB (24000 MiB free), driver 580.65, sm_8.9",
            "libopenjet_cuda.so: built with nvcc 13.0 for sm_89",
            "CUDA engine   loads, and matches its header; the CUDA backend was never recorded on",
        ],
        True,
    ),
    "GPU, and checks recorded on one": (
        Machine(BUILT, libraries=("cpu", "cuda"), gpu_runs=("NVIDIA Card",)),
        ["CUDA engine   loads, and matches its header\n"],
        True,
    ),
    "GPU, but built without nvcc": (
        Machine(NO_NVCC),
        ["was not built; install nvcc 12.0 or newer and run `python build.py`, or reinstall"],
        True,
    ),
    "GPU without its driver's utilities": (
        Machine(BUILT, smi=None, libraries=("cpu", "cuda")),
        ["/dev/nvidia0 is there, nvidia-smi is not: install the NVIDIA driver's utilities"],
        True,
    ),
    "broken driver": (
        Machine(
            BUILT,
            smi="echo 'driver/library version mismatch'; exit 18",
            libraries=("cpu", "cuda"),
            loads=("cpu",),
        ),
        [
            "nvidia-smi says: driver/library version mismatch",
            "CUDA engine   libopenjet_cuda.so cannot be loaded: broken",
        ],
        True,
    ),
    "nothing built": (
        Machine({}, gpu=False, libraries=()),
        ["native libraries: not built. Run `python build.py`", "cannot be loaded: broken"],
        False,
    ),
}


@pytest.mark.parametrize(("machine", "lines", "healthy"), MACHINES.values(), ids=MACHINES)
def test_a_machine(
    machine: Machine,
    lines: list[str],
    healthy: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine.fake(monkeypatch, tmp_path)
    assert main(["doctor"]) == (0 if healthy else 1)
    out = capsys.readouterr().out
    for line in lines:
        assert line in out


def test_the_cpu_kernels_are_those_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = supported_isas()[-1]
    text, _ = doctor.report_machine()
    assert re.search(rf"^CPU kernels +{expected}\b", text, re.MULTILINE)
    monkeypatch.setenv("OPENJET_CPU_ISA", "portable")
    assert "portable, as OPENJET_CPU_ISA says" in doctor.report_machine()[0]


@pytest.mark.parametrize(
    ("cuda", "line"),
    [
        ({"built": False, "reason": "no nvcc"}, "libopenjet_cuda.so: not built (no nvcc)"),
        ({"built": False, "error": "k.cu(1): error: x"}, "not built (k.cu(1): error: x)"),
        (
            {
                "built": True,
                "architectures": ["86", "89"],
                "nvcc_version": "12.4",
                "skipped": {"120": "not known to this nvcc"},
            },
            "sm_120: left out, not known to this nvcc",
        ),
    ],
)
def test_the_build_record_is_told(
    monkeypatch: pytest.MonkeyPatch, cuda: dict[str, object], line: str
) -> None:
    monkeypatch.setattr(_build_info, "build_record", lambda: {"cpu": CPU_RECORD, "cuda": cuda})
    assert line in _build_info.describe_build()


def test_an_installation_without_libraries_fails_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_build_info, "LIB", tmp_path)
    monkeypatch.setattr(_native, "load", _native.load.__wrapped__)  # past its cache
    assert main(["doctor"]) == 1
    assert "python build.py" in capsys.readouterr().out


def test_the_bundled_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "openjet-tiny"]) == 0
    out = capsys.readouterr().out
    assert "qwen35" in out
    assert "Q4_K x" in out
    assert [line.split() for line in out.splitlines() if line.startswith("MTP")] == [
        ["MTP", "head", "yes"]
    ]


def test_a_file_that_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.gguf"
    path.write_text("not a model")
    assert main(["doctor", str(path)]) == 1
    assert str(path) in capsys.readouterr().err


def test_a_file_of_any_name_is_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("README.md").write_text("not a model")
    assert main(["doctor", "README.md"]) == 1
    assert f"{tmp_path}/README.md" in capsys.readouterr().err


def test_whether_a_model_fits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "openjet-tiny"]) == 0
    assert "fits          yes, on the CPU with 4 agents: 0." in capsys.readouterr().out
    monkeypatch.setattr(planning, "available_memory", lambda: 20_000_000)
    assert main(["doctor", "openjet-tiny"]) == 0
    assert "fits          no, not on the CPU: openjet-tiny.gguf needs" in capsys.readouterr().out


def test_a_large_model_beside_a_gpu_that_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(devices, "nvidia_devices", lambda: [Path("/dev/nvidia0")])
    monkeypatch.setattr(devices, "_LARGE_FILE", 1_000)
    monkeypatch.setattr(_build_info, "library", lambda kind: Path(f"/nowhere/{kind}"))
    assert main(["doctor", "openjet-tiny"]) == 0
    assert "fits          no: there is an NVIDIA device" in capsys.readouterr().out


def test_an_unknown_name_lists_the_places(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "no-such-model"]) == 1
    assert "Searched" in capsys.readouterr().err


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "openjet doctor" in capsys.readouterr().out


def test_ctrl_c_ends_a_command_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "report_machine", interrupted)
    assert main(["doctor"]) == 130
