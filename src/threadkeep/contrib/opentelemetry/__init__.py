"""OpenTelemetry: stores what instrumented SDKs call, and tells of what is stored.

Needs the extra ``otel``.
"""

from threadkeep.errors import MissingExtra

try:
    import opentelemetry.instrumentation.utils
    import opentelemetry.util.genai  # noqa: F401 - whether they are there
except ImportError as error:
    raise MissingExtra("otel", "threadkeep.contrib.opentelemetry") from error

from threadkeep.contrib.opentelemetry.completions import conversation_context as conversation_context
from threadkeep.contrib.opentelemetry.emission import instrument as instrument
from threadkeep.contrib.opentelemetry.hook import ThreadkeepCompletionHook as ThreadkeepCompletionHook
from threadkeep.contrib.opentelemetry.hook import completion_hook as completion_hook

__all__ = ["ThreadkeepCompletionHook", "completion_hook", "conversation_context", "instrument"]
