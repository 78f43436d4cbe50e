"""Data exports of chat services: an archive of conversations and their files, or only its ``conversations.json``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from threadkeep.contrib.importers.inputs import Input
from threadkeep.contrib.importers.json_files import Found, json_documents, transcripts_of
from threadkeep.contrib.importers.media import Attachments, attachments
from threadkeep.contrib.importers.records import Skipped, Transcript

DOCUMENTS: Final = r"conversations([-_ ].*)?\.json"


def first_keys(input: Input) -> frozenset[str]:
    """The keys of the first conversation of an export; none, if it is no export."""
    return next((input.first_keys(part) for part in input.documents(DOCUMENTS)[:1]), frozenset())


def exported(
    input: Input, convert: Callable[[Found, Attachments], Transcript | Skipped]
) -> Iterator[Transcript | Skipped]:
    """The conversations of an export, each from its object and the files of the archive."""
    with attachments(input) as files:
        yield from transcripts_of(json_documents(input, DOCUMENTS), lambda found: convert(found, files))
