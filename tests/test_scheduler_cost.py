"""bench.scheduler_cost measures what it says: every case runs through, on a small scale."""

from __future__ import annotations

from bench.scheduler_cost import measure
from openjet_provider.models import resolve


def test_a_small_run() -> None:
    found = measure(resolve("openjet-tiny")[1], pages=256, conversations=2, steps=20)
    assert found["pages_cached"] >= 256
    assert found["full"]["evicted_pages"] > 0
    assert all(found[case]["median"] > 0 for case in ("room", "full", "admit"))
