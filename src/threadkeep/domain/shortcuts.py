"""The options that `json_output` and `think` set, made of simpler arguments."""

from __future__ import annotations

from typing import Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import shown
from threadkeep.domain.options import Json, boolean, json_object, string
from threadkeep.errors import InvalidOption


def json_output_text(
    present: Json | None, schema: Json, *, name: str = "response", strict: bool | None = None,
    description: str | None = None,
) -> JsonObject:  # fmt: skip
    """The `text` option that asks for JSON of this schema; the other keys of `present` stay.

    Raises:
        InvalidOption: the schema is not a JSON object.
    """
    form: JsonObject = {"type": "json_schema", "name": string("name", name), "schema": json_object("schema", schema)}
    if strict is not None:
        form["strict"] = boolean("strict", strict)
    if description is not None:
        form["description"] = string("description", description)
    return {**(present or {}), "format": form}


EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_HINT: Final = "Pass one of effort=, budget_tokens= and False."


def thinking(
    enabled: bool | None = None, *, effort: str | None = None, budget_tokens: int | None = None
) -> JsonObject | None:
    """The `reasoning` option for an effort or a budget; None (unset) for ``False``.

    Raises:
        InvalidOption: neither or both are given, or one of them cannot be used.
    """
    options = {"effort": effort, "budget_tokens": budget_tokens}
    names = [name for name, value in options.items() if value is not None]
    if enabled is False and not names:
        return None
    if enabled not in (None, True) or len(names) != 1:
        raise InvalidOption("think() takes an effort, a number of tokens, or False.", hint=_HINT)
    if effort is not None and effort not in EFFORTS:
        raise InvalidOption(f"must be one of {', '.join(EFFORTS)}, not {shown(effort)}.", argument="effort")
    if effort is None and not (type(budget_tokens) is int and budget_tokens > 0):
        raise InvalidOption(f"must be a number of tokens, not {shown(budget_tokens)}.", argument="budget_tokens")
    return {names[0]: options[names[0]]}
