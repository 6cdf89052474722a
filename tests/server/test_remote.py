"""Attached clients: a server's engine with the interface of a local one."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from openjet_provider.chat.types import ChatDelta, ChatRequest, Sampling
from openjet_provider.engine import Engine
from openjet_provider.errors import (
    BackendUnavailableError,
    ContextOverflowError,
    EngineBusyError,
    EngineClosedError,
    InvalidRequestError,
    ModelNotFoundError,
    RequestTimeoutError,
)
from openjet_provider.handles import Handles
from openjet_provider.remote import RemoteEngine
from tests.server.conftest import live
from tests.server.script import ANSWER, CONTEXT, MODEL, WEATHER
from tests.waiting import wait_until


def ask(text: str = "Hello", **options: Any) -> ChatRequest:
    return ChatRequest(messages=[{"role": "user", "content": text}], **options)


@pytest.fixture
def remote(url: str) -> Iterator[RemoteEngine]:
    with RemoteEngine(url) as engine:
        yield engine


def test_the_servers_model(remote: RemoteEngine, url: str) -> None:
    assert remote.model_name == MODEL
    assert remote.context == CONTEXT
    with RemoteEngine(f"{url}/v1/", MODEL) as named:
        assert named.model_name == MODEL
    with pytest.raises(ModelNotFoundError, match="other"):
        RemoteEngine(url, "other")


@pytest.mark.parametrize("text", ["Hello", "Weather in Oslo?", "two cities"])
def test_the_same_answer_as_in_this_process(
    remote: RemoteEngine, engine: Engine, text: str
) -> None:
    request = ask(text, tools=[WEATHER], top_logprobs=2, sampling=Sampling(seed=1))
    here, there = engine.chat(request).result(), remote.chat(request).result()
    for name in ("content", "reasoning", "finish_reason", "logprobs"):
        assert getattr(there, name) == getattr(here, name)
    calls = [(call.name, call.arguments) for call in there.tool_calls]
    assert calls == [(call.name, call.arguments) for call in here.tool_calls]
    assert there.usage.prompt_tokens == here.usage.prompt_tokens
    assert there.usage.completion_tokens == here.usage.completion_tokens
    assert there.usage.reasoning_tokens == here.usage.reasoning_tokens


def test_deltas_add_up_and_counts_are_live(remote: RemoteEngine) -> None:
    stream = remote.chat(ask("slowly"))
    total = ChatDelta()
    counts = []
    for delta in stream:
        total = ChatDelta(total.reasoning + delta.reasoning, total.content + delta.content)
        counts.append(stream.stats.generated)
        if len(set(counts)) > 5:  # long before the end
            stream.cancel()
    result = stream.result()
    assert (total.content, total.reasoning) == (result.content, result.reasoning)
    assert result.finish_reason == "cancelled"
    assert counts == sorted(counts)
    assert stream.stats.tokens_per_second > 0


@pytest.mark.parametrize("late", [False, True])
def test_thinking_is_of_the_last_delta(remote: RemoteEngine, late: bool) -> None:
    """Also where several came before somebody looked at the first."""
    stream = remote.chat(ask())
    if late:
        wait_until(lambda: stream._inbox.finish)
    seen = [(stream.thinking, bool(delta.content)) for delta in stream]
    assert {content for _, content in seen} == {False, True}
    assert all(thinking is not content for thinking, content in seen)


async def test_tasks_and_cancel(
    remote: RemoteEngine, engine: Engine, idle: Callable[[], None]
) -> None:
    async with await remote.achat(ask("slowly")) as stream:
        async for delta in stream:
            if delta.content:
                break
    await asyncio.to_thread(idle)
    results = await asyncio.gather(*(_aresult(remote, f"Hello {i}") for i in range(8)))
    assert {result.content for result in results} == {ANSWER}


async def _aresult(remote: RemoteEngine, text: str) -> Any:
    return await (await remote.achat(ask(text))).aresult()


def test_cancel_keeps_what_came(remote: RemoteEngine) -> None:
    stream = remote.chat(ask("slowly"))
    pieces = []
    for delta in stream:
        pieces.append(delta.content)
        if len(pieces) == 5:
            stream.cancel()
    result = stream.result()
    assert result.finish_reason == "cancelled"
    assert result.content == "".join(pieces)


def test_cancelled_at_once(remote: RemoteEngine, idle: Callable[[], None]) -> None:
    stream = remote.chat(ask("slowly"))
    stream.cancel()
    assert stream.result().finish_reason == "cancelled"
    idle()


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.01])
def test_a_stream_that_is_cancelled_twice_ends(
    url: str, idle: Callable[[], None], seconds: float
) -> None:
    """By its owner and, while its connection is being closed, by the engine's end."""
    for _ in range(10):
        with RemoteEngine(url) as remote, ThreadPoolExecutor(1) as pool:
            stream = remote.chat(ask("slowly"))
            result = pool.submit(stream.result)
            stream.cancel()
            stream.cancel()
            time.sleep(seconds)
            remote.close()
            assert result.result(timeout=60).finish_reason == "cancelled"
    idle()


def test_threads(remote: RemoteEngine) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda i: remote.chat(ask(f"Hi {i}")).result(), range(16)))
    assert {result.content for result in results} == {ANSWER}


