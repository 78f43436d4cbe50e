"""Options and tools, stored once per content: their texts, their hashes, and a cache of what was read.

A hash covers the exact text: the order of keys in a JSON schema is part of what a provider sees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, update
from sqlalchemy.exc import IntegrityError

from threadkeep.db.dialects import check_sizes, insert_missing, insert_or_replace
from threadkeep.db.queries import conversations as queries
from threadkeep.db.tables import configs, tool_definitions, tool_sets
from threadkeep.domain.jsontext import JsonObject, dumps, loads_stored
from threadkeep.store.history_cache import BoundedCache
from threadkeep.store.refs import tenant_not_found

VALUE_BYTES: Final = 100  # what a value takes beside its JSON text, or a key


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

    def settings_by_hash(self, connection: Connection, tenant: int, hashes: set[Any]) -> dict[Any, JsonObject]:
        """The session options of these hashes; those that are not known are read in one statement."""
        known = {bytes(hash_): self._values.get(("config", tenant, bytes(hash_))) for hash_ in hashes}
        missing = sorted(hash_ for hash_, settings in known.items() if settings is None)
        if missing:
            for row in connection.execute(queries.configs_of(), {"tenant": tenant, "hashes": missing}):
                hash_, text = bytes(row.hash), row.config
                settings = loads_stored(text, "configs", _named(hash_))
                known[hash_] = self.add(("config", tenant, hash_), settings, size_of(text))
        return {hash_: (known[bytes(hash_)] or ({}, 0))[0] for hash_ in hashes}

    def _settings(self, connection: Connection, tenant: int, hash_: bytes) -> tuple[JsonObject, int]:
        known = self._values.get(("config", tenant, hash_))
        if known is None:
            text = connection.execute(queries.config_of(), {"tenant": tenant, "hash": hash_}).scalar() or ""
            settings = loads_stored(text, "configs", _named(hash_))
            known = self.add(("config", tenant, hash_), settings, size_of(text))
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
            known = self.add(("tools", tenant, hash_), tools, sum(size_of(texts[one]) for one in hashes))
        return known


def size_of(text: str) -> int:
    """About how many bytes the value of a JSON text takes in the cache, which takes as much as some values itself."""
    return len(text) + VALUE_BYTES * (5 + text.count(",") + text.count(":"))


def _named(hash_: bytes) -> str:
    return f"hash {bytes(hash_).hex()}"


def settings_text(settings: Mapping[str, Any]) -> Text:
    """The text of session options, top-level keys sorted."""
    return Text.of({name: settings[name] for name in sorted(settings)})


def store_settings(connection: Connection, tenant: int, texts: Sequence[Text], now: datetime) -> None:
    """Make sure that these options are stored; in hash order, so that two writers cannot wait for each other."""
    rows = [
        {"tenant_id": tenant, "hash": hash_, "config": text, "created_at": now}
        for hash_, text in sorted({text.hash: text.text for text in texts}.items())
    ]
    check_sizes(connection, rows, "the session options", ("config",))
    try:
        connection.execute(insert_missing(connection, configs), rows)
    except IntegrityError as error:  # what is there already is no error, so it is the key of the tenant
        raise tenant_not_found() from error


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
    connection.execute(insert_missing(connection, tool_sets), [sets[hash_] for hash_ in sorted(sets)])


def insert_definitions(connection: Connection, tenant: int, rows: Sequence[dict[str, Any]]) -> None:
    """Make sure that these rows of tools exist, and stay: they are in use now, whatever a removal took them for.

    A set names its tools in JSON, so no foreign key keeps them.
    """
    if connection.dialect.name != "postgresql":  # the insertion itself locks what exists
        is_marked = tool_definitions.c.unused_at.is_not(None)
        upsert = insert_or_replace(connection, tool_definitions, "unused_at", where=is_marked)
        connection.execute(upsert, [row | {"unused_at": None} for row in rows])
        return
    while rows:
        connection.execute(insert_missing(connection, tool_definitions), rows)
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
