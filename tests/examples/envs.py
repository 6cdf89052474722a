"""An environment for each example: frameworks whose dependencies conflict never share one.

    python -m tests.examples.envs NAME     create (or find) it; prints its Python

The requirements are examples/requirements/NAME.txt, the frameworks' releases those of tested.txt.
Environments lie under build/examples and are made anew when one of these or the package changes.
The package comes from one wheel without CUDA, built once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "examples"
REQUIREMENTS = ROOT / "examples" / "requirements"
TESTED = Path(__file__).with_name("tested.txt")
SECONDS = 900  # a busy machine compiles slowly


class NotInstallable(Exception):
    """pip could not install an example's requirements; the message is the end of what it said."""


def python_of(name: str) -> Path:
    """The Python of an example's environment, created if it is not there."""
    files = ["--requirement", str(REQUIREMENTS / f"{name}.txt")]
    if os.environ.get("OPENJET_EXAMPLES_LATEST") != "1":
        files += ["--constraint", str(TESTED)]
    wanted = "".join(Path(path).read_text() for path in files[1::2])
    wheel = _wheel()
    stamp = hashlib.sha256(f"{wanted}{sys.version}{wheel.stat().st_mtime_ns}".encode()).hexdigest()
    home = FOLDER / name
    python, made = home / "bin" / "python", home / ".made"
    if made.exists() and made.read_text() == stamp:
        return python
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=False, symlinks=True)
    _pip("--python", str(python), "install", "--no-compile", "--quiet", str(wheel), *files)
    made.write_text(stamp)
    return python


def _wheel() -> Path:
    """The package as a wheel, built from what git tracks here and now."""
    folder = FOLDER / "wheel"
    newest = max(path.stat().st_mtime_ns for path in _sources())
    found = sorted(folder.glob("*.whl"))
    if found and found[-1].stat().st_mtime_ns > newest:
        return found[-1]
    shutil.rmtree(folder, ignore_errors=True)
    _pip("wheel", "--no-deps", "--quiet", "--wheel-dir", str(folder), str(ROOT))
    return next(folder.glob("*.whl"))


def _sources() -> list[Path]:
    folders = ("openjet_provider", "integrations", "native")
    found = [p for name in folders for p in (ROOT / name).rglob("*") if p.is_file()]
    inside = [p for p in found if "_lib" not in p.parts and "__pycache__" not in p.parts]
    return [*inside, ROOT / "pyproject.toml", ROOT / "setup.py", ROOT / "build.py"]


def _pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments],
        env={**os.environ, "OPENJET_CUDA": "0"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        raise NotInstallable(done.stderr[-1500:])


if __name__ == "__main__":
    print(python_of(sys.argv[1]))
