"""Stored images and files, with headers that keep a browser from running them."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from starlette.responses import Response

from threadkeep.errors import InvalidOption, NotFound
from threadkeep.viewer.pages import View
from threadkeep.web.pictures import PICTURES

DOCUMENTS: Final = frozenset({"application/pdf"})  # told by their type, but only to be saved
UNKNOWN: Final = "application/octet-stream"
_DAY: Final = 86_400


async def media(view: View) -> Response:
    """Answer with stored media: pictures as they are, everything else as a download."""
    name = view.request.path_params["hash"]
    try:
        found = await view.store.media(name)
    except InvalidOption as error:
        raise NotFound("There are no such media.") from error
    media_type = (found.media_type or "").lower()
    headers = {"cache-control": f"private, max-age={_DAY}", "content-security-policy": "default-src 'none'; sandbox"}
    if media_type not in PICTURES:
        headers["content-disposition"] = f"attachment; filename={quote(found.hash[:12])}"
        media_type = media_type if media_type in DOCUMENTS else UNKNOWN
    return Response(found.content, media_type=media_type, headers=headers)
