"""What sources give the engine, conversations as trees of entries; and the report of what became of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from threadkeep.domain.items import ItemInput
from threadkeep.errors import ThreadkeepError

if TYPE_CHECKING:
    from threadkeep.contrib.importers.inputs import Input

REST: Final = "the rest cannot be read"
SHOWN: Final = 1_000  # what was skipped is listed up to here, and counted beyond
# what code raises that meets values of an unexpected shape
UNEXPECTED: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


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
        service_tier: what was asked for, where that changes prices.
        name: tells a response without an id from all others, so that it counts once where several conversations have
            it; None: the conversation and the entry do.
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
    service_tier: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class SideCall:
    """A call to a provider that no entry came in: it failed, or its answer became something else, as a summary does.

    It gets a row in the ledger, once.

    Attributes:
        id: names it within its conversation; the id of its answer, if it has one, names it everywhere.
        answer: the model, the usage and the status.
        created_at: when; aware.
        error: what the provider said in place of an answer.
        entry: the id of the entry that it led to or followed: if that was recorded, the call was, too.
    """

    id: str
    answer: Answer
    created_at: datetime | None = None
    error: Mapping[str, Any] | None = None
    entry: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A message of a source, or another step: a node of the tree.

    Attributes:
        id: names it within its conversation. An entry whose id is known is not imported again.
        parent: the id of the entry that it follows; None: it is at the beginning. If there is no such entry, or if it
            leads back to itself, the entry is reported, and begins a branch.
        items: what was said, as items of threadkeep or dicts that describe them; media as data URLs, which the store
            takes out. Empty: the entries that follow it follow its parent.
        created_at: when; aware. None, or an impossible time: the time of the entry before.
        answer: the response that they came in; None for everything that no model said.
        revision: something that changes when the entry is edited in place, in sources where that can be, or that tells
            it from others, where ids are numbers of rows. An entry with another revision is another one,
            and what follows it is a branch.
        covers: of a compaction, the id of the last entry that it stands for ("": nothing); None: all that is before it.
    """

    id: str
    parent: str | None = None
    items: Sequence[ItemInput] = ()
    created_at: datetime | None = None
    answer: Answer | None = None
    revision: str = ""
    covers: str | None = None


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
        id: names it within its source.
        where: where it was read, for the report.
        entries: its entries in the order of the source, whose first child of an entry goes on with its branch.
        title, user_id, model, instructions: what is known of it.
        created_at: when it began; aware.
        labels: for what conversations are found by; the label `source` is added.
        properties: for what else is known: at most 16 texts of 512 characters; what does not fit is cut off.
        active: the id of the entry at the end of the branch that was shown last; None: the last entry.
        calls: the calls that no entry came in.
        request: a request of the conversation without its messages, in the format `request_format`: its options and
            tools become the ones of the conversation.
        is_nameless: whether its client tells no provider which session a call is of, so that the recorder finds it by
            its history.
        fingerprint: what changes when its file does, if that has only this conversation: a file that has the same one
            is not read again, by sources that know the id from its name (`id_of`).
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
    calls: Sequence[SideCall] = ()
    request: Mapping[str, Any] | None = None
    request_format: str = "open_responses"
    is_nameless: bool = False
    fingerprint: str | None = None
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


@runtime_checkable
class NamingSource(Protocol):
    """A source that knows from the name of a file which conversation it has."""

    def id_of(self, input: Input, /) -> str | None:
        """Return the id of the conversation of a file; None if the name does not tell."""
        ...


@dataclass(slots=True)
class Draft:
    """A conversation while it is read: where it is, and what of it is not imported."""

    where: str
    skipped: list[Skipped] = field(default_factory=list, init=False)

    def skip(self, why: str, place: object = None, count: int = 1) -> None:
        """Note what is not imported; `place` names a message."""
        self.skipped.append(Skipped(self.where if place is None else f"{self.where}, message {place}", why, count))

    def blocks(self, content: Any, place: object) -> list[dict[str, Any]]:
        """The blocks or parts of a message, of which one that is a text has one; what is none is reported."""
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        given = content if isinstance(content, list) else [] if content is None else [content]
        found = [one for one in given if isinstance(one, dict)]
        if len(found) < len(given):
            self.skip("a part of a message is not an object", place, len(given) - len(found))
        return found


def converted(where: str, convert: Callable[..., Transcript | Skipped], *values: Any) -> Transcript | Skipped:
    """The conversation that is made of these values; or why there is none."""
    try:
        return convert(*values)
    except (ThreadkeepError, *UNEXPECTED) as error:
        return Skipped(where, f"it cannot be read: {reason(error)}")


def reason(error: Exception) -> str:
    """What an error says, with the name of one that is none of threadkeep's own."""
    return str(error) if isinstance(error, ThreadkeepError) else f"{type(error).__name__}: {error}"


@dataclass(slots=True)
class Count:
    """How many were read: `read` is the sum of those stored, unchanged (there already) and skipped."""

    stored: int = 0
    unchanged: int = 0
    skipped: int = 0

    @property
    def read(self) -> int:
        """How many were read."""
        return self.stored + self.unchanged + self.skipped

    def values(self) -> dict[str, int]:
        """The counts by their names, without the sum."""
        return {"stored": self.stored, "unchanged": self.unchanged, "skipped": self.skipped}

    def add(self, *, stored: int = 0, unchanged: int = 0, skipped: int = 0) -> None:
        """Count more of them."""
        self.stored += stored
        self.unchanged += unchanged
        self.skipped += skipped


@dataclass(slots=True)
class SourceReport:
    """What `import_from` did, or with `dry_run` would have done.

    Attributes:
        conversations: `stored` are those that were created or got something new.
        created: the number of conversations among these that were created.
        items, responses: of all conversations that were read.
        attempts: the number of rows that were added to the ledger.
        skipped: what was not imported and why, at most 1,000 of these.
        reasons: how much was skipped for each reason.
        sources: the number of files by the name of their source.
        is_dry_run: whether nothing was written.
    """

    conversations: Count = field(default_factory=Count)
    created: int = 0
    items: Count = field(default_factory=Count)
    responses: Count = field(default_factory=Count)
    attempts: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)
    is_dry_run: bool = False

    def add(self, other: SourceReport) -> None:
        """Count what another report has, too."""
        for name in ("conversations", "items", "responses"):
            getattr(self, name).add(**getattr(other, name).values())
        self.created, self.attempts = self.created + other.created, self.attempts + other.attempts
        for names, more in ((self.reasons, other.reasons), (self.sources, other.sources)):
            for name, count in more.items():
                names[name] = names.get(name, 0) + count
        self.skipped += other.skipped[: SHOWN - len(self.skipped)]

    def skip(self, *skipped: Skipped) -> None:
        """Note what is not imported."""
        for one in skipped:
            self.reasons[one.why] = self.reasons.get(one.why, 0) + one.count
            if len(self.skipped) < SHOWN:
                self.skipped.append(one)
