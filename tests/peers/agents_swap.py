"""A plugin of pytest: the sessions of the Agents SDK in its own tests become sessions of threadkeep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import agents
import agents.extensions.memory
import agents.memory
from agents.extensions.memory import sqlalchemy_session
from agents.memory import sqlite_session
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from threadkeep import Store
from threadkeep.contrib.openai_agents import ThreadkeepSession


class Stores:
    """One store for each database that the tests name; those in memory are known by what holds them."""

    def __init__(self) -> None:
        self._stores: dict[str, Store] = {}
        self._held: list[object] = []

    def of_path(self, path: str | Path, holder: object) -> Store:
        if str(path) in {":memory:", "", "None"}:
            self._held.append(holder)  # so that no other object gets its id
            return self._stores.setdefault(f"memory {id(holder)}", Store("sqlite://"))
        name = f"{Path(path).resolve()}.threadkeep"
        if name not in self._stores or not Path(name).exists():
            self._stores[name] = Store(f"sqlite:///{name}")
        return self._stores[name]


STORES = Stores()


class SwappedSQLiteSession(ThreadkeepSession):
    """Made like a SQLiteSession."""

    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        sessions_table: str = "agent_sessions",
        messages_table: str = "agent_messages",
        session_settings: Any = None,
    ) -> None:
        self.db_path, self.sessions_table, self.messages_table = db_path, sessions_table, messages_table
        super().__init__(session_id, STORES.of_path(db_path, self), session_settings=session_settings)

    def close(self) -> None:
        """Sessions of threadkeep hold nothing open."""


class SwappedSQLAlchemySession(ThreadkeepSession):
    """Made like a SQLAlchemySession."""

    def __init__(
        self,
        session_id: str,
        *,
        engine: AsyncEngine,
        create_tables: bool = False,
        sessions_table: str = "agent_sessions",
        messages_table: str = "agent_messages",
        session_settings: Any = None,
        ensure_ascii: bool = True,
    ) -> None:
        del create_tables, sessions_table, messages_table, ensure_ascii
        self._engine = engine
        store = STORES.of_path(engine.url.database or "", engine)
        super().__init__(session_id, store, session_settings=session_settings)

    @classmethod
    def from_url(cls, session_id: str, *, url: str, engine_kwargs: dict[str, Any] | None = None, **options: Any) -> Any:
        return cls(session_id, engine=create_async_engine(url, **(engine_kwargs or {})), **options)

    @property
    def engine(self) -> AsyncEngine:
        return self._engine


for home in (agents, agents.memory, sqlite_session):
    home.SQLiteSession = SwappedSQLiteSession  # type: ignore[attr-defined,misc,assignment]
for place in (agents.extensions.memory, sqlalchemy_session):
    place.SQLAlchemySession = SwappedSQLAlchemySession  # type: ignore[attr-defined,misc,assignment]
