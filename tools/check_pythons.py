"""Install the wheel on several Pythons and run what it promises, each extra by itself.

    python tools/check_pythons.py                       # every Python 3.10 to 3.13 that is found
    python tools/check_pythons.py --python /path/to/python3.12 --extra langchain

Builds the wheel once, without CUDA. For each Python: the core alone answers, and importing an
adapter without its framework names the extra; then for each extra, in a new environment: it is
installed and does what it is for. Takes minutes. Exit status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
SECONDS = 900

CORE = """
from openjet_provider import Engine
from openjet_provider.chat.types import ChatRequest, Sampling
with Engine("openjet-tiny") as engine:
    request = ChatRequest(messages=[{"role": "user", "content": "Hello!"}],
                          sampling=Sampling(temperature=0.0), max_tokens=100)
    assert engine.chat(request).result().content
for adapter, extra in (("langchain_openjet", "langchain"), ("litellm_openjet", "litellm")):
    try:
        __import__(adapter)
    except ImportError as error:
        assert f"openjet-provider[{extra}]" in str(error), error
    else:
        raise SystemExit(f"{adapter} was imported without its framework")
"""
LANGCHAIN = """
from openjet_provider import ChatOpenJet
llm = ChatOpenJet(model="openjet-tiny", temperature=0, max_tokens=100)
assert llm.invoke("Hello!").text
assert "".join(chunk.text for chunk in llm.stream("Hello!"))
"""
LITELLM = """
import os
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm, litellm_openjet
messages = [{"role": "user", "content": "Hello!"}]
answer = litellm.completion("openjet/openjet-tiny", messages, temperature=0, max_tokens=100)
assert answer.choices[0].message.content
"""
SERVER = """
import httpx
from openjet_provider.local_server import local_server
with local_server("openjet-tiny") as server:
    body = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 100}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).json()
    assert answer["choices"][0]["finish_reason"]
"""
MONITOR = "import rich, pynvml, openjet_provider.top"
PULL = "import huggingface_hub, openjet_provider.pull"

# What an extra is for: a program, or an example.
EXTRAS: dict[str, str | Path] = {
    "": CORE,
    "langchain": LANGCHAIN,
    "litellm": LITELLM,
    "server": SERVER,
    "monitor": MONITOR,
    "pull": PULL,
    "demo": ROOT / "examples" / "coding_crew.py",
}


def run(*command: str | Path, **environment: str) -> None:
    """Raise CalledProcessError, with what was said, if it fails."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "OPENJET_"))}
    subprocess.run(
        [str(part) for part in command],
        env={**inherited, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=True,
    )


def found_pythons() -> list[Path]:
    """One Python of each version: on the path, or installed by pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = []
    for version in VERSIONS:
        installed = sorted(pyenv.glob(f"{version}.*/bin/python"))
        on_path = shutil.which(f"python{version}")
        if installed:
            found.append(installed[-1])
        elif on_path:
            found.append(Path(on_path))
        else:
            print(f"python {version}: not found, not checked")
    return found


def check(python: Path, extra: str, wheel: Path, folder: Path) -> None:
    """A new environment with the wheel and this extra; run what the extra is for."""
    home = folder / "environment"
    shutil.rmtree(home, ignore_errors=True)
    run(python, "-m", "venv", "--without-pip", home)
    inside = home / "bin" / "python"
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        inside,
        "install",
        "--quiet",
        "--no-compile",
        wanted,
    )
    run(sys.executable, "-m", "pip", "--python", inside, "check")
    program = EXTRAS[extra]
    arguments = ["-c", program] if isinstance(program, str) else [program, "--plain"]
    run(inside, "-I", *arguments)


def build(folder: Path) -> Path:
    command = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    run(sys.executable, *command, OPENJET_CUDA="0")
    (wheel,) = folder.glob("*.whl")
    if not wheel.name.endswith("-py3-none-linux_x86_64.whl"):
        raise SystemExit(f"{wheel.name}: the tag should be py3-none-linux_x86_64")
    return wheel


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", type=Path, action="append", help="this one; repeatable")
    parser.add_argument("--extra", action="append", choices=sorted(EXTRAS), help="'' is the core")
    parser.add_argument("--wheel", type=Path, help="a wheel that is there already")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="check-pythons-") as temporary:
        folder = Path(temporary)
        wheel = options.wheel or build(folder)
        for python in options.python or found_pythons():
            for extra in options.extra or EXTRAS:
                start = time.monotonic()
                name = f"{python.parent.parent.name} {extra or 'core'}"
                try:
                    check(python, extra, wheel, folder)
                except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                    failed += 1
                    print(f"{name}: FAILED, {error}\n{str(error.output)[-3000:]}", flush=True)
                else:
                    print(f"{name}: ok in {time.monotonic() - start:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
