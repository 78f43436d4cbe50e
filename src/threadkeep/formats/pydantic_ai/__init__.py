"""The message history of Pydantic AI, as its `ModelMessagesTypeAdapter` writes it: plain JSON, without the package."""

from __future__ import annotations

from typing import Final

from threadkeep.domain.formats import Format, MediaUrls, Signs

FORMAT: Final = Format(
    name="pydantic_ai",
    package=__name__,
    sent_by=None,
    signs=Signs(turns="message_history", body={"parts": list}),
    media_urls=MediaUrls(
        {"input_image": "image/.+", "input_file": ".+", "input_video": "video/.+"}, url="(https?|gs|s3)://.+"
    ),
    has_streams=False,
)
