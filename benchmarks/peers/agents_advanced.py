"""openai-agents: `AdvancedSQLiteSession`, which keeps the usage of turns in a second transaction."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from agents import Usage
from agents.extensions.memory import AdvancedSQLiteSession

from benchmarks.peers import agents_sqlite
from benchmarks.peers.turns import Turn


class Chat(agents_sqlite.Chat):
    def append(self, turn: Turn) -> None:
        self.loop.run(self._append(turn))

    async def _append(self, turn: Turn) -> None:
        await self.session.add_items(agents_sqlite.items_of(turn))
        usage = Usage(
            requests=1,
            input_tokens=turn.input_tokens,
            output_tokens=turn.output_tokens,
            total_tokens=turn.total_tokens,
        )
        await self.session.store_run_usage(SimpleNamespace(context_wrapper=SimpleNamespace(usage=usage)))


class Adapter(agents_sqlite.Adapter):
    NAME = "openai-agents AdvancedSQLiteSession"
    NOTE = "no raw bodies, no users, no search; usage in a transaction of its own"
    CHAT = Chat

    def session(self, name: str) -> Any:
        return AdvancedSQLiteSession(session_id=name, db_path=self.path, create_tables=True)
