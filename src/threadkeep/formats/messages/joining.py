"""Passes over the turns of a request: what stands in front, what is joined, what is left out because it is empty.

* Neighbours of one role become one message, but for messages of an imported request, which stay as they came.
* Thinking belongs to its own turn: joined to an earlier assistant message it is left out, unless a call came with it.
* A message of white space alone is left out, and white space at the end of a last assistant message.
* The first message is the user's. System text inside the history stands behind a user message and before the
  assistant's, for models that take it there; everywhere else it leads.

Source: Anthropic's API reference, "Messages"; its guides on extended thinking and on system messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.messages.fields import ELLIPSIS, THOUGHTS
from threadkeep.formats.messages.parts import block_type, text_of
from threadkeep.formats.messages.turns import Turn
from threadkeep.formats.shared.reports import Context

_PLAIN: Final = frozenset({"type", "text"})


def later_blocks(role: str, blocks: list[Any]) -> list[Any]:
    """The blocks of a message that is joined to another turn's: the assistant's thinking stays only with a call."""
    if role != "assistant" or any(block_type(block) == "tool_use" for block in blocks):
        return blocks
    return [block for block in blocks if block_type(block) not in THOUGHTS]


def joined(turns: Sequence[Turn], context: Context) -> list[Turn]:
    """The turns with neighbours of one role as one."""
    result: list[Turn] = []
    for turn in turns:
        if result and _joins(result[-1], turn):
            result[-1] = _join(result[-1], turn, context)
        else:
            result.append(turn)
    return result


def _joins(first: Turn, second: Turn) -> bool:
    if first.role != second.role or (first.role == "system" and (first.is_placed or second.is_placed)):
        return False
    return first.number == second.number or not (first.is_imported and second.is_imported)


def _join(first: Turn, second: Turn, context: Context) -> Turn:
    is_one_turn = first.number == second.number
    blocks = second.blocks if is_one_turn else later_blocks(first.role, second.blocks)
    if len(blocks) < len(second.blocks):
        context.loss("reasoning", "", "Thinking of another turn was left out where two messages were joined.")
    return replace(
        first,
        blocks=[*first.blocks, *blocks],
        keys={**second.keys, **first.keys},
        is_imported=first.is_imported and second.is_imported,
        is_settled=first.is_settled and second.is_settled,
        is_text=False,
        is_empty=first.is_empty and second.is_empty,
    )


def filled(turns: Sequence[Turn], context: Context) -> list[Turn]:
    """The turns that are not empty; the neighbours of one that is are joined."""
    result = [
        kept for turn in turns if (kept := _without_blank(turn, context)).blocks or (turn.is_imported and turn.is_empty)
    ]
    return result if len(result) == len(turns) else joined(result, context)


def _without_blank(turn: Turn, context: Context) -> Turn:
    if turn.is_imported or not turn.blocks or not all(map(_is_blank, turn.blocks)):
        return turn
    context.repair("blank_text", "", f"A message of the {turn.role} was left out: it holds only white space.")
    return replace(turn, blocks=[])


def _is_blank(block: Any) -> bool:
    text = text_of(block)
    return text is not None and not text.strip()


def placed(turns: Sequence[Turn], context: Context) -> tuple[list[Turn], list[JsonObject]]:
    """The turns with system text only where the service takes it, and the blocks of all other system text."""
    result: list[Turn] = []
    hoisted: list[JsonObject] = []
    for index, turn in enumerate(turns):
        if turn.is_placed or (result and result[-1].role == "user" and _next_role(turns, index) in (None, "assistant")):
            result.append(turn)
        else:
            hoisted += turn.blocks
    return (joined(result, context) if hoisted else result), hoisted


def _next_role(turns: Sequence[Turn], index: int) -> str | None:
    return turns[index + 1].role if index + 1 < len(turns) else None


def with_leader(turns: list[Turn], context: Context) -> list[Turn]:
    """The turns with the user's turn first; an imported request that began otherwise stays as it came."""
    first = next((turn for turn in turns if turn.role != "system"), None)
    if first is None or first.role != "assistant" or first.is_imported:
        return turns
    context.repair("leading_assistant", "", f"A user message {ELLIPSIS!r} was put before the assistant's: users begin.")
    return [ellipsis(), *turns]


def ellipsis() -> Turn:
    """A user turn with a filler, where there has to be one."""
    return Turn("user", blocks=[{"type": "text", "text": ELLIPSIS}])


def with_clean_end(turns: list[Turn], context: Context) -> list[Turn]:
    """The turns without white space at the end of a last assistant text."""
    if not turns or turns[-1].role != "assistant" or not turns[-1].blocks:
        return turns
    *blocks, last = turns[-1].blocks
    text = text_of(last)
    if text is None or text == (end := text.rstrip()):
        return turns
    context.repair("trailing_space", "", "White space at the end of the last assistant message was left out.")
    return [*turns[:-1], replace(turns[-1], blocks=[*blocks, *([{**last, "text": end}] if end else [])])]


def stable_count(turns: Sequence[Turn]) -> int:
    """How many messages no later append changes: the last one may still grow, or a call wait for its output.

    System text that stands inside the history only because nothing follows it may still move to the front.
    """
    unsettled = next((index for index, turn in enumerate(turns) if not turn.is_settled), len(turns))
    is_movable = bool(turns) and not turns[-1].is_placed
    return max(min(unsettled, len(turns) - (2 if is_movable else 1)), 0)


def message_of(turn: Turn) -> JsonObject:
    """The message of a turn; content that came as a string goes back as one."""
    content: Any = turn.blocks
    if turn.is_text and len(content) == 1 and (text := text_of(content[0])) is not None and content[0].keys() == _PLAIN:
        content = text
    return {"role": turn.role, "content": content, **turn.keys}


def lacks_thought(turns: Sequence[Turn]) -> bool:
    """Whether the assistant message before the last tool results does not begin with thinking.

    The service requires that when thinking has a budget. What is of an imported request is sent as it came.
    """
    run = [turn for turn in turns if turn.role != "system"][-2:]
    if [turn.role for turn in run] != ["assistant", "user"] or all(turn.is_imported for turn in run):
        return False
    return _first_type(run[1]) == "tool_result" and _first_type(run[0]) not in THOUGHTS


def _first_type(turn: Turn) -> Any:
    return block_type(turn.blocks[0]) if turn.blocks else None
