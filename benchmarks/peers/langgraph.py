"""langgraph's checkpointers: a checkpoint with all messages for each turn, as a graph writes it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from psycopg.rows import dict_row
from sqlalchemy import make_url

from benchmarks.peers import protocol
from benchmarks.peers.langchain_messages import messages_of, request_of, texts_of
from benchmarks.peers.turns import Turn

CHANNEL = "messages"


class Chat(protocol.Chat):
    def __init__(self, saver: Any, name: str) -> None:
        self._saver = saver
        self._thread: Any = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
        self._messages: list[BaseMessage] = []
        self._step = 0

    def append(self, turn: Turn) -> None:
        self.put([*self._messages, *messages_of(turn)])

    def put(self, messages: list[BaseMessage]) -> None:
        self._step += 1
        version = self._saver.get_next_version(f"{self._step:032}.0", None)
        checkpoint = {
            **empty_checkpoint(),
            "channel_values": {CHANNEL: messages},
            "channel_versions": {CHANNEL: version},
        }
        metadata = {"source": "loop", "step": self._step, "parents": {}}
        self._thread = self._saver.put(self._thread, checkpoint, metadata, {CHANNEL: version})
        self._messages = messages

    def _read(self) -> list[BaseMessage]:
        thread = {"configurable": {**self._thread["configurable"], "checkpoint_id": None}}
        found = self._saver.get_tuple(thread)
        if found is not None:
            self._messages = found.checkpoint["channel_values"][CHANNEL]
            self._step = found.metadata["step"]
            self._thread = found.config
        return self._messages

    def request(self) -> bytes:
        return request_of(self._read())

    def texts(self) -> list[str]:
        return texts_of(self._read())


class Adapter(protocol.Adapter):
    NAME = "langgraph checkpointer"
    PACKAGE = "langgraph"
    NOTE = "writes all messages again with each turn; no usage apart, no users, no search; of two writers, one is lost"

    def __init__(self, url: str) -> None:
        self._saver: Any
        if url.startswith("sqlite"):
            self._connection: Any = sqlite3.connect(make_url(url).database or "", check_same_thread=False, timeout=60)
            self._saver = SqliteSaver(self._connection)
        else:
            self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=0, row_factory=dict_row)
            self._saver = PostgresSaver(self._connection)
        self._saver.setup()

    def open(self, name: str) -> Chat:
        return Chat(self._saver, name)

    def load(self, conversations: Mapping[str, Sequence[Turn]]) -> None:
        """One checkpoint each."""
        for name, turns in conversations.items():
            self.open(name).put([message for turn in turns for message in messages_of(turn)])

    def close(self) -> None:
        self._connection.close()
