"""`openjet doctor` says what is there, what is missing and how to get it."""

from __future__ import annotations

from pathlib import Path

import pytest

from openjet_provider import _build_info, _native, devices, doctor
from openjet_provider.cli import main

CPU_RECORD = {"compiler": "g++ 12.2", "flags": []}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "nvidia_devices", lambda: [Path("/dev/nvidia0")])


@pytest.fixture
def nvidia_smi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only nvidia-smi on PATH; tests fill it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "nvidia-smi"


def write_script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_machine_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "nvidia_devices", list)
    assert "no NVIDIA device: engines run on the CPU" in doctor.report_machine()[0]


@pytest.mark.usefixtures("gpu")
def test_a_gpu_as_its_driver_names_it(nvidia_smi: Path) -> None:
    write_script(nvidia_smi, "echo 'NVIDIA Card, 24564 MiB, 24000 MiB, 580.65, 8.9'")
    text, _ = doctor.report_machine()
    assert "NVIDIA Card, 24564 MiB (24000 MiB free), driver 580.65, sm_8.9" in text


@pytest.mark.usefixtures("gpu", "nvidia_smi")
def test_a_gpu_without_nvidia_smi() -> None:
    assert "install the NVIDIA driver's utilities" in doctor.report_machine()[0]


@pytest.mark.usefixtures("gpu")
def test_a_broken_driver_is_quoted(nvidia_smi: Path) -> None:
    write_script(nvidia_smi, "echo 'driver/library version mismatch'; exit 18")
    assert "nvidia-smi says: driver/library version mismatch" in doctor.report_machine()[0]


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
