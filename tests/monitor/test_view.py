"""The terminal view of known samples: what it says, and that it fits."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("rich")

from rich.cells import cell_len

from openjet_provider.monitor.view import in_order, phase, rates, render

ENGINE = {
    "steps": 100,
    "rows": 400,
    "step_us": 2_000_000,
    "running": 2,
    "waiting": 1,
    "pages_total": 200,
    "pages_used": 50,
    "pages_cached": 100,
}
GPU = {
    "index": 0,
    "name": "NVIDIA Test",
    "load": 0.87,
    "memory_used": 3 << 30,
    "memory_total": 8 << 30,
    "power": 212.5,
    "power_limit": None,
    "temperature": 61,
}


def agent(client: str, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"id-{client}",
        "client": client,
        "phase": "writing",
        "prompt_progress": 1.0,
        "recent_tokens_per_second": 42.5,
        "context_used": 12_345,
        "prompt_tokens": 12_000,
        "cached_tokens": 9_000,
        "drafted": 100,
        "accepted": 73,
        "tools": ["read_file", "run_tests"],
        "finish": None,
        "unchanged_s": 0.0,
        "task": "Mend the roof",
        "latest": "and then the ladder",
    } | changes


def sample(*agents: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "model": "some-model",
        "backend": "cuda",
        "context": 131_072,
        "agents": 4,
        "uptime_s": 3_723.4,
        "engine": ENGINE,
        "conversations": list(agents),
        "gpus": [],
    } | changes


@pytest.mark.parametrize("width", [80, 150])
def test_what_is_said(width: int) -> None:
    text = render(sample(agent("roofer"), gpus=[GPU]), None, width, 24).plain
    for part in (
        "some-model on cuda, 4 agents, context 131,072, up 1:02:03",
        "42.5 tok/s  running 2  queue 1",
        "25+50 %",
        "step 20.0 ms  4.0 rows",
        "load 87 %  3.0/8.0 GiB  212 W  61 °C",
        "12,345   75 %   73 %",
        "Mend the roof",
        "and then the ladder",
    ):
        assert part in text


def test_what_is_cut_says_so() -> None:
    long = agent("roofer", task="t" * 80, latest="l" * 400)
    last = render(sample(long), None, 80, 24).plain.splitlines()[-1]
    task, latest = last.strip().split(" │ ")
    assert task.endswith("t…")
    assert latest.startswith("…l")
    assert cell_len(last) <= 80


def test_no_gpu_no_line() -> None:
    assert "GPU" not in render(sample(agent("roofer")), None, 80, 24).plain


def test_rates_are_those_since_the_sample_before() -> None:
    later = ENGINE | {"steps": 110, "rows": 490, "step_us": 2_050_000}
    assert rates(sample(engine=later), sample()) == (9.0, 5.0)
    assert rates(sample(), sample()) == (4.0, 20.0)  # nothing ran meanwhile
    assert rates(sample(engine=None), None) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"phase": "prompt", "prompt_progress": 0.434}, "prompt 43 %"),
        ({"phase": "thinking"}, "thinking"),
        ({"phase": "calling a tool"}, "calling run_tests"),
        ({"phase": "idle", "finish": "tool_calls"}, "tool run_tests"),
        ({"phase": "idle", "finish": "stop"}, "idle"),
        ({"phase": "idle", "finish": "disconnected"}, "idle (disconnected)"),
    ],
)
def test_phases(changes: dict[str, Any], said: str) -> None:
    assert phase(agent("roofer", **changes)) == said


def test_rows_keep_their_places() -> None:
    agents = [
        agent("b"),
        agent("a", phase="idle", unchanged_s=300.0),
        agent("c", phase="idle", unchanged_s=2.0),
    ]
    assert [found["client"] for found in in_order(agents)] == ["b", "c", "a"]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (200, 60), (10, 3)])
@pytest.mark.parametrize("count", [0, 1, 8, 40])
def test_it_fits(width: int, height: int, count: int) -> None:
    agents = [agent(f"agent with a long name {i}", task="界" * 90) for i in range(count)]
    lines = render(sample(*agents, gpus=[GPU]), None, width, height).plain.split("\n")
    assert max(map(cell_len, lines)) <= width
    assert len(lines) <= height


def test_those_who_work_are_shown_first() -> None:
    idle = [agent(f"idle{i:02}", phase="idle", unchanged_s=5.0) for i in range(40)]
    text = render(sample(*idle, agent("worker")), None, 80, 24).plain
    assert "worker" in text
    assert "more" in text


def test_texts_cannot_steer_the_terminal() -> None:
    hostile = agent("x\x1b[2J", task="\x1b]0;title\x07[bold]", latest="a\r\nb\x9b1m\u202e")
    text = render(sample(hostile), None, 80, 24).plain
    assert all(char == "\n" or char.isprintable() for char in text)
    assert "[bold]" in text  # no markup either


def test_a_private_server_shows_no_texts() -> None:
    text = render(sample(agent("roofer", task=None, latest=None)), None, 80, 24).plain
    assert "roofer" in text
