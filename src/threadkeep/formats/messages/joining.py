"""Passes over the turns of a request: what stands in front, what is joined, what is left out because it is empty.

* The system text is the instructions, then the texts of system and developer items. How an imported request spelled
  its instructions, as a string or as blocks with keys of their own, is put back where the text is still the same.
* Neighbours of one role become one message, but for messages of an imported request, which stay as they came.
* Thinking belongs to its own turn: joined to an earlier assistant message it is left out, unless a call came with it.
* A use of the service's own tools without its result is left out: the service refuses it.
* A message of white space alone is left out, and white space at the end of a last assistant message.
* The first message is the user's. System text inside the history stands behind a user message and before the
  assistant's, for models that take it there; everywhere else it leads.

Source: Anthropic's API reference, "Messages", system; its guides on extended thinking and on system messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.messages.fields import SERVER_USES, THOUGHTS
from threadkeep.formats.messages.parts import block_type, text_of
from threadkeep.formats.messages.turns import MessagesTurn
from threadkeep.formats.shared.provider_rules import FILLER, ProviderRules
from threadkeep.formats.shared.rendering import Rendering, needs_last_turn, nothing_to_send
from threadkeep.formats.shared.reports import Context

_PLAIN: Final = frozenset({"type", "text"})
SEAM: Final = "\n\n"  # between the blocks that make up the instructions


def later_blocks(role: str, blocks: list[Any]) -> list[Any]:
    """The blocks of a message that is joined to another turn's: the assistant's thinking stays only with a call."""
    if role != "assistant" or any(block_type(block) == "tool_use" for block in blocks):
        return blocks
    return [block for block in blocks if block_type(block) not in THOUGHTS]


def without_open_uses(turns: Sequence[MessagesTurn], context: Context) -> list[MessagesTurn]:
    """The turns without uses of the service's own tools that never came to a result, as of an answer that broke off.

    A last answer may go on, and so does one that waits for the results of calls: they keep those that came whole.
    """
    result, start = list(turns), 0
    for index, turn in enumerate(turns):
        if turn.role == "user" or index == len(turns) - 1:
            run = result[start:index] if turn.role == "user" else result[start:]
            result[start : start + len(run)] = _without_open_uses(run, context, is_last=turn.role != "user")
            start = index + 1
    return result


def _without_open_uses(run: list[MessagesTurn], context: Context, *, is_last: bool) -> list[MessagesTurn]:
    """The same for the assistant's turns between two of the user's."""
    if not any(block_type(block) in SERVER_USES for turn in run for block in turn.blocks):
        return run
    blocks = [block for turn in run for block in turn.blocks if isinstance(block, dict)]
    done = [block.get("tool_use_id") for block in blocks]
    goes_on = is_last or any(block_type(block) == "tool_use" for block in blocks)

    def is_sent(block: Any) -> bool:
        is_open = block_type(block) in SERVER_USES and block.get("id") not in done
        return not is_open or (goes_on and isinstance(block.get("input"), dict))

    kept = []
    for turn in run:
        sent = turn.blocks if turn.is_imported else [block for block in turn.blocks if is_sent(block)]
        if len(sent) < len(turn.blocks):
            context.loss("provider_item", "", "A use of a tool of the service was left out: it has no result.")
        kept.append(replace(turn, blocks=sent) if len(sent) < len(turn.blocks) else turn)
    return kept


def joined(turns: Sequence[MessagesTurn], context: Context) -> list[MessagesTurn]:
    """The turns with neighbours of one role as one."""
    result: list[MessagesTurn] = []
    for turn in turns:
        if result and _joins(result[-1], turn):
            result[-1] = _join(result[-1], turn, context)
        else:
            result.append(turn)
    return result


def _joins(first: MessagesTurn, second: MessagesTurn) -> bool:
    if first.role != second.role or (first.role == "system" and (first.is_placed or second.is_placed)):
        return False
    return first.number == second.number or not (first.is_imported and second.is_imported)


def _join(first: MessagesTurn, second: MessagesTurn, context: Context) -> MessagesTurn:
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


def filled(turns: Sequence[MessagesTurn], context: Context) -> list[MessagesTurn]:
    """The turns that are not empty; the neighbours of one that is are joined.

    Texts of white space are left out where their message has no other text: the service refuses them there.
    """
    result = []
    for given in turns:
        turn = given if given.is_imported else _with_some_text(given, context)
        if turn.blocks or (turn.is_imported and turn.is_empty):
            result.append(turn)
    return result if len(result) == len(turns) else joined(result, context)


def _with_some_text(turn: MessagesTurn, context: Context) -> MessagesTurn:
    texts = [text for block in turn.blocks if (text := text_of(block)) is not None]
    if not texts or any(map(str.strip, texts)):
        return turn
    blocks = [block for block in turn.blocks if text_of(block) is None]
    what = "A text" if blocks else "A message"
    context.repair("blank_text", "", f"{what} of the {turn.role} was left out: it holds only white space.")
    return replace(turn, blocks=blocks)


def placed(turns: Sequence[MessagesTurn], context: Context) -> tuple[list[MessagesTurn], list[JsonObject]]:
    """The turns with system text only where the service takes it, and the blocks of all other system text."""
    result: list[MessagesTurn] = []
    hoisted: list[JsonObject] = []
    for index, turn in enumerate(turns):
        next_role = turns[index + 1].role if index + 1 < len(turns) else "assistant"
        if turn.is_placed or (result and result[-1].role == "user" and next_role == "assistant"):
            result.append(turn)
        else:
            hoisted += turn.blocks
    return (joined(result, context) if hoisted else result), hoisted


def with_leader(turns: list[MessagesTurn], context: Context) -> list[MessagesTurn]:
    """The turns with the user's turn first; an imported request that began otherwise stays as it came."""
    first = next((turn for turn in turns if turn.role != "system"), None)
    if first is None or first.role != "assistant" or first.is_imported:
        return turns
    if first.blocks and block_type(first.blocks[0]) == "compaction":  # it stands for all messages before it
        return turns
    context.repair("leading_assistant", "", f"A user message {FILLER!r} was put before the assistant's: users begin.")
    return [ellipsis(), *turns]


