"""The arguments of an agent's run that goes on with a conversation, as JSON.

* The messages are what `ModelMessagesTypeAdapter` validates; an agent takes what that returns.
* Tools are definitions alone: an agent has its own, or takes these as an `ExternalToolset`.

Source: Pydantic AI's API reference, `Agent.run`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.rendering import AS_IT_IS, Rendered, RenderOptions
from threadkeep.formats.canonical.snapshots import Snapshot
from threadkeep.formats.pydantic_ai.fields import EXTRAS, FIELDS, HISTORY, NAME, SETTINGS, TOOLS
from threadkeep.formats.pydantic_ai.tools import wire_tools
from threadkeep.formats.pydantic_ai.turns import Writer
from threadkeep.formats.shared.fields import merged, place, render_fields
from threadkeep.formats.shared.pairing import paired
from threadkeep.formats.shared.rendering import Rendering, begin, nothing_to_send
from threadkeep.formats.shared.reports import Context

if TYPE_CHECKING:
    from threadkeep.domain.session import Session


def render(session: Session | Snapshot, options: RenderOptions = AS_IT_IS) -> Rendered:
    """Render a session as the arguments of an agent's run."""
    rendering = begin(session, options, NAME, Context())
    body = _arguments(rendering)
    alone = {entry.position for entry in rendering.entries if entry.origin == NAME}
    writer = Writer(rendering, paired(rendering.entries, alone))
    writer.write(rendering.entries)
    if not writer.turns:
        raise nothing_to_send("message")
    body[HISTORY] = [turn.message() for turn in writer.turns]
    return rendering.finish(body, writer.stable())


def _arguments(rendering: Rendering) -> JsonObject:
    """Everything but the messages."""
    settings, context = rendering.snapshot.settings, rendering.context
    if settings.get("instructions") == (rendering.spelling or {}).get("instructions"):
        settings = {name: value for name, value in settings.items() if name != "instructions"}  # the messages have them
    body = render_fields(FIELDS, settings, context)
    extra = settings.get("extra") or {}
    for key, name in EXTRAS.items():
        if (value := extra.get(key)) is not None:
            place(body, f"{SETTINGS}.{name}", [value] if name == "stop_sequences" and isinstance(value, str) else value)
    if tools := wire_tools(rendering.snapshot.tools, context):
        body[TOOLS] = tools
    native = extra.get(NAME)
    rest = {key: value for key, value in native.items() if key != HISTORY} if isinstance(native, dict) else {}
    return merged(body, rest)
