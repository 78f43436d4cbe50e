"""A call as the hook gets it, as JSON: taken while the call returns, so that nothing which happens later changes it."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import orjson
from opentelemetry import baggage
from opentelemetry._logs import LogRecord
from opentelemetry.context import Context, attach, create_key, detach, get_value, set_value
from opentelemetry.trace import Span

from threadkeep.contrib.opentelemetry import names
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.store.work.handle import ConversationAttributes

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
    begun, user_id = getattr(span, "start_time", None), _text(get_value(_USER)) or user_id
    return Completion(
        content=orjson.dumps(content, default=_plain, option=_OPTIONS),
        attributes=attributes,
        conversation_id=_said(attributes, names.CONVERSATION) or current_conversation(),
        user_id=next((user for name in _USERS if (user := _said(attributes, name))), user_id),
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


# ---------------------------------------------------------------------------------------------------------------------
# The conversation that something is done for, in the context of OpenTelemetry: of this process, or also of others

_CONVERSATION: Final = create_key("threadkeep.conversation")
_USER: Final = create_key("threadkeep.user")
# where instrumentations of SDKs look for the id: its place in opentelemetry-util-genai has changed
_PLACES: Final = ("opentelemetry.util.genai.conversation_context", "opentelemetry.util.genai._conversation_context")


@contextmanager
def conversation_context(
    conversation: ConversationAttributes | str, *, user_id: str | None = None, propagate: bool = False
) -> Iterator[str]:
    """Have what is done inside carry the id of a conversation, which is the value of the `with` statement.

    Spans of instrumented SDKs have it as `gen_ai.conversation.id`, and with `ConversationSpans` all spans have. The
    completion hook stores calls in that conversation.

    Args:
        conversation: a conversation, or the application's own id of one.
        user_id: whose it is, for the completion hook; it leaves this process in no case.
        propagate: put the id into the baggage, too, which other services may get with requests.
    """
    name = conversation if isinstance(conversation, str) else conversation.id
    context = set_value(_CONVERSATION, name)
    for place in _PLACES:  # where instrumentations of SDKs look for the id, in the versions of their library
        with suppress(ImportError, AttributeError):
            context = import_module(place).with_conversation_id(name, context=context)
            break
    if user_id is not None:
        context = set_value(_USER, user_id, context)
    if propagate:
        context = baggage.set_baggage(names.CONVERSATION, name, context)
    token = attach(context)
    try:
        yield name
    finally:
        detach(token)


def current_conversation(context: Context | None = None) -> str | None:
    """Return the id of the conversation that something is done for, here or where the request came from."""
    return _text(get_value(_CONVERSATION, context)) or _text(baggage.get_baggage(names.CONVERSATION, context))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
