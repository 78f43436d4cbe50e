"""What is known of requests while a server runs: a line of the log for each, and figures for Prometheus.

Neither has anything that users wrote: of a path there is the template of its route.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from threadkeep.web.logs import ACCESS

logger = logging.getLogger(ACCESS)

UNKNOWN: Final = "unknown"  # stands for paths and methods that nobody has
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_FAILED: Final = 500


class Metrics:
    """The figures of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry: Final = CollectorRegistry()
        self.requests: Final = Counter(
            "threadkeep_http_requests", "Requests that have ended.", ["method", "route", "status"],
            registry=self.registry,
        )  # fmt: skip
        self.seconds: Final = Histogram(
            "threadkeep_http_request_duration_seconds", "From a request to the end of its answer.", ["method", "route"],
            buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self.in_flight: Final = Gauge(
            "threadkeep_http_requests_in_flight", "Requests that have not ended.", registry=self.registry
        )

    def text(self) -> bytes:
        """Return all figures as Prometheus reads them."""
        return generate_latest(self.registry)


class Observed:
    """Middleware that logs and counts requests."""

    def __init__(self, app: ASGIApp, metrics: Metrics, templates: Mapping[Callable[..., Any], str]) -> None:
        """`templates` has the path of each endpoint's route."""
        self._app, self._metrics, self._templates = app, metrics, templates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = perf_counter(), _FAILED

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with self._metrics.in_flight.track_inprogress():
            try:
                await self._app(scope, receive, noting)
            finally:
                self._note(scope, status, perf_counter() - begun)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        endpoint: Any = scope.get("endpoint")
        route = self._templates.get(endpoint, UNKNOWN) if endpoint is not None else UNKNOWN
        method = scope["method"] if scope["method"] in _METHODS else UNKNOWN
        self._metrics.requests.labels(method, route, status).inc()
        self._metrics.seconds.labels(method, route).observe(seconds)
        if logger.isEnabledFor(logging.INFO):
            state = scope.get("state", {})
            fields = {
                "request_id": state.get("request_id"), "method": method, "route": route, "status": status,
                "duration_ms": round(seconds * 1000, 3), "key": state.get("key"),
            }  # fmt: skip
            logger.info("A request has ended.", extra=fields)
