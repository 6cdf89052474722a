"""/slots as llama-server's users know it, and a server that goes on where it was stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from openjet_provider._core import SavedFile
from openjet_provider.engine import Engine
from openjet_provider.server.slot_table import Slots
from tests.server.conftest import Connect
from tests.server.script import MODEL, OPTIONS

CHAT = "/v1/chat/completions"
SYSTEM = {"role": "system", "content": "You are a patient helper. " + "Be brief. " * 150}


@pytest.fixture
def saving(tmp_path: Path) -> Iterator[Engine]:
    """A scripted engine of its own, with a state directory."""
    with Engine(MODEL, **(OPTIONS | {"script": ()}), agents=2, state_dir=tmp_path) as engine:
        yield engine


def ask(text: str) -> dict[str, Any]:
    return {"messages": [SYSTEM, {"role": "user", "content": text}]}


async def cached(client: httpx.AsyncClient, text: str) -> int:
    usage = (await client.post(CHAT, json=ask(text))).json()["usage"]
    found: int = usage["prompt_tokens_details"]["cached_tokens"]
    return found


async def test_slots_are_listed(connect: Connect, saving: Engine) -> None:
    client = connect(saving)
    empty = (await client.get("/slots")).json()
    assert [slot["id"] for slot in empty] == [0, 1]
    assert not any(slot["is_processing"] or slot["n_prompt_tokens"] for slot in empty)
    await client.post(CHAT, json=ask("one"))
    await client.post(CHAT, json=ask("two"))
    await client.post(CHAT, json=ask("one"))
    first, second = (await client.get("/slots")).json()
    assert first["id_task"] == 3
    assert min(first["n_prompt_tokens"], second["n_prompt_tokens"]) > 0
    assert first["n_ctx"] == OPTIONS["context"]
    assert (await client.get("/slots?fail_on_no_slot=1")).status_code == 200


async def test_save_erase_restore(connect: Connect, saving: Engine, tmp_path: Path) -> None:
    client = connect(saving)
    await client.post(CHAT, json=ask("one"))
    saved = (await client.post("/slots/0?action=save", json={"filename": "one.bin"})).json()
    assert saved["id_slot"] == 0
    assert saved["filename"] == "one.bin"
    assert saved["n_saved"] > 300
    assert saved["n_written"] == (tmp_path / "one.bin").stat().st_size
    assert saved["timings"]["save_ms"] >= 0
    erased = (await client.post("/slots/0?action=erase")).json()
    assert erased == {"id_slot": 0, "n_erased": saved["n_saved"]}
    before = await cached(client, "one")
    await client.post("/slots/0?action=erase")
    restored = (await client.post("/slots/1?action=restore", json={"filename": "one.bin"})).json()
    assert restored["n_restored"] == saved["n_saved"]
    assert restored["n_read"] == saved["n_written"]
    assert await cached(client, "one") > before
    again = (await client.post("/slots/1?action=save", json={"filename": "one.bin"})).json()
    assert again["n_saved"] >= saved["n_saved"], "the slot holds what was restored into it"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../outside",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "a\x00b",
        "a\nb",
        ".turns",
        "link",
        "folder",
        "conversation-0000000000000000.openjet",
        "x" * 201,
        "\ud800",
        "missing",
    ],
)
async def test_only_files_of_the_directory(
    connect: Connect, saving: Engine, tmp_path: Path, name: str
) -> None:
    client = connect(saving)
    await client.post(CHAT, json=ask("one"))
    target = tmp_path.parent / f"target-{os.getpid()}"
    target.write_text("mine")
    with contextlib.suppress(FileExistsError):
        (tmp_path / "link").symlink_to(target)
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.iterdir())
    for action in ("save", "restore") if name != "missing" else ("restore",):
        response = await client.post(
            f"/slots/0?action={action}", content=json.dumps({"filename": name})
        )
        assert response.status_code == 400, response.text
        assert response.json()["error"]["type"] == "invalid_request_error"
    assert sorted(tmp_path.iterdir()) == before
    assert target.read_text() == "mine"


async def test_a_folder_that_cannot_be_written(
    connect: Connect, saving: Engine, tmp_path: Path
) -> None:
    client = connect(saving)
    await client.post(CHAT, json=ask("one"))
    (tmp_path / "one.bin.openjet-tmp").mkdir()  # where the file would be written
    response = await client.post("/slots/0?action=save", json={"filename": "one.bin"})
    assert response.status_code == 400, response.text
    assert "cannot create" in response.json()["error"]["message"]


async def test_no_room_for_a_file(connect: Connect, tmp_path: Path) -> None:
    options = OPTIONS | {"script": (), "state_dir": tmp_path, "state_bytes": 1000}
    with Engine(MODEL, **options, agents=2) as engine:
        client = connect(engine)
        await client.post(CHAT, json=ask("one"))
        response = await client.post("/slots/0?action=save", json={"filename": "one.bin"})
    assert response.status_code == 507, response.text
    error = response.json()["error"]
    assert error["code"] == "insufficient_storage"
    assert f"in {tmp_path}, which may hold 1000; raise state_bytes" in error["message"]
    assert response.headers["x-should-retry"] == "false"


async def test_bad_requests(connect: Connect, saving: Engine) -> None:
    client = connect(saving)
    name = {"filename": "x"}
    for path, body in (
        ("/slots/2?action=save", name),
        ("/slots/-1?action=save", name),
        ("/slots/one?action=save", name),
        (f"/slots/{'9' * 5000}?action=save", name),
        ("/slots/0", name),
        ("/slots/0?action=copy", name),
        ("/slots/0?action=save", {}),
        ("/slots/0?action=save", {"filename": 7}),
        ("/slots/0?action=save", name),  # nothing in it
    ):
        response = await client.post(path, json=body)
        assert response.status_code == 400, (path, response.text)


async def test_one_waits_for_the_disk_at_a_time(
    connect: Connect, saving: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a few of them take all the threads that turns are started in."""
    inside: list[str] = []
    most = 0

    def save(tokens: Sequence[int], filename: str) -> SavedFile:
        nonlocal most
        inside.append(filename)
        most = max(most, len(inside))
        time.sleep(0.01)
        inside.pop()
        return SavedFile(tokens, 1)

    monkeypatch.setattr(saving, "save", save)
    client = connect(saving)
    path, body = "/slots/0?action=save", {"filename": "x"}
    responses = await asyncio.gather(*(client.post(path, json=body) for _ in range(4)))
    assert [response.status_code for response in responses] == [200] * 4
    assert most == 1


