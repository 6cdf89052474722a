"""Memory of a GPU is planned from what is free there: the 27B file's sizes, no GPU needed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from openjet_provider import planning
from openjet_provider.errors import OutOfMemoryError
from openjet_provider.planning import PAGE, plan_memory

CUDA = 1
STATE = 156_913_664  # bytes of a conversation's state of the 27B


def plan(monkeypatch: pytest.MonkeyPatch, free: int, agents: int = 8, **options: Any) -> Any:
    """The plan, and the backend options, for so much free device memory and 64 GB on the host."""

    def measure(_: Any, backend: Any) -> SimpleNamespace:
        slow = backend.n_snapshots - min(backend.fast_snapshots, backend.n_snapshots)
        return SimpleNamespace(
            weights=16_972_000_000,
            states=agents * 220_500_000,
            snapshots=backend.n_snapshots * STATE,
            pages=backend.n_pages * 36_992 * PAGE,
            scratch=368_000_000,
            page_bytes=36_992 * PAGE,
            state_bytes=STATE,
            host=715_161_600 + slow * STATE,
            available=free,
        )

    monkeypatch.setattr(planning, "_measure", measure)
    native = SimpleNamespace(lib=SimpleNamespace(OJ_BACKEND_CUDA=CUDA))
    info = SimpleNamespace(context_length=262_144)
    model: Any = SimpleNamespace(path=Path("27b.gguf"), native=native, info=info)
    backend = SimpleNamespace(kind=CUDA, n_slots=agents)
    wanted = {"context": None, "memory_budget": None, "available": 64_000_000_000} | options
    return plan_memory(model, backend, **wanted), backend


def test_24_gb_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool of 132,000 positions, snapshots in host memory."""
    found, backend = plan(monkeypatch, 24_000_000_000)
    assert found.n_pages * PAGE >= 132_000
    assert found.total_bytes - found.pinned_bytes <= 24_000_000_000 - (256 << 20)
    assert (found.max_rows, found.n_snapshots, backend.fast_snapshots) == (64, 48, 0)
    assert "on the GPU" in str(found)


def test_22_5_gb_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the pool is smaller."""
    large, _ = plan(monkeypatch, 24_000_000_000)
    small, _ = plan(monkeypatch, 22_500_000_000)
    assert 80_000 <= small.n_pages * PAGE < large.n_pages * PAGE
    assert small.n_snapshots == large.n_snapshots


def test_a_large_gpu_keeps_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    found, backend = plan(monkeypatch, 140_000_000_000, context=32_768)
    assert found.n_pages == 2 * 8 * 32_768 // PAGE
    assert backend.fast_snapshots == found.n_snapshots == 48


def test_refusals_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OutOfMemoryError, match=r"of GPU memory .* free GPU memory"):
        plan(monkeypatch, 12_000_000_000)
    with pytest.raises(OutOfMemoryError, match=r"GB may be used"):
        plan(monkeypatch, 24_000_000_000, memory_budget=18_000_000_000)
    with pytest.raises(OutOfMemoryError, match="snapshots"):
        plan(monkeypatch, 24_000_000_000, available=2_000_000_000)
