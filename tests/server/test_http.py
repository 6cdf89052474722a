"""What any client can do to a server: keys, limits, bad bodies, going away, being slow."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from pydantic import BaseModel, ValidationError

from openjet_provider.engine import Engine, ScriptRule
from openjet_provider.server.messages import MessagesBody
from openjet_provider.server.protocol import BoundedProtocol
from openjet_provider.server.responses_input import ResponsesBody
from openjet_provider.server.schemas import (
    ChatCompletionBody,
    CompletionBody,
    DetokenizeBody,
    TokenizeBody,
)
from tests.server.conftest import Connect, events, live, say
from tests.server.script import ANSWER, MODEL, THOUGHT
from tests.waiting import BEFORE_THE_END_S, until

CHAT = "/v1/chat/completions"
SLOW = ScriptRule(reply=THOUGHT + "one two three four five " * 400, delay_s=0.02)


# --- keys and origins -----------------------------------------------------------------------------


async def test_key_is_asked_for_only_if_configured(connect: Connect) -> None:
    client = connect(api_keys=("sesame",))
    for headers in ({}, {"authorization": "Bearer wrong"}, {"x-api-key": "sesam"}):
        response = await client.get("/v1/models", headers=headers)
        assert response.status_code == 401
        assert response.json()["error"]["code"] == "invalid_api_key"
    for headers in ({"authorization": "Bearer sesame"}, {"x-api-key": "sesame"}):
        assert (await client.get("/v1/models", headers=headers)).status_code == 200
    assert (await client.get("/health")).status_code == 200
    anyone = {"authorization": "Bearer whatever"}
    assert (await connect().get("/v1/models", headers=anyone)).status_code == 200


async def test_key_names_the_client_where_there_are_several(connect: Connect) -> None:
    client = connect(api_keys=("one", "two"))
    for key in ("one", "two"):
        headers = {"x-api-key": key}
        await client.post(CHAT, json=say(f"Hello {key}"), headers=headers)
    seen = (await client.get("/v1/stats", headers=headers)).json()["conversations"]
    names = {conversation["client"] for conversation in seen}
    assert len(names) == 2
    assert all(name.startswith("key-") for name in names)


async def test_web_pages_may_not_use_the_server_unless_told(connect: Connect) -> None:
    page = {"origin": "https://evil.example"}
    refused = await connect().post(CHAT, json=say("Hello"), headers=page)
    assert refused.status_code == 403
    assert "access-control-allow-origin" not in refused.headers
    own = {"origin": "http://server"}
    assert (await connect().post(CHAT, json=say("Hello"), headers=own)).status_code == 200

    open_to = connect(origins=("https://app.example",), api_keys=("sesame",))
    page = {"origin": "https://app.example", "access-control-request-method": "POST"}
    preflight = await open_to.options(CHAT, headers=page)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "https://app.example"
    answer = await open_to.post(CHAT, json=say("Hello"), headers={**page, "x-api-key": "sesame"})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://app.example"


# --- bodies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"x"', b"null", b'{"messages": NaN}', b"\xff\xfe", b"[" * 100_000],
)
async def test_what_is_no_request(client: httpx.AsyncClient, body: bytes) -> None:
    response = await client.post(CHAT, content=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


async def test_bodies_have_a_limit(connect: Connect) -> None:
    client = connect(max_body=1000)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 100

    for content in (b"x" * 1001, pieces()):
        response = await client.post(CHAT, content=content)
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "request_too_large"


def raw(url: str, *pieces: bytes) -> bytes:
    """All that the server sends to what is sent, until it closes the connection."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        for piece in pieces:
            connection.sendall(piece)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_body_that_is_too_large_is_read_so_that_its_sender_sees_why(engine: Engine) -> None:
    """More than sockets buffer: who still sends does not read."""
    size = 12_000_000
    with live(engine, max_body=size // 3) as url:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode()
        answer = raw(url, head, b"x" * size)
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"request_too_large" in answer


def test_a_body_that_is_far_too_large_is_not_waited_for(engine: Engine) -> None:
    with live(engine, max_body=1000) as url:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {10**19}\r\n\r\n".encode()
        assert raw(url, head).startswith(b"HTTP/1.1 413")


async def test_a_prompt_that_fits_nowhere_is_not_tokenised_to_its_end(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    """The engine's memory and time are not for a body of many contexts."""
    text = "7" * 2_000_000
    for path, body in ((CHAT, say(text)), ("/v1/completions", {"prompt": text})):
        response = await client.post(path, json=body)
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["code"] == "context_length_exceeded"
        counted = int(error["message"].split("resulted in ")[1].split()[0])
        assert 4 * engine.context < counted < 1_000_000


async def test_errors_quote_no_more_than_a_little(client: httpx.AsyncClient) -> None:
    response = await client.post(CHAT, json=say("Hello", model="m" * 100_000))
    assert response.status_code == 404
    assert "does not exist" in response.json()["error"]["message"]
    assert len(response.content) < 3000


async def test_of_a_union_the_branch_that_was_meant_is_told(client: httpx.AsyncClient) -> None:
    response = await client.post(CHAT, json=say("Hello", stop=["x" * 1000]))
    error = response.json()["error"]
    assert error["param"] == "stop"
    assert error["message"].startswith("stop.0: String should have at most 256 characters")


@pytest.mark.parametrize(
    ("model", "field"),
    [
        (ChatCompletionBody, "messages"),
        (ChatCompletionBody, "tools"),
        (ChatCompletionBody, "stop"),
        (CompletionBody, "prompt"),
        (MessagesBody, "messages"),
        (MessagesBody, "stop_sequences"),
        (MessagesBody, "system"),
        (ResponsesBody, "input"),
        (TokenizeBody, "messages"),
        (DetokenizeBody, "tokens"),
    ],
)
def test_a_body_of_many_wrong_items_is_refused_at_the_first(
    model: type[BaseModel], field: str
) -> None:
    """An error of each would take a thousand times the body's memory."""
    for wrong in ("true", "1.5", "null"):
        with pytest.raises(ValidationError) as caught:
            model.model_validate_json(f'{{"{field}": [{",".join([wrong] * 1000)}]}}')
        assert caught.value.error_count() < 10


async def test_a_bias_for_everything_is_refused(client: httpx.AsyncClient) -> None:
    response = await client.post(
        CHAT, json=say("Hello", logit_bias=dict.fromkeys(range(10_001), 1))
    )
    assert response.json()["error"]["message"] == "logit_bias: give at most 10,000"


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x00\xa5\r\n\r\n",  # TLS
        b"GET /health HTTP/1.1\r\n\r\n",  # no host
        b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n" % CHAT.encode(),
        b"POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" % CHAT.encode(),
    ],
)
def test_what_is_no_http(url: str, request_: bytes) -> None:
    head, _, body = raw(url, request_).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


