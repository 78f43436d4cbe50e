"""The conversation that something is done for, in the context of OpenTelemetry: of this process, or also of others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Final

from opentelemetry import baggage
from opentelemetry.context import Context, attach, create_key, detach, get_value, set_value

from threadkeep.contrib.opentelemetry import names
from threadkeep.store.work.handle import ConversationAttributes

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


def current_user(context: Context | None = None) -> str | None:
    """Return the user that `conversation_context` named."""
    return _text(get_value(_USER, context))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
