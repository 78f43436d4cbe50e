"""What the provider holds of a conversation, for formats whose requests can name it, and what is new to it.

Source: OpenAI's API reference, "Conversation state"; Google's Gemini API reference, "Interactions".
"""

from __future__ import annotations

from collections.abc import Sequence

from threadkeep.domain.formats import STATEFUL
from threadkeep.formats.canonical.entries import ItemEntry, ServerState, initial_state
from threadkeep.formats.shared import makers
from threadkeep.formats.shared.pairing import LAYER
from threadkeep.formats.shared.rendering import Rendering


def known_state(rendering: Rendering) -> ServerState | None:
    """What the provider holds; nothing where another one has answered last: it is sent everything."""
    snapshot = rendering.snapshot
    state = snapshot.state or initial_state(snapshot.settings)
    if state is None or rendering.options.server_state == "none":
        return None
    last = next((entry for entry in reversed(snapshot.entries) if entry.position <= state.boundary), None)
    name = "conversation" if state.previous_response_id is None else "previous_response_id"
    if last is not None and last.origin in STATEFUL and last.origin != rendering.format_name:
        detail = f"{name} was left out, and everything is sent: it names an answer in the format {last.origin}."
    elif last is not None and last.maker is not None and not makers.reads_own(
        rendering.target, last, rendering.format_name
    ):  # fmt: skip
        detail = f"{name} was left out, and everything is sent: {makers.giver_of(last)} keeps it."
    else:
        return state
    rendering.context.repair("option", name, detail)
    return None


def news(entries: Sequence[ItemEntry], state: ServerState) -> list[ItemEntry]:
    """What the provider does not have: what follows its answer, and what came in while it was answering."""
    known = (entry for entry in reversed(entries) if entry.position <= state.boundary)
    seen, turn = next(((entry.seen, entry.turn) for entry in known if entry.seen is not None), (None, None))
    return [
        entry
        for entry in entries
        if entry.position > state.boundary
        or entry.turn == LAYER
        or (seen is not None and entry.position > seen and entry.turn != turn)
    ]
