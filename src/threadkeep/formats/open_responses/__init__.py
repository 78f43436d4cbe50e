"""Open Responses, and OpenAI's Responses API, which it describes."""

from __future__ import annotations

from typing import Final

from threadkeep.domain.formats import Format, MediaUrls, ProviderApi, Signs

FORMAT: Final = Format(
    name="open_responses",
    package=__name__,
    author="openai",
    reads=("open_responses", "pydantic_ai"),
    api=ProviderApi("/responses", ".*/responses"),
    signs=Signs(turns="input", body={"output": list}, event_types=("response.",)),
    media_urls=MediaUrls(
        {
            "input_image": "image/.+",
            "input_file": "(?!image/|audio/|video/).+",
            "input_video": "video/.+",
            "computer_screenshot": "image/.+",
        }
    ),
)
