"""The number and size of pictures and documents in a request: what providers limit, and the view that keeps the newest.

Nothing is made smaller. Without the view, pictures beyond a documented limit are sent, and reported as `refused`.

Sources of the limits: see `provider_rules`. Sizes in pixels are read from the headers of PNG, JPEG, GIF and WebP.

Pictures and documents that a provider refuses for what they are, wherever they stand.

* A picture is of the type that its bytes are of, where the provider compares them.
* A note stands for what is of a type that it refuses, and for media in the output of a tool that failed, where such
  outputs are text.
* What an imported request had goes back as it came.

The id of a file that a provider keeps is sent to that provider alone. The file of an item that a provider has answered
is there. Without an answer, the format that the item came in tells whose it is; of an application's own item, nothing
does, and its ids are sent.

Source: see `provider_rules`.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from threadkeep.domain import jsontext, media, response
from threadkeep.formats.canonical.entries import ItemEntry, PackedEntries, Snapshot, changed_entry
from threadkeep.formats.shared.makers import RequestTarget, author_of, provider_of
from threadkeep.formats.shared.pairing import ALL_KINDS
from threadkeep.formats.shared.parts import note, parts_of, url_of, with_parts
from threadkeep.formats.shared.provider_rules import ProviderRules
from threadkeep.formats.shared.reports import Context

OMITTED: Final = "[An earlier image was omitted]"
_FOUND: Final = "pictures"  # the place in a snapshot's memo
_HAS_MEDIA: Final = re.compile(rb'"input_(?:image|file|video)"')  # how items with pictures or files look
_HEAD: Final = 400_000  # how much of base64 is read: a JPEG may have a preview and a profile before its size
_JPEG_SIZES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # markers of the frames that state it


class Medium(NamedTuple):
    """A picture or document of an item."""

    position: int
    size: int  # of its base64; 0 where it is a URL or a file id
    side: int = 0  # pixels on its longer side; 0 where that is not known
    stated: str = ""  # its media type; of a picture that is elsewhere: image/
    shown: str = ""  # the type that its bytes are of, where they are known and say so
    scheme: str = ""  # of its URL, where it is elsewhere: http, https …


@dataclass(slots=True)
class RequestMedia:
    """The pictures and documents of a conversation, in order."""

    pictures: list[Medium] = field(default_factory=list)
    documents: list[Medium] = field(default_factory=list)
    held: set[int] = field(default_factory=set)  # positions of the items with files that a provider keeps

    def __bool__(self) -> bool:
        return bool(self.pictures or self.documents or self.held)

    def among(self, positions: set[Any]) -> RequestMedia:
        """Return the media of some items."""
        return RequestMedia(
            [one for one in self.pictures if one.position in positions],
            [one for one in self.documents if one.position in positions],
            self.held & positions,
        )


def media_of(snapshot: Snapshot) -> RequestMedia:
    """The pictures and documents of all items; what was looked at once is remembered."""
    entries, memo = snapshot.entries, snapshot.memo
    known: tuple[int, RequestMedia] = (memo and memo.get(_FOUND)) or (0, RequestMedia())
    (count, media), size = known, len(entries)
    if count > size:
        count, media = 0, RequestMedia()
    if count < size:
        media = RequestMedia([*media.pictures], [*media.documents], {*media.held})
        for entry in _with_media(entries[count:] if count else entries):
            _add(media, entry)
        if memo is not None:
            memo[_FOUND] = (size, media)
    return media


def _with_media(entries: Sequence[ItemEntry]) -> list[ItemEntry]:
    """The entries that may hold pictures or documents."""
    if isinstance(entries, PackedEntries) and not entries.has_text(_HAS_MEDIA):
        return []
    has_media = _HAS_MEDIA.search
    return [
        entry
        for entry in entries
        if (entry.payload and has_media(entry.payload)) or (entry.rest and has_media(entry.rest))
    ]


def _add(media: RequestMedia, entry: ItemEntry) -> None:
    for part in parts_of(entry.item()):
        if is_held(part):
            media.held.add(entry.position)
        medium = medium_of(part, entry.position)
        if medium is not None:
            (media.pictures if _kind_of(part) == "picture" else media.documents).append(medium)


def medium_of(part: Any, position: int) -> Medium | None:
    """The picture or document that a part is; None for all other parts."""
    kind = _kind_of(part)
    if kind is None:
        return None
    url = url_of(part)
    stated = _type_of(part, url) or ("image/" if kind == "picture" else "")
    if media.base64_media_type(url) is None:
        return Medium(position, 0, stated=stated, scheme=url.partition(":")[0].lower())
    is_picture = kind == "picture"
    side, shown = (longer_side(url), shown_type(url)) if is_picture else (0, "")
    return Medium(position, len(url) - url.find(",") - 1, side, stated, shown)


def is_held(part: Any) -> bool:
    """Whether a part is a file that a provider keeps, named by its id alone."""
    is_file = isinstance(part, dict) and str(part.get("type")).startswith("input_")
    return is_file and isinstance(part.get("file_id"), str) and not url_of(part)


def _kind_of(part: Any) -> Literal["picture", "document"] | None:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "input_image":
        return "picture"
    if kind != "input_file":
        return None
    media_type = _type_of(part, url_of(part))
    if media_type.startswith("image/"):
        return "picture"
    return None if media_type.startswith(("audio/", "video/", "text/")) else "document"


def _type_of(part: jsontext.JsonObject, url: str) -> str:
    return str(part.get("media_type") or media.base64_media_type(url) or "")


# Limits


def exceeded(media: RequestMedia, rules: ProviderRules) -> Iterator[str]:
    """What of the limits pictures and documents exceed, as sentences."""
    count, documents = len(media.pictures), len(media.documents)
    if rules.pictures is not None and count + (documents if rules.documents is None else 0) > rules.pictures:
        both = f" and {documents} documents" if documents and rules.documents is None else ""
        yield f"{count} images{both} are more than the {rules.pictures} that the provider takes in a request."
    if rules.documents is not None and documents > rules.documents:
        yield f"{documents} documents are more than the {rules.documents} that the provider takes in a request."
    yield from _exceeded_sizes(media, rules)


def _exceeded_sizes(media: RequestMedia, rules: ProviderRules) -> Iterator[str]:
    count = len(media.pictures)
    large = sum(_is_too_large(one, rules) for one in media.pictures)
    if large:
        limits = {"bytes in base64": rules.picture_bytes, "pixels on a side": rules.picture_side}
        shown = ", ".join(f"{limit} {unit}" for unit, limit in limits.items() if limit is not None)
        yield f"{large} images are larger than the provider takes: {shown}."
    if rules.document_bytes is not None and any(one.size > rules.document_bytes for one in media.documents):
        yield f"A document is larger than the provider takes: {rules.document_bytes} bytes in base64."
    size = sum(one.size for one in (*media.pictures, *media.documents))
    if rules.media_bytes is not None and size > rules.media_bytes:
        yield f"All media are larger than the provider takes in a request: {rules.media_bytes} bytes in base64."
    many, side = rules.many_pictures, rules.many_side
    if many is not None and side is not None and count > many and any(one.side > side for one in media.pictures):
        yield f"With more than {many} images in a request, none may have more than {side} pixels on a side."


def _is_too_large(one: Medium, rules: ProviderRules) -> bool:
    is_heavy = rules.picture_bytes is not None and one.size > rules.picture_bytes
    return is_heavy or (rules.picture_side is not None and one.side > rules.picture_side)


def left_out(media: RequestMedia, wanted: int | Literal["auto"], rules: ProviderRules) -> set[int]:
    """The pictures that a view leaves out, by their index: all but the newest; with "auto", so that limits are kept."""
    pictures = media.pictures
    if wanted != "auto":
        return set(range(max(len(pictures) - wanted, 0)))
    fitting = [index for index, one in enumerate(pictures) if not _is_too_large(one, rules)]
    if rules.pictures is not None:
        room = rules.pictures - (len(media.documents) if rules.documents is None else 0)
        fitting = fitting[max(len(fitting) - max(room, 0), 0) :]
    many, side = rules.many_pictures, rules.many_side
    if many is not None and side is not None and len(fitting) > many and any(pictures[i].side > side for i in fitting):
        fitting = fitting[-many:]
    return set(range(len(pictures))).difference(fitting)


def with_newest(
    entries: Sequence[ItemEntry], snapshot: Snapshot, wanted: int | Literal["auto"], rules: ProviderRules
) -> tuple[list[ItemEntry], int]:
    """Entries with notes in the place of the pictures that a view leaves out, and how many these are."""
    media = media_of(snapshot).among({entry.position for entry in entries})
    omitted = left_out(media, wanted, rules)
    return without(entries, media, omitted), len(omitted)


def without(entries: Sequence[ItemEntry], media: RequestMedia, indexes: set[int]) -> list[ItemEntry]:
    """Entries with a note in the place of each picture with one of these indexes."""
    gone: dict[int, list[bool]] = {}
    for index, picture in enumerate(media.pictures):
        gone.setdefault(picture.position, []).append(index in indexes)
    return [_noted(entry, gone[entry.position]) if any(gone.get(entry.position, ())) else entry for entry in entries]


def _noted(entry: ItemEntry, gone: Sequence[bool]) -> ItemEntry:
    """An entry with notes for pictures, by whether each of them in turn is gone."""
    flags, note = iter(gone), {"type": "input_text", "text": OMITTED}
    noted = with_parts(entry.item(), lambda part, _: note if _kind_of(part) == "picture" and next(flags) else part)
    return changed_entry(entry, noted)


# Types

# how the bytes of pictures begin -> their media type
_BEGINNINGS: Final = {b"\x89PNG": "image/png", b"GIF8": "image/gif", b"\xff\xd8\xff": "image/jpeg"}
_SHORT: Final = 16  # how much of base64 tells the type


def shown_type(url: str) -> str:
    """The media type that the bytes of a picture in a base64 data URL are of; empty where they do not say.

    >>> shown_type("data:image/png;base64,R0lGODlhCgAUAAAAAA==")
    'image/gif'
    """
    try:
        head = base64.b64decode(url[url.find(",") + 1 :][:_SHORT])
    except (binascii.Error, ValueError):
        return ""
    if head[8:] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _BEGINNINGS.items() if head.startswith(start)), "")


# Sizes in pixels


def longer_side(url: str) -> int:
    """The pixels on the longer side of a picture in a base64 data URL; 0 where its header does not say.

    >>> longer_side("data:image/gif;base64,R0lGODlhCgAUAAAAAA==")
    20
    """
    text = url[url.find(",") + 1 :][:_HEAD]
    try:
        head = base64.b64decode(text[: len(text) // 4 * 4])
        if head.startswith(b"\x89PNG"):
            width, height = struct.unpack_from(">II", head, 16)
        elif head.startswith(b"GIF8"):
            width, height = struct.unpack_from("<HH", head, 6)
        elif head.startswith(b"\xff\xd8"):
            height, width = _jpeg_sides(head)
        elif head[8:12] == b"WEBP":
            width, height = _webp_sides(head)
        else:
            width = height = 0
        return int(max(width, height))
    except (binascii.Error, ValueError, struct.error, IndexError):
        return 0


def _jpeg_sides(head: bytes) -> tuple[int, int]:
    """Height and width, which the first frame of a JPEG states."""
    place = 2
    while place + 9 < len(head):
        marker, length = head[place + 1], struct.unpack_from(">H", head, place + 2)[0]
        if marker in _JPEG_SIZES:
            height, width = struct.unpack_from(">HH", head, place + 5)
            return height, width
        place += 2 + length
    return 0, 0


def _webp_sides(head: bytes) -> tuple[int, int]:
    kind = head[12:16]
    if kind == b"VP8X":
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", head, 26)
    return width & 0x3FFF, height & 0x3FFF


_ALIASES: Final = {"image/jpg": "image/jpeg"}
_FAILED: Final = frozenset({"failed", "incomplete", "error"})
# what a provider takes of URLs -> the schemes that it refuses
_WEB: Final = {"taken": (), "https": ("http",), "refused": ("http", "https")}


def sendable_media(
    entries: Sequence[ItemEntry], snapshot: Snapshot, rules: ProviderRules, format_name: str, context: Context
) -> Sequence[ItemEntry]:
    """The entries with media that the provider takes; the very same where it takes all of them."""
    media = media_of(snapshot)
    imported = snapshot.imported
    first = imported.count if imported is not None and imported.format == format_name else 0
    looked_at = (one for one in (*media.pictures, *media.documents) if one.position >= first)
    odd = {
        one.position
        for one in looked_at
        if not rules.error_media or _problem(one, rules) or _is_mislabelled(one, rules)
    }
    if not odd:
        return entries
    sending = _Sending(rules, context)
    return [sending.entry(entry) if entry.position in odd else entry for entry in entries]


def _problem(medium: Medium, rules: ProviderRules) -> str | None:
    """Why the provider does not take a medium."""
    if medium.stated.startswith(rules.refused_types):
        kind = medium.stated if medium.stated != "image/" else "images"
        return f"The provider takes no {kind}"
    if medium.scheme in _WEB[rules.media_urls]:
        return f"The provider takes no media by a URL that begins with {medium.scheme}"
    return None


def _is_mislabelled(medium: Medium, rules: ProviderRules) -> bool:
    stated = _ALIASES.get(medium.stated, medium.stated)
    return rules.checks_types and bool(medium.shown) and medium.shown != stated


@dataclass(slots=True)
class _Sending:
    rules: ProviderRules
    context: Context

    def entry(self, entry: ItemEntry) -> ItemEntry:
        """An entry with what can be sent for its media."""
        item, before = entry.item(), self.context.position
        self.context.position = entry.position
        is_error = not self.rules.error_media and entry.type in ALL_KINDS.outputs and item.get("status") in _FAILED
        changed = with_parts(item, lambda part, path: self._part(part, path, is_error=is_error))
        self.context.position = before
        return entry if changed == item else changed_entry(entry, changed)

    def _part(self, part: Any, path: str, *, is_error: bool) -> Any:
        medium = medium_of(part, -1)
        if medium is None:
            return part
        why = "The output of a call that failed is text" if is_error else _problem(medium, self.rules)
        if why is not None:
            self.context.loss("media", path, f"{why}: a note was sent.")
            return {"type": "input_text", "text": note(part)}
        return self._labelled(part, medium, path) if _is_mislabelled(medium, self.rules) else part

    def _labelled(self, part: jsontext.JsonObject, medium: Medium, path: str) -> jsontext.JsonObject:
        """A picture with the media type that it is of."""
        self.context.repair(
            "media_type", path, f"A picture called {medium.stated} was sent as {medium.shown}: it is one."
        )
        data = url_of(part).partition(",")[2]
        key = "image_url" if part["type"] == "input_image" else "file_data"
        typed = {"media_type": medium.shown} if part.get("media_type") is not None else {}
        return {**part, **typed, key: f"data:{medium.shown};base64,{data}"}


class _Keeper(NamedTuple):
    provider: str | None
    api: str | None  # the provider that has made the format in which it was asked


def without_others(
    entries: Sequence[ItemEntry], snapshot: Snapshot, target: RequestTarget, format_name: str, context: Context
) -> Sequence[ItemEntry]:
    """The entries with notes in the place of files that another provider keeps; the very same where there are none."""
    held = media_of(snapshot).held
    if not held:
        return entries
    asked, before = _Keeper(target.provider, author_of(format_name)), context.position
    foreign = {at: keeper for at, keeper in _keepers(snapshot.entries, held).items() if _is_other(keeper, asked)}
    if not foreign:
        return entries
    shown = [_with_notes(one, foreign[one.position], context) if one.position in foreign else one for one in entries]
    context.position = before
    return shown


def _is_other(keeper: _Keeper, asked: _Keeper) -> bool:
    return any(None not in pair and pair[0] != pair[1] for pair in zip(keeper, asked, strict=True))


def _keepers(entries: Sequence[ItemEntry], held: set[int]) -> dict[int, _Keeper]:
    """Position of an item with ids of files -> who has them, where that is known."""
    keepers: dict[int, _Keeper] = {}
    answering: _Keeper | None = None
    for entry in reversed(entries):
        if entry.maker is not None:
            maker = response.maker_from(entry.maker)
            answering = _Keeper(provider_of(maker, entry.origin), author_of(entry.origin))
        elif entry.position in held and answering is not None:
            keepers[entry.position] = answering
        elif entry.position in held and entry.origin is not None:
            keepers[entry.position] = _Keeper(None, author_of(entry.origin))
    return keepers


def _with_notes(entry: ItemEntry, keeper: _Keeper, context: Context) -> ItemEntry:
    """An entry with notes in the place of the files that it names."""
    context.position = entry.position
    return changed_entry(entry, with_parts(entry.item(), lambda part, path: _part(part, path, keeper, context)))


def _part(part: Any, path: str, keeper: _Keeper, context: Context) -> Any:
    if not is_held(part):
        return part
    context.loss(
        "media", path, f"The file {part['file_id']!r} was left out: only {keeper.provider or keeper.api} has it."
    )
    return {"type": "input_text", "text": note(part)}
