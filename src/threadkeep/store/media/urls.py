"""Requests that carry URLs of media, from snapshots with marks in place of base64."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from threadkeep.domain import formats, jsontext, media, rendering
from threadkeep.errors import DamagedRow
from threadkeep.formats.canonical.entries import ItemEntry, Snapshot, changed_entry
from threadkeep.store.media.cutting import MARK
from threadkeep.store.media.rows import read_contents
from threadkeep.store.work.handle import Handle, HandleCache

_KEYS: Final = ("image_url", "video_url", "file_data", "file_url")
_MARKED: Final = re.compile(rf"data:(?P<type>[^;,]+)[^,]*,{MARK.pattern.decode()}")
_MEMO: Final = "media_url"  # the place in a snapshot's memo: the URLs and the format that are remembered, and what


def takes_urls(wire: formats.Format, options: rendering.RenderOptions) -> bool:
    """Return whether requests of these options may carry URLs of media."""
    rule, template = wire.media_urls, options.media_url
    return template is not None and rule is not None and re.fullmatch(rule.url, _url(template)) is not None


def cache_for(handle: Handle, wire: formats.Format, options: rendering.RenderOptions) -> HandleCache:
    """Return what is known of the conversation, in the form that such requests are rendered from."""
    return handle.marked_cache if takes_urls(wire, options) else handle.cache


def with_urls(handle: Handle, wire: formats.Format, options: rendering.RenderOptions, snapshot: Snapshot) -> Snapshot:
    """Replace the marks of a snapshot: by URLs, or by the media where the format takes no URL.

    The entries with URLs are remembered, because they are the same in the next request.
    """
    rule, template = wire.media_urls, options.media_url
    if rule is None or template is None:
        return snapshot
    key, memo = (wire.name, template), {}
    if snapshot.memo is not None:
        known, memo = snapshot.memo.get(_MEMO, (None, {}))
        memo = {**memo} if known == key else {}
    before: Sequence[ItemEntry] = memo.get(_MEMO, ())[: len(snapshot.entries)]
    new = [_with_urls(entry, rule, template, wire.name) for entry in snapshot.entries[len(before) :]]
    entries = [*before, *_with_contents(handle, new)]
    if any(_is_marked(entry) for entry in new):  # media that are sent as they are would be kept in memory
        return replace(snapshot, entries=entries, memo=None)
    if snapshot.memo is None:
        return replace(snapshot, entries=entries)
    memo[_MEMO] = entries
    snapshot.memo[_MEMO] = key, memo
    return replace(snapshot, entries=entries, memo=memo)


def _with_urls(entry: ItemEntry, rule: formats.MediaUrls, template: str, format_name: str) -> ItemEntry:
    if not _is_marked(entry):
        return entry
    item = entry.item()
    for key in ("content", "output") if rule.in_outputs else ("content",):
        value = item.get(key)
        if isinstance(value, list):
            item[key] = [_part(part, rule, template, format_name) for part in value]
        elif isinstance(value, dict):
            item[key] = _part(value, rule, template, format_name)
    return changed_entry(entry, item)


def _part(part: Any, rule: formats.MediaUrls, template: str, format_name: str) -> Any:
    """A part with a URL in place of its mark."""
    found = _source(part) if isinstance(part, dict) else None
    if found is None:
        return part
    key, mark = found
    types = rule.parts.get(part["type"])
    own = (part.get("native") or {}).get(format_name) or {}
    if types is None or not re.fullmatch(types, mark["type"]) or rule.inline_key in own:
        return part
    url, new_key = _url(template, mark[2], mark["type"]), "file_url" if key == "file_data" else key
    shown: jsontext.JsonObject = {
        new_key if name == key else name: url if name == key else value for name, value in part.items()
    }
    return {"media_type": mark["type"], **shown} if rule.needs_type else shown


def _source(part: jsontext.JsonObject) -> tuple[str, re.Match[str]] | None:
    """The key under which a part has a mark in a data URL, and that; None for a part with other sources, too."""
    sources = [(key, value) for key in _KEYS if isinstance(value := part.get(key), str) and value]
    mark = _MARKED.fullmatch(sources[0][1]) if len(sources) == 1 else None
    return None if mark is None or not isinstance(part.get("type"), str) else (sources[0][0], mark)


def _url(template: str, name: str = "", media_type: str = "") -> str:
    return media.media_url(template, name or "0" * 64, media_type)


def _with_contents(handle: Handle, entries: Sequence[ItemEntry]) -> list[ItemEntry]:
    """Entries with base64 in place of the marks that are left."""
    hashes = {
        bytes.fromhex(name[1].decode()) for entry in entries for text in _texts(entry) for name in MARK.finditer(text)
    }
    if not hashes:
        return list(entries)
    contents = handle.transactions.read_any(
        lambda connection: read_contents(connection, handle.ref.scope, sorted(hashes))
    )

    def content(mark: re.Match[bytes]) -> bytes:
        hash_ = bytes.fromhex(mark[1].decode())
        if hash_ not in contents:
            raise DamagedRow("blobs", f"hash {hash_.hex()}", "it is missing")
        return base64.b64encode(contents[hash_])

    return [
        entry._replace(
            payload=None if entry.payload is None else MARK.sub(content, entry.payload),
            rest=None if entry.rest is None else MARK.sub(content, entry.rest),
        )
        if _is_marked(entry)
        else entry
        for entry in entries
    ]


def _is_marked(entry: ItemEntry) -> bool:
    return any(MARK.search(text) for text in _texts(entry))


def _texts(entry: ItemEntry) -> list[bytes]:
    return [text for text in (entry.payload, entry.rest) if text is not None]