def since_answer(turns: list[MessagesTurn]) -> list[MessagesTurn]:
    """The turns that follow the newest answer of the model: what the service does not hold yet."""
    answers = [place for place, turn in enumerate(turns) if turn.is_answer] or [
        place for place, turn in enumerate(turns) if turn.role == "assistant" and not turn.is_imported
    ]
    new = turns[answers[-1] + 1 :] if answers else turns
    if not new:
        raise nothing_to_send("message behind the newest answer")
    return [replace(new[0], is_settled=False), *new[1:]]


def ellipsis() -> MessagesTurn:
    """A user turn with a filler, where there has to be one."""
    return MessagesTurn("user", blocks=[{"type": "text", "text": FILLER}])


def with_clean_end(turns: list[MessagesTurn], context: Context) -> list[MessagesTurn]:
    """The turns without white space at the end of a last assistant text."""
    if not turns or turns[-1].role != "assistant" or not turns[-1].blocks:
        return turns
    *blocks, last = turns[-1].blocks
    text = text_of(last)
    if text is None or text == (end := text.rstrip()):
        return turns
    context.repair("trailing_space", "", "White space at the end of the last assistant message was left out.")
    return [*turns[:-1], replace(turns[-1], blocks=[*blocks, *([{**last, "text": end}] if end else [])])]


