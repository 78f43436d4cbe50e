"""Importing the conversations of other software, with branches, times, media and usage.

`import_from` reads files of any source; ``threadkeep import --from NAME FILE…`` does the same. Sources with large JSON
documents need the extra ``importers``.

How to write a source
    A source is an object with a `name` and two methods, see `Source`; the ones in this package are one module each, and
    named in `SOURCES`. `recognizes` looks at how a file begins: `Input.first_lines` for JSON Lines,
    `Input.first_keys` for JSON documents, also `Input.documents` in an archive, `Input.is_sqlite` and
    `Input.url` for databases. `read` is a generator over `Transcript` and `Skipped`, and holds one conversation at a
    time: `json_files` reads lines, and lists of any size.

    A transcript is a tree of entries: each has an id, the id of the one that it follows, the items that were said in it
    (items of threadkeep, or dicts of Open Responses; `get_format("chat_completion").parse_turns` and its like make
    items of messages of providers), a time, and for what a model said, an `Answer` with the model, the ids and the
    usage. Media are data URLs in the items. A call that no entry came in, because it failed or its answer is a summary,
    is a `SideCall`.

    What a source meets may have any shape: `items` reads values of the expected type, or None, and makes items of
    texts, calls and outputs. `json_files.JsonExport` and `databases.SqlSource` are bases for sources that export JSON
    or have a database. What is not imported becomes a `Skipped`, on its own or in `Transcript.skipped`. Nothing of this
    is an error, except `CannotParse` for a file that cannot be read on.

What the engine does
    It finds a conversation by its external id, ``name:id``; one that belongs to another user is reported, not written.
    A state of the conversation, "import", remembers the entries that were stored, so an entry is stored once; one that
    is new is appended, or begins a branch where something else followed its parent already, also what was appended in
    threadkeep meanwhile. All of that is one transaction.
"""

from __future__ import annotations

from threadkeep.contrib.importers.engine import SOURCES, Progress, external_id_of, import_from
from threadkeep.contrib.importers.inputs import Input, inputs_of
from threadkeep.contrib.importers.records import (
    Answer,
    Count,
    Entry,
    SideCall,
    Skipped,
    Source,
    SourceReport,
    Transcript,
)

__all__ = [
    "SOURCES",
    "Answer",
    "Count",
    "Entry",
    "Input",
    "Progress",
    "SideCall",
    "Skipped",
    "Source",
    "SourceReport",
    "Transcript",
    "external_id_of",
    "import_from",
    "inputs_of",
]

ImportReport = SourceReport  # its earlier name, which `threadkeep` has for the report of `import_export`
