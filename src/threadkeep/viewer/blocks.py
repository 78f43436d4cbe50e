"""Items as blocks of a page: what is shown of them, with calls and their outputs in one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from markupsafe import Markup

from threadkeep.domain.media import REFERENCE, media_hash
from threadkeep.domain.stored import StoredItem
from threadkeep.domain.transcripts import lines_of
from threadkeep.errors import InvalidOption
from threadkeep.viewer.texts import Budget, cut, first_line, is_safe_link, json_text, markdown

# Media types that a browser shows as pictures, and nothing else
PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_TEXTS: Final = frozenset({"input_text", "output_text", "text", "reasoning_text", "summary_text"})
_MEDIA: Final = frozenset({"input_image", "input_file", "input_video"})
_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
FOLDED_CHARACTERS: Final = 6_000  # a longer message is folded
FOLDED_LINES: Final = 60


@dataclass(slots=True)
class Piece:
    """A part of a block.

    Attributes:
        kind: "markdown", "text", "image", "file", "link" or "note".
        text: what it says, or the name of a file.
        html: the text as HTML, of Markdown.
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
        arguments: those of a call, as text.
        output: the block with the output of a call.
        took_ms: how long a call took.
    """

    stored: StoredItem
    kind: str
    title: str
    pieces: list[Piece] = field(default_factory=list)
    summary: str = ""
    arguments: str = ""
    output: Block | None = None
    took_ms: float | None = None
    status: str | None = None

    @property
    def position(self) -> int:
        """The position of the item."""
        return self.stored.position

    @property
    def created_at(self) -> datetime | None:
        """When the item was stored."""
        return self.stored.created_at

    @property
    def last_position(self) -> int:
        """The position of its last item: that of the output of a call."""
        return self.position if self.output is None else self.output.position


def blocks_of(items: Iterable[StoredItem], budget: Budget | None = None) -> list[Block]:
    """Return the blocks of items: an output is in the block of its call if that is among them.

    Their Markdown is read as far as `budget` allows; by default, that of a page.
    """
    budget = budget or Budget()
    blocks: list[Block] = []
    calls: dict[str, Block] = {}
    for stored in items:
        block = _block(stored, budget)
        call_id = _call_id(stored)
        call = calls.pop(call_id, None) if block.kind == "output" and call_id is not None else None
        if call is not None:
            call.output = block
            call.took_ms = _took(call, block)
            continue
        if block.kind == "call" and call_id is not None:
            calls[call_id] = block
        blocks.append(block)
    return blocks


def _took(call: Block, output: Block) -> float | None:
    if call.created_at is None or output.created_at is None:
        return None
    return (output.created_at - call.created_at).total_seconds() * 1000


def _call_id(stored: StoredItem) -> str | None:
    call_id = stored.item.to_dict().get("call_id")
    return call_id if isinstance(call_id, str) else None


def _block(stored: StoredItem, budget: Budget) -> Block:
    item = stored.item.to_dict()
    kind = str(item["type"])
    status = item.get("status") if item.get("status") not in ("completed", None) else None
    if kind == "message":
        role = str(item.get("role"))
        block = Block(
            stored, role if role in _ROLES else "other-role", role, list(_pieces(item.get("content"), budget))
        )
    elif kind.endswith("_call"):
        block = _call(stored, item)
    elif kind.endswith("_call_output"):
        pieces = list(_pieces(item.get("output"), None))
        block = Block(stored, "output", "output", pieces, _summary(pieces))
    elif kind == "reasoning":
        pieces = [*_pieces(item.get("summary"), budget), *_pieces(item.get("content"), budget)]
        if not pieces:
            pieces = [Piece("note", line) for line in lines_of(item)]
        block = Block(stored, "reasoning", "reasoning", pieces, _summary(pieces))
    else:
        pieces = [Piece("text", cut(json_text(_without_type(item))))]
        block = Block(stored, "other", kind, pieces, _summary(pieces))
    block.status = None if status is None else str(status)
    return block


def _call(stored: StoredItem, item: Mapping[str, Any]) -> Block:
    kind = str(item["type"])
    given = item.get("arguments", item.get("input"))
    if given is None:
        given = _without_type(item)
    arguments = cut(json_text(given))
    return Block(
        stored, "call", str(item.get("name") or kind), summary=first_line(_one_line(given)), arguments=arguments
    )


def _one_line(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)


def _without_type(item: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in ("type", "origin")}


def _summary(pieces: Sequence[Piece]) -> str:
    return first_line(next((piece.text for piece in pieces if piece.text), ""))


def _pieces(content: Any, budget: Budget | None) -> Iterator[Piece]:
    """The parts of a content: as Markdown where there is a budget for it."""
    if content is None:
        return
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            yield _text(part, budget)
        elif isinstance(part, Mapping) and part.get("type") in _TEXTS:
            yield _text(str(part.get("text", "")), budget)
        elif isinstance(part, Mapping) and part.get("type") in _MEDIA:
            yield media_piece(part)
        elif isinstance(part, Mapping) and part.get("type") == "refusal":
            yield Piece("note", f"Refused: {part.get('refusal', '')}")
        else:
            yield Piece("text", cut(json_text(part)))


def _text(text: str, budget: Budget | None) -> Piece:
    if budget is not None:
        return Piece("markdown", text, markdown(text, budget))
    return Piece("text", cut(json_text(text)))


def media_piece(part: Mapping[str, Any]) -> Piece:
    """Return an image or file: shown if it is a stored picture of a harmless type, else a link or a note."""
    url = next((str(part[key]) for key in ("url", "file_url", "file_data") if part.get(key)), "")
    kind = str(part.get("type")).removeprefix("input_")
    name = str(part.get("filename") or kind)
    scheme, _, rest = url.partition(":")
    if scheme == "data":
        media_type, _, data = rest.partition(",")
        stated = media_type.partition(";")[0].lower()
        if stated in PICTURES and media_type.endswith(";base64"):
            return Piece("image", name, url=url)
        return Piece("note", f"{name} ({stated or 'unknown type'}, {len(data):,} characters)")
    if (digest := _hash_of(url)) is not None:
        return Piece("image" if kind == "image" else "file", name, url=digest, is_stored=True)
    if is_safe_link(url):
        return Piece("link", f"{name}: {url}", url=url)
    facts = url or part.get("file_id") or "without a source"
    return Piece("note", f"{name} ({first_line(str(facts))})")


def _hash_of(url: str) -> str | None:
    """The hash of stored media; None for other addresses."""
    if not url.startswith(REFERENCE):
        return None
    try:
        return media_hash(url).hex()
    except InvalidOption:
        return None
