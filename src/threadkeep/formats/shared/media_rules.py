"""Pictures and documents that a provider refuses for what they are, wherever they stand.

* A picture is of the type that its bytes are of, where the provider compares them.
* A note stands for what is of a type that it refuses, and for media in the output of a tool that failed, where such
  outputs are text.
* What an imported request had goes back as it came.

Sources: see `provider_rules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.canonical.entries import Entry, changed_entry
from threadkeep.formats.canonical.snapshots import Snapshot
from threadkeep.formats.shared.media import note, url_of, with_parts
from threadkeep.formats.shared.pairing import ALL_KINDS
from threadkeep.formats.shared.pictures import Medium, media_of, medium_of
from threadkeep.formats.shared.provider_rules import ProviderRules
from threadkeep.formats.shared.reports import Context

_ALIASES: Final = {"image/jpg": "image/jpeg"}
_FAILED: Final = frozenset({"failed", "incomplete", "error"})
# what a provider takes of URLs -> the schemes that it refuses
_WEB: Final = {"taken": (), "https": ("http",), "refused": ("http", "https")}


def sendable_media(
    entries: Sequence[Entry], snapshot: Snapshot, rules: ProviderRules, format_name: str, context: Context
) -> Sequence[Entry]:
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

    def entry(self, entry: Entry) -> Entry:
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

    def _labelled(self, part: JsonObject, medium: Medium, path: str) -> JsonObject:
        """A picture with the media type that it is of."""
        self.context.repair(
            "media_type", path, f"A picture called {medium.stated} was sent as {medium.shown}: it is one."
        )
        data = url_of(part).partition(",")[2]
        key = "image_url" if part["type"] == "input_image" else "file_data"
        typed = {"media_type": medium.shown} if part.get("media_type") is not None else {}
        return {**part, **typed, key: f"data:{medium.shown};base64,{data}"}
