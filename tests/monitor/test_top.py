"""`openjet top` on a real server, and with agents of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from openjet_provider import cli
from openjet_provider.engine import Engine
from openjet_provider.server.background import serving
from openjet_provider.server.settings import Settings
from tests.waiting import wait_until

pytest.importorskip("rich")

HEAD = "openjet-tiny on scripted"


def test_once(url: str, agents: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["top", "--url", f"{url}/v1", "--once"]) == 0
    text = capsys.readouterr().out
    assert HEAD in text
    for part in ("writer", "writing", "caller", "tool ping", "slowly, please"):
        assert part in text
    assert "\x1b[31m" not in text


def test_once_json(url: str, agents: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["top", "--url", url, "--once", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    seen = {agent["client"]: agent for agent in json.loads(line)["conversations"]}
    assert seen["writer"]["phase"] == "writing"
    assert seen["writer"]["recent_tokens_per_second"] > 0
    assert seen["caller"]["phase"] == "idle"
    assert seen["caller"]["recent_tokens_per_second"] == 0


def test_json_goes_on(url: str, root: Path) -> None:
    command = [sys.executable, "-m", "openjet_provider.cli", "top", "--json", "--interval", "0.1"]
    process = subprocess.Popen(
        [*command, "--url", url], cwd=root, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        ups = [json.loads(process.stdout.readline())["uptime_s"] for _ in range(3)]
    finally:
        process.terminate()
        process.wait()
    assert ups == sorted(set(ups))


def test_nobody_answers(nowhere: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["top", "--url", nowhere, "--once"]) == 1
    said = capsys.readouterr().err
    assert nowhere in said
    assert "openjet serve" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--url", "no url"], "no statistics from no url"),
        (["--url", "ftp://host"], "no statistics from ftp://host"),
        (["--url", "http://a:b"], "--url http://a:b"),
        (["--interval", "0"], "--interval 0.0: give 0.1 to 3600"),
        (["--run", "9"], "--run 9: give 1 to 8"),
        (["--run", "0"], "--run 0: give 1 to 8"),
        (["--run", "2", "-m", "/no/such.gguf"], "/no/such.gguf"),
    ],
)
def test_bad_options(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["top", *options]) == 1
    assert said in capsys.readouterr().err


def test_a_key_is_asked_for_and_used(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(engine, Settings(drain=0, api_keys=("secret",))) as url:
        assert cli.main(["top", "--url", url, "--once"]) == 1
        assert "--api-key" in capsys.readouterr().err
        assert cli.main(["top", "--url", url, "--once", "--api-key", "secret"]) == 0


def test_without_rich(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cli.main(["top", "--once"]) == 1
    assert "pip install 'openjet-provider[monitor]'" in capsys.readouterr().err


def test_agents_on_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["top", "--run", "4", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["of"] == 4
    assert report["solved"] >= 3
    assert sum(task["solved"] for task in report["tasks"]) == report["solved"]
    for task in report["tasks"]:
        assert task["turns"] >= 2
        assert 0 < task["cached_tokens"] < task["prompt_tokens"]


def test_agents_are_stopped_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    start = time.monotonic()
    assert cli.main(["top", "--run", "2", "--seconds", "0"]) == 0
    assert time.monotonic() - start < 100
    assert "of 2 solved" in capsys.readouterr().out


class Terminal:
    """`openjet top` in a terminal of a size."""

    def __init__(self, root: Path, url: str, width: int = 80, height: int = 24) -> None:
        self._name = f"openjet-{uuid.uuid4().hex[:8]}"
        size = ["-x", str(width), "-y", str(height)]
        program = f"{sys.executable} -m openjet_provider.cli top --interval 0.2 --url {url}"
        command = ["tmux", "new-session", "-d", "-s", self._name, *size, program]
        subprocess.run(command, cwd=root, check=True)

    def wait_for(self, *parts: str) -> None:
        """Until all of these are on the screen."""

        def shown() -> bool:
            screen = self._screen()
            return all(part in screen for part in parts)

        wait_until(shown, otherwise=self._screen)

    def _screen(self) -> str:
        return self._tmux("capture-pane", "-p").stdout

    def leave(self) -> None:
        """Ctrl-C ends it."""
        self._tmux("send-keys", "C-c")
        wait_until(lambda: self._tmux("has-session").returncode != 0)

    def kill(self) -> None:
        self._tmux("kill-session")

    def _tmux(self, command: str, *more: str) -> subprocess.CompletedProcess[str]:
        full = ["tmux", command, "-t", self._name, *more]
        return subprocess.run(full, capture_output=True, text=True, check=False)


needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


@needs_tmux
@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 40)])
def test_live_in_a_terminal(url: str, agents: None, root: Path, width: int, height: int) -> None:
    terminal = Terminal(root, url, width, height)
    try:
        terminal.wait_for(HEAD, "writer", "caller", "hostile", "one two three")
        terminal.leave()
    finally:
        terminal.kill()


@needs_tmux
def test_a_server_that_goes_away_is_told(engine: Engine, root: Path) -> None:
    with serving(engine) as url:
        terminal = Terminal(root, url)
        try:
            terminal.wait_for("no agent has asked for anything yet")
        except BaseException:
            terminal.kill()
            raise
    try:
        terminal.wait_for("no statistics from", HEAD)  # the last sample stays
        terminal.leave()
    finally:
        terminal.kill()
