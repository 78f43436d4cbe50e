"""simonw's llm: `response.log_to_db`, with the response of a model that answers what the turn says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import llm
import orjson
import sqlite_utils
from llm.logs import LogStore
from sqlalchemy import make_url

from benchmarks.data import INSTRUCTIONS, MODEL
from benchmarks.peers import protocol
from benchmarks.peers.turns import Turn

PAGE = 20


class Scripted(llm.Model):  # type: ignore[misc, unused-ignore] # without the package it has no type
    """Answers with the next turn."""

    model_id = MODEL

    def __init__(self) -> None:
        self.turn: Turn | None = None

    def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any = None) -> Iterator[str]:  # noqa: ARG002 - its signature
        assert self.turn is not None
        turn = self.turn
        response.set_usage(
            input=turn.input_tokens, output=turn.output_tokens, details={"cached_tokens": turn.cached_tokens}
        )
        response.response_json = orjson.loads(turn.body)
        yield turn.answer


class Chat(protocol.Chat):
    def __init__(self, adapter: Adapter, name: str) -> None:
        self._adapter, self._name = adapter, name
        self._conversation = llm.Conversation(model=adapter.model, id=name)
        self._history: list[Any] = []
        self._answers: dict[str, Any] = {}

    def prepare(self, turns: Sequence[Turn]) -> None:
        """What the model answered to the whole history, before it is logged."""
        self._history = self._history or self._stored() or [llm.system(INSTRUCTIONS)]
        for turn in turns:
            self._adapter.model.turn = turn
            asked = [*self._history, llm.user(turn.text)]
            response = self._conversation.prompt(messages=asked)
            response.text()
            self._history = [*asked, *response.messages()]
            self._answers[turn.response_id] = response

    def append(self, turn: Turn) -> None:
        self._answers.pop(turn.response_id).log_to_db(self._adapter.db)

    def _stored(self) -> list[Any]:
        try:
            found: list[Any] = self._adapter.store.thread_messages(self._name)
        except KeyError:
            return []
        return found

    def request(self) -> bytes:
        messages = [{"role": message.role, "content": message.parts[0].text} for message in self._stored()]
        return orjson.dumps({"model": MODEL, "messages": messages})

    def texts(self) -> list[str]:
        return [message.parts[0].text for message in self._stored() if message.role != "system"]


class Adapter(protocol.Adapter):
    NAME = "simonw's llm"
    PACKAGE = "llm"
    DATABASES = ("sqlite",)
    NOTE = "no users, no positions; reads a conversation message by message; its full-text index is written at once"

    def __init__(self, url: str) -> None:
        self.db = sqlite_utils.Database(make_url(url).database or "")
        self.store, self.model = LogStore(self.db), Scripted()

    def open(self, name: str) -> Chat:
        return Chat(self, name)

    def load(self, conversations: Mapping[str, Sequence[Turn]]) -> None:
        """Messages alone, which leaves out usage and the search."""
        for name, turns in conversations.items():
            said = [message for turn in turns for message in (llm.user(turn.text), llm.assistant(turn.answer))]
            self.store.append(self.store.ensure_thread(name), [llm.system(INSTRUCTIONS), *said])

    def search(self, word: str) -> int:
        return len(list(self.db["turn_search"].search(word, limit=PAGE)))

    def close(self) -> None:
        self.db.close()
