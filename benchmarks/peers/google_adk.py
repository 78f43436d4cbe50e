"""google-adk: `DatabaseSessionService`, an event for what the user says and one for the answer."""

from __future__ import annotations

from typing import Any

import orjson
from google.adk.events.event import Event
from google.adk.sessions import DatabaseSessionService
from google.genai import types

from benchmarks.data import INSTRUCTIONS
from benchmarks.peers import protocol
from benchmarks.peers.turns import Turn

PLACE: Any = {"app_name": "bench", "user_id": "user-1"}


class Chat(protocol.Chat):
    def __init__(self, adapter: Adapter, session: Any) -> None:
        self._adapter, self._session = adapter, session

    def append(self, turn: Turn) -> None:
        self._adapter.loop.run(self._append(turn))

    async def _append(self, turn: Turn) -> None:
        service = self._adapter.service
        asked = types.Content(role="user", parts=[types.Part(text=turn.text)])
        await service.append_event(self._session, Event(author="user", invocation_id=turn.response_id, content=asked))
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=turn.input_tokens,
            cached_content_token_count=turn.cached_tokens,
            candidates_token_count=turn.output_tokens,
            total_token_count=turn.total_tokens,
        )
        answer = types.Content(role="model", parts=[types.Part(text=turn.answer)])
        event = Event(author="assistant", invocation_id=turn.response_id, content=answer, usage_metadata=usage)
        await service.append_event(self._session, event)

    def request(self) -> bytes:
        """The session is read again, because others may have appended to it."""
        self._session = self._adapter.read(self._session.id)
        contents = [event.content.model_dump(mode="json", exclude_none=True) for event in self._session.events]
        return orjson.dumps({"systemInstruction": {"parts": [{"text": INSTRUCTIONS}]}, "contents": contents})

    def texts(self) -> list[str]:
        return [content["parts"][0]["text"] for content in orjson.loads(self.request())["contents"]]


class Adapter(protocol.Adapter):
    NAME = "google-adk DatabaseSessionService"
    PACKAGE = "google-adk"
    NOTE = "no sums of usage, no search; a second writer of a session is refused"

    def __init__(self, url: str) -> None:
        driver = "+aiosqlite" if url.startswith("sqlite") else "+asyncpg"
        self.loop = protocol.Loop()
        self.service = DatabaseSessionService(url.replace("://", f"{driver}://", 1))
        self.loop.run(self.service.prepare_tables())

    def open(self, name: str) -> Chat:
        session = self.read(name)
        return Chat(self, session or self.loop.run(self.service.create_session(**PLACE, session_id=name)))

    def read(self, name: str) -> Any:
        return self.loop.run(self.service.get_session(**PLACE, session_id=name))

    def close(self) -> None:
        self.loop.run(self.service.close())
        self.loop.close()
