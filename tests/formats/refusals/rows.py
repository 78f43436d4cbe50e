"""How a conversation that a provider refuses is written down, and small builders for its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tests.formats.factories import user
from threadkeep.formats import FormatName

Json = dict[str, Any]
ABSENT: Final = "(absent)"  # what a request does not have at a place
PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR4nGNgYAAAAAMAAbitOmMAAAAASUVORK5CYII="
GITHUB: Final = "https://github.com/"


class Refusal(NamedTuple):
    """A conversation that a provider refuses, and what is sent in its place."""

    name: str
    source: str  # documentation, or a report of the error
    reported: str = ""  # the codes of all losses and repairs
    sent: Json = {}  # noqa: RUF012 - place in the request -> what stands there
    items: Sequence[Json] = (user("Hi"),)
    tools: Sequence[Json] = ()
    options: Json = {}  # noqa: RUF012
    view: Json = {}  # noqa: RUF012
    model: str | None = None
    raises: str | None = None  # what the error says, where the request cannot be rendered


class Provider(NamedTuple):
    """Who refuses what."""

    name: str
    format: FormatName
    model: str
    refusals: Sequence[Refusal]
    view: Json = {}  # noqa: RUF012


def picture(kind: str = "image/png", data: str = PNG) -> Json:
    """A picture as a data URL."""
    return {"type": "input_image", "image_url": f"data:{kind};base64,{data}"}


def pdf(name: str | None = "report.pdf") -> Json:
    """A document."""
    named = {} if name is None else {"filename": name}
    return {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0=", **named}


def function(name: str = "lookup", parameters: Json | None = None, **keys: Any) -> Json:
    """A tool."""
    text: Json = {"type": "object", "properties": {"query": {"type": "string"}}}
    return {"type": "function", "name": name, "parameters": text if parameters is None else parameters, **keys}


def schema(**properties: Json) -> Json:
    """A schema of an object."""
    return {"type": "object", "properties": properties}


CHOICE: Final = {"type": "object", "anyOf": [{"properties": {"a": {"type": "string"}}}, {"required": ["b"]}]}
FLAT: Final = schema(a={"type": "string"})
LOOKUP: Final = (function(),)
