"""bench.scheduler_cost measures what it says: every case runs through, on a small scale."""

from __future__ import annotations

import pytest

from bench.scheduler_cost import measure
from openjet_provider.models import resolve


@pytest.mark.parametrize("host_bytes", [0, 1 << 26])
def test_a_small_run(host_bytes: int) -> None:
    """Without a store, and with one that what leaves the pool is copied to."""
    found = measure(
        resolve("openjet-tiny")[1], 256, conversations=2, steps=20, host_bytes=host_bytes
    )
    assert found["pages_cached"] >= 256
    assert found["full"]["evicted_pages"] > 0
    assert all(found[case]["median"] > 0 for case in ("room", "full", "admit"))
    assert (found.get("prefixes_kept", 0) > 0) == (host_bytes > 0)