def test_counts(remote: RemoteEngine, engine: Engine) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    assert remote.count_tokens(messages, [WEATHER]) == engine.count_tokens(messages, [WEATHER])
    assert remote.tokenize("Grüße <|im_end|>") == engine.tokenize("Grüße <|im_end|>")


def test_errors_are_the_engines_own(remote: RemoteEngine, url: str) -> None:
    with pytest.raises(ContextOverflowError) as caught:
        remote.chat(ask("word " * 5000))
    assert caught.value.context == CONTEXT
    assert caught.value.prompt_tokens > 5000
    with pytest.raises(InvalidRequestError, match="reasoning_effort"):
        remote.chat(ask(reasoning_effort="heroic"))
    with pytest.raises(RequestTimeoutError):
        remote.chat(ask("slowly", timeout=0.2)).result()


def test_the_key(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with live(engine, api_keys=("sesame",)) as url:
        with pytest.raises(InvalidRequestError, match="OPENJET_API_KEY"):
            RemoteEngine(url)
        RemoteEngine(url, api_key="sesame").close()
        monkeypatch.setenv("OPENJET_API_KEY", "sesame")
        RemoteEngine(url).close()


def test_after_close(url: str) -> None:
    remote = RemoteEngine(url)
    stream = remote.chat(ask("slowly"))
    remote.close()
    remote.close()
    assert stream.result().finish_reason == "cancelled"
    with pytest.raises(EngineClosedError):
        remote.chat(ask())


def test_nobody_there(nowhere: str) -> None:
    started = time.monotonic()
    with pytest.raises(BackendUnavailableError, match="openjet serve"):
        RemoteEngine(nowhere)
    assert time.monotonic() - started < 60


class Flaky(BaseHTTPRequestHandler):
    """Answers busy `busy` times, then as told; counts requests."""

    busy, seen, cut = 0, 0, False

    def do_GET(self) -> None:
        self._answer(b'{"data": [{"id": "m", "max_model_len": 64}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        type(self).seen += 1
        if type(self).seen <= self.busy:
            self._answer(b'{"error": {"message": "full", "code": "x"}}', 429)
            return
        chunk = {"choices": [{"delta": {"content": "Hi"}, "finish_reason": None}]}
        events = f"data: {json.dumps(chunk)}\n\n"
        self._answer((events if self.cut else events + "data: [DONE]\n\n").encode())

    def _answer(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.send_header("retry-after", "0")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def flaky() -> Iterator[tuple[type[Flaky], RemoteEngine]]:
    handler = type("Handler", (Flaky,), {})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with RemoteEngine(f"http://127.0.0.1:{server.server_port}") as remote:
            yield handler, remote
        server.shutdown()
        thread.join()


def test_a_busy_server_is_asked_again(flaky: tuple[type[Flaky], RemoteEngine]) -> None:
    handler, remote = flaky
    handler.busy = 2
    remote.chat(ask()).cancel()
    assert handler.seen == 3
    handler.busy, handler.seen = 100, 0
    with pytest.raises(EngineBusyError, match="full"):
        remote.chat(ask())
    assert handler.seen == 4


def test_what_was_started_is_not_sent_again(flaky: tuple[type[Flaky], RemoteEngine]) -> None:
    handler, remote = flaky
    handler.cut = True
    stream = remote.chat(ask())
    with pytest.raises(BackendUnavailableError, match="closed the connection"):
        stream.result()
    assert handler.seen == 1


# --- through the adapters -------------------------------------------------------------------------


def test_handles_attach(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    handles = Handles()
    attached = handles.get(None, {"agents": 2}, url)
    assert isinstance(attached, RemoteEngine)
    assert handles.get(None, {}, url) is attached
    monkeypatch.setenv("OPENJET_BASE_URL", url)
    assert handles.get(None) is attached
    handles.close()


async def test_langchain(url: str, engine: Engine) -> None:
    langchain = pytest.importorskip("langchain_openjet")
    llm = langchain.ChatOpenJet(base_url=url)
    try:
        assert llm.invoke("Hello").content == ANSWER
        assert (await llm.ainvoke("Hello")).additional_kwargs["reasoning_content"]
        called = llm.bind_tools([WEATHER]).invoke("Weather in Oslo?")
        assert called.tool_calls[0]["args"] == {"city": "Oslo"}
        assert "".join(chunk.text for chunk in llm.stream("Hello")) == ANSWER
        assert llm.get_num_tokens("Hello") == len(engine.tokenize("Hello"))
        with pytest.raises(langchain.OpenJetContextOverflowError):
            llm.invoke("word " * 5000)
    finally:
        llm.close()


async def test_litellm(url: str) -> None:
    litellm = pytest.importorskip("litellm")
    import litellm_openjet

    call = {"model": f"openjet/{MODEL}", "api_base": url}
    call["messages"] = [{"role": "user", "content": "Hello"}]
    try:
        assert litellm.completion(**call).choices[0].message.content == ANSWER
        answer = await litellm.acompletion(**call)
        assert answer.choices[0].message.reasoning_content
        stream = await litellm.acompletion(**call, stream=True)
        text = ""
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
        assert text == ANSWER
    finally:
        litellm_openjet.openjet_llm.close()
