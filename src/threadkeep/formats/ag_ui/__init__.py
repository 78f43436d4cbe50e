"""The messages and events of AG-UI 1.0, with which its clients talk to agents, and applications store what was said."""

from __future__ import annotations

from typing import Final

from threadkeep.domain.formats import AGUI_EVENTS, Format, MediaUrls, Signs

FORMAT: Final = Format(
    name="ag_ui",
    package=__name__,
    sent_by=None,
    signs=Signs(turns="messages", body={"newMessages": list}, event_types=AGUI_EVENTS),
    media_urls=MediaUrls({"input_image": "image/.+", "input_file": ".+", "input_video": "video/.+"}, url="https?://.+"),
)
