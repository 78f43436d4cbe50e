"""Anthropic's Messages API."""

from __future__ import annotations

from typing import Final

from threadkeep.domain.formats import Format, MediaUrls, ProviderApi, Signs
from threadkeep.formats.shared.claude import longest_answer

FORMAT: Final = Format(
    name="messages",
    package=__name__,
    author="anthropic",
    reads=("messages", "converse", "pydantic_ai"),
    api=ProviderApi(
        "/messages",
        "(?:|.*/v1)/messages",
        key_header="x-api-key",
        headers={"anthropic-version": "2023-06-01"},
        limits={"max_tokens": longest_answer},
    ),
    signs=Signs(turns="messages", body={"content": list}, event_types=("message_", "content_block_")),
    media_urls=MediaUrls({"input_image": "image/(jpeg|png|gif|webp)", "input_file": "application/pdf"}),
)