def test_a_body_that_does_not_come(engine: Engine) -> None:
    with live(engine, read_timeout=0.2) as url:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{"
        assert raw(url, head.encode()).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("before", [b"", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_a_head_that_does_not_end(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, before: bytes
) -> None:
    """Neither as the first request nor behind another one, however busily it is sent."""
    monkeypatch.setattr(BoundedProtocol, "head_timeout", 2.0)
    with live(engine) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            if before:
                connection.sendall(before)
                assert connection.recv(10_000).startswith(b"HTTP/1.1 200")
            started = time.monotonic()
            with contextlib.suppress(ConnectionError):
                while time.monotonic() < started + 60:
                    connection.sendall(b"G")
                    time.sleep(0.02)
            assert time.monotonic() - started < 50


def test_an_answer_may_take_longer_than_a_head(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedProtocol, "head_timeout", 2.0)
    with live(engine) as url:
        answer = httpx.post(url + CHAT, json=say("slowly", max_tokens=350), timeout=60)
        assert answer.elapsed.total_seconds() > 2.2
        assert answer.json()["choices"][0]["finish_reason"] == "length"


async def test_unknown_paths_and_methods(client: httpx.AsyncClient) -> None:
    missing = await client.get("/v1/nothing")
    assert missing.status_code == 404
    assert missing.json()["error"]["type"] == "invalid_request_error"
    wrong = await client.get(CHAT)
    assert wrong.status_code == 405
    assert "POST" in wrong.headers["allow"]
    assert wrong.json()["error"]["message"]


async def test_every_response_has_an_id(client: httpx.AsyncClient) -> None:
    ids = {(await client.get(path)).headers["x-request-id"] for path in ("/health", "/nothing")}
    assert len(ids) == 2


async def test_an_unexpected_error_is_not_shown(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("a secret detail")

    monkeypatch.setattr("openjet_provider.server.chat_completions.to_request", fail)
    response = await connect().post(CHAT, json=say("Hello"))
    assert response.status_code == 500
    assert response.json()["error"]["type"] == "server_error"
    assert "secret" not in response.text


# --- too much at once -----------------------------------------------------------------------------


async def _until(holds: Callable[[], bool]) -> None:
    """Before what is SLOW ends by itself."""
    await until(holds, BEFORE_THE_END_S)


async def test_a_full_queue_is_429_with_retry_after(connect: Connect) -> None:
    options = {"agents": 1, "max_queue": 2, "script": (SLOW,), "context": 4096}
    with Engine(MODEL, backend="scripted", **options) as small:
        client = connect(small)
        running = []
        for i in range(3):
            running.append(asyncio.ensure_future(client.post(CHAT, json=say(f"{i}"))))
            await _until(lambda: small.stats().running == 1)  # the first is no longer waiting
        await _until(lambda: small.stats().waiting == 2)
        response = await client.post(CHAT, json=say("one too many"))
        assert response.status_code == 429
        assert int(response.headers["retry-after"]) > 0
        error = response.json()["error"]
        assert error["code"] == "rate_limit_exceeded"
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await _until(lambda: small.stats().running + small.stats().waiting == 0)


async def test_open_requests_have_a_limit(
    connect: Connect, engine: Engine, idle: Callable[[], None]
) -> None:
    client = connect(max_requests=1)
    await asyncio.to_thread(idle)
    running = asyncio.ensure_future(client.post(CHAT, json=say("slowly")))
    await _until(lambda: engine.stats().running == 1)
    assert (await client.get("/v1/models")).status_code == 429
    assert (await client.get("/health")).status_code == 200
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await asyncio.to_thread(idle)


async def test_many_at_once(client: httpx.AsyncClient) -> None:
    bodies = [say(f"Hello {i}", stream=bool(i % 2)) for i in range(16)]
    answers = await asyncio.gather(*(client.post(CHAT, json=body) for body in bodies))
    for i, answer in enumerate(answers):
        assert answer.status_code == 200
        if i % 2:
            deltas = [c["choices"][0]["delta"] for c in events(answer.text) if c and c["choices"]]
            assert "".join(delta.get("content", "") for delta in deltas) == ANSWER
        else:
            assert answer.json()["choices"][0]["message"]["content"] == ANSWER


# --- going away, deadlines, silence ---------------------------------------------------------------


async def test_streams_in_real_time(url: str) -> None:
    """Pieces come while the answer is being written, which takes 20 s."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        times: list[float] = []
        async with client.stream("POST", CHAT, json=say("slowly", stream=True)) as response:
            async for line in response.aiter_lines():
                if '"content":"' in line:
                    times.append(time.monotonic())
                if len(times) > 10 and times[-1] - times[0] > 0.2:
                    return
    raise AssertionError(f"{len(times)} pieces at once")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_ends_its_request(
    url: str, engine: Engine, idle: Callable[[], None], stream: bool
) -> None:
    await asyncio.to_thread(idle)
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        request = asyncio.ensure_future(client.post(CHAT, json=say("slowly", stream=stream)))
        await _until(lambda: engine.stats().running == 1)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
    await asyncio.to_thread(idle)


async def test_a_client_that_leaves_the_queue(connect: Connect) -> None:
    options = {"agents": 1, "script": (SLOW, ScriptRule(reply="x")), "context": 4096}
    with Engine(MODEL, backend="scripted", **options) as small, live(small) as url:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            first = asyncio.ensure_future(client.post(CHAT, json=say("a")))
            await _until(lambda: small.stats().running == 1)
            second = asyncio.ensure_future(client.post(CHAT, json=say("b", stream=True)))
            await _until(lambda: small.stats().waiting == 1)
            second.cancel()
            await _until(lambda: small.stats().waiting == 0)
            assert small.stats().running == 1
            first.cancel()
            await asyncio.gather(first, second, return_exceptions=True)


async def test_deadline(client: httpx.AsyncClient) -> None:
    response = await client.post(CHAT, json=say("slowly", timeout=0.2))
    assert response.status_code == 408
    assert response.headers["x-should-retry"] == "false"
    assert response.json()["error"]["code"] == "timeout"


async def test_the_server_bounds_every_request(connect: Connect) -> None:
    client = connect(request_timeout=0.2)
    for timeout in (None, 100):
        response = await client.post(CHAT, json=say("slowly", timeout=timeout))
        assert response.status_code == 408


async def test_an_error_in_the_middle_of_a_stream(client: httpx.AsyncClient) -> None:
    response = await client.post(CHAT, json=say("slowly", timeout=0.2, stream=True))
    assert response.status_code == 200
    chunks = events(response.text)
    assert chunks[-1]["error"]["code"] == "timeout"
    assert None not in chunks  # no [DONE] for an answer that is not done


async def test_silence_is_filled(connect: Connect, engine: Engine) -> None:
    options = {"agents": 1, "script": (ScriptRule(reply=THOUGHT + "x" * 20, delay_s=0.4),)}
    with Engine(MODEL, backend="scripted", context=4096, **options) as small:
        client = connect(small, keep_alive=0.1)
        response = await client.post(CHAT, json=say("Hello", stream=True, max_tokens=3))
    assert ": keep-alive\n\n" in response.text
    assert events(response.text)[-1] is None


def test_a_client_that_does_not_read(engine: Engine, idle: Callable[[], None]) -> None:
    """Its connection is closed; nobody else notices."""
    with live(engine, write_timeout=0.2, keep_alive=0.2) as url:
        host, port = url.removeprefix("http://").split(":")
        body = json.dumps(say("slowly", stream=True)).encode()
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            connection.settimeout(60)
            connection.connect((host, int(port)))
            head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            assert httpx.post(url + CHAT, json=say("Hello"), timeout=60).status_code == 200
        idle()
