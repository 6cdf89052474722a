"""`openjet bench` from the command line: known speeds, other servers, bad options, the record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from openjet_provider import cli
from openjet_provider.bench.record import longest_wait
from openjet_provider.bench_command import SCENARIOS
from openjet_provider.engine import Engine, ScriptRule
from openjet_provider.server.background import in_thread, serving

STEP_S = 0.02
WORDS = ScriptRule(match="Write", reply="one two three four five six " * 500, delay_s=STEP_S)


def bench(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert cli.main(["bench", "--quick", "--json", "-", *options]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def scripted() -> Iterator[str]:
    """A server whose steps take STEP_S and give each agent one token."""
    options: dict[str, Any] = {"backend": "scripted", "script": (WORDS,), "drafts": 0}
    with Engine("openjet-tiny", agents=4, **options) as engine, serving(engine) as url:
        yield url


def test_known_speeds(scripted: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One token a step and agent: nobody is faster, whatever the load of the machine. A first token
    that is seen late makes what follows look faster, so both together are judged."""
    names = ("one", "short", "long", "beside", "shared")
    only = [part for name in names for part in ("--only", name)]
    record = bench(capsys, "--url", scripted, "--agents", "4", *only)
    results, tokens = record["results"], record["settings"]["answer"]
    for scenario, agents in (("one", 1), ("short", 4), ("follow_up", 4), ("shared", 4)):
        firsts = results[scenario]["first token"]["samples"]
        speeds = results[scenario]["decode, each"]["samples"]
        assert len(speeds) == agents
        for first, speed in zip(firsts, speeds, strict=True):
            assert first + (tokens - 1) / speed >= tokens * STEP_S
        if agents > 1:
            together = results[scenario]["decode, all"]["median"]
            assert results[scenario]["decode, each"]["median"] < together
            assert max(firsts) + agents * (tokens - 1) / together >= tokens * STEP_S
    for scenario in ("one", "short", "long", "follow_up", "shared"):
        assert results[scenario]["first token"]["min"] >= STEP_S
    assert results["one"]["prompt"]["median"] < results["long"]["prompt"]["median"]
    beside = results["beside"]
    assert beside["longest pause beside"]["median"] > 0
    assert beside["first token of the long prompt"]["median"] >= STEP_S
    assert beside["covered"]["median"] == 100


def test_a_machine_that_takes_its_cores_away_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 0.1, 0.15, 0.9, 1.1])
    monkeypatch.setattr("openjet_provider.bench.record.time.perf_counter", lambda: next(times))
    assert longest_wait() == pytest.approx(0.75)


def test_on_the_real_engine(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "results" / "tiny.json"
    command = ["bench", "-m", "openjet-tiny", "--quick", "--json", str(file)]
    monkeypatch.setattr("sys.argv", ["openjet", *command])
    assert cli.main(command) == 0
    text = capsys.readouterr().out
    record = json.loads(file.read_text())
    assert record["model"] == "openjet-tiny"
    assert record["backend"] == "cpu"
    assert record["command"].startswith("openjet bench -m openjet-tiny --quick")
    assert record["machine"]["cores"] > 0
    assert 0 < record["machine"]["longest_wait_s"] < 60
    assert record["settings"]["agents"] == 2
    beside = record["results"]["beside"]
    if "answers without text" not in beside:  # on a busy machine, all of one may come at once
        ordinary = beside["engine: ordinary pause"]["min"]
        assert beside["engine: longest pause alone"]["max"] >= ordinary > 0
    assert set(record["results"]) == {*SCENARIOS, "follow_up"}
    for scenario in record["results"]:
        assert scenario in text
    assert 450 < record["results"]["long"]["prompt"]["median"] < 650
    assert record["results"]["long"]["cached"]["median"] < 20
    assert record["results"]["follow_up"]["cached"]["median"] > 80
    assert record["results"]["shared"]["cached"]["median"] > 35  # one of two reads it
    assert record["results"]["crew"]["solved"]["median"] >= 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--agents", "1"], "--agents 1: give 2 to 16"),
        (["--rounds", "0"], "--rounds 0: give 1 to"),
        (["--context", "9000"], "--context 9,000 does not fit"),
        (["--url", "http://127.0.0.1:9", "-m", "x"], "leave out --model"),
        (["--url", "http://127.0.0.1:9", "--drafts", "2"], "leave out --drafts"),
        (["-m", "/no/such.gguf"], "/no/such.gguf"),
    ],
)
def test_bad_options(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = [] if {"-m", "--url"} & set(options) else ["-m", "openjet-tiny"]
    assert cli.main(["bench", *model, *options]) == 1
    assert said in capsys.readouterr().err


# ---- servers of another kind ---------------------------------------------------------------------


def chunk(text: str, usage: dict[str, int] | None = None) -> str:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return f"data: {json.dumps({'choices': [choice], 'usage': usage})}\n\n"


def other_server(pieces: Callable[[int], list[str]]) -> Starlette:
    """Knows chat completions and its model's name, and nothing else."""

    async def models(_: Request) -> Response:
        return JSONResponse({"data": [{"id": "other"}]})

    async def chat(request: Request) -> Response:
        tokens = (await request.json())["max_tokens"]
        return StreamingResponse([*pieces(tokens), "data: [DONE]\n\n"], media_type="text/plain")

    routes = [Route("/v1/models", models), Route("/v1/chat/completions", chat, methods=["POST"])]
    return Starlette(routes=routes)


def usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 500, "completion_tokens": tokens}


def test_a_server_of_another_kind(capsys: pytest.CaptureFixture[str]) -> None:
    def words(tokens: int) -> list[str]:
        return [chunk("word ") for _ in range(tokens - 1)] + [chunk("word", usage(tokens))]

    with in_thread(other_server(words)) as url:
        record = bench(capsys, "--url", url, "--only", "short")
    assert record["model"] == "other"
    assert record["engine"] is None
    assert record["results"]["short"]["prompt"]["median"] == 500


def test_a_server_that_does_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    with in_thread(other_server(lambda tokens: [chunk("word ")] * tokens)) as url:
        assert cli.main(["bench", "--quick", "--url", url]) == 1
    assert "does not report token counts" in capsys.readouterr().err


def test_answers_without_text_are_told_and_not_timed(capsys: pytest.CaptureFixture[str]) -> None:
    with in_thread(other_server(lambda tokens: [chunk("", usage(tokens))])) as url:
        record = bench(capsys, "--url", url, "--only", "short", "--only", "beside")
    assert record["results"]["short"]["answers without text"]["median"] == 2
    assert "first token" not in record["results"]["short"]
    assert set(record["results"]["beside"]) == {"answers without text"}
