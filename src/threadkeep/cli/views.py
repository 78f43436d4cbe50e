"""The options of ``threadkeep render`` that say what a request shows, and how: from texts to values."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Literal

from threadkeep.cli.files import binary
from threadkeep.errors import InvalidOption

if TYPE_CHECKING:
    from threadkeep.domain.jsontext import JsonObject
    from threadkeep.domain.wire import Turns
    from threadkeep.store.requests import View


def turns_of(window: int | None, step: int | None) -> Turns | None:
    """The window of a request.

    Raises:
        InvalidOption: there is a step, but no window.
    """
    from threadkeep.domain.wire import Turns

    if window is None:
        if step is not None:
            raise InvalidOption("--step says how the window moves: give --window, too.")
        return None
    return Turns(window, step=1 if step is None else step)


def context_of(text: str | None, at: Literal["front", "tail"] | None) -> View:
    """What is true now and where it stands; nothing where nothing was given.

    Raises:
        InvalidOption: it is no JSON object, its file cannot be read, or there is only a place.
    """
    if text is None:
        if at is not None:
            raise InvalidOption("--dynamic-context-at says where that stands: give --dynamic-context, too.")
        return {}
    return {"dynamic_context": _object_of(text), "dynamic_context_at": at or "front"}


def _object_of(text: str) -> JsonObject:
    """The JSON object that an option holds, or the file that it names behind an ``@``."""
    from threadkeep.domain.jsontext import loads
    from threadkeep.domain.objects import shown

    if text.startswith("@"):
        with binary(text[1:]) as file:
            given = file.read().removeprefix(codecs.BOM_UTF8)
    else:
        given = text.encode("utf-8", "surrogateescape")
    where = f"--dynamic-context {shown(text)}"
    try:
        found = loads(given)
    except ValueError as error:
        raise InvalidOption(
            f'{where} is not JSON: {error}. Give an object such as \'{{"time":"12:00"}}\', or @FILE with one.'
        ) from error
    if not isinstance(found, dict):
        raise InvalidOption(f'{where} is no JSON object. Give one such as \'{{"time":"12:00"}}\', or @FILE with one.')
    return found


def checked_dialect(name: str | None) -> str | None:
    """The name of a vendor's dialect.

    Raises:
        InvalidOption: there is none of that name.
    """
    from threadkeep.domain.options import DIALECTS

    if name is not None and name not in DIALECTS:
        raise InvalidOption(f"There is no dialect {name!r}. Give --dialect one of {', '.join(DIALECTS)}.")
    return name
