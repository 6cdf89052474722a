"""`openjet chat` with input from a pipe and on a terminal."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from openjet_provider import cli
from openjet_provider.chat_command import Conversation
from openjet_provider.engine import Engine, ScriptRule

THOUGHT = "Hm.\n</think>\n\n"
SCRIPT = (
    ScriptRule(match="slowly", reply=THOUGHT + "one two three " * 300, delay_s=0.05),
    ScriptRule(match="my name", reply=THOUGHT + "You are Ada."),
    ScriptRule(match="hello", reply=THOUGHT + "Hello!"),
    ScriptRule(match="", reply=THOUGHT + "What?"),
)
OPTIONS = {"backend": "scripted", "script": SCRIPT, "context": 1024}


def arguments(**given: object) -> argparse.Namespace:
    names = ("system", "temperature", "seed", "max_tokens")
    return argparse.Namespace(**{**dict.fromkeys(names), "no_thinking": False, **given})


def talk(text: str, **given: object) -> str:
    out = io.StringIO()
    with Engine("openjet-tiny", **OPTIONS) as engine:  # type: ignore[arg-type]
        Conversation(engine, arguments(**given), io.StringIO(text), out).run()
    return out.getvalue()


def test_answers_lines_from_a_pipe() -> None:
    assert talk("hello\n\nmore") == "Hello!\nHello!\n"  # the conversation still holds "hello"
    assert talk("hello\n/new\nmore\n") == "Hello!\nWhat?\n"


def test_instructions_stay() -> None:
    assert talk("more\n/new\nmore\n", system="my name is Ada") == "You are Ada.\n" * 2


def test_what_cannot_be_answered_is_said_and_forgotten() -> None:
    said = talk("word " * 2000 + "\nhello\n")
    assert said.startswith("openjet: ")
    assert said.endswith("\nHello!\n")


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Hello!\n"))
    command = ["chat", "-m", "openjet-tiny", "--backend", "cpu", "--max-tokens", "5"]
    assert cli.main([*command, "--temperature", "0", "--no-thinking"]) == 0
    assert capsys.readouterr().out.strip()


# A job that a shell put into the background inherits an ignored SIGINT; a terminal's does not.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from openjet_provider.chat_command import Conversation
from openjet_provider.engine import Engine
from tests.test_chat_command import OPTIONS, arguments
with Engine("openjet-tiny", **OPTIONS) as engine:
    try:
        Conversation(engine, arguments(), sys.stdin, sys.stdout).run()
    except KeyboardInterrupt:
        print("left")
"""


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, root: Path) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            cwd=root,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def wait_for(self, text: str, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            left = deadline - time.monotonic()
            assert left > 0, self.seen
            assert select.select([self._ours], [], [], left)[0], self.seen
            try:
                self.seen += os.read(self._ours, 4096).decode("utf-8", "replace")
            except OSError:  # the other side closed
                assert text in self.seen, self.seen
        self.seen = self.seen.partition(text)[2]

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def interrupt_prompt(self, text: str) -> None:
        """Until it says `text`: the prompt is shown a moment before it is read from, and a signal
        in between is seen with the next one."""
        for _ in range(10):
            time.sleep(0.2)
            self.interrupt()
            with contextlib.suppress(AssertionError):
                return self.wait_for(text, 5)
        raise AssertionError(self.seen)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


def test_ctrl_c_stops_the_answer_and_then_leaves(root: Path) -> None:
    terminal = Terminal(root)
    try:
        terminal.wait_for("> ")
        terminal.type("slowly\n")
        terminal.wait_for("one two three one")
        terminal.interrupt()
        terminal.wait_for("[stopped]")
        terminal.wait_for("> ")
        terminal.type("/new\n")
        terminal.wait_for("> ")
        terminal.type("hello\n")
        terminal.wait_for("Hello!")
        terminal.wait_for("> ")
        terminal.interrupt_prompt("left")
        assert terminal.process.wait(60) == 0
    finally:
        terminal.close()
