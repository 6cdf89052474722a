"""How memory is shared out before anything is allocated: context, KV pages, snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openjet_provider import defaults
from openjet_provider._native import Model
from openjet_provider.errors import InvalidRequestError, OutOfMemoryError

PAGE = 64  # OJ_PAGE_SIZE: KV positions of a page
SNAPSHOTS_PER_AGENT = 6  # system + tools, two message boundaries, prompt end, live end, one spare
MAX_ROWS = 512
CUDA_MAX_ROWS = 64  # rows of one launch
_CPU_POOL = 4 << 30  # a CPU pool larger than this helps nobody by default
_DEVICE_RESERVE = 256 << 20  # of a GPU's free memory: what the driver takes while kernels run


@dataclass(frozen=True)
class MemoryPlan:
    """Sizes an engine is opened with. Bytes are predictions by the backend's own accounting.

    context: positions one conversation may use; n_pages: KV pages of 64 positions shared by all;
    host_cache_bytes: host memory, beside the total, for conversations that the pool has no room
    for.
    """

    context: int
    n_pages: int
    n_snapshots: int
    max_rows: int
    weight_bytes: int
    state_bytes: int
    snapshot_bytes: int
    page_bytes: int
    scratch_bytes: int
    host_cache_bytes: int

    pinned_bytes: int = 0  # CUDA: of all these in host memory

    @property
    def total_bytes(self) -> int:
        """Everything the backend will take."""
        return (
            self.weight_bytes
            + self.state_bytes
            + self.snapshot_bytes
            + self.page_bytes
            + self.scratch_bytes
        )

    def __str__(self) -> str:
        def size(count: int) -> str:
            return f"{count / 1e9:.2f} GB"

        where = ""
        if self.pinned_bytes > 0:
            device = size(self.total_bytes - self.pinned_bytes)
            where = f" ({device} on the GPU, {size(self.pinned_bytes)} in host memory)"
        return (
            f"{size(self.total_bytes)}{where}: weights {size(self.weight_bytes)}, conversation"
            f" states {size(self.state_bytes)}, {self.n_snapshots} snapshots"
            f" {size(self.snapshot_bytes)}, KV pool of {self.n_pages * PAGE:,} positions"
            f" {size(self.page_bytes)}, scratch {size(self.scratch_bytes)}; one conversation may"
            f" use {self.context:,} positions; up to"
            f" {size(self.host_cache_bytes)} of host memory for idle conversations"
        )


def available_memory() -> int:
    """Bytes this process may still take: free memory, or what is left of the control group's."""
    free = 0
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    try:
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())
        return min(free, limit - int((group / "memory.current").read_text()))
    except (OSError, ValueError):  # no control group, or "max"
        return free


