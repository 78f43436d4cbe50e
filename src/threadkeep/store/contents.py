"""Options and tools, stored once per content: their texts, hashes, and a cache of what was read.

A hash covers the exact text: the order of keys in a JSON schema is part of what a provider sees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from threadkeep.db.dialects import check_sizes, insert_missing
from threadkeep.db.queries.conversations import (
    config_of,
    configs_of,
    kept_definitions,
    tool_definitions_of,
    tool_set_of,
)
from threadkeep.db.tables import configs, tool_definitions, tool_sets
from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.errors import NotFound
from threadkeep.store.memory import DEFAULT_BYTES, Memories
from threadkeep.store.prices import PriceBook

T = TypeVar("T")

CACHED: Final = 2_000  # options and tool sets that a store remembers


@dataclass(frozen=True, slots=True)
class Text:
    """A stored JSON text with the hash that names it."""

    hash: bytes
    text: str

    @classmethod
    def of(cls, value: Any) -> Text:
        """The text of a value."""
        data = dumps(value)
        return cls(sha256(data).digest(), data.decode())


class Configured(NamedTuple):
    """The options and tools of a conversation, and what formats remember of both."""

    settings: JsonObject
    tools: Sequence[JsonObject]
    shared: dict[str, Any]


class Contents:
    """Remembers options and tool sets by hash. What a hash names never changes, so nothing here gets stale.

    `memories` are of the conversations that handles have read, see there; `prices` are those of the store.
    """

    def __init__(self, memory_bytes: int = DEFAULT_BYTES, prices: PriceBook | None = None) -> None:
        self.memories = Memories(memory_bytes)
        self.prices = PriceBook() if prices is None else prices
        self._found: dict[tuple[str, int, bytes], Any] = {}
        self._lock = Lock()

    def settings(self, connection: Connection, tenant: int, hash_: bytes) -> JsonObject:
        """The session options of that hash; not to be changed by the caller."""
        found = self._get("config", tenant, hash_)
        if found is None:
            text = connection.execute(config_of(), {"tenant": tenant, "hash": hash_}).scalar_one()
            found = self._put("config", tenant, hash_, loads(text))
        settings: JsonObject = found
        return settings

    def tools(self, connection: Connection, tenant: int, hash_: bytes | None) -> list[JsonObject]:
        """The tools of that set, in order; not to be changed by the caller."""
        if hash_ is None:
            return []
        found = self._get("tools", tenant, hash_)
        if found is None:
            hashes = loads(connection.execute(tool_set_of(), {"tenant": tenant, "hash": hash_}).scalar_one())
            wanted = [bytes.fromhex(text) for text in hashes]
            rows = connection.execute(tool_definitions_of(), {"tenant": tenant, "hashes": sorted(set(wanted))})
            texts = {bytes(row.hash): row.definition for row in rows}
            found = self._put("tools", tenant, hash_, [loads(texts[name]) for name in wanted])
        tools: list[JsonObject] = found
        return tools

    def forget(self) -> None:
        """Forget everything; it is read again when it is needed."""
        with self._lock:
            self._found.clear()
        self.memories.clear()

    def configured(self, connection: Connection, tenant: int, settings: bytes, tools: bytes | None) -> Configured:
        """The options and tools of a conversation; not to be changed by the caller."""
        name = bytes(settings) + bytes(tools or b"")
        found: Configured | None = self._found.get(("configured", tenant, name))
        if found is not None:
            return found
        made = Configured(self.settings(connection, tenant, settings), self.tools(connection, tenant, tools), {})
        return self._put("configured", tenant, name, made)

    def several_settings(self, connection: Connection, tenant: int, hashes: set[Any]) -> dict[Any, JsonObject]:
        """The session options of these hashes; those that are not known are read in one statement."""
        found = {hash_: self._get("config", tenant, bytes(hash_)) for hash_ in hashes}
        missing = sorted(bytes(hash_) for hash_, settings in found.items() if settings is None)
        if missing:
            rows = connection.execute(configs_of(), {"tenant": tenant, "hashes": missing})
            read = {bytes(row.hash): self._put("config", tenant, bytes(row.hash), loads(row.config)) for row in rows}
            found = {hash_: read[bytes(hash_)] if settings is None else settings for hash_, settings in found.items()}
        return found

    def _get(self, kind: str, tenant: int, hash_: bytes) -> Any:
        return self._found.get((kind, tenant, hash_))

    def _put(self, kind: str, tenant: int, hash_: bytes, value: T) -> T:
        with self._lock:
            self._found[kind, tenant, hash_] = value
            if len(self._found) > CACHED:  # the oldest goes: it is read again when it is needed
                del self._found[next(iter(self._found))]
        return value


def settings_text(settings: Mapping[str, Any]) -> Text:
    """The text of session options, top-level keys sorted."""
    return Text.of({name: settings[name] for name in sorted(settings)})


def store_settings(connection: Connection, tenant: int, texts: Sequence[Text], now: datetime) -> None:
    """Make sure that these options are stored; in hash order, so that two writers cannot wait for each other.

    Raises:
        NotFound: the tenant was deleted.
    """
    rows = [
        {"tenant_id": tenant, "hash": hash_, "config": text, "created_at": now}
        for hash_, text in sorted({text.hash: text.text for text in texts}.items())
    ]
    check_sizes(connection, rows, "the session options", ("config",))
    try:
        connection.execute(insert_missing(connection, configs), rows)
    except IntegrityError as error:  # what is there already is no error, so it is the key of the tenant
        raise NotFound("The tenant of this store is gone: it was deleted.") from error


@dataclass(frozen=True, slots=True)
class ToolTexts:
    """A tool set and the definitions that it names."""

    set: Text
    definitions: tuple[tuple[Text, JsonObject], ...]

    @classmethod
    def of(cls, tools: Sequence[JsonObject]) -> ToolTexts | None:
        """None for no tools at all."""
        if not tools:
            return None
        definitions = tuple((Text.of(tool), tool) for tool in tools)
        return cls(Text.of([text.hash.hex() for text, _ in definitions]), definitions)


def store_tools(connection: Connection, tenant: int, found: Sequence[ToolTexts], now: datetime) -> None:
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
        for tools in found
        for text, tool in tools.definitions
    }
    rows = [definitions[hash_] for hash_ in sorted(definitions)]
    check_sizes(connection, rows, "a tool definition", ("definition",))
    while rows:
        connection.execute(insert_missing(connection, tool_definitions), rows)
        rows = _without_kept(connection, tenant, rows)
    sets = {
        tools.set.hash: {"tenant_id": tenant, "hash": tools.set.hash, "definitions": tools.set.text, "created_at": now}
        for tools in found
    }
    connection.execute(insert_missing(connection, tool_sets), [sets[hash_] for hash_ in sorted(sets)])


def _without_kept(connection: Connection, tenant: int, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that were collected right now; nobody collects the others before the end of this transaction.

    A set names its tools in JSON, so no foreign key keeps them. Elsewhere the insertion itself has locked them.
    """
    if connection.dialect.name != "postgresql":
        return []
    wanted = {"tenant": tenant, "hashes": [row["hash"] for row in rows]}
    kept = {bytes(hash_) for hash_ in connection.execute(kept_definitions(), wanted).scalars()}
    return [row for row in rows if row["hash"] not in kept]


def _short(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) <= 60 else None  # noqa: PLR2004 - a column for people
