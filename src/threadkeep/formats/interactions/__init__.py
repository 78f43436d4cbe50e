"""Google's Interactions API: typed steps, which the service can keep, so that a request needs only what is new."""

from __future__ import annotations

from typing import Final

from threadkeep.domain.formats import Format, MediaUrls, ProviderApi, Signs

FORMAT: Final = Format(
    name="interactions",
    package=__name__,
    sent_by=f"{__name__}.sending",
    author="google",
    reads=("gemini", "interactions", "chat_completion"),
    api=ProviderApi("/interactions", ".*/interactions", key_header="x-goog-api-key", version="/v1beta"),
    signs=Signs(turns="input", body={"steps": list}, events={"event_type": str}),
    media_urls=MediaUrls({"input_image": "image/.+", "input_file": ".+", "input_video": "video/.+"}, needs_type=True),
)
