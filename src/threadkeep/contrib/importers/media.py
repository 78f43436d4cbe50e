"""Files of an export that messages refer to: their bytes as data URLs, or a reference."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Final

from threadkeep.contrib.importers.inputs import Input
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.media import data_url, media_type_of
from threadkeep.errors import CannotParse
from threadkeep.formats.shared.media import note

MAX_BYTES: Final = 64 * 1024 * 1024  # of a file that becomes part of an item
DOCUMENTS: Final = frozenset({".json", ".jsonl", ".html", ".htm"})  # what exports say beside files …
UPLOADED: Final = ("file-", "file_")  # … whose names begin so, where they may have these endings, too
_ENDINGS: Final = {
    ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
    ".pdf": "application/pdf", ".txt": "text/plain", ".md": "text/markdown", ".csv": "text/csv", ".wav": "audio/wav",
    ".mp3": "audio/mpeg", ".mp4": "video/mp4",
}  # fmt: skip


class Attachments:
    """The files of an archive, by the ids that the names of files begin with, and by names of which there is one.

    The documents that an export consists of are none of them, whatever attachments are called.
    """

    def __init__(self, archive: zipfile.ZipFile | None, members: tuple[str, ...]) -> None:
        self._archive = archive
        self._ids: dict[str, str] = {}
        self._names: dict[str, str | None] = {}
        for member in members:
            path = PurePosixPath(member)
            if path.suffix.lower() in DOCUMENTS and not path.name.startswith(UPLOADED):
                continue
            self._names[path.name] = None if path.name in self._names else member
            for known in (path.stem, _id_of(path.name)):
                self._ids.setdefault(known, member)

    def part(self, id: str, name: str | None = None, *, is_image: bool = False) -> JsonObject:
        """The content part of a file: with its bytes if the archive has them, else with its id; a note for a name."""
        found = self._read(id, name)
        if found is not None:
            data, stated = found
            media_type = media_type_of(data, [stated] if stated else []) or "application/octet-stream"
            if media_type.startswith("image/"):
                return {"type": "input_image", "image_url": data_url(data, media_type)}
            return {"type": "input_file", "filename": name or id, "file_data": data_url(data, media_type)}
        if _is_name(id, name):  # which no provider knows
            return text_part(note({"type": "input_file", "filename": name}), "user")
        if is_image:
            return {"type": "input_image", "file_id": id}
        return {"type": "input_file", "file_id": id} | ({} if name is None else {"filename": name})

    def _read(self, id: str, name: str | None) -> tuple[bytes, str | None] | None:
        """The bytes of a file and the type that its name says; None where they are missing, or too large."""
        member = (
            (None if _is_name(id, name) else self._ids.get(id)) or self._names.get(id) or self._names.get(name or "")
        )
        if self._archive is None or member is None or self._archive.getinfo(member).file_size > MAX_BYTES:
            return None
        try:
            data = self._archive.read(member)
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
            raise CannotParse(f"{member} cannot be read: {error}.") from error
        ending = PurePosixPath(member).suffix.lower() or PurePosixPath(name or "").suffix.lower()
        return data, _ENDINGS.get(ending)


def _is_name(id: str, name: str | None) -> bool:
    """Whether what stands for an id is the file's name alone."""
    return id == name and not id.startswith(UPLOADED)


@contextmanager
def attachments(input: Input) -> Iterator[Attachments]:
    """The files beside the conversations of an export; none, if it is no archive."""
    if input.path is None or not input.members:
        yield Attachments(None, ())
        return
    with zipfile.ZipFile(input.path) as archive:
        yield Attachments(archive, input.members)


def _id_of(name: str) -> str:
    """The id that the name of a file begins with: ``file-AbC-photo.png`` is that of ``file-AbC``."""
    kind, dash, rest = name.partition("-")
    if kind == "file" and dash:
        return f"file-{rest.partition('-')[0].partition('.')[0]}"
    return name.partition("-")[0].partition(".")[0]


def text_part(text: str, role: str, annotations: list[Mapping[str, object]] | None = None) -> JsonObject:
    """Text as a content part of a message of that role."""
    if role != "assistant":
        return {"type": "input_text", "text": text}
    return {"type": "output_text", "text": text} | ({"annotations": annotations} if annotations else {})