def plan_memory(
    model: Model,
    backend: Any,
    *,
    context: int | None,
    memory_budget: int | None,
    available: int,
    host_cache: int | None = None,
) -> MemoryPlan:
    """Fill the pool sizes of `backend` (an `oj_backend_options *`) for `model`.

    context: None takes the largest the pool allows, at most the file's. memory_budget: bytes for
    everything; None takes what the weights need and up to half of the rest, at most 4 GB, and of a
    GPU all that is free. available: bytes of the host's memory.
    host_cache: bytes beside these for idle conversations; None takes a quarter of what is left of
    the host's memory, at most 8 GB, and nothing on a CPU whose memory_budget is given.
    Raises OutOfMemoryError with what is needed, what is there and the option that lowers it, and
    InvalidRequestError for a context that the file does not allow.
    """
    file_context = model.info.context_length
    if context is not None and not PAGE <= context <= file_context:
        raise InvalidRequestError(
            f"context={context} is not possible for {model.path.name}: give {PAGE} to"
            f" {file_context}, the context the model was trained with"
        )
    if backend.kind == model.native.lib.OJ_BACKEND_CUDA:
        _share_device(model, backend, context, memory_budget, available)
    else:
        _share_host(model, backend, context, memory_budget, available)
    found = _measure(model, backend)
    total = found.weights + found.states + found.snapshots + found.pages + found.scratch
    if host_cache is None:
        on_device = backend.kind == model.native.lib.OJ_BACKEND_CUDA
        taken = found.host if on_device else total
        host_cache = max(0, min((available - taken) // 4, defaults.HOST_CACHE))
        if memory_budget is not None and not on_device:
            host_cache = 0
    return MemoryPlan(
        context=context or min(file_context, backend.n_pages * PAGE),
        n_pages=backend.n_pages,
        n_snapshots=backend.n_snapshots,
        max_rows=backend.max_rows,
        weight_bytes=found.weights,
        state_bytes=found.states,
        snapshot_bytes=found.snapshots,
        page_bytes=found.pages,
        scratch_bytes=found.scratch,
        host_cache_bytes=host_cache,
        pinned_bytes=found.host,
    )


def _share_host(
    model: Model, backend: Any, context: int | None, memory_budget: int | None, available: int
) -> None:
    """Pages and snapshots out of the host's memory."""
    file_context, agents = model.info.context_length, backend.n_slots
    backend.max_rows = MAX_ROWS
    backend.n_pages, backend.n_snapshots = 1, 1
    unit = _measure(model, backend)
    fixed = unit.weights + unit.states + unit.scratch
    spare = (available if memory_budget is None else memory_budget) - fixed
    if memory_budget is None and spare > 0:
        spare = min(spare // 2, _CPU_POOL)
    backend.n_snapshots = max(
        agents + 1, min(SNAPSHOTS_PER_AGENT * agents, int(spare * 0.25) // unit.state_bytes)
    )
    room = (spare - backend.n_snapshots * unit.state_bytes) // unit.page_bytes
    backend.n_pages = min(2 * agents * -(-(context or file_context) // PAGE), room)
    least = -(-(context or min(file_context, 2048)) // PAGE)
    if backend.n_pages < least:
        need = fixed + backend.n_snapshots * unit.state_bytes + least * unit.page_bytes
        raise OutOfMemoryError(
            f"{model.path.name} needs {need / 1e9:.2f} GB for a context of {least * PAGE}"
            f" positions and {agents} agents, {(fixed + spare) / 1e9:.2f} GB may be used;"
            " lower context= or agents=, or raise memory_budget="
        )


def _share_device(
    model: Model, backend: Any, context: int | None, memory_budget: int | None, available: int
) -> None:
    """Pages out of the memory that is free on the GPU: with less of it, the pool shrinks first.

    Snapshots and token embeddings lie in the host's memory; what the pool leaves on the device
    holds snapshots too.
    """
    file_context, agents = model.info.context_length, backend.n_slots
    backend.max_rows = CUDA_MAX_ROWS
    backend.n_pages, backend.n_snapshots, backend.fast_snapshots = 1, 0, 0
    unit = _measure(model, backend)
    fixed = unit.weights + unit.states + unit.scratch - unit.host
    budget = max(0, unit.available - _DEVICE_RESERVE)
    if memory_budget is not None:
        budget = min(budget, memory_budget)
    room = (budget - fixed) // unit.page_bytes
    backend.n_pages = min(2 * agents * -(-(context or file_context) // PAGE), room)
    least = -(-(context or min(file_context, 2048)) // PAGE)
    if backend.n_pages < least:
        raise OutOfMemoryError(
            f"{model.path.name} needs {(fixed + least * unit.page_bytes) / 1e9:.2f} GB of GPU"
            f" memory for a context of {least * PAGE} positions and {agents} agents,"
            f" {budget / 1e9:.2f} GB may be used; lower context= or agents=, free GPU memory, or"
            " raise memory_budget="
        )
    most = SNAPSHOTS_PER_AGENT * agents
    left = budget - fixed - backend.n_pages * unit.page_bytes
    backend.fast_snapshots = min(most, left // unit.state_bytes)
    slow = max(0, available // 2 - unit.host) // unit.state_bytes
    backend.n_snapshots = min(most, backend.fast_snapshots + slow)
    if backend.n_snapshots < agents + 1:
        raise OutOfMemoryError(
            f"{model.path.name} needs {(agents + 1) * unit.state_bytes / 1e9:.2f} GB of host"
            f" memory for {agents + 1} snapshots, {available / 2e9:.2f} GB may be used; lower"
            " agents="
        )


def _measure(model: Model, backend: Any) -> Any:
    out = model.native.ffi.new("oj_memory_plan *")
    model.native.call("oj_backend_memory", model.handle, backend, out)
    return out
