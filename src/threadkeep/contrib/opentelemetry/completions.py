"""A call as the hook gets it, as JSON: taken while the call returns, so that nothing which happens later changes it."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from opentelemetry import baggage
from opentelemetry._logs import LogRecord
from opentelemetry.trace import Span

from threadkeep.contrib.opentelemetry import names
from threadkeep.contrib.opentelemetry.context import current_conversation, current_user
from threadkeep.domain.jsontext import JsonObject, loads

# names of the user that spans and baggage may have, in the order in which they count
_USERS: Final = ("user.id", "enduser.id", "langfuse.user.id")
_OPTIONS: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


@dataclass(frozen=True, slots=True)
class Completion:
    """A call of a model.

    Attributes:
        content: what was said, as JSON: `inputs`, `outputs`, `instructions`, `tools`.
        attributes: the attributes of its span and its event.
        conversation_id: the application's id of the conversation; None if it does not say.
        user_id: whose call it is; None if the application does not say.
        latency_ms: how long it took; None if there is no span that tells.
        problem: what the span says of its failure, in addition to `error.type`.
    """

    content: bytes
    attributes: Mapping[str, Any]
    conversation_id: str | None
    user_id: str | None
    latency_ms: float | None
    problem: str | None

    def read(self) -> JsonObject:
        """Return what was said."""
        value: JsonObject = loads(self.content)
        return value

    @property
    def first_token_ms(self) -> float | None:
        """When the first part of the answer came; None for answers that are no streams."""
        seconds = self.attributes.get(names.FIRST_CHUNK)
        return None if seconds is None else seconds * 1000

    @property
    def error(self) -> JsonObject | None:
        """What went wrong; None if nothing did."""
        kind = self.attributes.get(names.ERROR)
        if kind is None:
            return None
        return {"type": str(kind), **({} if self.problem is None else {"message": self.problem})}


def attributes_of(span: Span | None, log_record: LogRecord | None) -> dict[str, Any]:
    """Return what a span and an event say of a call; spans that are not recorded say nothing."""
    return {**(getattr(span, "attributes", None) or {}), **(getattr(log_record, "attributes", None) or {})}


def completion_of(
    content: Mapping[str, Any], attributes: Mapping[str, Any], span: Span | None, user_id: str | None
) -> Completion:
    """Return a call that has just ended; `user_id` is whose calls those are that do not say.

    Raises:
        TypeError: what was said has no JSON form.
    """
    begun = getattr(span, "start_time", None)
    return Completion(
        content=orjson.dumps(content, default=_plain, option=_OPTIONS),
        attributes=attributes,
        conversation_id=_said(attributes, names.CONVERSATION) or current_conversation(),
        user_id=next((user for name in _USERS if (user := _said(attributes, name))), None) or current_user() or user_id,
        latency_ms=None if begun is None else max(time.time_ns() - begun, 0) / 1e6,
        problem=getattr(getattr(span, "status", None), "description", None),
    )


def _said(attributes: Mapping[str, Any], name: str) -> str | None:
    """What the call, or else the context in which it was made, has under a name."""
    value = attributes.get(name) or baggage.get_baggage(name)
    return value if isinstance(value, str) and value else None


def _plain(value: Any) -> Any:
    """What orjson does not know: bytes, models of SDKs, and whatever tools return."""
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if isinstance(value, set | frozenset):
        return list(value)
    return str(value)
