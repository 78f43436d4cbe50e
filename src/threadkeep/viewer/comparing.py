"""Two conversations, or two branches of one, side by side: what is equal is quiet, what differs stands out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from statistics import fmean
from typing import Any, Final, NamedTuple

from markupsafe import Markup, escape
from starlette.responses import Response

from threadkeep.errors import InvalidOption
from threadkeep.store.conversation import Conversation
from threadkeep.store.reading.overviews import LedgerCall
from threadkeep.store.reading.pairs import ComparedPage, read_compared
from threadkeep.store.store import Store
from threadkeep.store.work.validation import whole_number
from threadkeep.viewer import texts
from threadkeep.viewer.blocks import Block, BlockPart
from threadkeep.viewer.pages import View
from threadkeep.viewer.requests import MAX_STEPS, Comparison
from threadkeep.viewer.thread import Group, Thread, groups_of

PAGE: Final = 100  # items of each
SIDES: Final = ("A", "B")
MAX_MARKED: Final = 20_000  # characters of a text whose words are compared
ALIKE: Final = 0.4  # share of words in common, from which on those that differ are marked
SHORT: Final = 160  # characters of an option
# A conversation, and one of its branches, in an address or by themselves
_PLACE: Final = re.compile(r"(conv_\w+)(?:\S*[?&]branch=(\d{1,1000}))?")
_WORDS: Final = re.compile(r"\w+|\s+|[^\w\s]")
_TEXTS: Final = ("markdown", "text", "json")


class ComparedPlace(NamedTuple):
    """What is compared: a conversation, and the number of a branch; None for the active one."""

    id: str
    branch: int | None

    @classmethod
    def of(cls, text: str) -> ComparedPlace:
        """Return what an id, or the address of a conversation, names; what is none of them names nothing."""
        found = _PLACE.search(text)
        if found is None:
            return cls(text, None)
        return cls(found[1], None if found[2] is None else whole_number("branch", int(found[2])))


class Figures(NamedTuple):
    """What the calls of one side used: sums, and means of their times; None is unknown."""

    calls: Sequence[LedgerCall]

    def sum(self, name: str) -> int | None:
        """The sum of what is known of a column."""
        known = self._known(name)
        return sum(known) if known else None

    def mean(self, name: str) -> float | None:
        """The mean of what is known of a column."""
        known = self._known(name)
        return fmean(known) if known else None

    def _known(self, name: str) -> list[int]:
        return [value for call in self.calls if (value := getattr(call, name)) is not None]

    def counted(self) -> str:
        """How many there are, and how many of them failed."""
        failed = sum(call.status == "failed" for call in self.calls)
        return f"{len(self.calls):,} ({failed:,} failed)" if failed else f"{len(self.calls):,}"

    def tokens(self, column: str, part: str, words: str) -> str:
        """The sum of a column, and how much of it is a part."""
        some = self.sum(part)
        return f"{texts.count(self.sum(column))} ({some:,} {words})" if some else texts.count(self.sum(column))

    @property
    def cost(self) -> str:
        """What they cost; at least that much where the costs of some are not known."""
        known, shown = len(self._known("cost_nano")), texts.money(self.sum("cost_nano"))
        return f"≥ {shown}" if 0 < known < len(self.calls) else shown

    @property
    def models(self) -> str:
        """The models that were called."""
        return ", ".join(dict.fromkeys(call.model for call in self.calls if call.model is not None))


class ComparedSide(NamedTuple):
    """A conversation on a branch, what is compared of it, and the options of its last answer."""

    conversation: Conversation
    branch: int
    groups: Sequence[Group]
    options: Mapping[str, Any]
    has_more: bool

    @property
    def figures(self) -> Figures:
        """The calls behind it."""
        return Figures([call for group in self.groups for call in group.calls])

    @property
    def place(self) -> str:
        """The end of its address."""
        return f"{self.conversation.id}?branch={self.branch}"


class ComparedEntry(NamedTuple):
    """A block, or an answer without any; with the group whose facts are below it, if it is the last one of it."""

    group: Group
    block: Block | None

    @property
    def has_facts(self) -> bool:
        """Whether the facts of the answer are below it."""
        is_last = self.block is None or self.block is self.group.blocks[-1]
        return is_last and bool(self.group.response or self.group.calls)

    @property
    def kind(self) -> str:
        """What kind of entry it is: only entries of the same kind are compared word by word."""
        return f"{self.block.kind} {self.block.title}" if self.block else "nothing"

    @property
    def content(self) -> str:
        """All that it says: entries that say the same are equal."""
        if self.block is None:
            return f"nothing {self.group.error_message}"
        parts = [(part.kind, part.text, part.url) for part in _parts(self.block)]
        return repr((self.kind, self.block.output is None, self.block.status, parts))


class ComparedRow(NamedTuple):
    """What stands side by side; one of both may be missing."""

    left: ComparedEntry | None
    right: ComparedEntry | None
    is_same: bool = False


class Section(NamedTuple):
    """Rows of the page: those that differ, or equal ones, of which the first `folded` are folded."""

    is_same: bool
    rows: Sequence[ComparedRow]
    folded: int = 0


class Fact(NamedTuple):
    """A line of the table: both values as text, and how much more B has, of figures."""

    name: str
    left: str
    right: str
    change: str = ""


def _parts(block: Block) -> list[BlockPart]:
    given = [] if block.arguments is None else [block.arguments]
    return [*given, *block.pieces, *(block.output.pieces if block.output else ())]


async def compare_page(view: View) -> Response:
    """Show two conversations side by side, from a position on."""
    names = [name for text in view.request.query_params.getlist("c") if (name := text.strip())]
    if len(names) == 1:
        return view.page("compare.html", names=names, sides=())
    if len(names) != len(SIDES):
        raise InvalidOption(f"must be there twice, once for each conversation, not {len(names)} times.", argument="c")
    left, right = map(ComparedPlace.of, names)
    pair, start = await view.read(read_pair, left, right, view.number("from"))
    return await view.drawn(_rendered, view, names, pair, start)


def read_pair(
    store: Store, left: ComparedPlace, right: ComparedPlace, start: int | None
) -> tuple[list[ComparedPage], int]:
    """Return both pages, and from which position on; see `pairs.read_compared`.

    Raises:
        NotFound: one of them does not exist.
    """
    first = store.get_conversation(left.id, branch=0)
    second = first if left.id == right.id else store.get_conversation(right.id, branch=0)
    return read_compared([(first, left.branch), (second, right.branch)], start, PAGE)


def _rendered(view: View, names: Sequence[str], pair: Sequence[ComparedPage], start: int) -> Response:
    budget = texts.Budget()
    left, right = (_side(one, start, budget) for one in pair)
    rows = aligned(_entries(left.groups), _entries(right.groups))
    mark(rows)
    options = [fact for fact in _options(left, right) if fact.left or fact.right]
    differing = [fact for fact in options if fact.left != fact.right]
    return view.page(
        "compare.html", names=names, sides=(left, right), sections=list(sections(rows)), start=start, size=PAGE,
        is_last_shared=view.query("from") is None,
        differing=differing, equal=[fact for fact in options if fact.left == fact.right],
        figures=[fact for fact in _figures(left.figures, right.figures) if {fact.left, fact.right} != {texts.UNKNOWN}],
    )  # fmt: skip


def _side(one: ComparedPage, start: int, budget: texts.Budget) -> ComparedSide:
    conversation, page, settings = one
    groups = groups_of(Thread(conversation, page), start, budget)
    last = next((group.response.number for group in reversed(groups) if group.response), None)
    options = conversation.settings if last is None else settings[last]
    return ComparedSide(conversation, page.branch, groups, options, page.next is not None)


def _entries(groups: Iterable[Group]) -> list[ComparedEntry]:
    nothing: list[Block | None] = [None]
    return [ComparedEntry(group, block) for group in groups for block in group.blocks or nothing]


# Which stand side by side


def aligned(left: Sequence[ComparedEntry], right: Sequence[ComparedEntry]) -> list[ComparedRow]:
    """Return entries side by side: equal ones, and between them entries of the same kind."""
    rows: list[ComparedRow] = []
    for is_same, old, new in _matched(left, right, "content"):
        if is_same:
            rows += [ComparedRow(*pair, is_same=True) for pair in zip(old, new, strict=True)]
            continue
        for _, some, others in _matched(old, new, "kind"):
            rows += [ComparedRow(*pair) for pair in zip_longest(some, others)]
    return rows


def _matched(
    left: Sequence[ComparedEntry], right: Sequence[ComparedEntry], attribute: str
) -> Iterator[tuple[bool, Sequence[ComparedEntry], Sequence[ComparedEntry]]]:
    """Both in parts, of which every other one has the same values of an attribute on both sides."""
    old, new = ([getattr(one, attribute) for one in side] for side in (left, right))
    for tag, first, upto, begin, stop in Comparison(old, new).get_opcodes():
        yield tag == "equal", left[first:upto], right[begin:stop]


def sections(rows: Iterable[ComparedRow]) -> Iterator[Section]:
    """Yield rows in sections; of several equal ones, all but the last are folded: it is what was asked."""
    for is_same, some in groupby(rows, key=lambda row: row.is_same):
        found = list(some)
        yield Section(is_same, found, len(found) - 1 if is_same and len(found) > 2 else 0)  # noqa: PLR2004 - a fold is a line, too


# What differs within them


def mark(rows: Iterable[ComparedRow]) -> None:
    """Mark the words that differ in rows of one kind, if they have enough in common; in a bounded number of steps."""
    steps = MAX_STEPS  # that are left
    for row in rows:
        if row.is_same or row.left is None or row.right is None or row.left.kind != row.right.kind:
            continue
        if row.left.block is not None and row.right.block is not None:
            for pair in zip(_parts(row.left.block), _parts(row.right.block), strict=False):
                steps -= _mark_pair(*pair, steps)


def _mark_pair(left: BlockPart, right: BlockPart, most: int) -> int:
    """Mark two texts; return the steps that this took."""
    both = (left, right)
    if left.kind != right.kind or left.kind not in _TEXTS or any(len(one.text) > MAX_MARKED for one in both):
        return 0
    words: tuple[list[str], list[str]] = (_WORDS.findall(left.text), _WORDS.findall(right.text))
    comparison = Comparison(words[0], words[1], most)
    blocks = comparison.get_matching_blocks()
    equal = sum(len("".join(words[0][block.a : block.a + block.size]).strip()) for block in blocks)
    if equal >= ALIKE * max(len(one.text) for one in both):
        for side, one in enumerate(both):
            one.html = _marked(words[side], [(block[side], block.size) for block in blocks])
            one.kind = "marked"
    return comparison.steps


def _marked(words: Sequence[str], equal: Iterable[tuple[int, int]]) -> Markup:
    """A text with all words marked that are not equal."""
    parts, end = [], 0
    for start, size in equal:
        if text := "".join(words[end:start]):
            parts.append(Markup("<mark>{}</mark>").format(texts.visible(text)))
        parts.append(escape(texts.visible("".join(words[start : start + size]))))
        end = start + size
    return Markup("").join(parts)


# The table of both


def _options(left: ComparedSide, right: ComparedSide) -> Iterator[Fact]:
    both = left.options, right.options
    yield _fact("Model", *(one.figures.models or _text(one.options.get("model")) for one in (left, right)))
    for name in dict.fromkeys([*both[0], *both[1]]):
        if name != "model":
            yield _fact(name.replace("_", " ").capitalize(), *(_text(one.get(name)) for one in both))
    yield _fact("Tools", *(", ".join(_tools(one.conversation)) for one in (left, right)))
    labels = (texts.labels_text(one.conversation.labels) for one in (left, right))
    yield _fact("Labels", *(", ".join(one) for one in labels))


def _tools(conversation: Conversation) -> list[str]:
    return [texts.named_tool(tool)[0] for tool in conversation.tool_definitions]


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else texts.json_text(value)


def _fact(name: str, left: str, right: str) -> Fact:
    """A fact whose texts are cut; where only what is cut off differs, that is said."""
    one, other = (texts.first_line(text, SHORT) for text in (left, right))
    return Fact(name, one, f"{other} (differs further on)" if left != right and one == other else other)


def _figures(left: Figures, right: Figures) -> Iterator[Fact]:
    yield Fact("Calls", left.counted(), right.counted(), change_of(len(left.calls), len(right.calls)))
    for name, column, part, words in (
        ("Input tokens", "input_tokens", "cached_tokens", "from the cache"),
        ("Output tokens", "output_tokens", "reasoning_tokens", "reasoning"),
    ):
        shown = left.tokens(column, part, words), right.tokens(column, part, words)
        yield Fact(name, shown[0], shown[1], change_of(left.sum(column), right.sum(column)))
    yield Fact("Cost", left.cost, right.cost, change_of(left.sum("cost_nano"), right.sum("cost_nano")))
    for name, column in (("Mean latency", "latency_ms"), ("Mean time to first token", "first_token_ms")):
        before, after = left.mean(column), right.mean(column)
        yield Fact(name, texts.duration(before), texts.duration(after), change_of(before, after))


def change_of(old: float | None, new: float | None) -> str:
    """Return how much more the second one is.

    >>> change_of(100, 150), change_of(3, 3), change_of(0, 2), change_of(None, 1)
    ('+50 %', 'same', '', '')
    """
    if old is None or new is None:
        return ""
    if old == new:
        return "same"
    return f"{100 * (new - old) / old:+,.0f} %".replace("-", "\N{MINUS SIGN}") if old else ""
