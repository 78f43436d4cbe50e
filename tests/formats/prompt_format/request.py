"""Requests of the sixth format: who said what, in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.formats.prompt_format.fields import FIELDS, NAME
from threadkeep.domain.formats import OpenCall
from threadkeep.domain.items import Item
from threadkeep.domain.rendering import AS_IT_IS, Rendered, RenderOptions
from threadkeep.domain.session import Session
from threadkeep.formats.canonical.entries import Snapshot
from threadkeep.formats.shared.fields import read_fields, render_fields
from threadkeep.formats.shared.parsing import items_of_turns, parser, request_object, session_of, turns_in
from threadkeep.formats.shared.parts import TEXTS
from threadkeep.formats.shared.rendering import begin
from threadkeep.formats.shared.reports import Context


def render(session: Session | Snapshot, options: RenderOptions = AS_IT_IS) -> Rendered:
    rendering = begin(session, options, NAME, Context())
    settings, context = rendering.snapshot.settings, rendering.context
    body = render_fields(FIELDS, settings, context)
    prompt = [f"rules: {settings['instructions']}"] if "instructions" in settings else []
    for entry in rendering.entries:
        context.position = entry.position
        if entry.type == "message":
            parts = entry.item()["content"]
            prompt += [f"{entry.role}: {part['text']}" for part in parts if part["type"] in TEXTS]
        else:
            context.unknown_item(entry)
    return rendering.finish({**body, "prompt": prompt}, stable=len(prompt))


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
