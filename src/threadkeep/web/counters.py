"""What a face of the server counts: for health checks and metrics, whichever thread it happens in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from threading import Lock

from prometheus_client.core import CounterMetricFamily


class Counters:
    """Numbers of events by name, from the start of the process on: a collector of prometheus-client."""

    def __init__(self, metric: str, help: str, label: str, names: tuple[str, ...]) -> None:
        """`metric`, `help` and `label` are how Prometheus has them; `names` are shown even if nothing happens."""
        self._metric, self._help, self._label = metric, help, label
        self._lock, self._counts = Lock(), Counter(dict.fromkeys(names, 0))

    def add(self, name: str) -> int:
        """Count an event; return how many there are now."""
        with self._lock:
            self._counts[name] += 1
            return self._counts[name]

    def counts(self) -> Mapping[str, int]:
        """Return the numbers so far."""
        with self._lock:
            return dict(self._counts)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the numbers for Prometheus."""
        family = CounterMetricFamily(self._metric, self._help, labels=[self._label])
        for name, count in self.counts().items():
            family.add_metric([name], count)
        yield family