async def test_without_a_state_directory(connect: Connect) -> None:
    with Engine(MODEL, **(OPTIONS | {"script": ()}), agents=2) as engine:
        client = connect(engine)
        response = await client.post("/slots/0?action=save", json={"filename": "x"})
        assert response.status_code == 501
        assert "--state-dir" in response.json()["error"]["message"]
        assert (await client.post("/slots/0?action=erase")).json()["n_erased"] == 0


async def test_a_file_of_something_else(connect: Connect, saving: Engine, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no state at all, but long enough to be looked at closely")
    client = connect(saving)
    response = await client.post("/slots/0?action=restore", json={"filename": "text"})
    assert response.status_code == 400
    assert "is no state file" in response.json()["error"]["message"]


class Turn:
    """A stream, as slots see it."""

    def __init__(self, conversation: str, tokens: list[int]) -> None:
        from openjet_provider.generation import RequestStats

        self.conversation, self.tokens, self.stats = conversation, tokens, RequestStats()


def test_who_gets_which_slot() -> None:
    slots = Slots()
    a, b = Turn("a", [1, 2, 3]), Turn("b", [4, 5])
    slots.begin(a, 2)
    slots.begin(b, 2)
    late = Turn("c", [6])
    slots.begin(late, 2)
    assert [slot.running for slot in slots.of(2)] == [a, b], "a third one waits"
    slots.end(b)
    slots.end(a)
    slots.end(late)
    assert [slot.conversation for slot in slots.of(2)] == ["a", "c"], "longest idle goes first"
    follow = Turn("text-1", [1, 2, 3, 4])
    slots.begin(follow, 2)
    assert slots.of(2)[0].running is follow, "it continues what is there"


# --- a process ------------------------------------------------------------------------------------


@contextlib.contextmanager
def server(root: Path, folder: Path) -> Iterator[str]:
    """`openjet serve --state-dir` on the bundled model, stopped with SIGTERM."""
    command = [sys.executable, "-m", "openjet_provider.cli", "serve", "-m", MODEL, "--port", "0"]
    command += ["--backend", "cpu", "--state-dir", str(folder)]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process.stdout.readline().split()[-1]
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_a_server_goes_on_where_it_was_stopped(root: Path, tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = [SYSTEM]
    with server(root, tmp_path) as url:
        for turn in range(3):
            messages.append({"role": "user", "content": f"Question {turn}: is all well?"})
            body = {"messages": messages, "max_tokens": 200, "temperature": 0}
            answer = httpx.post(f"{url}/chat/completions", json=body, timeout=300).json()
            content = answer["choices"][0]["message"]["content"]
            messages.append({"role": "assistant", "content": content})  # without its thinking
    messages.append({"role": "user", "content": "And now?"})
    with server(root, tmp_path) as url:
        body = {"messages": messages, "max_tokens": 4}
        usage = httpx.post(f"{url}/chat/completions", json=body, timeout=300).json()["usage"]
    cached_tokens = usage["prompt_tokens_details"]["cached_tokens"]
    assert cached_tokens >= 0.95 * usage["prompt_tokens"], usage
