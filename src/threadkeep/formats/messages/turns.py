"""The messages as they are written item by item: one turn for each role and wire message, not yet joined.

* The items of a response stay together. Calls of one response never join calls of another.
* Tool results stand directly behind the message of their calls, all of them, wherever their items are; a call
  without an output gets one that says so. An output that came too late is sent as the user's text.
* Neighbouring assistant messages of an imported request are one turn to the service: their results come behind both.

Source: Anthropic's API reference, "Messages", tool use, tool result and thinking blocks.

Calls, tool results and thinking, one by one:

* Arguments are an object; others become ``{}``, which is reported.
* Ids are letters, digits, ``_`` and ``-``; a cleaned id that another call of the turn has becomes a hash.
* A result without content has no content key; `is_error` says that its output failed.
* Thinking goes back signed by Anthropic only, unless it came from this format, which gets it as it came.

Cache marks and citations over a whole request: what the service counts and compares.

* There are four cache marks at most, the one of the request included; the oldest of the messages go first.
* A mark of an hour may not follow one of five minutes; it is then sent as one of five minutes.
* Citations are on for all documents or for none: the first document decides. With a schema there are none.

Source: Anthropic's guides on prompt caching and on citations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps, value_at
from threadkeep.domain.tool_names import hashed
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.formats.messages.fields import ERRORS, NAME, ROLES, SYSTEM_ROLES, THOUGHTS
from threadkeep.formats.messages.parts import PARTS, block_type, own_parts, stands_in, text_of, wire_parts
from threadkeep.formats.shared.arguments import object_arguments
from threadkeep.formats.shared.cache_marks import MARK, MOST, lost_marks, mark_request, marks_in
from threadkeep.formats.shared.claude import ANTHROPIC, BEDROCK, REDACTED, signer_of, thinking_blocks
from threadkeep.formats.shared.pairing import LAYER, Pairing, placeholder_of
from threadkeep.formats.shared.parts import native_keys, own_block, report_foreign
from threadkeep.formats.shared.rendering import WRITERS, Rendering, TurnWriter
from threadkeep.formats.shared.reports import Context

_REFUSED: Final = re.compile(r"[^A-Za-z0-9_-]")


def cleaned_id(text: str | None) -> str:
    """A call id of characters that the service takes.

    >>> cleaned_id("call:a/1"), cleaned_id("")
    ('call_a_1', 'tool_0')
    """
    return _REFUSED.sub("_", text or "")[:128] or "tool_0"


def wire_id(call: ItemEntry, used: set[str], context: Context) -> str:
    """The id of a call as it is sent: cleaned, and unique within its turn."""
    original = call.call_id or ""
    call_id = cleaned_id(original)
    if call_id in used:
        call_id = f"toolu_{hashed(original, call.position)}"
        context.repair("duplicate_call_id", "call_id", f"The call id {original!r} came before in this turn.")
    elif call_id != original:
        context.repair("call_id", "call_id", f"The call id {original!r} is sent as {call_id!r}.")
    return call_id


def tool_use(item: JsonObject, call_id: str, context: Context) -> JsonObject:
    """A call."""
    name = context.called(item, is_own=item.get("origin") == NAME)
    return _with_native(
        item, {"type": "tool_use", "id": call_id, "name": name, "input": object_arguments(item, context)}, context
    )


def _with_native(item: JsonObject, block: JsonObject, context: Context) -> JsonObject:
    """A block with the keys that its item came with, and its cache mark."""
    if item.get(MARK) is not None:
        block[MARK] = item[MARK]
    if "native" not in item:
        return block
    report_foreign(item, NAME, context, "native")
    return block | native_keys(item, NAME)


def tool_result(item: JsonObject, call_id: str, context: Context) -> JsonObject:
    """What a call returned."""
    context.caller(item)
    is_own, status = item.get("origin") == NAME, item.get("status")
    block: JsonObject = {"type": "tool_result", "tool_use_id": call_id}
    content = _content(item.get("output"), context, is_own=is_own)
    if content is not None:
        block["content"] = content
    if status in ERRORS or (is_own and status == "completed"):
        block["is_error"] = status in ERRORS
    return _with_native(item, block, context)


def _content(output: Any, context: Context, *, is_own: bool) -> Any:
    if isinstance(output, list):
        blocks = (own_parts if is_own else wire_parts)(output, "tool", context, "output")
        return blocks if is_own else blocks or None
    if is_own:
        return output
    return (output or None) if isinstance(output, str | None) else dumps(output).decode()


def thoughts(
    item: JsonObject, context: Context, *, needs_signature: bool = False, is_known: bool = False
) -> list[JsonObject]:
    """The thinking blocks of a reasoning item; what cannot be sent back is reported.

    `is_known`: it is known who made it, and that the service reads what that one has signed.
    """
    content = thinking_blocks(item)
    if item.get("origin") == NAME:
        blocks = _own_thoughts(item, content, needs_signature=needs_signature)
    elif item.get("origin") is None or signer_of(item) in ((ANTHROPIC, BEDROCK) if is_known else (ANTHROPIC,)):
        is_bytes = item.get("origin") == "converse"  # what is encrypted there is of another form
        parts = [part for part in content if not (is_bytes and part.get("type") == REDACTED)]
        blocks = [block for part in parts if (block := _thought(part))]
    else:
        blocks = []
    if len(blocks) < max(len(content), 1):
        context.loss("reasoning", "", "Reasoning was left out: the service takes only thinking that it has signed.")
    return blocks


def _own_thoughts(item: JsonObject, content: list[JsonObject], *, needs_signature: bool) -> list[JsonObject]:
    """Thinking that came from this format, as it came; one whose stream broke off has no signature yet."""
    is_whole = item.get("status") != "incomplete" and not needs_signature
    own = [block for block in content if block_type(block) in THOUGHTS and (is_whole or _thought(block))]
    return [{key: value for key, value in block.items() if value is not None} for block in own]


def _thought(block: JsonObject) -> JsonObject | None:
    """The block that can be sent; None where it has no signature."""
    if block.get("type") == "thinking" and block.get("signature"):
        return {"type": "thinking", "thinking": block.get("thinking") or "", "signature": block["signature"]}
    if block.get("type") == "redacted_thinking" and block.get("data"):
        return {"type": "redacted_thinking", "data": block["data"]}
    return None


# how a message of one text was spelled: as a string, or as a list with one block
TEXT: Final = "text"
LIST: Final = "list"


@dataclass(slots=True)
class MessagesTurn:
    """A message that is being written."""

    role: str
    number: int | None = None  # the wire turn that its items came in; None for those that the user built
    is_imported: bool = False  # it is of the request that the conversation began as, and goes back as it came
    blocks: list[Any] = field(default_factory=list)
    keys: JsonObject = field(default_factory=dict)  # what it says besides role and content
    is_text: bool = False  # its content was a string
    is_settled: bool = True  # no later output changes what follows
    is_empty: bool = False  # it came without content
    is_answer: bool = False  # it is an answer of the model, and not what a client sent as one
    is_placed: bool = True  # it stands where it came, and is no system text that the model takes in some places only


class MessagesWriter(TurnWriter):
    """Writes `turns` item by item, and `hoisted`: system text that stands before the conversation."""

    def __init__(self, rendering: Rendering, pairing: Pairing, *, takes_system: bool) -> None:
        super().__init__(rendering, pairing)
        self.turns: list[MessagesTurn] = []
        self.hoisted: list[JsonObject] = []
        self._is_string = (rendering.spelling or {}).get("content") == TEXT  # how messages of one text are spelled
        self._takes_system = takes_system  # inside the history
        unanswered = {call.position for call in pairing.all_calls if call.position in pairing.alone}
        self._pending |= {position for position in unanswered if position > pairing.sent}
        self._calls: dict[int, str] = {}  # calls that wait for their results: position -> id on the wire
        self._ids: dict[int, str] = {}  # all calls that were written
        self._results: tuple[MessagesTurn, int] | None = None  # the newest turn of results, and how many it has

    def write(self, entries: Sequence[ItemEntry]) -> None:
        """Write all items."""
        for entry in entries:
            self._context.position = entry.position
            if self._calls and entry.seen is not None and entry.turn != self.turns[-1].number:
                self._answer(None)  # the request of an answer has shown them, with their results
            getattr(self, WRITERS.get(entry.type, "nothing"))(entry.item(), entry)
        self._answer(None)
        self._context.position = None

    def _turn(self, role: str, entry: ItemEntry) -> MessagesTurn:
        """The turn that an item belongs to: the last one, or a new one."""
        is_imported = self._is_imported(entry)
        last = self.turns[-1] if self.turns else None
        if last is not None and last.role == role and last.number == entry.turn and last.is_imported == is_imported:
            return last
        if self._calls and not (role == "assistant" and _is_one_run(last, entry, is_imported=is_imported)):
            self._answer(None)
        self.turns.append(MessagesTurn(role, entry.turn, is_imported, is_answer=entry.seen is not None))
        return self.turns[-1]

    def _is_imported(self, entry: ItemEntry) -> bool:
        return entry.origin == NAME and entry.position < self._imported

    def _answer(self, output: ItemEntry | None) -> None:
        """The results of the calls that wait for them; `output` is the one that is met first where it stands."""
        waiting, self._calls = self._calls, {}
        context, answers, alone = self._context, self._pairing.answers, self._pairing.alone
        position, blocks = context.position, []
        for answer, call_id in sorted((answers[call], call_id) for call, call_id in waiting.items() if call in answers):
            context.position = answer.position
            blocks.append(tool_result(answer.item(), call_id, context))
        for call in [call for call in waiting if call not in answers and call not in alone]:
            unanswered = self._pairing.unanswered[call]
            text = placeholder_of(unanswered.item())
            context.missing_output(unanswered, text)
            blocks.append({"type": "tool_result", "tool_use_id": waiting[call], "content": text})
        context.position = position
        if blocks:
            number, is_imported = (None, False) if output is None else (output.turn, self._is_imported(output))
            self.turns.append(MessagesTurn("user", number, is_imported, blocks))
            self._results = (self.turns[-1], len(blocks))

    def message(self, item: JsonObject, entry: ItemEntry) -> None:
        """A message; one of an unknown role is the user's."""
        role, context = item.get("role"), self._context
        if entry.origin == NAME:
            self._own_message(item, entry)
            return
        if role not in ROLES:
            context.repair("role", "role", f"The format has no role {role!r}; the message was sent as the user's.")
        role = "system" if role in SYSTEM_ROLES else "assistant" if role == "assistant" else "user"
        if "native" in item:
            report_foreign(item, NAME, context, "native")
        blocks = _marked(wire_parts(item.get("content") or (), role, context, "content"), item.get(MARK))
        if role == "system" and not self._takes_system:
            self.hoisted += blocks
        elif blocks:
            turn = self._turn(role, entry)
            turn.blocks += blocks
            turn.is_placed = role != "system"
            turn.is_settled = turn.is_settled and entry.turn != LAYER

    def _own_message(self, item: JsonObject, entry: ItemEntry) -> None:
        """A message that came from this format; only an empty text of an answer is left out, which is refused."""
        turn = self._turn(str(item.get("role")), entry)
        content = item.get("content") or ()
        blocks = own_parts(content, turn.role if turn.role in PARTS else "user", self._context, "content")
        if not turn.is_imported and any(text_of(block) == "" for block in blocks):
            self._context.repair("blank_text", "content", "An empty text was left out: the service refuses it.")
            blocks = [block for block in blocks if text_of(block) != ""]
        turn.blocks += blocks
        turn.keys |= native_keys(item, NAME)
        turn.is_text = item.get("spelling", TEXT if turn.is_imported and self._is_string else None) == TEXT
        turn.is_empty = not turn.blocks and not content

    def call(self, item: JsonObject, entry: ItemEntry) -> None:
        """A call."""
        turn = self._turn("assistant", entry)
        call_id = entry.call_id or ""
        if not turn.is_imported:
            call_id = wire_id(entry, set(self._calls.values()), self._context)
        turn.blocks.append(tool_use(item, call_id, self._context))
        turn.is_settled = turn.is_settled and entry.position not in self._pending
        self._calls[entry.position] = self._ids[entry.position] = call_id

    def output(self, item: JsonObject, entry: ItemEntry) -> None:
        """An output: with all others of its turn where it answers a call in time."""
        position, pairing = entry.position, self._pairing
        if position in pairing.alone:
            self._turn("user", entry).blocks.append(tool_result(item, entry.call_id or "", self._context))
        elif (message := self._told(item, entry)) is not None:
            self.message(message, entry._replace(origin=None))
        elif (call := pairing.calls.get(position)) is None or call.position not in self._ids:
            self._context.orphan_output(entry)
        else:
            self._output_in_time(entry, call)

    def _output_in_time(self, entry: ItemEntry, call: ItemEntry) -> None:
        if call.position in self._calls:
            self._answer(entry)
        elif self._results != (self.turns[-1], len(self.turns[-1].blocks)):
            self._context.moved_output(entry)

    def reasoning(self, item: JsonObject, entry: ItemEntry) -> None:
        """Thinking."""
        needs_signature = self._target.needs_signature and not self._is_imported(entry)
        is_known = entry.maker is not None
        blocks = thoughts(item, self._context, needs_signature=needs_signature, is_known=is_known)
        if not self._is_imported(entry) and any(MARK in block for block in blocks):
            self._context.loss("cache_mark", "content", "A cache mark was left out: thinking takes none.")
            blocks = [{key: value for key, value in block.items() if key != MARK} for block in blocks]
        if blocks:
            self._turn("assistant", entry).blocks += blocks

    def compaction(self, item: JsonObject, entry: ItemEntry) -> None:
        """The block that stands for all messages before it."""
        if entry.origin != NAME:
            self.nothing(item, entry)
            return
        block = {"type": "compaction", "content": item.get("summary")} | native_keys(item, NAME)
        self._turn("assistant", entry).blocks.append(block)

    def block(self, item: JsonObject, entry: ItemEntry) -> None:
        """A block that only this format knows; of other formats' blocks none can be sent."""
        block = own_block(item, NAME, self._context, "")
        if block is None:
            return
        is_of_model = entry.origin == NAME or stands_in(block, "assistant")
        self._turn("assistant" if is_of_model else "user", entry).blocks.append(block)


