"""llm-rosetta, which stores nothing: the items of a `SQLiteSession` converted to other formats."""

from __future__ import annotations

import orjson
from llm_rosetta import convert

from benchmarks.peers import agents_sqlite

# our format -> the name of the same provider
PROVIDERS = {"chat_completion": "openai_chat", "messages": "anthropic", "gemini": "google"}


class Adapter(agents_sqlite.Adapter):
    NAME = "openai-agents SQLiteSession + llm-rosetta"
    PACKAGE = "llm-rosetta"
    NOTE = "the same rows; converts them to formats, and has none for Converse"
    FORMATS = tuple(PROVIDERS)

    def render(self, name: str, format: str) -> bytes:
        items = self.open(name).items()
        body = {**agents_sqlite.HEAD, "input": items}
        return orjson.dumps(convert(body, PROVIDERS[format], "openai_responses"))
