"""Amazon Bedrock's Converse API."""

from __future__ import annotations

from typing import Final

from threadkeep.domain.formats import ErrorKeys, Format, MediaUrls, ProviderApi, Signs

FORMAT: Final = Format(
    name="converse",
    package=__name__,
    author="bedrock",
    reads=("converse", "messages", "pydantic_ai"),
    api=ProviderApi("/model/{model}/converse-stream", changes={}, version=""),
    sent_by=f"{__name__}.request",
    signs=Signs(turns="messages", body={"output": dict}, events={"messageStart": dict, "contentBlockDelta": dict}),
    error_keys=ErrorKeys(holders=("Output", "Error"), type="__type", code="Code", messages=("message", "Message")),
    media_urls=MediaUrls(
        {"input_image": "image/.+", "input_file": ".+", "input_video": "video/.+"},
        url=r"s3://[a-z0-9][.\-a-z0-9]{1,61}[a-z0-9]/.+",
        needs_type=True,
    ),
)
