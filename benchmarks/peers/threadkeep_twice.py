"""threadkeep where what the user says is stored before the model is asked: a turn in two transactions."""

from __future__ import annotations

from benchmarks.peers import threadkeep
from benchmarks.peers.turns import Turn


class Chat(threadkeep.Chat):
    def append(self, turn: Turn) -> None:
        self._conversation.user(turn.text)
        self._conversation.add_response(turn.body, "open_responses")


class Adapter(threadkeep.Adapter):
    NAME = "threadkeep, question stored first"
    NOTE = "two transactions: user(), then add_response()"
    FORMATS = ()
    CHAT = Chat