def _marked(blocks: list[JsonObject], mark: Any) -> list[JsonObject]:
    """The blocks of a message, the last one with the message's cache mark, unless it has one."""
    return blocks if mark is None or not blocks else [*blocks[:-1], {MARK: mark, **blocks[-1]}]


def _is_one_run(last: MessagesTurn | None, entry: ItemEntry, *, is_imported: bool) -> bool:
    """Whether an assistant item goes on with the turn before: in an import, or as a client put it behind an answer."""
    if last is None or is_imported:
        return last is not None and last.is_imported
    is_of_client = entry.seen is None and entry.turn is not None and entry.origin == NAME
    return last.is_answer and is_of_client


def with_fewer_marks(body: JsonObject, context: Context) -> JsonObject:
    """The request with as many cache marks as the service takes, in the order that it takes."""
    before, inner, own = marks_in(body)
    marks = [*before, *inner, *own]
    excess = max(len(marks) - MOST, 0)
    is_late = any(_is_hour(later) and not _is_hour(mark) for mark, later in pairwise(marks))
    if not excess and not is_late:
        return body
    _report_excess(excess, context)
    if is_late:
        context.loss("cache_mark", MARK, "A cache mark of an hour that follows one of five minutes was made shorter.")
    lost = min(excess, len(inner))  # marks of messages are dropped before marks of tools and system text
    first = excess - lost
    left = iter(_shortened([*[None] * first, *before[first:], *[None] * lost, *inner[lost:], *own]))

    def remarked(element: JsonObject) -> JsonObject:
        if element.get(MARK) is None:
            return element
        mark = next(left)
        others = {key: value for key, value in element.items() if key != MARK}
        return others if mark is None else {**element, MARK: mark}

    lists = {key: body[key] for key in ("tools", "system", "messages") if isinstance(body.get(key), list)}
    changed = {key: [_changed(element, remarked) for element in elements] for key, elements in lists.items()}
    return remarked({**body, **changed})