def with_last_turn(
    turns: list[MessagesTurn], rules: ProviderRules, context: Context, *, thinks: bool
) -> list[MessagesTurn]:
    """The turns with a filler of the user behind a last assistant turn that the model would not continue.

    It does continue one that it paused itself, in the use of its own tools. What ends with thinking is refused, and so
    is what begins without it while the model `thinks`.
    """
    last = next((turn for turn in reversed(turns) if turn.role != "system"), None)
    if last is None or last.role != "assistant" or not last.blocks:
        return turns
    kind = block_type(last.blocks[-1])
    is_refused = thinks and block_type(last.blocks[0]) not in THOUGHTS
    if not _is_paused(kind) and needs_last_turn(rules, context, is_as_came=last.is_imported, is_refused=is_refused):
        return [*turns, ellipsis()]
    if kind in THOUGHTS and not last.is_imported:
        context.loss("refused", "", "The last message ends with thinking, which the service refuses.")
    return turns


def _is_paused(kind: str | None) -> bool:
    is_result = kind is not None and kind.endswith("_tool_result") and kind != "tool_result"
    return kind in SERVER_USES or is_result or kind == "compaction"


def stable_count(turns: Sequence[MessagesTurn]) -> int:
    """How many messages no later append changes: not a last one, nor system text that nothing follows and may move."""
    unsettled = next((index for index, turn in enumerate(turns) if not turn.is_settled), len(turns))
    is_movable = bool(turns) and not turns[-1].is_placed
    return max(min(unsettled, len(turns) - (2 if is_movable else 1)), 0)


def message_of(turn: MessagesTurn) -> JsonObject:
    """The message of a turn; content that came as a string goes back as one."""
    content: Any = turn.blocks
    if turn.is_text and len(content) == 1 and (text := text_of(content[0])) is not None and content[0].keys() == _PLAIN:
        content = text
    return {"role": turn.role, "content": content, **turn.keys}


def lacks_thought(turns: Sequence[MessagesTurn]) -> bool:
    """Whether the message before the last tool results (if not imported) lacks the thinking that a budget requires."""
    run = [turn for turn in turns if turn.role != "system"][-2:]
    if [turn.role for turn in run] != ["assistant", "user"] or all(turn.is_imported for turn in run):
        return False
    before, after = (block_type(turn.blocks[0]) if turn.blocks else None for turn in run)
    return after == "tool_result" and before not in THOUGHTS


# System text


def wire_system(rendering: Rendering, hoisted: Sequence[JsonObject]) -> Any:
    """The value of `system`; None when there is no text."""
    instructions = rendering.snapshot.settings.get("instructions")
    spelling = (rendering.spelling or {}).get("system")
    spelled = None if instructions is None else _spelled(instructions, spelling)
    if not hoisted and (spelled is not None or spelling == []):
        return [] if spelled is None else spelled
    blocks = spelled if isinstance(spelled, list) else [{"type": "text", "text": instructions or ""}]
    return [block for block in [*blocks, *hoisted] if _says_something(block, rendering.context)] or None


def _says_something(block: JsonObject, context: Context) -> bool:
    text = text_of(block)
    if text is not None:
        return bool(text.strip())
    context.loss("provider_item", "content", f"A block of type {block_type(block)!r} has no place in the system text.")
    return False


def _spelled(instructions: str, spelling: Any) -> Any:
    """Instructions as the request spelled them; None where they are others now."""
    if spelling == "text":
        return instructions
    if not isinstance(spelling, list):
        return None
    texts: list[str] = []
    start = 0
    for block in spelling:
        texts.append(instructions[start : start + block["length"]])
        start += block["length"] + len(SEAM)
    if SEAM.join(texts) != instructions:
        return None
    return [{"type": "text", "text": text, **block["keys"]} for text, block in zip(texts, spelling, strict=True)]


def read_system(system: Any) -> tuple[str, Any] | None:
    """The instructions of a request and how it spelled them; None where they are not texts."""
    if isinstance(system, str):
        return system, "text"
    if not isinstance(system, list) or not system or any(text_of(block) is None for block in system):
        return None
    keys = [{key: value for key, value in block.items() if key not in _PLAIN} for block in system]
    spelling = [{"length": len(block["text"]), "keys": inner} for block, inner in zip(system, keys, strict=True)]
    return SEAM.join(block["text"] for block in system), spelling
