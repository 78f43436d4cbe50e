"""OpenAI's Chat Completions API, and the many servers that speak it."""

from __future__ import annotations

from typing import Final

from threadkeep.domain.formats import Format, MediaUrls, Signs

FORMAT: Final = Format(
    name="chat_completion",
    package=__name__,
    signs=Signs(turns="messages", body={"choices": list}, events={"choices": list}),
    media_urls=MediaUrls({"input_image": "image/.+"}, in_outputs=False),
)
