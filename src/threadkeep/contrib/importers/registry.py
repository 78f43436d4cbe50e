"""The sources by name, and which of them a file is of."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from threadkeep.contrib.importers.inputs import Input
from threadkeep.contrib.importers.records import Source
from threadkeep.errors import InvalidOption

# name -> module and object; a file is of the first one that recognizes it
SOURCES: Final = {
    "claude-code": "claude_code:CLAUDE_CODE",
    "agents-sdk": "agents_sdk:AGENTS_SDK",
    "langchain": "langchain:LANGCHAIN",
    "llm": "llm:LLM",
}


def get_source(name: str | Source) -> Source:
    """The source of a name, or the source itself.

    Raises:
        InvalidOption: there is no such source.
    """
    if not isinstance(name, str):
        if isinstance(name, Source):
            return name
        raise InvalidOption(f"must be a name or a Source, not {type(name).__name__}.", argument="source")
    place = SOURCES.get(name)
    if place is None:
        raise InvalidOption(f"must be one of {', '.join(SOURCES)}, not {name!r}.", argument="source")
    module, _, attribute = place.partition(":")
    source: Source = getattr(import_module(f"{__package__}.{module}"), attribute)
    return source


def find_source(input: Input) -> Source | None:
    """The source whose file this is, told by its contents; None if no source recognizes it."""
    return next((source for source in map(get_source, SOURCES) if source.recognizes(input)), None)
