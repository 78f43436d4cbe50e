"""The UIMessages of the AI SDK, versions 5 to 7, as `useChat` sends them and applications store them."""

from __future__ import annotations

from typing import Final

from threadkeep.domain.formats import Format, MediaUrls, Signs

FORMAT: Final = Format(
    name="ui_messages",
    package=__name__,
    sent_by=None,
    signs=Signs(
        turns="messages",
        body={"parts": list},
        events={"messageMetadata": dict, "errorText": str},
        event_types=(
            "text-", "reasoning-", "tool-input-", "tool-output-", "tool-approval-", "source-", "data-", "start-step",
            "finish-step", "reset-step", "message-metadata", "steering-message",
        ),
    ),
    media_urls=MediaUrls(
        {"input_image": "image/.+", "input_file": ".+", "input_video": "video/.+"}, url="https?://.+", needs_type=True
    ),
)  # fmt: skip
