"""The order of messages, as servers take them, see `formats.shared.provider_rules`.

* System text leads in one message, where a server takes it there alone; what comes later is sent as the user's text.
* Neighbours of one role are joined, where user and assistant must alternate.
* Fillers stand where a server requires a turn that the conversation does not have: before a leading assistant message,
  between a tool message and the user's, and behind a last assistant message that is not continued.
* Messages without text are left out where they are refused.
* The messages of an imported request stay as they came.

Sources: see the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.shared.provider_rules import FILLER, ProviderRules
from threadkeep.formats.shared.rendering import needs_last_turn
from threadkeep.formats.shared.reports import Context

SYSTEM_ROLES: Final = frozenset({"system", "developer"})
SYSTEM_NOTE: Final = "System message:"  # before system text that is sent as the user's
_SEAM: Final = "\n\n"
_INSTEAD: Final = ("tool_calls", "function_call", "refusal", "audio")  # keys with which a message needs no text


class Placed(NamedTuple):
    """A message at its place."""

    message: JsonObject
    end: int  # how many of the written messages are in it and before it
    is_fixed: bool = False  # whether it goes back as it came

    @property
    def role(self) -> Any:
        """The role of the message."""
        return self.message.get("role")


def in_order(
    messages: Sequence[JsonObject], rules: ProviderRules, context: Context, *, stable: int, fixed: int = 0
) -> tuple[list[JsonObject], int]:
    """The messages as the server takes them, and how many of them no later append changes.

    `stable` is that number of the messages as they were written; the first `fixed` of them go back as they came.
    """
    if rules.takes_any_order:
        return list(messages), stable
    placed = [Placed(message, index + 1, index < fixed) for index, message in enumerate(messages)]
    if rules.system != "anywhere" or not rules.takes_developer:
        placed = _with_system_text(placed, rules, context)
    if rules.blank != "taken" or rules.needs_content:
        placed = [one for given in placed if (one := _with_text(given, rules, context)) is not None]
    if rules.alternates:
        placed = _joined(placed)
    placed = _with_fillers(placed, rules, context)
    count = sum(one.end <= stable for one in placed)
    if 0 < count == len(placed) and _may_grow(placed[-1], rules):
        count -= 1
    if _needs_user(placed, rules, context):
        placed.append(Placed({"role": "user", "content": FILLER}, len(messages)))
    return [one.message for one in placed], count


def _may_grow(last: Placed, rules: ProviderRules) -> bool:
    """Whether what comes next may be joined to the last message."""
    return rules.alternates or (rules.system == "leading" and last.role == "system")


# System text


def _with_system_text(placed: Sequence[Placed], rules: ProviderRules, context: Context) -> list[Placed]:
    result: list[Placed] = []
    for one in placed:
        if one.role not in SYSTEM_ROLES or one.is_fixed:
            result.append(one)
        elif rules.system == "as user" or (rules.system == "leading" and any(_is_turn(other) for other in result)):
            what = f"The {one.role} message was sent as the user's: the server takes none there."
            context.repair("role", "role", what)
            note = _plus(SYSTEM_NOTE, one.message.get("content"))
            result.append(one._replace(message={**one.message, "role": "user", "content": note}))
        elif rules.system == "leading" and result and not result[-1].is_fixed:
            result[-1] = _join(result[-1], one)
        else:
            role = one.role if rules.takes_developer else "system"
            result.append(one._replace(message={**one.message, "role": role}))
    return result


def _is_turn(one: Placed) -> bool:
    return one.role not in SYSTEM_ROLES


# Texts


def _with_text(one: Placed, rules: ProviderRules, context: Context) -> Placed | None:
    """A message without the texts that are refused; None where nothing is left of it."""
    if one.is_fixed or one.role == "tool":
        return one
    content = one.message.get("content")
    kept = _without_blanks(content, rules)
    if not kept and not any(one.message.get(key) for key in _INSTEAD):
        _report_empty(one.message, context)
        return None
    if kept == content:
        return one
    if content:  # beside calls, an empty one says the same as none, which Bedrock takes behind this format
        context.repair("blank_text", "content", "A blank text was left out.")
    return one._replace(message={**one.message, "content": kept})


def _without_blanks(content: Any, rules: ProviderRules) -> Any:
    """Content without texts that are refused; None where none is left."""
    texts = [part.get("text") for part in _as_parts(content) if isinstance(part, dict)]
    has_text = any(isinstance(text, str) and text.strip() for text in texts)

    def is_taken(text: Any) -> bool:
        is_blank = isinstance(text, str) and not (text if rules.blank != "some text" or has_text else text.strip())
        return not is_blank

    if not isinstance(content, list):
        return content if content and is_taken(content) else None
    return [part for part in content if not isinstance(part, dict) or is_taken(part.get("text"))] or None


def _report_empty(message: JsonObject, context: Context) -> None:
    context.repair("blank_text", "content", f"A message of the {message.get('role')} without text was left out.")
    others = [key for key, value in message.items() if key not in ("role", "content") and value not in (None, "", [])]
    if others:
        context.loss("reasoning", "", f"Keys of a message without text were left out: {', '.join(others)}.")


# Neighbours


def _joined(placed: Sequence[Placed]) -> list[Placed]:
    result: list[Placed] = []
    for one in placed:
        if result and one.role in ("user", "assistant") and result[-1].role == one.role and not result[-1].is_fixed:
            result[-1] = _join(result[-1], one)
        else:
            result.append(one)
    return result


def _join(first: Placed, second: Placed) -> Placed:
    """Two messages of one role as one; where they have one key, its texts and lists are joined."""
    message = dict(first.message)
    for key, value in second.message.items():
        if key == "content":
            message[key] = _plus(message.get(key), value)
        elif isinstance(value, list) and isinstance(message.get(key), list):
            message[key] = [*message[key], *value]
        elif key not in ("role", "name") and isinstance(value, str) and isinstance(message.get(key), str):
            message[key] = _plus(message[key], value)
        else:
            message.setdefault(key, value)
    return Placed(message, second.end)


def _plus(first: Any, second: Any) -> Any:
    """Contents one behind the other: texts as one text, else as parts."""
    if not first or not second:
        return first or second
    if isinstance(first, str) and isinstance(second, str):
        return first + _SEAM + second
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


# Fillers


def _with_fillers(placed: Sequence[Placed], rules: ProviderRules, context: Context) -> list[Placed]:
    result: list[Placed] = []
    for one in placed:
        before = next((other.role for other in reversed(result) if _is_turn(other)), None)
        if before is None and one.role == "assistant" and rules.starts_with_user and not one.is_fixed:
            context.repair("leading_assistant", "", "A user message was put first: the server begins with one.")
            result.append(Placed({"role": "user", "content": FILLER}, one.end - 1))
        elif before == "tool" and one.role == "user" and not rules.user_after_tool and not one.is_fixed:
            detail = "An assistant message was put between a tool's output and the user's message."
            context.repair("turn_order", "", detail)
            result.append(Placed({"role": "assistant", "content": FILLER}, one.end - 1))
        result.append(one)
    return result


def _needs_user(placed: Sequence[Placed], rules: ProviderRules, context: Context) -> bool:
    """Whether a filler of the user must be the last message."""
    last = placed[-1] if placed else None
    if last is None:
        context.repair("blank_text", "", f"All messages are blank: the user's {FILLER!r} was sent.")
        return True
    if last.role in ("user", "tool"):
        return False
    if last.role == "assistant":
        return needs_last_turn(rules, context, is_as_came=last.is_fixed)
    if last.is_fixed or any(map(_is_turn, placed)) or not (rules.starts_with_user or rules.last_turn == "filled"):
        return False
    context.repair("last_turn", "", "A user message was added: the server takes no system text alone.")
    return True
