"""What a server says of itself, and token counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from prometheus_client.parser import text_string_to_metric_families

from openjet_provider.engine import Engine
from tests.server.conftest import Connect, live, say
from tests.server.script import CONTEXT, MODEL, WEATHER


async def test_models(client: httpx.AsyncClient) -> None:
    (model,) = (await client.get("/v1/models")).json()["data"]
    assert model["id"] == MODEL
    assert model["object"] == "model"
    assert model["max_model_len"] == CONTEXT
    assert (await client.get(f"/v1/models/{MODEL}")).json() == model
    assert (await client.get("/v1/models/other")).status_code == 404


async def test_health(client: httpx.AsyncClient, connect: Connect) -> None:
    assert (await client.get("/health")).status_code == 200
    loading = connect(served=None)
    for path in ("/health", "/v1/models"):
        response = await loading.get(path)
        assert response.status_code == 503
        assert response.headers["retry-after"]
        assert response.json()["error"]["code"] == "loading"
    assert (await loading.post("/v1/chat/completions", json=say("Hello"))).status_code == 503
    assert (await loading.get("/metrics")).status_code == 200


async def test_metrics_count_requests(client: httpx.AsyncClient, idle: Callable[[], None]) -> None:
    usage = (await client.post("/v1/chat/completions", json=say("Hello"))).json()["usage"]
    await asyncio.to_thread(idle)  # an answer's end comes before its pages are put away
    text = (await client.get("/metrics")).text
    samples = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["openjet_prompt_tokens_total"] == usage["prompt_tokens"]
    assert samples["openjet_generation_tokens_total"] == usage["completion_tokens"]
    assert samples["openjet_requests_total"] == 1
    assert samples["openjet_time_to_first_token_seconds_count"] == 1
    assert samples["openjet_inter_token_latency_seconds_count"] == 1
    for name in ("requests_running", "requests_waiting", "kv_cache_usage_ratio"):
        assert samples[f"openjet_{name}"] == 0
    assert "openjet_prefix_cache_hits_total" in samples


async def test_what_follows_a_stop_string_is_not_counted(connect: Connect) -> None:
    """However far the engine was when it was told."""
    client = connect(interval=0.5)
    asked = say("Hello", stop=["is blue"])
    usage = (await client.post("/v1/chat/completions", json=asked)).json()["usage"]
    (seen,) = (await client.get("/v1/stats")).json()["conversations"]
    assert seen["generated_tokens"] == usage["completion_tokens"]
    counted = f"openjet_generation_tokens_total {usage['completion_tokens']}.0\n"
    assert counted in (await client.get("/metrics")).text


async def test_stats_tell_who_does_what(engine: Engine) -> None:
    with live(engine) as url:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            body = say("<note>\nslowly, please\nand more", stream=True)
            headers = {"x-openjet-client": "agent\x1b 1"}
            path = "/v1/chat/completions"
            async with client.stream("POST", path, json=body, headers=headers) as response:
                lines = response.aiter_lines()
                async for line in lines:
                    if '"content":"' in line and "three" in line:
                        break
                (seen,) = (await client.get("/v1/stats")).json()["conversations"]
            assert seen["client"] == "agent 1"
            assert seen["task"] == "slowly, please"
            assert seen["phase"] == "writing"
            assert "one two three" in seen["latest"]
            assert seen["tokens_per_second"] > 0
            assert seen["context_used"] == seen["prompt_tokens"] + seen["generated_tokens"]
            for _ in range(1000):
                (seen,) = (await client.get("/v1/stats")).json()["conversations"]
                if seen["phase"] == "idle":
                    break
                await asyncio.sleep(0.02)
            assert seen["phase"] == "idle"
            assert seen["finish"] == "disconnected"


async def test_stats_show_tool_calls_and_turns(client: httpx.AsyncClient) -> None:
    for _ in range(2):
        body = say("two cities", tools=[WEATHER], user="painter")
        await client.post("/v1/chat/completions", json=body)
    (seen,) = (await client.get("/v1/stats")).json()["conversations"]
    assert seen["client"] == "painter"
    assert seen["turns"] == 2
    assert seen["tool_calls"] == 4
    assert seen["tools"] == ["get_weather"] * 4
    assert seen["finish"] == "tool_calls"


async def test_stats_keep_what_is_private(connect: Connect) -> None:
    client = connect(private=True)
    await client.post("/v1/chat/completions", json=say("my secret"))
    text = (await client.get("/v1/stats")).text
    assert "secret" not in text
    assert "wall" not in text


async def test_stats_stay_bounded(client: httpx.AsyncClient) -> None:
    for number in range(70):
        await client.post("/v1/completions", json={"prompt": f"2+2= {number}", "max_tokens": 1})
    assert len((await client.get("/v1/stats")).json()["conversations"]) == 64


async def test_tokens_and_back(client: httpx.AsyncClient) -> None:
    body = (await client.post("/tokenize", json={"prompt": "Grüße 你好"})).json()
    assert body["count"] == len(body["tokens"])
    assert body["max_model_len"] == CONTEXT
    back = await client.post("/detokenize", json={"tokens": body["tokens"]})
    assert back.json() == {"prompt": "Grüße 你好"}


async def test_tokens_of_messages_are_those_of_the_prompt(client: httpx.AsyncClient) -> None:
    asked = say("Hello", tools=[WEATHER])
    count = (await client.post("/tokenize", json=asked)).json()["count"]
    usage = (await client.post("/v1/chat/completions", json=asked)).json()["usage"]
    assert count == usage["prompt_tokens"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {}),
        ("/tokenize", {"prompt": "a", "messages": []}),
        ("/tokenize", {"messages": []}),
        ("/detokenize", {"tokens": [10**6]}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": "a"}),
    ],
)
async def test_bad_token_requests(client: httpx.AsyncClient, path: str, body: Any) -> None:
    response = await client.post(path, json=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


async def test_openapi_describes_every_route(client: httpx.AsyncClient) -> None:
    from openjet_provider.server.app import ROUTES

    document = (await client.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    routes = {
        (route.path.replace(":path", ""), method.lower())
        for route in ROUTES
        for method in route.methods or ()
        if method != "HEAD"
    }
    assert routes == {(path, method) for path, item in document["paths"].items() for method in item}
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    assert "messages" in schemas["ChatCompletionBody"]["required"]
