"""The completions endpoint: text and token ids go on."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.server.conftest import events

PATH = "/v1/completions"


async def post(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    response = await client.post(PATH, json=body)
    assert response.status_code == 200, response.text
    return response.json()  # type: ignore[no-any-return]


async def test_text_goes_on(client: httpx.AsyncClient) -> None:
    body = await post(client, prompt="2+2=", max_tokens=2)
    assert body["object"] == "text_completion"
    assert body["choices"] == [
        {"index": 0, "text": "4.", "logprobs": None, "finish_reason": "length"}
    ]
    assert body["usage"]["completion_tokens"] == 2


async def test_token_ids_are_as_good_as_text(client: httpx.AsyncClient) -> None:
    ids = (await client.post("/tokenize", json={"prompt": "2+2="})).json()["tokens"]
    for prompt in (ids, [ids], ["2+2="]):
        body = await post(client, prompt=prompt, max_tokens=100)
        assert body["choices"][0]["text"] == "4. And 3+3=6."
        assert body["choices"][0]["finish_reason"] == "stop"


async def test_special_tokens_in_a_prompt_count(client: httpx.AsyncClient) -> None:
    body = await post(client, prompt="<|im_start|>user\n2+2=<|im_end|>\n", max_tokens=1)
    plain = (await client.post("/tokenize", json={"prompt": "user\n2+2=\n"})).json()["count"]
    assert body["usage"]["prompt_tokens"] == plain + 2


async def test_stop_strings_are_cut_inside_a_token(client: httpx.AsyncClient) -> None:
    body = await post(client, prompt="2+2=", max_tokens=100, stop=["nd 3"])
    assert body["choices"][0]["text"] == "4. A"
    assert body["choices"][0]["finish_reason"] == "stop"


async def test_legacy_logprobs(client: httpx.AsyncClient) -> None:
    body = await post(client, prompt="2+2=", max_tokens=4, logprobs=2)
    choice = body["choices"][0]
    found = choice["logprobs"]
    assert found.keys() == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    assert {len(values) for values in found.values()} == {4}
    assert "".join(found["tokens"]) == choice["text"]
    for token, offset in zip(found["tokens"], found["text_offset"], strict=True):
        assert choice["text"][offset:].startswith(token)


async def test_stream_adds_up(client: httpx.AsyncClient) -> None:
    body = {"prompt": "2+2=", "max_tokens": 5, "logprobs": 1}
    whole = await post(client, **body)
    asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
    *chunks, usage, done = events((await client.post(PATH, json=asked)).text)
    assert done is None
    assert usage["choices"] == []
    assert usage["usage"] == whole["usage"]
    text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
    assert text == whole["choices"][0]["text"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-1] == "length"
    offsets: list[int] = []
    for chunk in chunks:
        if found := chunk["choices"][0]["logprobs"]:
            offsets += found["text_offset"]
    assert offsets == whole["choices"][0]["logprobs"]["text_offset"]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": 7}, "prompt"),
        ({"prompt": [10**6]}, "prompt"),
        ({"prompt": [5, "a"]}, "prompt"),
        ({"prompt": [[5], ["a"]]}, "prompt"),
        ({"echo": True}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"n": 2}, "n"),
        ({"stop": ["a\0b"]}, "stop"),
    ],
)
async def test_refusals_name_the_field(
    client: httpx.AsyncClient, change: dict[str, Any], param: str
) -> None:
    response = await client.post(PATH, json={"prompt": "2+2=", **change})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


@pytest.mark.parametrize("prompt", ["", [], [[]]])
async def test_an_empty_prompt_is_refused(client: httpx.AsyncClient, prompt: Any) -> None:
    response = await client.post(PATH, json={"prompt": prompt})
    assert response.status_code == 400, response.text
