"""What a user gets: the wheel's name and contents, and imports from it and an editable tree."""

from __future__ import annotations

import json
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.packaging.conftest import install, pip, run

pytestmark = pytest.mark.timeout(1800)  # the first one may wait for the compiler


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_one_wheel_serves_every_python(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl")


def test_wheel_has_packages_libraries_header_and_record(names: set[str]) -> None:
    assert {
        "openjet_provider/__init__.py",
        "openjet_provider/py.typed",
        "openjet_provider/chat/__init__.py",
        "openjet_provider/_lib/libopenjet_cpu.so",
        "openjet_provider/_lib/openjet.h",
        "openjet_provider/_lib/_build_record.json",
        "langchain_openjet/__init__.py",
        "langchain_openjet/py.typed",
        "litellm_openjet/__init__.py",
        "litellm_openjet/py.typed",
    } <= names
    assert "openjet_provider/data/openjet-tiny.gguf" in names
    page = {f"openjet_provider/server/page/{name}" for name in ("index.html", "monitor.js")}
    assert page <= names, "the live page of `openjet serve`"


def test_wheel_has_nothing_else(names: set[str]) -> None:
    tops = {name.split("/")[0] for name in names}
    packages = {"openjet_provider", "langchain_openjet", "litellm_openjet"}
    assert {top for top in tops - packages if not top.endswith(".dist-info")} == set()
    assert {name for name in names if name.endswith(".gguf")} == {
        "openjet_provider/data/openjet-tiny.gguf"
    }, "the early checkpoint is test data"
    assert not {name for name in names if "cpython" in name}, "libraries carry no Python's suffix"
    assert [name for name in names if name.endswith("/licenses/LICENSE")]


IMPORT_ALL = """
import json, langchain_openjet, litellm_openjet, openjet_provider
from openjet_provider import _build_info
print(json.dumps({
    "packages": [m.__file__ for m in (openjet_provider, langchain_openjet, litellm_openjet)],
    "files": [_build_info.library("cpu").is_file(), _build_info.HEADER.is_file()],
    "record": openjet_provider._build_record(),
}))
"""


def test_imports_and_native_files(installation: Path, root: Path) -> None:
    done = run(installation, "-c", IMPORT_ALL, cwd=installation.parent)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert not [path for path in told["packages"] if path.startswith(f"{root}/")]
    assert told["files"] == [True, True]
    assert set(told["record"]) == {"source_hash", "cpu", "cuda", "gpu_runs"}


def test_console_script_teaches(installation: Path) -> None:
    done = run(installation.parent / "openjet", "--help", cwd=installation.parent)
    assert done.returncode == 0, done.stderr
    assert "doctor" in done.stdout


ANSWER = """
from openjet_provider import Engine
from openjet_provider.chat.types import ChatRequest, Sampling
request = ChatRequest(messages=[{"role": "user", "content": "Hello!"}],
                      sampling=Sampling(temperature=0.0), max_tokens=100)
with Engine("openjet-tiny", backend="cpu") as engine:
    print(engine.chat(request).result().content)
"""


def assert_it_answers(python: Path) -> None:
    done = run(python, "-c", ANSWER, cwd=python.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_what_is_installed_answers(installation: Path) -> None:
    assert_it_answers(installation)


@pytest.fixture(scope="module")
def sdist(source_tree: Path) -> Path:
    code = "from setuptools import build_meta as b; print(b.build_sdist('sdist'))"
    done = run(sys.executable, "-c", code, cwd=source_tree)
    assert done.returncode == 0, done.stderr
    return source_tree / "sdist" / done.stdout.splitlines()[-1]


def test_sdist_has_sources_and_nothing_else(sdist: Path, source_tree: Path) -> None:
    with tarfile.open(sdist) as archive:
        files = [Path(*Path(m.name).parts[1:]) for m in archive.getmembers() if m.isfile()]
    tops = {path.parts[0] for path in files}
    packages = {"integrations", "native", "openjet_provider"}
    build = {"build.py", "setup.py", "setup.cfg", "pyproject.toml", "MANIFEST.in"}
    about = {"LICENSE", "README.md", "CHANGELOG.md", "PKG-INFO", "openjet_provider.egg-info"}
    assert tops == packages | build | about
    kinds = {path.suffix or path.name for path in files if path.parts[0] in packages}
    assert kinds <= {*".py .typed .gguf .html .js .h .cuh .cpp .cu .clang-format".split()}
    assert [path.name for path in files if path.suffix == ".gguf"] == ["openjet-tiny.gguf"]
    native = {p.relative_to(source_tree) for p in source_tree.glob("native/**/*.*")}
    assert native == {path for path in files if path.parts[0] == "native"}


@pytest.mark.slow  # compiles everything once more
def test_sdist_builds_the_same_wheel_and_it_answers(
    sdist: Path, names: set[str], tmp_path: Path
) -> None:
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, sdist, cwd=tmp_path)
    (again,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(again) as archive:
        assert set(archive.namelist()) == names
    assert_it_answers(install(tmp_path / "env", "--no-index", again))
