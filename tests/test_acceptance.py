"""Drafts that are drawn are worth more than drafts that are guessed: bench.acceptance on
openjet-tiny, and its counting."""

from __future__ import annotations

from bench.acceptance import Counts, measure
from openjet_provider import models


def test_places_of_a_block() -> None:
    counts = Counts(3)
    for accepted in (0, 1, 3, 3):
        counts.add(accepted)
    assert [place["reached"] for place in counts.places()] == [4, 3, 2]
    assert [place["accepted"] for place in counts.places()] == [0.75, 0.6667, 1.0]
    assert [place["share"] for place in counts.places()] == [0.75, 0.5, 0.5]
    assert counts.tokens_per_step == 2.75


def test_sampled_drafts_beat_argmax_drafts() -> None:
    """At temperature 1, by both rules; seeds are fixed."""
    _, path = models.resolve("openjet-tiny")
    found = {rule: result["tokens_per_step"] for rule, result in measure(path, 40, 3).items()}
    assert found["coupled"] > found["argmax"] + 0.05
    assert found["rejection"] > found["argmax"] + 0.05
    assert found["greedy"] > 2.5
