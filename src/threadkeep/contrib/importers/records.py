"""What sources give the engine: conversations as trees of entries, whatever software they come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from threadkeep.domain.items import ItemInput

if TYPE_CHECKING:
    from threadkeep.contrib.importers.inputs import Input


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's response that the items of an entry came in, as far as the source knows it.

    Entries in a row that have the same object, or answers with the same id, are one response: the last one's counts.

    Attributes:
        format: the wire format whose names `usage` has.
        id, model, provider: as the provider calls them.
        usage: the provider's usage object; with one, the response gets a row in the ledger, once for each `id`.
        status, finish_reason: how it ended.
        latency_ms, first_token_ms: milliseconds.
    """

    format: str = "open_responses"
    id: str | None = None
    model: str | None = None
    provider: str | None = None
    usage: Mapping[str, Any] | None = None
    status: str | None = "completed"
    finish_reason: str | None = None
    latency_ms: float | None = None
    first_token_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A message of a source, or another step: a node of the tree.

    Attributes:
        id: names it among those of its conversation. An entry whose id is known is not imported again.
        parent: the id of the entry that it follows; None: it is at the beginning. If there is no such entry, or if it
            leads back to itself, the entry is reported.
        items: what was said, as items of threadkeep or dicts that describe them; media as data URLs, which the store
            takes out. Empty: the entries that follow it follow its parent.
        created_at: when; aware. None, or a time that cannot be: that of the entry before.
        answer: the response that they came in; None for everything that no model said.
        revision: something that changes when the entry is edited in place, in sources where that can be, or that tells
            it from those of other files, where ids are numbers of rows. An entry with another revision is another one,
            and what follows it is a branch.
    """

    id: str
    parent: str | None = None
    items: Sequence[ItemInput] = ()
    created_at: datetime | None = None
    answer: Answer | None = None
    revision: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that is not imported.

    Attributes:
        where: the file, and the place in it.
        why: the reason, which should not contain what differs from one case to the next: reasons are counted.
        count: how many there are of it.
    """

    where: str
    why: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation of a source.

    Attributes:
        id: names it among those of its source.
        where: where it was read, for the report.
        entries: its entries in the order of the source, whose first child of an entry goes on with its branch.
        title, user_id, model, instructions: what is known of it.
        created_at: when it began; aware.
        labels: for what conversations are found by; the label `source` is added.
        properties: for what else is known: at most 16 texts of 512 characters; what does not fit is cut off.
        active: the id of the entry at the end of the branch that was shown last; None: the last entry.
        skipped: what of it is not imported.
    """

    id: str
    where: str
    entries: Sequence[Entry] = ()
    title: str | None = None
    user_id: str | None = None
    model: str | None = None
    instructions: str | None = None
    created_at: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    active: str | None = None
    skipped: Sequence[Skipped] = ()


@runtime_checkable
class Source(Protocol):
    """Software whose conversations can be imported: see `threadkeep.contrib.importers`."""

    @property
    def name(self) -> str:
        """What it is called in `import_from` and on the command line; the beginning of external ids."""
        ...

    def recognizes(self, input: Input, /) -> bool:
        """Return whether this is a file of its own, as far as its beginning tells; never raises."""
        ...

    def read(self, input: Input, /) -> Iterator[Transcript | Skipped]:
        """Return the conversations of a file, one after the other, and what is none.

        Raises:
            CannotParse: it cannot be read on from here; what came before has been imported.
        """
        ...
