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
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
SECONDS = 900

VERSIONS_OF = """
import importlib.metadata, sys
print(*(f"{name} {importlib.metadata.version(name)}" for name in sys.argv[1:]), sep=", ")
"""
CORE = """
import subprocess, sys
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
for command, extra in (("serve", "server"), ("top", "monitor")):
    openjet = [sys.executable, "-I", "-m", "openjet_provider.cli", command]
    done = subprocess.run(openjet, capture_output=True, text=True, timeout=120)
    assert done.returncode, command
    assert f"openjet-provider[{extra}]" in done.stderr, done.stderr
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
MONITOR = """
import dataclasses, pynvml
from openjet_provider import Engine
from openjet_provider.monitor.view import render
with Engine("openjet-tiny") as engine:
    sample = {"version": "0", "model": engine.model_name, "backend": engine.backend,
              "context": engine.context, "agents": engine.agents, "uptime_s": 1.0,
              "engine": dataclasses.asdict(engine.stats()), "conversations": []}
assert "openjet-tiny" in render(sample, None, 80, 24).plain
"""
PULL = """
import os, subprocess, sys
pull = [sys.executable, "-I", "-m", "openjet_provider.cli", "pull", "qwen3.8-27b"]
done = subprocess.run(pull, capture_output=True, text=True, timeout=120,
                      env={**os.environ, "HF_HUB_OFFLINE": "1"})
assert "HF_HUB_OFFLINE is set" in done.stderr, done.stderr
"""


@dataclass(frozen=True)
class Extra:
    """What an extra is for (code, or arguments of Python), and the packages to name."""

    program: str | list[str]
    shown: tuple[str, ...]


CREW = [str(ROOT / "examples" / "coding_crew.py"), "--plain"]
TESTS = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(ROOT / "tests" / "tools")]
EXTRAS = {
    "": Extra(CORE, ("numpy", "pydantic")),
    "langchain": Extra(LANGCHAIN, ("langchain-core",)),
    "litellm": Extra(LITELLM, ("litellm",)),
    "server": Extra(SERVER, ("starlette", "uvicorn")),
    "monitor": Extra(MONITOR, ("rich", "nvidia-ml-py")),
    "pull": Extra(PULL, ("huggingface-hub",)),
    "demo": Extra(CREW, ("langchain", "langchain-core", "langgraph")),
    "dev": Extra(TESTS, ("pytest", "mypy", "ruff")),
}


def run(*command: str | Path, **environment: str) -> str:
    """What it printed. Raises CalledProcessError, with that, if it fails."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "OPENJET_"))}
    return subprocess.run(
        [str(part) for part in command],
        env={**inherited, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=True,
    ).stdout


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


def install(inside: Path, wanted: str) -> None:
    """With pip, which tries again by itself; and once more if an index was slow for too long."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", inside)
    options = ("--quiet", "--no-compile", "--timeout", "60", "--retries", "5")
    try:
        run(*pip, "install", *options, wanted)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"installed again after {said(error)[-300:]}", flush=True)
        run(*pip, "install", *options, wanted)
    run(*pip, "check")


def check(python: Path, extra: str, wheel: Path, folder: Path) -> str:
    """A new environment with the wheel and this extra; run what the extra is for.

    Returns what it was installed with.
    """
    home = folder / "environment"
    shutil.rmtree(home, ignore_errors=True)
    run(python, "-m", "venv", "--without-pip", home)
    inside = home / "bin" / "python"
    install(inside, f"{wheel}[{extra}]" if extra else str(wheel))
    program = EXTRAS[extra].program
    run(inside, "-I", *(["-c", program] if isinstance(program, str) else program))
    return run(inside, "-I", "-c", VERSIONS_OF, *EXTRAS[extra].shown).strip()


def said(error: subprocess.CalledProcessError | subprocess.TimeoutExpired) -> str:
    """The error and the end of what the command printed."""
    output = error.output or ""
    if isinstance(output, bytes):  # of a command that ran out of time, in some Pythons
        output = output.decode(errors="replace")
    return f"{error}\n{output[-3000:]}"


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
                    found = check(python, extra, wheel, folder)
                except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                    failed += 1
                    print(f"{name}: FAILED, {said(error)}", flush=True)
                else:
                    print(f"{name}: ok in {time.monotonic() - start:.0f} s, {found}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
