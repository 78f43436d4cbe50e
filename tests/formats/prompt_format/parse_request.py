"""Reading requests of the sixth format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.formats.prompt_format.fields import FIELDS, NAME
from threadkeep.domain.formats import OpenCall
from threadkeep.domain.items import Item
from threadkeep.domain.session import Session
from threadkeep.formats.shared.fields import read_fields
from threadkeep.formats.shared.parsing import items_of_turns, parser, request_object, session_of, turns_in


@parser(f"{NAME} request")
def parse_request(payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
    body = request_object(payload, NAME, "prompt")
    settings, native = read_fields(FIELDS, {key: value for key, value in body.items() if key != "prompt"})
    settings |= {"model": model} if model is not None else {}
    return session_of(NAME, _turns(body["prompt"]), settings=settings, native=native)


@parser(f"{NAME} turns")
def parse_turns(turns: Any, _calls: Sequence[OpenCall] = ()) -> list[list[Item]]:
    return items_of_turns(_turns(turns_in(turns, NAME)))


def _turns(lines: Iterable[str]) -> list[list[dict[str, Any]]]:
    pairs = [line.split(": ", 1) for line in lines]
    return [
        [{"type": "message", "role": role, "content": [{"type": "input_text", "text": text}], "origin": NAME}]
        for role, text in pairs
    ]
