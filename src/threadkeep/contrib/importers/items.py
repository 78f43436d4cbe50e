"""Items from JSON of any shape: values of the expected type, parts and items, and messages of whole rounds.

Files of an export that messages refer to: their bytes as data URLs, or a reference.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any, Final

from threadkeep.contrib.importers import inputs, records
from threadkeep.domain.jsontext import JsonObject, dumps, dumps_any
from threadkeep.domain.media import data_url, media_type_of
from threadkeep.errors import CannotParse
from threadkeep.formats.shared.parts import note

Say = Callable[[str], None]  # is called with why something is not imported


def text_of(value: Any, key: str) -> str | None:
    """The text at a key of what should be an object, if there is one that is not empty."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if found and isinstance(found, str) else None


def object_of(value: Any, key: str) -> JsonObject:
    """The object at a key; empty where there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if found and isinstance(found, dict) else {}


def list_of(value: Any, key: str) -> list[Any]:
    """The list at a key; empty where there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if found and isinstance(found, list) else []


def time_of(value: Any, key: str) -> datetime | None:
    """The time at a key: a text in ISO 8601 (UTC, if it does not say otherwise), or a number of seconds."""
    found = value.get(key) if isinstance(value, dict) else None
    try:
        if isinstance(found, str):
            at = datetime.fromisoformat(found)
            return at if at.tzinfo else at.replace(tzinfo=UTC)
        if isinstance(found, int | float) and not isinstance(found, bool):
            return datetime.fromtimestamp(found, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def revision_of(value: Any) -> str:
    """A digest of a JSON value, which tells an entry from what it was before, and from the entries of other files."""
    return blake2b(dumps_any(value), digest_size=6).hexdigest()


# Items


def text_part(text: str, role: str, annotations: list[Mapping[str, object]] | None = None) -> JsonObject:
    """Text as a content part of a message of that role."""
    if role != "assistant":
        return {"type": "input_text", "text": text}
    return {"type": "output_text", "text": text} | ({"annotations": annotations} if annotations else {})


def message(role: str, parts: Iterable[JsonObject]) -> list[JsonObject]:
    """A message of these parts; none, if there are none."""
    content = list(parts)
    return [{"type": "message", "role": role, "content": content}] if content else []


def said(text: str | None) -> list[JsonObject]:
    """What a model said, as a message; none of an empty text."""
    return message("assistant", [text_part(text, "assistant")] if text else [])


def extend(items: list[JsonObject], role: str, part: JsonObject) -> None:
    """Add a part to the last item if that is a message of this role, else as a message of its own."""
    if items and items[-1]["type"] == "message" and items[-1]["role"] == role:
        items[-1]["content"].append(part)
    else:
        items += message(role, [part])


def reasoning(*texts: str, summary: Sequence[str] | None = None) -> JsonObject:
    """What a model thought."""
    item: JsonObject = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": text} for text in texts]}
    return item if summary is None else item | {"summary": [{"type": "summary_text", "text": one} for one in summary]}


def call(name: str | None, arguments: Any, call_id: str | None = None) -> JsonObject:
    """A call of a tool, with arguments as JSON text or as values; without an id, it has an id made of its name."""
    text = arguments if isinstance(arguments, str) else dumps({} if arguments is None else arguments).decode()
    return {"type": "function_call", "call_id": call_id or name or "", "name": name or "", "arguments": text}


def output(call_id: str, value: Any) -> JsonObject:
    """What a tool returned: a text or content parts."""
    return {"type": "function_call_output", "call_id": call_id, "output": value}


def last_model(answers: Iterable[records.Answer | None]) -> str | None:
    """The model that answered last, if it is named."""
    return next((one.model for one in reversed(list(answers)) if one is not None and one.model is not None), None)


# Rounds: messages in which an answer has all that happened until its end, calls and outputs, too. Such a message is
# several entries, of which the last one that a model said has the usage.


def is_made(item: JsonObject | None) -> bool:
    """Whether a model made an item: its messages, calls and reasoning, not the outputs of calls."""
    if item is None:
        return False
    kind = text_of(item, "type") or "message"
    return item.get("role") == "assistant" if kind == "message" else not kind.endswith("_output")


@dataclass(slots=True)
class Rounds:
    """The entries of messages, in the order in which they are added.

    Attributes:
        ends: the last entry of each message, by the message's id.
        model: the model that answered last, if it is named.
    """

    ends: dict[str, str] = field(default_factory=dict)
    model: str | None = None
    _entries: list[tuple[records.Entry, bool]] = field(default_factory=list)  # with whether its parent is a message

    def add(
        self, id_: str, parent: str | None, items: Sequence[JsonObject], at: datetime | None = None,
        answer: records.Answer | None = None, revision: str = "",
    ) -> None:  # fmt: skip
        """Add a message, which follows another one; what of it a model said is `answer`."""
        runs = [(made, list(run)) for made, run in groupby(items, is_made)] or [(False, [])]
        last = max((number for number, (made, _) in enumerate(runs) if made), default=None)
        name = id_
        for number, (made, run) in enumerate(runs):
            given = None
            if made and answer is not None:
                given = answer if number == last else replace(answer, usage=None, latency_ms=None, status="completed")
            before, name = name, f"{id_}#{number}" if number else id_
            entry = records.Entry(name, before if number else parent, run, at, given, revision)
            self._entries.append((entry, number == 0))
        self.ends[id_] = name
        self.model = (None if answer is None else answer.model) or self.model

    def entries(self) -> list[records.Entry]:
        """The entries, each behind the last one of the message that it follows."""
        return [
            replace(entry, parent=self.ends.get(entry.parent or "", entry.parent)) if is_first else entry
            for entry, is_first in self._entries
        ]


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
def attachments(input: inputs.Input) -> Iterator[Attachments]:
    """The files that an export has besides its conversations; none, if it is no archive."""
    if input.path is None or not input.members:
        yield Attachments(None, ())
        return
    with zipfile.ZipFile(input.path) as archive:
        yield Attachments(archive, input.members)


def _id_of(name: str) -> str:
    """The id that the name of a file begins with: ``file-AbC-photo.png`` has the id ``file-AbC``."""
    kind, dash, rest = name.partition("-")
    if kind == "file" and dash:
        return f"file-{rest.partition('-')[0].partition('.')[0]}"
    return name.partition("-")[0].partition(".")[0]
