"""Items as blocks of a page: what is shown of them, with calls and their outputs in one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from markupsafe import Markup, escape

from threadkeep.domain import media, transcripts
from threadkeep.domain.printing import printable_json
from threadkeep.domain.running import Approval
from threadkeep.domain.stored import StoredItem
from threadkeep.errors import InvalidOption
from threadkeep.formats.shared.pairing import are_twins
from threadkeep.server.answers import PICTURES
from threadkeep.viewer.texts import MAX_TEXT, Budget, first_line, is_safe_link, json_text, markdown

_TEXTS: Final = frozenset({"input_text", "output_text", "text", "reasoning_text", "summary_text"})
_MEDIA: Final = frozenset({"input_image", "input_file", "input_video"})
_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
FOLDED_CHARACTERS: Final = 6_000  # a longer message is folded
FOLDED_LINES: Final = 60
LINK_CHARACTERS: Final = 1_000  # of an address, as text


@dataclass(slots=True)
class BlockPart:
    """A part of a block.

    Attributes:
        kind: "markdown", "text", "json", "image", "file", "link" or "note".
        text: what it says, or the name of a file.
        html: the text as HTML, of Markdown and JSON.
        url: a data URL or a link; the hash of stored media.
        is_stored: whether `url` is such a hash.
    """

    kind: str
    text: str = ""
    html: Markup | None = None
    url: str = ""
    is_stored: bool = False

    @property
    def is_long(self) -> bool:
        """Whether it is folded."""
        return len(self.text) > FOLDED_CHARACTERS or self.text.count("\n") > FOLDED_LINES


@dataclass(slots=True)
class Block:
    """An item on a page.

    Attributes:
        kind: "user", "assistant", "system", "developer" or "other-role" for messages; "call", "output", "reasoning" or
            "other".
        title: the role, the name of the function, or the type.
        pieces: what it says.
        summary: the beginning of it, for what is folded.
        arguments: a call's arguments.
        output: the block with the output of a call.
        took_ms: how long a call took.
        decision: what was decided about a call.
        is_waiting: whether a call has neither an output nor a decision, and the model has not gone on without one.
    """

    stored: StoredItem
    kind: str
    title: str
    pieces: list[BlockPart] = field(default_factory=list)
    summary: str = ""
    arguments: BlockPart | None = None
    output: Block | None = None
    took_ms: float | None = None
    status: str | None = None
    decision: Approval | None = None
    is_waiting: bool = False

    @property
    def position(self) -> int:
        """The position of the item."""
        return self.stored.position

    @property
    def created_at(self) -> datetime | None:
        """When the item was stored."""
        return self.stored.created_at


def blocks_of(items: Iterable[StoredItem], budget: Budget) -> list[Block]:
    """Return the blocks of items: an output is in the block of its call if that is among them.

    Their texts are shown, and their Markdown is read, as far as `budget` allows.
    """
    blocks: list[Block] = []
    calls: dict[str, list[tuple[StoredItem, Block]]] = {}  # by call id: those of one turn that have no output yet
    for stored in items:
        block = _block(stored, budget)
        call_id = _call_id(stored)
        waiting = [] if call_id is None else calls.setdefault(call_id, [])
        if block.kind == "output" and waiting:
            _, call = waiting.pop(0)
            call.output = block
            if call.created_at is None or block.created_at is None:
                call.took_ms = None
            else:
                call.took_ms = (block.created_at - call.created_at).total_seconds() * 1000
            continue
        if block.kind == "call":
            if waiting and not are_twins(waiting[-1][0], stored):
                waiting.clear()
            waiting.append((stored, block))
        blocks.append(block)
    return blocks


def _call_id(stored: StoredItem) -> str | None:
    call_id = stored.item.to_dict().get("call_id")
    return call_id if isinstance(call_id, str) else None


def _block(stored: StoredItem, budget: Budget) -> Block:
    item = stored.item.to_dict()
    kind = str(item["type"])
    status = item.get("status") if item.get("status") not in ("completed", None) else None
    if kind == "message":
        role, pieces = str(item.get("role")), _pieces(item.get("content"), budget)
        block = Block(stored, role if role in _ROLES else "other-role", first_line(role), pieces)
    elif kind.endswith("_call"):
        block = _call(stored, item, budget)
    elif kind.endswith("_call_output"):
        pieces = _pieces(item.get("output"), budget, is_data=True)
        block = Block(stored, "output", "output", pieces, _summary(pieces))
    elif kind == "reasoning":
        pieces = _pieces(transcripts.reasoning_parts(item), budget)
        if not pieces:
            pieces = [BlockPart("note", budget.take(line)) for line in transcripts.lines_of(item)]
        block = Block(stored, "reasoning", "reasoning", pieces, _summary(pieces))
    else:
        pieces = [data_piece(json_text(_without_type(item)), budget)]
        block = Block(stored, "other", first_line(kind), pieces, _summary(pieces))
    block.status = None if status is None else first_line(str(status))
    return block


def _call(stored: StoredItem, item: Mapping[str, Any], budget: Budget) -> Block:
    given = item.get("arguments", item.get("input"))
    if given is None:
        given = _without_type(item)
    title = first_line(str(item.get("name") or item["type"]))
    text = json_text(given)
    summary = first_line(given if isinstance(given, str) else text)
    return Block(stored, "call", title, summary=summary, arguments=data_piece(text, budget))


def data_piece(text: str, budget: Budget, most: int = MAX_TEXT) -> BlockPart:
    """Return what `json_text` made: JSON that folds, or a text, or its beginning where it has more characters."""
    tree = json_tree(text, budget) if len(text) <= most else None
    return BlockPart("text", budget.take(text, most)) if tree is None else BlockPart("json", text, tree)


def _without_type(item: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in ("type", "origin")}


def _summary(pieces: Sequence[BlockPart]) -> str:
    return first_line(next((piece.text for piece in pieces if piece.text), ""))


def _pieces(content: Any, budget: Budget, *, is_data: bool = False) -> list[BlockPart]:
    """The parts of a content, as far as the budget allows: their texts as Markdown, or as the data that they are."""
    parts = content if isinstance(content, list) else [] if content is None else [content]
    pieces: list[BlockPart] = []
    for part in parts:
        if budget.shown <= 0 and len(parts) > 1:
            return [*pieces, BlockPart("note", f"… ({len(parts) - len(pieces):,} more parts)")]
        pieces.append(_piece(part, budget, is_data=is_data))
    return pieces


def _piece(part: Any, budget: Budget, *, is_data: bool) -> BlockPart:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(part, str) or kind in _TEXTS:
        text = part if isinstance(part, str) else str(part.get("text", ""))
        return data_piece(json_text(text), budget) if is_data else _said(text, budget)
    if kind in _MEDIA:
        return media_piece(part, budget)
    if kind == "refusal":
        return BlockPart("note", budget.take(f"Refused: {part.get('refusal', '')}"))
    return data_piece(json_text(part), budget)


def _said(text: str, budget: Budget) -> BlockPart:
    return BlockPart("markdown", text, markdown(text, budget))


def media_piece(part: Mapping[str, Any], budget: Budget) -> BlockPart:
    """Return an image or file: shown if it is a stored picture of a harmless type, else a link or a note."""
    url = next((str(part[key]) for key in ("url", "file_url", "file_data") if part.get(key)), "")
    kind = str(part.get("type")).removeprefix("input_")
    name = budget.take(first_line(str(part.get("filename") or kind)))
    if url.startswith("data:"):
        return _data_piece(name, url, budget)
    if (digest := _hash_of(url)) is not None:
        return BlockPart("image" if kind == "image" else "file", name, url=digest, is_stored=True)
    if is_safe_link(url) and budget.fits(url):
        return BlockPart("link", f"{name}: {first_line(url, LINK_CHARACTERS)}", url=url)
    facts = url or part.get("file_id") or "without a source"
    return BlockPart("note", f"{name} ({first_line(str(facts))})")


def _data_piece(name: str, url: str, budget: Budget) -> BlockPart:
    head, _, data = url.partition(",")
    media_type = head.removeprefix("data:")
    stated = media_type.partition(";")[0].lower()
    if stated in PICTURES and media_type.endswith(";base64") and budget.fits(url):
        return BlockPart("image", name, url=url)
    return BlockPart("note", f"{name} ({first_line(stated) or 'unknown type'}, {len(data):,} characters)")


def _hash_of(url: str) -> str | None:
    """The hash of stored media; None for other addresses."""
    if not url.startswith(media.REFERENCE):
        return None
    try:
        return media.media_hash(url).hex()
    except InvalidOption:
        return None


# ---------------------------------------------------------------------------------------------------------------------
# JSON as lines of HTML: objects and arrays fold, names and values have colours, and what is long is plain text. The
# text of the lines is the JSON, so that a page can copy them.

MAX_LINES: Final = 5_000  # of one tree
MAX_DEPTH: Final = 100
OPEN_DEPTH: Final = 5  # deeper objects and arrays are folded
_LINE: Final = 60  # characters of the elements of a line
_BRACKETS: Final = {dict: ("{", "}"), list: ("[", "]")}


class _Number(str):
    """A number as it is written, because some have more digits than a float."""

    __slots__ = ()


_CLASSES: Final[dict[type[Any], str]] = {str: "s", _Number: "d"}  # true, false and null have "b"


def json_tree(text: str, budget: Budget) -> Markup | None:
    """Return JSON text as HTML that folds, and count it; None where it is no object or array, or too long for it."""
    lines = text.count("\n") + 1
    length = len(text) + lines * _LINE
    if lines > MAX_LINES or budget.shown < length or not text.startswith(("{", "[")):
        return None
    try:
        tree = Markup("").join(_lines(json.loads(text, parse_int=_Number, parse_float=_Number), "", "", 0))
    except (ValueError, RecursionError):
        return None
    budget.shown -= length
    return tree


def _lines(value: Any, before: str | Markup, after: str, depth: int) -> Iterator[Markup]:
    """The lines of a value, with what stands before and after it; ValueError where it is nested too deeply."""
    indent = "  " * depth
    if not isinstance(value, dict | list) or not value:
        line = Markup('<div class="l">{}{}<span class="{}">{}</span>{}</div>')
        yield line.format(indent, before, _CLASSES.get(type(value), "b"), _quoted(value), after)
        return
    if depth >= MAX_DEPTH:
        raise ValueError(depth)
    first, last = _BRACKETS[type(value)]
    is_open = " open" if depth < OPEN_DEPTH else ""
    yield Markup('<details{}><summary class="l">{}{}{}<span class="more" data-count="{}"></span></summary>').format(
        is_open, indent, before, first, f"{len(value):,}"
    )
    pairs = value.items() if isinstance(value, dict) else ((None, one) for one in value)
    for number, (name, one) in enumerate(pairs, 1):
        label = "" if name is None else Markup('<span class="key">{}</span>: ').format(_quoted(name))
        yield from _lines(one, label, "" if number == len(value) else ",", depth + 1)
    yield Markup('</details><div class="l">{}{}{}</div>').format(indent, last, after)


def _quoted(value: Any) -> Markup:
    return escape(value if isinstance(value, _Number) else printable_json(json.dumps(value, ensure_ascii=False)))
