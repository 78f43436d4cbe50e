"""openai-agents: `SQLAlchemySession`, on an engine that is kept."""

from __future__ import annotations

from typing import Any

from agents.extensions.memory import SQLAlchemySession
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks.peers import agents_sqlite, protocol


class Adapter(agents_sqlite.Adapter):
    NAME = "openai-agents SQLAlchemySession"
    DATABASES = ("sqlite", "postgresql")

    def __init__(self, url: str) -> None:
        driver = "+aiosqlite" if url.startswith("sqlite") else "+asyncpg"
        self.loop = protocol.Loop()
        self._engine = create_async_engine(url.replace("://", f"{driver}://", 1))
        self.loop.run(SQLAlchemySession("first", engine=self._engine, create_tables=True).get_items())

    def open(self, name: str) -> agents_sqlite.Chat:
        return agents_sqlite.Chat(self.loop, self.session(name))

    def session(self, name: str) -> Any:
        return SQLAlchemySession(name, engine=self._engine)

    def close(self) -> None:
        self.loop.run(self._engine.dispose())
        self.loop.close()
