"""The page at `/` and the stream that feeds it; in a browser where there is one."""

from __future__ import annotations

import contextlib
import json
import re
import time
from pathlib import Path

import httpx
import pytest

from openjet_provider.engine import Engine
from openjet_provider.server.background import serving
from openjet_provider.server.settings import Settings
from tests.monitor.browser import CHROMIUM, browser

STREAM = "/v1/stats/stream"
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


def first_events(url: str, count: int, headers: dict[str, str] | None = None) -> list[dict]:
    found = []
    asked = {"interval": 0.1}
    with httpx.stream("GET", url + STREAM, params=asked, headers=headers, timeout=60) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if line:
                found.append(json.loads(line.removeprefix("data: ")))
            if len(found) == count:
                return found
    raise AssertionError("the stream ended")


def test_the_stream_is_the_statistics_again_and_again(url: str, agents: None) -> None:
    once = httpx.get(f"{url}/v1/stats", timeout=60).json()
    events = first_events(url, 3)
    ups = [event["uptime_s"] for event in events]
    assert ups == sorted(set(ups))
    for event in events:
        assert event.keys() == once.keys()
        assert {agent["client"] for agent in event["conversations"]} == {
            "writer",
            "caller",
            "hostile",
        }


@pytest.mark.parametrize("interval", ["0", "-1", "61", "nan", "soon", ""])
def test_bad_intervals(url: str, interval: str) -> None:
    response = httpx.get(f"{url}{STREAM}?interval={interval}", timeout=60)
    assert response.status_code == 400
    assert "0.1 to 60" in response.json()["error"]["message"]


def test_streams_end_with_the_server(engine: Engine) -> None:
    with contextlib.ExitStack() as stack:
        server = contextlib.ExitStack()
        url = server.enter_context(serving(engine))
        stack.callback(server.close)
        response = stack.enter_context(
            httpx.stream("GET", f"{url}{STREAM}?interval=60", timeout=100)
        )
        lines = response.iter_lines()
        assert next(lines).startswith("data: ")
        start = time.monotonic()
        server.close()
        assert time.monotonic() - start < 30
        assert list(lines) == [""]


def test_the_page_needs_nothing_from_elsewhere(url: str) -> None:
    page, script = (httpx.get(f"{url}/{name}", timeout=60) for name in ("", "monitor.js"))
    assert page.headers["content-type"].startswith("text/html")
    assert script.headers["content-type"].startswith("text/javascript")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    outside = re.compile(r"(https?:)?//(?!www\.w3\.org/2000/svg)[a-z]", re.IGNORECASE)
    assert not outside.search(page.text)
    assert set(re.findall(r"https?://[^\"']+", script.text)) == {"http://www.w3.org/2000/svg"}
    for risky in ("innerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert risky not in script.text


def test_a_key_guards_the_statistics_and_not_the_page(engine: Engine) -> None:
    with serving(engine, Settings(drain=0, api_keys=("secret",))) as url:
        assert httpx.get(f"{url}/", timeout=60).status_code == 200
        assert httpx.get(f"{url}/monitor.js", timeout=60).status_code == 200
        assert httpx.get(f"{url}{STREAM}", timeout=60).status_code == 401
        assert first_events(url, 1, {"authorization": "Bearer secret"})


@needs_browser
def test_in_a_browser(
    engine: Engine, url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Every agent has its row, texts stay texts, a line is drawn, a key is asked for."""
    with browser(tmp_path / "profile") as page:
        request.getfixturevalue("agents")  # now: the writer does not write for ever
        page.look(1200, 900)
        page.open(url)
        page.wait("document.querySelectorAll('#agents tr.agent').length === 3")
        text = page.value("document.body.innerText")
        for part in ("openjet-tiny", "writer", "writing", "tool ping", "slowly, please"):
            assert part in text
        assert "<b>bold</b>" in text
        assert page.value("document.querySelectorAll('#agents b').length") == 0
        page.wait("document.querySelectorAll('#chart polyline').length === 1")
        page.wait("document.querySelector('#chart polyline').points.length > 1")
        page.look(400, 800, dark=True)
        wide = page.value("document.documentElement.scrollWidth")
        assert wide <= 400
        assert page.errors == []
        with serving(engine, Settings(drain=0, api_keys=("secret",))) as locked:
            page.open(locked)
            page.wait("!document.querySelector('#key').hidden")
            page.value("document.querySelector('#key input').value = 'secret'")
            page.value("document.querySelector('#key button').click()")
            page.wait("document.querySelector('#model').textContent === 'openjet-tiny'")
        page.wait("document.querySelector('#trouble').textContent.startsWith('No statistics')")