def with_own_marks(body: JsonObject, context: Context, end: int | None) -> JsonObject:
    """The request with marks where they help; a mark of the user that is beyond what the service takes is reported."""
    marked = mark_request(body, end)
    _report_excess(lost_marks(body, marked), context)
    return marked


def _report_excess(count: int, context: Context) -> None:
    if count:
        context.loss("cache_mark", MARK, f"{count} cache marks were left out: the service takes {MOST}.")


def _is_hour(mark: Any) -> bool:
    return isinstance(mark, dict) and mark.get("ttl") == "1h"


def _shortened(marks: list[Any]) -> Iterator[Any]:
    """The marks; a mark of an hour behind one of five minutes is made shorter."""
    is_short = False
    for mark in marks:
        yield {"type": "ephemeral"} if is_short and _is_hour(mark) else mark
        is_short = is_short or (mark is not None and not _is_hour(mark))


def _changed(element: Any, change: Callable[[JsonObject], JsonObject]) -> Any:
    """A tool, block or message changed, and what it holds."""
    if not isinstance(element, dict):
        return element
    if isinstance(content := element.get("content"), list):
        return change({**element, "content": [_changed(inner, change) for inner in content]})
    return change(element)


def with_even_citations(body: JsonObject, context: Context) -> JsonObject:
    """The request with citations as the first document has them."""
    documents = list(_documents(body["messages"]))
    if not documents:
        return body
    config = body.get("output_config")
    has_schema = isinstance(config, dict) and "format" in config
    is_cited = _is_cited(documents[0]) and not has_schema
    if all(_is_cited(document) is is_cited for document in documents):
        return body
    why = "the answer has a schema" if has_schema else "they are so for the first of them"
    word = "on" if is_cited else "off"
    context.loss("citations", "citations", f"Citations were turned {word} for all documents: {why}.")

    def evened(block: JsonObject) -> JsonObject:
        is_other = block_type(block) == "document" and _is_cited(block) is not is_cited
        return {**block, "citations": {"enabled": is_cited}} if is_other else block

    return {**body, "messages": [_changed(message, evened) for message in body["messages"]]}


def _documents(elements: list[Any]) -> Iterator[JsonObject]:
    for element in elements:
        if block_type(element) == "document":
            yield element
        elif isinstance(element, dict) and isinstance(element.get("content"), list):
            yield from _documents(element["content"])


def _is_cited(document: JsonObject) -> bool:
    return value_at(document, "citations.enabled") is True
