"""Tables of AG-UI: options, keys of messages, kinds of media, and types of events.

Source: AG-UI 1.0, `RunAgentInput`, `Message`, `Event`.
"""

from __future__ import annotations

from typing import Final

from threadkeep.formats.shared.fields import Row, SpecialField, unsent_rows

NAME: Final = "ag_ui"
HISTORY: Final = "messages"  # the key of a run's input with the messages
TOOLS: Final = "tools"  # definitions, by which a client tells what it runs
SPELLED: Final = "ag_ui"  # the key of `spelling` that items and parts of messages have
SPEAKERS: Final = ("user", "system", "developer")
# keys of messages, calls and parts that say nothing to a model, so that other formats do not report them
SILENT: Final = frozenset({"id", "role", "type", "name", "metadata", "subagentRunId", "content", "toolCalls"})
MEDIA: Final = ("image", "audio", "video", "document")
# type of a chunk -> types of the events that it stands for, and the key with the id of what they are of
CHUNKS: Final = {
    "TEXT_MESSAGE_CHUNK": ("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "messageId"),
    "REASONING_MESSAGE_CHUNK": ("REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "messageId"),
    "TOOL_CALL_CHUNK": ("TOOL_CALL_START", "TOOL_CALL_ARGS", "toolCallId"),
}
# what says nothing of the answer
OTHERS: Final = frozenset(
    {
        "STEP_STARTED", "STEP_FINISHED", "REASONING_START", "REASONING_END", "SUBAGENT_STARTED", "SUBAGENT_FINISHED",
        "SUBAGENT_ERROR", "RAW", "CUSTOM",
    }
)  # fmt: skip
QUIET: Final = OTHERS | {"RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "STATE_SNAPSHOT", "STATE_DELTA"}

FIELDS: Final[tuple[Row, ...]] = unsent_rows(
    "it is a setting of the agent that asks the model",
    {
        "stream": SpecialField("stream", "not sent: all runs are streams"),
        "extra": SpecialField("extra", "`extra.ag_ui` verbatim, next to `messages`: `threadId`, `state`, `context`"),
    },
)
