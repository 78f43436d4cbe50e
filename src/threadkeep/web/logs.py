"""Logs as lines of JSON, without anything that users wrote and without secrets."""

from __future__ import annotations

import logging
import traceback
from datetime import UTC, datetime
from typing import Any, Final

from threadkeep.domain.jsontext import dumps

# attributes of records that lines have, besides those of every record
FIELDS: Final = ("request_id", "method", "route", "status", "duration_ms", "key")
ACCESS: Final = "threadkeep.access"  # the logger of requests
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
