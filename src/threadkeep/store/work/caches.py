"""Bounded caches, such as of the histories of conversations that were read lately.

A web application opens a conversation again for every request. What was read before is true as long as the revision of
the conversation is the same: a handle that begins with it reads the revision and what is new, as one that is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from hashlib import sha256
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from sqlalchemy import Connection, update
from sqlalchemy.exc import IntegrityError

from threadkeep.db.backends import backend_of, check_sizes
from threadkeep.db.driver.inserting import insert_missing
from threadkeep.db.engines import LOCK, Inheritable
from threadkeep.db.models import configs, tool_definitions, tool_sets
from threadkeep.db.queries import conversations as queries
from threadkeep.domain.jsontext import JsonObject, dumps, loads_stored
from threadkeep.formats.canonical import entries as entry_rows
from threadkeep.store.work.refs import tenant_not_found

if TYPE_CHECKING:
    from threadkeep.formats.canonical.entries import ItemEntry
    from threadkeep.store.media import stores
    from threadkeep.store.usage import observing
    from threadkeep.store.usage.prices import PriceBook
    from threadkeep.store.work.handle import DayTrigger, IndexTrigger

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

DEFAULT_BYTES: Final = 32 * 1024 * 1024
ENTRY_BYTES: Final = 300  # what an item takes beside its JSON text

# tenant, public id of the conversation, branch, and whether media are marked instead of read
BranchKey = tuple[int, bytes, int, bool]


@dataclass(slots=True)
class CachedHistory:
    """The items of a branch below a position, and what formats remember of them; `entries` is never changed."""

    revision: int
    entries: Sequence[ItemEntry]
    next_position: int
    format_cache: dict[str, Any]
    size: int = 0


def size_of(entries: Collection[ItemEntry]) -> int:
    """About how many bytes items take."""
    if isinstance(entries, entry_rows.PackedEntries):
        return len(entries.elements()) + ENTRY_BYTES * len(entries)
    texts = chain.from_iterable(map(_texts(), entries))
    return sum(map(len, filter(None, texts))) + ENTRY_BYTES * len(entries)


@cache
def _texts() -> Callable[[ItemEntry], tuple[bytes | None, bytes | None]]:
    """Return a function that returns the JSON texts of an item."""
    fields = entry_rows.ItemEntry._fields
    return itemgetter(fields.index("payload"), fields.index("rest"))


class BoundedCache(Inheritable, Generic[K, V]):
    """At most so many bytes (0: nothing is kept); what was kept first goes first."""

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        super().__init__()
        self.limit = limit
        self._values: dict[K, tuple[V, int]] = {}  # with the bytes that each takes
        self._size = 0

    def add(self, key: K, value: V, size: int) -> tuple[V, int]:
        """Keep a value, if it is not too large; returns it with its size."""
        with LOCK:
            _, before = self._values.pop(key, (None, 0))
            self._size -= before
            if size <= self.limit:
                self._values[key] = value, size
                self._size += size
            while self._size > self.limit:
                _, oldest = self._values.pop(next(iter(self._values)))
                self._size -= oldest
        return value, size

    def clear(self) -> None:
        """Forget everything; it is read again when it is needed."""
        with LOCK:
            self._values.clear()
            self._size = 0

    give_up = clear


class HistoryCache(BoundedCache[BranchKey, CachedHistory]):
    """The histories of a store, those used last kept longest."""

    def look_up(self, key: BranchKey) -> CachedHistory | None:
        """What is kept of a branch, at whichever revision of its conversation."""
        history, _ = self._values.get(key, (None, 0))
        return history

    def find(self, key: BranchKey, revision: int) -> CachedHistory | None:
        """What is kept of a branch at that revision of its conversation."""
        history = self.look_up(key)
        if history is None or history.revision != revision:
            return None
        with LOCK:
            if (kept := self._values.pop(key, None)) is not None:
                self._values[key] = kept
        return history

    def keep(self, key: BranchKey, history: CachedHistory, size: int, new: Collection[ItemEntry]) -> int:
        """Keep the history of a branch, of which `size` bytes were kept before `new`; returns its bytes now.

        What was rendered of it counts, too.
        """
        if not self.limit:
            return 0
        history.size = size + size_of(new)
        rendered = sum(getattr(value, "size", 0) for value in [*history.format_cache.values()])
        self.add(key, history, history.size + rendered)
        return history.size

    def forget(self, tenant: int, conversation: bytes) -> None:
        """Keep nothing of a conversation any more."""
        with LOCK:
            for key in [key for key in self._values if key[:2] == (tenant, conversation)]:
                self._size -= self._values.pop(key)[1]


# ---------------------------------------------------------------------------------------------------------------------
# Options and tools, stored once per content: their texts, their hashes, and a cache of what was read

VALUE_BYTES: Final = 100  # what a value takes beside its JSON text, or a key


@dataclass(frozen=True, slots=True)
class HashedText:
    """A stored JSON text with the hash that names it."""

    hash: bytes
    text: str

    @classmethod
    def of(cls, value: Any) -> HashedText:
        """The text of a value."""
        data = dumps(value)
        return cls(sha256(data).digest(), data.decode())


class Config(NamedTuple):
    """The options and tools of a conversation, and what formats remember of both; not to be changed."""

    settings: JsonObject
    tools: list[JsonObject]
    format_cache: dict[str, Any]


class ConfigCache(BoundedCache[tuple[str, int, bytes], Any]):
    """Remembers options and tool sets by kind, tenant and hash: what a hash names never changes or gets stale.

    A pair of both counts as much as its parts, for formats keep the beginning of requests with it.
    """

    def settings(self, connection: Connection, tenant: int, hash_: bytes) -> JsonObject:
        """The session options of that hash; not to be changed by the caller."""
        return self._settings(connection, tenant, hash_)[0]

    def tools(self, connection: Connection, tenant: int, hash_: bytes | None) -> list[JsonObject]:
        """The tools of that set, in order; not to be changed by the caller."""
        return self._tools(connection, tenant, hash_)[0]

    def get(self, connection: Connection, tenant: int, config_hash: bytes, tool_set_hash: bytes | None) -> Config:
        """The options and tools of a conversation."""
        hashes = bytes(config_hash) + bytes(tool_set_hash or b"")
        known = self._values.get(("both", tenant, hashes))
        if known is None:
            settings, size = self._settings(connection, tenant, config_hash)
            tools, tools_size = self._tools(connection, tenant, tool_set_hash)
            known = self.add(("both", tenant, hashes), Config(settings, tools, {}), size + tools_size)
        config: Config = known[0]
        return config

    def get_new(self, tenant: int, text: HashedText) -> Config:
        """The options of a conversation without tools, which need not be stored yet."""
        known = self._values.get(("both", tenant, text.hash))
        if known is None:
            settings, size = loads_stored(text.text, "configs", _named(text.hash)), text_size(text.text)
            self.add(("config", tenant, text.hash), settings, size)
            known = self.add(("both", tenant, text.hash), Config(settings, [], {}), size)
        config: Config = known[0]
        return config

    def settings_by_hash(self, connection: Connection, tenant: int, hashes: set[Any]) -> dict[Any, JsonObject]:
        """The session options of these hashes; those that are not known are read in one statement."""
        known = {bytes(hash_): self._values.get(("config", tenant, bytes(hash_))) for hash_ in hashes}
        missing = sorted(hash_ for hash_, settings in known.items() if settings is None)
        if missing:
            for row in connection.execute(queries.configs_of(), {"tenant": tenant, "hashes": missing}):
                hash_, text = bytes(row.hash), row.config
                settings = loads_stored(text, "configs", _named(hash_))
                known[hash_] = self.add(("config", tenant, hash_), settings, text_size(text))
        return {hash_: (known[bytes(hash_)] or ({}, 0))[0] for hash_ in hashes}

    def _settings(self, connection: Connection, tenant: int, hash_: bytes) -> tuple[JsonObject, int]:
        known = self._values.get(("config", tenant, hash_))
        if known is None:
            text = connection.execute(queries.config_of(), {"tenant": tenant, "hash": hash_}).scalar() or ""
            settings = loads_stored(text, "configs", _named(hash_))
            known = self.add(("config", tenant, hash_), settings, text_size(text))
        return known

    def _tools(self, connection: Connection, tenant: int, hash_: bytes | None) -> tuple[list[JsonObject], int]:
        if hash_ is None:
            return [], 0
        known = self._values.get(("tools", tenant, hash_))
        if known is None:
            text = connection.execute(queries.tool_set_of(), {"tenant": tenant, "hash": hash_}).scalar() or ""
            names = loads_stored(text, "tool_sets", _named(hash_))
            hashes = [bytes.fromhex(name) for name in names]
            rows = connection.execute(queries.tool_definitions_of(), {"tenant": tenant, "hashes": sorted(set(hashes))})
            texts = {bytes(row.hash): row.definition for row in rows}
            tools = [loads_stored(texts.get(one, ""), "tool_definitions", _named(one)) for one in hashes]
            known = self.add(("tools", tenant, hash_), tools, sum(text_size(texts[one]) for one in hashes))
        return known


def text_size(text: str) -> int:
    """About how many bytes the value of a JSON text takes in the cache, which takes as much as some values itself."""
    return len(text) + VALUE_BYTES * (5 + text.count(",") + text.count(":"))


def _named(hash_: bytes) -> str:
    return f"hash {bytes(hash_).hex()}"


def settings_text(settings: Mapping[str, Any]) -> HashedText:
    """The text of session options, top-level keys sorted."""
    return HashedText.of({name: settings[name] for name in sorted(settings)})


def settings_row(tenant: int, text: HashedText, now: datetime) -> dict[str, Any]:
    """The row of these options."""
    return {"tenant_id": tenant, "hash": text.hash, "config": text.text, "created_at": now}


def store_settings(connection: Connection, tenant: int, texts: Sequence[HashedText], now: datetime) -> None:
    """Make sure that these options are stored; in hash order, so that two writers cannot wait for each other."""
    rows = [settings_row(tenant, text, now) for _, text in sorted({text.hash: text for text in texts}.items())]
    check_sizes(connection, rows, "the session options", ("config",))
    try:
        insert_missing(connection, configs, rows)
    except IntegrityError as error:  # what is there already is no error, so it is the key of the tenant
        raise tenant_not_found() from error


@dataclass(frozen=True, slots=True)
class ToolTexts:
    """A tool set and the definitions that it names."""

    set: HashedText
    definitions: tuple[tuple[HashedText, JsonObject], ...]

    @classmethod
    def of(cls, tools: Sequence[JsonObject]) -> ToolTexts | None:
        """None for no tools at all."""
        if not tools:
            return None
        definitions = tuple((HashedText.of(tool), tool) for tool in tools)
        return cls(HashedText.of([text.hash.hex() for text, _ in definitions]), definitions)


def store_tools(connection: Connection, tenant: int, tool_sets_: Sequence[ToolTexts], now: datetime) -> None:
    """Make sure that these tool sets are stored; in hash order, as above."""
    definitions = {
        text.hash: {
            "tenant_id": tenant,
            "hash": text.hash,
            "type": _short(tool.get("type")) or "function",
            "name": _short(tool.get("name")),
            "definition": text.text,
            "created_at": now,
        }
        for tools in tool_sets_
        for text, tool in tools.definitions
    }
    rows = [definitions[hash_] for hash_ in sorted(definitions)]
    check_sizes(connection, rows, "a tool definition", ("definition",))
    insert_definitions(connection, tenant, rows)
    sets = {
        tools.set.hash: {"tenant_id": tenant, "hash": tools.set.hash, "definitions": tools.set.text, "created_at": now}
        for tools in tool_sets_
    }
    insert_missing(connection, tool_sets, [sets[hash_] for hash_ in sorted(sets)])


def insert_definitions(connection: Connection, tenant: int, rows: Sequence[dict[str, Any]]) -> None:
    """Make sure that these rows of tools exist, and stay: they are in use now, whatever a removal took them for.

    A set names its tools in JSON, so no foreign key keeps them.
    """
    if backend_of(connection).locks_what_exists:
        is_marked = tool_definitions.c.unused_at.is_not(None)
        upsert = backend_of(connection).insert_or_replace(tool_definitions, "unused_at", where=is_marked)
        connection.execute(upsert, [row | {"unused_at": None} for row in rows])
        return
    while rows:
        connection.execute(backend_of(connection).insert_missing(tool_definitions), rows)
        parameters = {"tenant": tenant, "hashes": [row["hash"] for row in rows]}
        kept = {bytes(row.hash): row.unused_at for row in connection.execute(queries.locked_definitions(), parameters)}
        unmark_definitions(connection, tenant, [hash_ for hash_, unused_at in kept.items() if unused_at is not None])
        rows = [row for row in rows if row["hash"] not in kept]  # the others were removed just now


def unmark_definitions(connection: Connection, tenant: int, hashes: Sequence[bytes]) -> None:
    """Note that these tools are in use."""
    if hashes:
        which = [tool_definitions.c.tenant_id == tenant, tool_definitions.c.hash.in_(hashes)]
        connection.execute(update(tool_definitions).where(*which).values(unused_at=None))


def _short(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) <= 60 else None  # noqa: PLR2004 - a column for people


@dataclass(frozen=True, slots=True)
class StoreResources:
    """What all handles of a store share; `index_trigger` is None if search is off, `blobs` if rows keep media.

    `observers` are called with each row of the ledger.
    """

    configs: ConfigCache
    histories: HistoryCache
    prices: PriceBook
    index_trigger: IndexTrigger | None
    day_trigger: DayTrigger
    blobs: stores.BlobStore | None = None
    observers: list[observing.Observer] = field(default_factory=list)
