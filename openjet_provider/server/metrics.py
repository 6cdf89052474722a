"""Prometheus metrics of one server, in a registry of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from openjet_provider._core import EngineStats
from openjet_provider.generation import RequestStats

_FIRST_TOKEN = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_BETWEEN = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2.5)

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """Counts of finished requests; everything else is asked of the engine when scraped."""

    def __init__(self, engine: Callable[[], EngineStats | None]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(engine))
        self._requests = Counter(
            "openjet_requests",
            "Finished requests by endpoint and outcome",
            ["endpoint", "outcome"],
            registry=self._registry,
        )
        self._prompt = self._counter("openjet_prompt_tokens", "Prompt tokens, cached ones included")
        self._cached = self._counter(
            "openjet_prefix_cache_hits", "Prompt tokens that were not computed again"
        )
        self._generated = self._counter("openjet_generation_tokens", "Generated tokens")
        self._drafted = self._counter("openjet_draft_tokens", "Tokens drafted")
        self._accepted = self._counter("openjet_accepted_draft_tokens", "Drafts accepted")
        self._first = self._histogram(
            "openjet_time_to_first_token_seconds",
            "From submission to the first token",
            _FIRST_TOKEN,
        )
        self._between = self._histogram(
            "openjet_inter_token_latency_seconds",
            "Between the tokens of a request, its mean",
            _BETWEEN,
        )

    def finished(self, endpoint: str, outcome: str, stats: RequestStats) -> None:
        """outcome: a finish reason, or the class of an error."""
        self._requests.labels(endpoint, outcome).inc()
        self._prompt.inc(stats.prompt_tokens)
        self._cached.inc(stats.cached_tokens)
        self._generated.inc(stats.generated)
        self._drafted.inc(sum(stats.drafted))
        self._accepted.inc(sum(stats.accepted))
        if stats.first_token_s is not None:
            self._first.observe(stats.first_token_s)
        if speed := stats.tokens_per_second:
            self._between.observe(1 / speed)

    def text(self) -> bytes:
        """The exposition text of `/metrics`."""
        return generate_latest(self._registry)

    def _counter(self, name: str, what: str) -> Counter:
        return Counter(name, what, registry=self._registry)

    def _histogram(self, name: str, what: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, what, buckets=buckets, registry=self._registry)


class _EngineCollector(Collector):
    def __init__(self, engine: Callable[[], EngineStats | None]) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        stats = self._engine()
        if stats is None:
            return
        used = stats.pages_used / max(stats.pages_total, 1)
        for name, what, value in (
            ("requests_running", "Requests being computed", stats.running),
            ("requests_waiting", "Requests in the queue", stats.waiting),
            ("kv_cache_usage_ratio", "KV pages of running conversations, of all", used),
            ("kv_pages_running", "KV pages of running conversations", stats.pages_used),
            ("kv_pages_cached", "KV pages kept for reuse", stats.pages_cached),
            ("snapshots_used", "Recurrent states stored", stats.snapshots_used),
            ("prefixes_kept", "Prefixes in host memory and files", stats.prefixes_kept),
            ("host_cache_bytes", "Host memory that they take", stats.host_bytes),
            ("last_step_seconds", "Duration of the last step", stats.last_step_us / 1e6),
        ):
            yield GaugeMetricFamily(f"openjet_{name}", what, value=value)
        for name, what, value in (
            ("steps", "Steps computed", stats.steps),
            ("step_rows", "Rows of all steps", stats.rows),
            ("shared_steps", "Steps with rows of several conversations", stats.shared_steps),
            ("step_seconds", "Time spent in steps", stats.step_us / 1e6),
            ("evicted_pages", "KV pages given up to make room", stats.evicted_pages),
        ):
            yield CounterMetricFamily(f"openjet_{name}", what, value=value)
