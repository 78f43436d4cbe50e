"""A span processor that writes the id of the conversation on all spans; needs opentelemetry-sdk."""

from __future__ import annotations

from opentelemetry.context import Context
from opentelemetry.sdk.trace import Span, SpanProcessor

from threadkeep.contrib.opentelemetry import completions, names

__all__ = ["ConversationSpans"]


class ConversationSpans(SpanProcessor):
    """Gives spans that begin inside of `conversation_context` the attribute `gen_ai.conversation.id`.

    Pass it to `TracerProvider.add_span_processor`.
    """

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Write the id, unless the span has one."""
        name = completions.current_conversation(parent_context)
        if name is not None and names.CONVERSATION not in (span.attributes or {}):
            span.set_attribute(names.CONVERSATION, name)
