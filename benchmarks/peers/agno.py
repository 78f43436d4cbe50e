"""agno: a run for each turn, and the session that it belongs to, which agno writes in two transactions."""

from __future__ import annotations

import time
from typing import Any

import orjson
from agno.db.base import SessionType
from agno.db.postgres import PostgresDb
from agno.db.sqlite import SqliteDb
from agno.metrics import RunMetrics
from agno.models.message import Message
from agno.run.agent import RunOutput
from agno.run.base import RunStatus
from agno.session.agent import AgentSession

from benchmarks.data import INSTRUCTIONS, MODEL, USER
from benchmarks.peers import protocol
from benchmarks.peers.turns import Turn

AGENT = "bench"


class Chat(protocol.Chat):
    def __init__(self, db: Any, name: str) -> None:
        self._db, self._name = db, name
        self._session = AgentSession(session_id=name, agent_id=AGENT, user_id=USER, created_at=int(time.time()))

    def append(self, turn: Turn) -> None:
        metrics = RunMetrics(
            input_tokens=turn.input_tokens,
            output_tokens=turn.output_tokens,
            total_tokens=turn.total_tokens,
            cache_read_tokens=turn.cached_tokens,
        )
        run = RunOutput(
            run_id=turn.response_id, agent_id=AGENT, session_id=self._name, user_id=USER, content=turn.answer,
            model=turn.model, metrics=metrics, status=RunStatus.completed,
            messages=[Message(role="user", content=turn.text), Message(role="assistant", content=turn.answer)],
        )  # fmt: skip
        self._session.upsert_run(run)
        self._db.upsert_session(self._session)
        self._db.upsert_run(run, self._name, USER, run_index=len(self._session.runs or ()) - 1)

    def _messages(self) -> list[Any]:
        found = self._db.get_session(self._name, session_type=SessionType.AGENT)
        if found is None:
            return []
        self._session = found
        return [message for run in found.runs or () for message in run.messages]

    def request(self) -> bytes:
        messages = [{"role": message.role, "content": message.content} for message in self._messages()]
        return orjson.dumps({"model": MODEL, "messages": [{"role": "system", "content": INSTRUCTIONS}, *messages]})

    def texts(self) -> list[str]:
        return [message.content for message in self._messages()]


class Adapter(protocol.Adapter):
    NAME = "agno Db"
    PACKAGE = "agno"
    NOTE = "two transactions a turn; usage only within the JSON of runs; no search"

    def __init__(self, url: str) -> None:
        self._db: Any
        if url.startswith("sqlite"):
            self._db = SqliteDb(db_url=url)
        else:
            self._db = PostgresDb(db_url=url.replace("://", "+psycopg://", 1))

    def open(self, name: str) -> Chat:
        return Chat(self._db, name)

    def close(self) -> None:
        self._db.close()
