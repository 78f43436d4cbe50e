"""langchain-postgres: `PostgresChatMessageHistory`, messages as jsonb in rows."""

from __future__ import annotations

import uuid
from typing import Any

import psycopg
from langchain_postgres import PostgresChatMessageHistory

from benchmarks.peers import protocol
from benchmarks.peers.langchain_messages import messages_of, request_of, texts_of
from benchmarks.peers.turns import Turn

TABLE = "chat_history"


class Chat(protocol.Chat):
    def __init__(self, history: Any) -> None:
        self._history = history

    def append(self, turn: Turn) -> None:
        self._history.add_messages(messages_of(turn))

    def request(self) -> bytes:
        return request_of(self._history.get_messages())

    def texts(self) -> list[str]:
        return texts_of(self._history.get_messages())


class Adapter(protocol.Adapter):
    NAME = "langchain-postgres"
    PACKAGE = "langchain-postgres"
    DATABASES = ("postgresql",)
    NOTE = "usage only within the JSON of messages, no positions, no raw bodies, no users, no search"

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url)
        PostgresChatMessageHistory.create_tables(self._connection, TABLE)
        self._connection.commit()

    def open(self, name: str) -> Chat:
        session = str(uuid.uuid5(uuid.NAMESPACE_OID, name))
        return Chat(PostgresChatMessageHistory(TABLE, session, sync_connection=self._connection))

    def close(self) -> None:
        self._connection.close()
