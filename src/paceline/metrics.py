"""Counters and histograms that every layer adds to and `/metrics` exposes.

Here: plain numbers. Never here: an output format. One observation costs a fraction of a microsecond, because the
gateway makes several for each request. Scope names come from outside, so the number of distinct names is bounded.
"""

import contextlib
import time
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from paceline.core.signals import RateLimited, Signal
from paceline.core.values.scopes import canonical_scope, scope_reached

MOST_NAMES: Final = 500
"""Distinct names per counter: bounds memory and the size of a scrape, far above what one home uses."""
OTHER: Final = "other"
"""The label of all names beyond the first `MOST_NAMES`."""

# Bounds in seconds, from well below the usual value to well above the worst. Every bound is one more line in a scrape.
WAIT_BOUNDS: Final = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0)
PASS_BOUNDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
UNIT_BOUNDS: Final = (1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 2 * 3600.0, 5 * 3600.0, 12 * 3600.0)
REQUEST_BOUNDS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
OVERHEAD_BOUNDS: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25)


class Histogram:
    """Counts of observations by bound, and their sum. Each count includes its bound; the last one has no bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Observe how long the block takes, also if it raises."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.observe(time.perf_counter() - began)

    @property
    def count(self) -> int:
        return sum(self.counts)


class LabelledCounter:
    """A count for each combination of labels. The first label comes from outside; the others are from fixed sets."""

    __slots__ = ("_names", "labels", "values")

    def __init__(self, *labels: str) -> None:
        self.labels = labels
        self.values: dict[tuple[str, ...], int] = {}
        self._names: set[str] = set()

    def add(self, *labels: str, by: int = 1) -> None:
        """Add to one count. Names beyond the first `MOST_NAMES` are counted together as `OTHER`."""
        if labels in self.values:
            self.values[labels] += by
            return
        name, *others = labels
        if name not in self._names and len(self._names) >= MOST_NAMES:
            labels = (OTHER, *others)
        else:
            self._names.add(name)
        self.values[labels] = self.values.get(labels, 0) + by


class MetricsRegistry:
    """All metrics of one process since its start. Engine, API and gateway share one registry.

    metrics.granted(waited)
    metrics.gateway_ttfb_seconds.observe(seconds)
    metrics.gateway_retries.add(scope, "rate_limited")
    metrics.tokens.add(scope, "output", by=812)
    """

    def __init__(self) -> None:
        self.grants = 0
        self.wait_seconds = Histogram(WAIT_BOUNDS)
        self.pass_seconds = Histogram(PASS_BOUNDS)
        self.unit_seconds = Histogram(UNIT_BOUNDS)
        self.rate_limited = LabelledCounter("scope")
        self.platform_limits = LabelledCounter("scope")
        self.limit_changes = LabelledCounter("scope", "direction")
        self.tokens = LabelledCounter("scope", "direction")
        """Direction: `input`, `output`, `cache_read` or `cache_write`. They do not overlap."""
        self.lost_tokens = LabelledCounter("scope", "source")
        """Context paid again after parks. Source: `measured`, or `estimated` where no event reports it."""
        self.gateway_request_seconds = Histogram(REQUEST_BOUNDS)
        """From the first byte of the request to the last byte of the response."""
        self.gateway_wait_seconds = Histogram(WAIT_BOUNDS)
        """The part of a request that waits for a slot."""
        self.gateway_ttfb_seconds = Histogram(REQUEST_BOUNDS)
        """From sending the request upstream to the first byte of the response."""
        self.gateway_overhead_seconds = Histogram(OVERHEAD_BOUNDS)
        """Time spent in the gateway itself: without waits for a slot, the upstream or the client."""
        self.gateway_retries = LabelledCounter("scope", "cause")

    def granted(self, waited: float) -> None:
        """Count a grant to a session, an HTTP slot or a gateway request, and its wait in seconds."""
        self.grants += 1
        self.wait_seconds.observe(waited)

    def reported(self, scope: str, signal: Signal) -> None:
        """Count a signal of a provider. Only rate limits are counted, every one of them."""
        if isinstance(signal, RateLimited):
            self.rate_limited.add(scope_reached(canonical_scope(scope), signal.reach))
