"""Request options, the same for every adapter."""

from __future__ import annotations

import pytest

from openjet_provider.chat.options import IGNORED, chat_request
from openjet_provider.errors import InvalidRequestError

MESSAGES = [{"role": "user", "content": "Hi"}]


def test_options_find_their_place():
    request = chat_request(
        MESSAGES, {"temperature": 0, "top_k": 4, "max_tokens": 9, "seed": 1, "client": "kim"}
    )
    assert (request.sampling.temperature, request.sampling.top_k, request.sampling.seed) == (
        0,
        4,
        1,
    )
    assert (request.max_tokens, request.client) == (9, "kim")


def test_none_leaves_an_option_unset():
    assert chat_request(MESSAGES, {"temperature": None, "stop": None}) == chat_request(MESSAGES, {})


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"max_completion_tokens": 5}, "max_tokens", 5),
        ({"max_completion_tokens": 5, "max_tokens": 7}, "max_tokens", 5),
        ({"stop": "x"}, "stop", ("x",)),
        ({"stop_sequences": ["x", "y"]}, "stop", ["x", "y"]),
        ({"stop": []}, "stop", []),
        ({"user": "kim"}, "client", "kim"),
        ({"user": "kim", "client": "ada"}, "client", "ada"),
        ({"logprobs": True}, "top_logprobs", 0),
        ({"logprobs": True, "top_logprobs": 3}, "top_logprobs", 3),
        ({"logprobs": False}, "top_logprobs", None),
        ({"tools": []}, "tools", []),
        ({"n": 1}, "max_tokens", None),
    ],
)
def test_other_spellings(options, field, value):
    assert getattr(chat_request(MESSAGES, options), field) == value


def test_token_ids_may_be_text():
    """JSON has no other keys."""
    assert chat_request(MESSAGES, {"logit_bias": {"7": -1}}).sampling.logit_bias == {7: -1.0}


def test_what_only_transports_a_request_is_ignored():
    assert chat_request(MESSAGES, dict.fromkeys(IGNORED, "x")) == chat_request(MESSAGES, {})


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"temprature": 1}, "temprature"),
        ({"n": 2}, "n=2"),
        ({"max_tokens": -1}, "max_tokens=-1: give a whole number from 1"),
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"max_completion_tokens": 2.5}, r"max_tokens=2\.5"),
        ({"max_tokens": True}, "max_tokens=True"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
    ],
)
def test_what_makes_no_sense_is_named(options, named):
    with pytest.raises(InvalidRequestError, match=named):
        chat_request(MESSAGES, options)
