"""Metrics for Prometheus and logs as lines of JSON.

Neither contains anything that users wrote, or secrets: of a path there is the template of its route.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from time import perf_counter
from types import SimpleNamespace
from typing import Any, Final, Self, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from threadkeep.domain.jsontext import dumps

ACCESS: Final = "threadkeep.access"  # the logger of requests
logger = logging.getLogger(ACCESS)

UNKNOWN: Final = "unknown"  # stands for paths and methods that nobody has
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_FAILED: Final = 500
_TELL_SECONDS: Final = 2.0  # in which another process must tell its figures

# The path of an application, and an endpoint of it -> the path of the endpoint's route
Templates: TypeAlias = Mapping[tuple[str, Callable[..., Any]], str]


class Metrics:
    """The figures of one server, in a registry of its own."""

    shared: SharedFigures | None = None  # where it is one of several processes

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

    async def of_all(self) -> bytes:
        """Return the figures of all processes of the server."""
        return self.text() if self.shared is None else await self.shared.text()


class SharedFigures:
    """The figures of several processes that serve at one port: each tells the others its own, at a socket in a folder.

    They have a label more: `worker`, the number of the process. So the figures of one that was replaced begin at 0, and
    those of the others go on.
    """

    def __init__(self, metrics: Metrics, folder: Path, number: int) -> None:
        self._metrics, self._folder, self._path = metrics, folder, folder / f"{number}.sock"

    async def __aenter__(self) -> Self:
        self._path.unlink(missing_ok=True)  # of the process before it
        self._server = await asyncio.start_unix_server(self._tell, self._path)
        self._metrics.shared = self
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _tell(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError), closing(writer):
            writer.write(self._metrics.text())
            await writer.drain()

    async def _ask(self, path: Path) -> bytes:
        """The figures of a process; none of one that has ended, or does not answer in time."""
        if path == self._path:
            return self._metrics.text()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_TELL_SECONDS):
                reader, writer = await asyncio.open_unix_connection(path)
                with closing(writer):
                    return await reader.read()
        return b""

    async def text(self) -> bytes:
        """Return the figures of all processes as Prometheus reads them."""
        paths, families = sorted(self._folder.glob("*.sock")), dict[str, Metric]()
        for path, text in zip(paths, await asyncio.gather(*map(self._ask, paths)), strict=True):
            for family in text_string_to_metric_families(text.decode()):
                known = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                samples = (sample._replace(labels={**sample.labels, "worker": path.stem}) for sample in family.samples)
                known.samples.extend(samples)
        registry: Any = SimpleNamespace(collect=families.values)
        return generate_latest(registry)


class Observed:
    """Middleware that logs and counts requests."""

    def __init__(self, app: ASGIApp, metrics: Metrics, templates: Templates) -> None:
        self._app, self._metrics, self._templates = app, metrics, templates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status, root = perf_counter(), _FAILED, scope.get("root_path", "")

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with self._metrics.in_flight.track_inprogress():
            try:
                await self._app(scope, receive, noting)
            finally:
                self._note(scope, root, status, perf_counter() - begun)

    def _note(self, scope: Scope, root: str, status: int, seconds: float) -> None:
        face, endpoint = scope.get("root_path", "").removeprefix(root), scope.get("endpoint")
        route = self._templates.get((face, endpoint), UNKNOWN) if endpoint is not None else UNKNOWN
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


class Counters:
    """Numbers of events by name, from the start of the process on: a collector of prometheus-client."""

    def __init__(self, metric: str, help: str, label: str, names: tuple[str, ...]) -> None:
        """`metric`, `help` and `label` are how Prometheus has them; `names` are shown even if nothing happens."""
        self._metric, self._help, self._label = metric, help, label
        self._lock, self._counts = Lock(), collections.Counter(dict.fromkeys(names, 0))

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


# Logs

# attributes of records that lines have, besides those of every record
FIELDS: Final = ("request_id", "method", "route", "status", "duration_ms", "key")
_TALKATIVE: Final = ("httpx2", "httpcore2")  # which log the addresses that are called


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON.

    Of an exception there are its class and the places in the code, but not its message, which may quote what was sent.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}
        if record.exc_info is not None and record.exc_info[1] is not None:
            line["error"] = _error(record.exc_info[1])
        return dumps(line).decode()


def _error(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    found: dict[str, Any] = {
        "type": f"{type(error).__module__}.{type(error).__qualname__}",
        "trace": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }
    inner = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if inner is not None:
        found["cause"] = _error(inner)
    return found


def log_as_json(level: int = logging.WARNING) -> None:
    """Have this process log as lines of JSON on stderr, from a level on; requests are logged on level INFO."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
