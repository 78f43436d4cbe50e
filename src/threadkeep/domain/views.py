"""What part of a conversation a request shows: the options of `render`, as keyword arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from threadkeep.domain.jsontext import JsonObject
    from threadkeep.domain.rendering import Turns


class ViewOptions(TypedDict, total=False):
    """What of a conversation a request shows, and how.

    Attributes:
        strict: raise LossError instead of reporting losses.
        upto: show the items up to and including this position; where the request of that time was recorded
            (`rendered=` of `add_response`), exactly as it was sent.
        server_state: "none" sends the whole history, even where the provider keeps it.
        vision: False puts a note in the place of each picture.
        reasoning: False leaves out the reasoning of earlier answers.
        cache: "auto" marks tools, system text and the end of the history for the provider's prompt cache. For Gemini
            it names the longest explicit cache that holds the beginning of the request (`plan_context_cache`).
        window: `Turns(20, step=10)` shows the last 20 to 29 turns, and moves once in ten.
        dynamic_context: what is true now, as JSON before the history. It is recorded with the request, and never part
            of the history.
        dynamic_context_at: "tail" puts it right before what the model is to answer.
        dialect: the vendor that the request goes to, where it speaks a format in its own way.
        account: the account at the provider, where caches were made for several.
    """

    strict: bool
    upto: int | None
    server_state: Literal["auto", "none"]
    vision: bool
    reasoning: bool
    cache: Literal["auto"] | None
    window: Turns | None
    dynamic_context: JsonObject | None
    dynamic_context_at: Literal["front", "tail"]
    dialect: str | None
    account: str
