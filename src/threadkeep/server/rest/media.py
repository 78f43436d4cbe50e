"""Images and files: uploaded before the message that has them, and downloaded by the reference in their place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from fastapi import Response

from threadkeep.domain.media import DEFAULT_MEDIA_TYPE, REFERENCE, data_url, media_type_of
from threadkeep.errors import InvalidOption, NotFound
from threadkeep.server import answers, body_limits, owners, problems, requests, service
from threadkeep.server.rest import deps, models, objects, routing
from threadkeep.store.aio import own_upload

_KEYS: Final = ("image_url", "file_data", "video_url")  # of parts, which have data URLs
_KEPT_SECONDS: Final = 24 * 60 * 60  # in the caches of browsers, also after it was deleted
# headers that may say who calls, and for whom
_KEYS_OF_REQUESTS: Final = f"Authorization, Cookie, {owners.KEY.title()}, X-Threadkeep-User"
_FORM: Final = "application/x-www-form-urlencoded"  # what curl and others say when they are not told

router = routing.api_router("/media")


@router.post("", status_code=201, response_model=models.UploadedMediaObject, openapi_extra={"requestBody": {
    "required": True, "content": {"*/*": {"schema": {"type": "string", "format": "binary", "minLength": 1}}},
}})  # fmt: skip
async def upload(call: deps.Writing) -> Response:
    """Upload an image or file, as the body of the request; its `Content-Type` is the file's."""
    stated = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if stated == "multipart/form-data":
        problem = "The body must be the file itself, not a form."
        raise problems.Problem(400, problem, param="Content-Type", code="invalid_value")
    content = await requests.body_bytes(call.request, call.service.max_body_bytes)
    if not content:
        raise problems.Problem(400, "The body must be a file, and is empty.", code="invalid_value")
    known = stated != _FORM and media_type_of(b"", [stated]) is not None
    uploaded = await call.store.upload_media(content, stated if known else None)
    answer = {
        "id": uploaded.reference, "object": "media", "media_type": uploaded.media_type, "size": uploaded.size,
        "url": f"{call.request.url.path}/{uploaded.hash}", "expires_at": objects.seconds(uploaded.expires_at),
    }  # fmt: skip
    return answers.JsonAnswer(answer, 201)


@router.get("/{hash}", response_class=Response, responses={
    200: {"content": {"application/octet-stream": {"schema": {"type": "string"}}}},
})  # fmt: skip
async def download(call: deps.Reading, hash: str) -> Response:
    """Download an image or file by the reference that an item has in its place, or by the id of an upload."""
    found = await call.store.media(hash)
    headers = {
        "x-content-type-options": "nosniff", "content-security-policy": "default-src 'none'; sandbox",
        "cache-control": f"private, max-age={_KEPT_SECONDS}, immutable", "vary": _KEYS_OF_REQUESTS,
    }  # fmt: skip
    kind = found.media_type if found.media_type in answers.PICTURES else DEFAULT_MEDIA_TYPE
    if kind not in answers.PICTURES:
        headers["content-disposition"] = "attachment"
    return Response(found.content, headers=headers, media_type=kind)


def has_media(content: models.Content) -> bool:
    """Return whether a message has media, which its answer does not repeat."""
    parts = [] if isinstance(content, str) else content
    values = (part.get(key) for part in parts for key in _KEYS)
    return any(isinstance(value, str) and value.startswith(("data:", REFERENCE)) for value in values)


async def with_media(call: service.Call, content: models.Content) -> models.Content:
    """Return the content of a message with media in the place of their references."""
    return await ReferredMedia(call, call.service.max_body_bytes).put_back(content, "content")


@dataclass(slots=True)
class ReferredMedia:
    """The media that the references of a request stand for.

    The caller must be able to download them, or have uploaded them. All of them together are limited as the body of a
    request is.

    Attributes:
        call: the request.
        left: how many bytes there may still be.
    """

    call: service.Call
    left: int
    _known: dict[str, tuple[str, int]] = field(default_factory=dict)  # reference -> data URL, and for how many bytes

    async def put_back(self, content: models.Content, name: str) -> models.Content:
        """Return content with media in the place of their references; errors call it by a name."""
        if isinstance(content, str):
            return content
        body_limits.check_length(name, content, body_limits.MAX_PARTS, "parts")
        parts = []
        for number, part in enumerate(content):
            changes = {
                key: await self.take(value, f"{name}.{number}.{key}")
                for key in _KEYS
                if isinstance(value := part.get(key), str) and value.startswith(REFERENCE)
            }
            parts.append({**part, **changes})
        return parts

    async def take(self, reference: str, place: str) -> str:
        """Return the media of a reference as a data URL; errors call it by its place."""
        if reference not in self._known:
            self._known[reference] = await _data_url(self.call, reference, place)
        url, size = self._known[reference]
        self.left -= size
        if self.left < 0:
            raise problems.Problem(413, "The media of the message are too large together.", code="request_too_large")
        return url


async def _data_url(call: service.Call, name: str, place: str) -> tuple[str, int]:
    try:
        found = await (call.store.media(name) if call.may_read else own_upload(call.store, name))
    except (NotFound, InvalidOption) as error:
        raise problems.Problem(400, f"{place}: there are no such media.", param=place, code="invalid_value") from error
    return data_url(found.content, found.media_type or DEFAULT_MEDIA_TYPE), found.size
