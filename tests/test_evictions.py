"""bench.evictions measures what it says, on a small scale."""

from __future__ import annotations

from bench.evictions import measure
from openjet_provider.models import resolve


def test_both_cases_run_through() -> None:
    model = resolve("openjet-tiny")[1]
    kept, dropped = (measure(model, 100, 30, n_bytes, between=2) for n_bytes in (1 << 30, 0))
    for found in (kept, dropped):
        assert found["evicted_pages"] > 0
        assert found["pauses"] > 0
        assert found["longest_beside"] >= found["median_beside"] > 0
    assert kept["kept_bytes"] > 0 == dropped["kept_bytes"]
