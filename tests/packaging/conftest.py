"""Copies of the source tree to build in, and environments to install into."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

NOT_SOURCES = shutil.ignore_patterns(
    ".git",
    ".venv",
    "__pycache__",
    "*.egg-info",
    "_lib",
    "lib",
    "bdist.*",
    "dist",
    ".*_cache",
    ".part",
)


def run(
    *command: str | Path, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `command` without a terminal, without an index and without this tree on the path."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    clean |= {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **(env or {})}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=clean,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1200,  # compiles on a busy machine
    )


def pip(*arguments: str | Path, cwd: Path) -> None:
    """pip with the dev environment's own setuptools, so that no package index is needed.

    Without CUDA, whose four architectures take minutes; tests/packaging/test_build.py has nvcc.
    """
    done = run(sys.executable, "-m", "pip", *arguments, cwd=cwd, env={"OPENJET_CUDA": "0"})
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def source_tree(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this tree with its compiled objects, but nothing else that was built."""
    try:
        if int(version("setuptools").split(".")[0]) < 77:
            pytest.skip("setuptools 77 or newer is needed (extra `dev`)")
        version("pip")
    except PackageNotFoundError as missing:
        pytest.skip(f"{missing.name} is needed (extra `dev`)")
    tree = tmp_path_factory.mktemp("tree") / "openjet"
    shutil.copytree(root, tree, ignore=NOT_SOURCES)
    return tree


@pytest.fixture(scope="session")
def wheel(source_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", out, ".", cwd=source_tree)
    (path,) = out.glob("*.whl")
    return path


def install(folder: Path, *what: str | Path) -> Path:
    """The python of a new environment with our distribution installed, our dependencies visible.

    Dependencies come from the running environment through a .pth line, which python does not follow
    further: an editable install of this tree stays invisible.
    """
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    site = sysconfig.get_path("purelib", "venv", {"base": str(folder)})
    Path(site, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    # --ignore-installed: the running environment's own copy is not this one's to remove.
    options = ["--python", python, "install", "--no-deps", "--ignore-installed"]
    pip(*options, *what, cwd=folder)
    return python


@pytest.fixture(scope="session", params=["wheel", "editable"])
def installation(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The python of an environment with our distribution, installed in each of both ways."""
    folder = tmp_path_factory.mktemp(request.param) / "env"
    if request.param == "wheel":
        return install(folder, "--no-index", request.getfixturevalue("wheel"))
    tree = request.getfixturevalue("source_tree")
    return install(folder, "--no-build-isolation", "--editable", tree)


@pytest.fixture
def stub_tree(root: Path, tmp_path: Path) -> Path:
    """build.py over a native/ of a few lines, for what needs many quick builds."""
    native = tmp_path / "native"
    for name, text in {
        "include/openjet.h": "int oj_answer(void);\n",
        "engine/answer.h": "#define ANSWER 42\n",
        "engine/answer.cpp": '#include "engine/answer.h"\nint answer() { return ANSWER; }\n',
        "model/other.cpp": "int other() { return 0; }\n",
        "api.cpp": "int answer();\n"
        'extern "C" __attribute__((visibility("default"))) int oj_answer(void)'
        " { return answer(); }\n",
        "tests/test_answer.cpp": 'extern "C" int oj_answer(void);\n'
        "int main() { return oj_answer() == 42 ? 0 : 1; }\n",
    }.items():
        path = native / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copy(root / "build.py", tmp_path)
    return tmp_path


@pytest.fixture
def fake_nvcc(tmp_path: Path) -> Callable[[str], Path]:
    """Makes an nvcc of a given release that knows two architectures and fails to compile."""

    def make(release: str) -> Path:
        path = tmp_path / "nvcc"
        path.write_text(
            "#!/bin/sh\n"
            'case "$1" in\n'
            f"--version) echo 'Cuda compilation tools, release {release}, V{release}.0';;\n"
            "--list-gpu-arch) echo compute_86; echo compute_89;;\n"
            "*) echo 'kernel.cu(1): error: out of luck' >&2; exit 2;;\n"
            "esac\n"
        )
        path.chmod(0o755)
        return path

    return make
