"""Requests of the sixth format: who said what, in order."""

from __future__ import annotations

from tests.formats.prompt_format.fields import FIELDS, NAME
from threadkeep.domain.rendering import AS_IT_IS, Rendered, RenderOptions
from threadkeep.domain.session import Session
from threadkeep.formats.canonical.snapshots import Snapshot
from threadkeep.formats.shared.fields import render_fields
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
