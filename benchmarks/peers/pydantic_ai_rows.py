"""pydantic-ai: `ModelMessagesTypeAdapter`'s JSON in a row for each run, by hand, as its documentation shows."""

from __future__ import annotations

from typing import Any

import orjson
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.usage import RequestUsage
from sqlalchemy import make_url

from benchmarks.data import INSTRUCTIONS, MODEL
from benchmarks.databases import PostgresDriver, SqliteDriver
from benchmarks.peers import protocol
from benchmarks.peers.turns import Turn

NUMBERS = {"sqlite": "INTEGER PRIMARY KEY", "postgresql": "BIGSERIAL PRIMARY KEY"}
TABLE = "CREATE TABLE IF NOT EXISTS run (id {number}, conversation TEXT NOT NULL, messages TEXT NOT NULL)"
INDEX = "CREATE INDEX IF NOT EXISTS run_conversation ON run (conversation, id)"


class Chat(protocol.Chat):
    def __init__(self, driver: Any, name: str) -> None:
        self._driver, self._name = driver, name

    def append(self, turn: Turn) -> None:
        usage = RequestUsage(
            input_tokens=turn.input_tokens, output_tokens=turn.output_tokens, cache_read_tokens=turn.cached_tokens
        )
        answer = ModelResponse(
            parts=[TextPart(turn.answer)], usage=usage, model_name=turn.model, provider_response_id=turn.response_id
        )
        messages: list[Any] = [ModelRequest(parts=[UserPromptPart(turn.text)]), answer]
        self._driver.begin()
        text = ModelMessagesTypeAdapter.dump_json(messages).decode()
        self._driver.write("INSERT INTO run (conversation, messages) VALUES (%s, %s)", (self._name, text))
        self._driver.commit()

    def _messages(self) -> list[Any]:
        rows = self._driver.read("SELECT messages FROM run WHERE conversation = %s ORDER BY id", (self._name,))
        return [message for row in rows for message in ModelMessagesTypeAdapter.validate_json(row[0])]

    def request(self) -> bytes:
        messages = [
            {"role": "user" if message.kind == "request" else "assistant", "content": message.parts[0].content}
            for message in self._messages()
        ]
        return orjson.dumps({"model": MODEL, "messages": [{"role": "system", "content": INSTRUCTIONS}, *messages]})

    def texts(self) -> list[str]:
        return [message.parts[0].content for message in self._messages()]


class Adapter(protocol.Adapter):
    NAME = "pydantic-ai, a row a run (by hand)"
    PACKAGE = "pydantic-ai-slim"
    NOTE = "usage only within the JSON, no positions, no users, no search"

    def __init__(self, url: str) -> None:
        kind = "postgresql" if url.startswith("postgresql") else "sqlite"
        path = make_url(url).database or ""
        self._driver = PostgresDriver(url) if kind == "postgresql" else SqliteDriver(path, "NORMAL")
        self._driver.begin()
        self._driver.write(TABLE.format(number=NUMBERS[kind]), ())
        self._driver.write(INDEX, ())
        self._driver.commit()

    def open(self, name: str) -> Chat:
        return Chat(self._driver, name)

    def close(self) -> None:
        self._driver.close()
