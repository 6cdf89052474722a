"""Conversations that outlive their engine: Engine(state_dir=...), its files and what may happen to
them, and the memory beside the pool."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from openjet_provider import defaults
from openjet_provider._core import Core
from openjet_provider.chat.types import ChatRequest, Sampling
from openjet_provider.engine import Engine, ScriptRule
from openjet_provider.errors import InvalidRequestError
from tests.engine.conftest import TINY

SYSTEM = "You are a patient helper. " + "Be brief and say what you do. " * 40
ANSWERS = (ScriptRule(reply="Let me see.\n</think>\n\nAll is well."),)


def chat(engine: Engine, messages: list[dict[str, Any]], **options: Any) -> Any:
    options = {"max_tokens": 60, "sampling": Sampling(temperature=0), **options}
    return engine.chat(ChatRequest(messages=messages, **options)).result()


def talk(engine: Engine, turns: int) -> list[dict[str, Any]]:
    """A conversation whose client sends no reasoning back."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
    for turn in range(turns):
        messages.append({"role": "user", "content": f"Question {turn}: is all well?"})
        messages.append({"role": "assistant", "content": chat(engine, messages).content})
    return messages


def test_a_conversation_goes_on_after_a_restart(tmp_path: Path) -> None:
    """Token for token, though its client has stripped the thinking."""
    folder = tmp_path / "made" / "here"
    folder.parent.mkdir()
    with Engine(TINY, backend="cpu", state_dir=folder) as engine:
        messages = talk(engine, 3)
    assert folder.stat().st_mode & 0o077 == 0
    assert all(file.stat().st_mode & 0o077 == 0 for file in folder.iterdir())
    messages.append({"role": "user", "content": "And now?"})
    with Engine(TINY, backend="cpu", state_dir=folder) as engine:
        usage = chat(engine, messages, max_tokens=4).usage
    assert usage.cached_tokens >= 0.95 * usage.prompt_tokens


def test_without_a_state_dir_nothing_is_kept(tmp_path: Path) -> None:
    for _ in range(2):
        with Engine(TINY, backend="scripted", script=ANSWERS) as engine:
            result = chat(engine, [{"role": "user", "content": "Hi"}])
            assert result.usage.cached_tokens == 0
            with pytest.raises(InvalidRequestError, match="state directory"):
                engine.save([1, 2], "x")


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "version"])
def test_damaged_files_are_ignored_with_a_line_each(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Engine(TINY, backend="scripted", script=ANSWERS, state_dir=tmp_path) as engine:
        messages = talk(engine, 2)
    files = [file for file in tmp_path.iterdir() if file.stat().st_size]
    assert {file.name for file in files} > {".turns"}
    for file in files:
        good = bytearray(file.read_bytes())
        bad = {
            "flip": good[:130] + bytes([good[130] ^ 1]) + good[131:],
            "cut": good[: len(good) // 2],
            "empty": bytearray(),
            "version": good[:8] + b"\x07" + good[9:],
        }[damage]
        file.write_bytes(bad)
    messages.append({"role": "user", "content": "And now?"})
    with Engine(TINY, backend="scripted", script=ANSWERS, state_dir=tmp_path) as engine:
        assert chat(engine, messages).content == "All is well."
    lines = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert all(line.startswith("ignored: ") and str(tmp_path) in line for line in lines)
    assert len(lines) == len(files)


def test_files_of_another_model_are_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another KV format is as foreign as another model."""
    with Engine(TINY, backend="cpu", state_dir=tmp_path) as engine:
        messages = talk(engine, 1)
    with Engine(TINY, backend="cpu", kv="f16", state_dir=tmp_path) as engine:
        assert chat(engine, messages).usage.cached_tokens == 0
    assert "belongs to another model" in caplog.text


def test_a_state_dir_belongs_to_one_engine(tmp_path: Path) -> None:
    with (
        Engine(TINY, backend="scripted", script=ANSWERS, state_dir=tmp_path),
        pytest.raises(InvalidRequestError, match="in use by another engine"),
    ):
        Engine(TINY, backend="scripted", state_dir=tmp_path)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(InvalidRequestError, match=r"state_dir .*file"):
        Engine(TINY, backend="scripted", state_dir=blocked)


def test_an_engine_that_still_closes_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing conversations takes its time, and dropped handles close in a thread of their own."""
    closing, close = threading.Event(), Core.close

    def slow_close(core: Core) -> None:
        closing.set()
        time.sleep(0.2)
        close(core)

    monkeypatch.setattr(Core, "close", slow_close)
    engine = Engine(TINY, backend="scripted", state_dir=tmp_path)
    thread = threading.Thread(target=engine.close)
    thread.start()
    assert closing.wait(60)
    Engine(TINY, backend="scripted", state_dir=tmp_path).close()
    thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    """It has a copy of what its parent remembered, and closes handles that are not its own."""
    with Engine(TINY, backend="scripted", script=ANSWERS, state_dir=tmp_path) as engine:
        talk(engine, 1)
        child = os.fork()
        if child == 0:
            engine.close()
            os._exit((tmp_path / ".turns").exists())
        assert os.waitpid(child, 0)[1] == 0
    assert (tmp_path / ".turns").exists()


def test_a_full_disk_fails_nothing(tmp_path: Path, root: Path) -> None:
    """The request is answered, the close is clean, one line says what is not kept."""
    program = """
import logging, resource, sys
logging.basicConfig(format="%(message)s")
from openjet_provider.engine import Engine
from tests.engine.test_state_dir import talk
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
with Engine("openjet-tiny", backend="cpu", state_dir=sys.argv[1]) as engine:
    print(len(talk(engine, 1)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    assert "a conversation is not kept: cannot write" in done.stderr
    assert [file.name for file in tmp_path.iterdir() if file.stat().st_size] == []


def test_memory_beside_the_pool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What has no room in the pool waits in host memory; how much is an option."""
    with Engine(TINY, backend="cpu", agents=1, context=1024, memory_budget=1 << 28) as engine:
        assert engine.memory.host_cache_bytes == 0
    with Engine(TINY, backend="cpu") as engine:
        assert 0 < engine.memory.host_cache_bytes <= defaults.HOST_CACHE
        assert "of host memory for idle conversations" in str(engine.memory)
    monkeypatch.setenv("OPENJET_HOST_CACHE", str(1 << 26))
    monkeypatch.setenv("OPENJET_STATE_DIR", str(tmp_path))
    with Engine(TINY, backend="cpu", agents=1, context=1024) as engine:
        assert engine.memory.host_cache_bytes == 1 << 26
        assert engine.state_dir == str(tmp_path)
        for number in range(8):  # each stores a prompt's end and a live end; there is room for 6
            chat(engine, [{"role": "user", "content": f"{number} is a number"}], max_tokens=4)
        first = chat(engine, [{"role": "user", "content": "0 is a number"}], max_tokens=4)
        stats = engine.stats()
        assert stats.prefixes_kept > 0
        assert 0 < stats.host_bytes <= 1 << 26
        assert first.usage.cached_tokens > 0
