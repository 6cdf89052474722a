"""A server process: its start, its end, the loss of its engine; the command line's checks."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from openjet_provider import cli, serve
from openjet_provider.errors import BackendUnavailableError, InvalidRequestError
from openjet_provider.server.run import EXIT_LOST, check_exposure
from openjet_provider.server.settings import Settings
from tests.server.conftest import events, say
from tests.waiting import wait_until

CHAT = "/v1/chat/completions"

PROGRAM = """
import sys
from openjet_provider.engine import Engine
from openjet_provider.server.run import bind, serve
from openjet_provider.server.settings import Settings
from tests.server.script import MODEL, OPTIONS

listener = bind("127.0.0.1", 0)
print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
settings = Settings(drain=float(sys.argv[1]))
sys.exit(serve(lambda: Engine(MODEL, **OPTIONS), listener, settings))
"""


def client_of(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=60)


def wait_for_health(client: httpx.Client, status: int) -> None:
    wait_until(lambda: client.get("/health").status_code == status)


@contextmanager
def server(root: Path, drain: float = 100) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process on the scripted engine, and its URL."""
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(drain)]
    process = subprocess.Popen(
        program, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with client_of(url) as client:
            wait_for_health(client, 200)  # 503 while it loads
        yield process, url
    finally:
        process.kill()
        process.wait()


def test_term_lets_requests_end(root: Path) -> None:
    asked = say("slowly", stream=True, max_tokens=400)
    with server(root) as (process, url), client_of(url) as client:
        with client.stream("POST", CHAT, json=asked) as response:
            lines = response.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            wait_for_health(client, 503)
            chunks = events("\n".join(lines))
        assert chunks[-1] is None
        assert chunks[-2]["choices"][0]["finish_reason"] == "length"
        assert process.wait(60) == 0


def test_term_ends_what_takes_too_long(root: Path) -> None:
    with server(root, drain=0.2) as (process, url), client_of(url) as client:
        with client.stream("POST", CHAT, json=say("slowly", stream=True)) as response:
            lines = response.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            chunks = events("\n".join(lines))
        assert chunks[-1]["error"]["code"] == "shutting_down"
        assert process.wait(60) == 0


def test_a_second_signal_ends_the_process_at_once(root: Path) -> None:
    with server(root) as (process, url), client_of(url) as client:
        with client.stream("POST", CHAT, json=say("slowly", stream=True)) as response:
            lines = response.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            wait_for_health(client, 503)  # two signals that wait together count as one
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 128 + signal.SIGTERM
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_an_idle_server_ends_at_once(root: Path) -> None:
    with server(root) as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_a_lost_engine_fails_everybody_and_ends_the_process(root: Path) -> None:
    with server(root) as (process, url), client_of(url) as client:
        with client.stream("POST", CHAT, json=say("slowly", stream=True)) as beside:
            lines = beside.iter_lines()
            next(lines)
            failed = client.post(CHAT, json=say("break down"))
            assert failed.status_code == 500
            assert failed.json()["error"]["code"] == "engine_lost"
            assert events("\n".join(lines))[-1]["error"]["code"] == "engine_lost"
        assert process.wait(60) == EXIT_LOST


# --- the command ----------------------------------------------------------------------------------


def test_public_addresses_need_a_key() -> None:
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.2"):
        check_exposure(host, Settings(), False)
    for host in ("0.0.0.0", "192.168.1.2", "::", "box.lan", ""):
        with pytest.raises(InvalidRequestError, match="--api-key"):
            check_exposure(host, Settings(), False)
        check_exposure(host, Settings(api_keys=("sesame",)), False)
        check_exposure(host, Settings(), True)


def test_a_port_in_use_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.main(["serve", "-m", "openjet-tiny", "--port", str(port)]) == 1
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


def test_a_missing_model_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "-m", "nothing", "--port", "0"]) == 1
    assert "openjet pull" in capsys.readouterr().err


def test_missing_packages_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "_NEEDED", ("starlette", "no_such_package"))
    with pytest.raises(BackendUnavailableError, match=r"openjet-provider\[server\]"):
        serve.check_installed()


def test_an_option_out_of_range_is_said_before_anybody_can_connect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def bind(*_: object) -> None:
        raise AssertionError("listens already")

    monkeypatch.setattr("openjet_provider.server.run.bind", bind)
    assert cli.main(["serve", "-m", "openjet-tiny", "--agents", "99"]) == 1
    assert "agents=99 is out of range" in capsys.readouterr().err


def test_an_engine_that_does_not_open_ends_the_process(root: Path) -> None:
    command = [sys.executable, "-m", "openjet_provider.cli", "serve", "-m", "openjet-tiny"]
    command += ["--port", "0", "--context", "100000"]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 1
    assert ended.stderr.startswith("openjet: context=100000 is not possible")


def test_serve_and_term_from_the_command_line(root: Path) -> None:
    command = [sys.executable, "-m", "openjet_provider.cli", "serve", "-m", "openjet-tiny"]
    command += ["--port", "0", "--backend", "cpu"]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        url = process.stdout.readline().split()[-1]
        assert httpx.get(f"{url}/models", timeout=60).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
