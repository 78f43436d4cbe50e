"""OpenAI's Chat Completions API, and the many servers that speak it."""

from __future__ import annotations

from typing import Final

from threadkeep.domain.formats import Format, MediaUrls, ProviderApi, Signs

FORMAT: Final = Format(
    name="chat_completion",
    package=__name__,
    author="openai",
    reads=("chat_completion",),
    api=ProviderApi(
        "/chat/completions", ".*/chat/completions", changes={"stream": True, "stream_options": {"include_usage": True}}
    ),
    signs=Signs(turns="messages", body={"choices": list}, events={"choices": list}),
    media_urls=MediaUrls({"input_image": "image/.+"}, in_outputs=False),
)
