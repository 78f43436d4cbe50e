"""What tool definitions and choices have in common in all formats."""

from __future__ import annotations

from threadkeep.domain.jsontext import JsonObject
from threadkeep.errors import CannotRender
from threadkeep.formats.reports import Context


def offered_name(choice: JsonObject, context: Context) -> str | None:
    """The function that a tool choice (flat or nested) names; None, and a repair, when no such tool is offered.

    Raises:
        CannotRender: it names none.
    """
    nested = choice.get("function")
    name = choice.get("name") or (nested.get("name") if isinstance(nested, dict) else None)
    if not isinstance(name, str) or not name:
        raise CannotRender("tool_choice asks for a function without naming it. Give {'type': 'function', 'name': …}.")
    if name in {tool.get("name") for tool in context.tools}:
        return context.name(name, "tool_choice.name")
    context.mend("tool_choice", "tool_choice", f"The choice of {name!r} was left out: no such tool is offered.")
    return None
