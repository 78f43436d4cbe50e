"""Google's Gemini API, generateContent, as the Developer API (AI Studio) and Vertex AI speak it."""

from __future__ import annotations

from typing import Final

from threadkeep.domain.formats import Format, MediaUrls, ProviderApi, Signs

FORMAT: Final = Format(
    name="gemini",
    package=__name__,
    author="google",
    reads=("gemini", "interactions", "chat_completion"),
    api=ProviderApi(
        "/models/{model}:streamGenerateContent?alt=sse",
        ".*/models/(?P<model>[^/:]+):(?P<method>generateContent|streamGenerateContent)",
        changes={},
        key_header="x-goog-api-key",
        version="/v1beta",
    ),
    sent_by=f"{__name__}.sending",
    signs=Signs(turns="contents", body={"candidates": list}, events={"candidates": list}),
    has_context_caches=True,
    media_urls=MediaUrls(
        {"input_image": "image/.+", "input_file": ".+", "input_video": "video/.+"},
        in_outputs=False,
        needs_type=True,
        inline_key="inlineData",
    ),
)
