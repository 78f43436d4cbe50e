"""simonw's `llm`: the conversations of its log database, ``logs.db``.

Source: the migrations of llm 0.36, which keep older tables as they are.

* Since 0.36, messages form a tree (`llm_trees`): what threads have in common is stored once. Forks are threads.
* Before, a response had its prompt, results of tools and answer in one row (`llm_responses`).
* A conversation that is in both is read from the tree, with the responses that are only in the older tables before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from threadkeep.contrib.importers.databases import opened, tables_of
from threadkeep.contrib.importers.inputs import Input
from threadkeep.contrib.importers.llm_responses import conversations
from threadkeep.contrib.importers.llm_trees import threads
from threadkeep.contrib.importers.records import Skipped, Transcript

TREE: Final = ({"threads", "turns", "messages", "parts"}, ("id", "parent_message_hash", "tip_message_hash"))
RESPONSES: Final = ("id", "prompt", "response", "conversation_id", "datetime_utc")


class Llm:
    """Conversations of llm."""

    name: Final = "llm"

    def recognizes(self, input: Input, /) -> bool:
        """Return whether there are tables of one of its releases."""
        tables = tables_of(input)
        names, columns = TREE
        has_tree = names <= tables.keys() and tables["turns"].issuperset(columns)
        return has_tree or tables.get("responses", frozenset()).issuperset(RESPONSES)

    def read(self, input: Input, /) -> Iterator[Transcript | Skipped]:
        """Return the conversations of a database, the older ones first."""
        with opened(input) as database:
            yield from conversations(database, input.name)
            yield from threads(database, input.name)


LLM: Final = Llm()
