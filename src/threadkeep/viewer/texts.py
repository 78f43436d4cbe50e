"""Texts as pages show them: escaped or as harmless Markdown, numbers, times and JSON.

Text from a model, a tool or a user may be an attack on the reader: its HTML is not kept, nothing it names is loaded,
and characters that are invisible, or change the writing direction, are escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from math import floor, log10
from time import thread_time
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import nh3
import orjson
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, table
from markdown_it.token import Token
from markupsafe import Markup, escape

from threadkeep.domain import content, printing

MAX_MARKDOWN: Final = 20_000  # characters of a text that are read as Markdown
MAX_TEXT: Final = 100_000  # characters of a text on a page
MARKUP: Final = 200  # characters of a page that a text needs beside its own
MAX_COLUMNS: Final = 20  # of a table
SCHEMES: Final = frozenset({"http", "https", "mailto"})
LINK_REL: Final = "noopener noreferrer nofollow"
UNKNOWN: Final = "\N{EN DASH}"  # for figures that nobody reported
_TAGS: Final = {
    "p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a", "table", "thead",
    "tbody", "tr", "th", "td", "h1", "h2", "h3", "h4", "h5", "h6",
}  # fmt: skip
_ATTRIBUTES: Final = {"a": {"href"}, "ol": {"start"}}
_MARKS: Final = re.compile(
    r"\*\*|__|`+|^#{1,6} +|^> +|(?<=\s)#{2,6} |(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)", re.MULTILINE
)
_NANO: Final = 10**9
_CENT: Final = 10**7  # nano-USD
_SECOND: Final = 1_000  # milliseconds
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
MAX_DECIMALS: Final = 5
# From so many on -> the unit of a count, and its letter
_COUNTS: Final = ((10**9, 10**9, "B"), (10**6, 10**6, "M"), (10**4, 10**3, "k"))
_UNITS: Final = ("bytes", "KB", "MB", "GB")
_KILO: Final = 1024


# Markdown


@dataclass(slots=True)
class Budget:
    """What a page may still have: Markdown, beyond which texts are plain, and texts, beyond which a note is left.

    Attributes:
        characters: of all texts that are read as Markdown.
        cells: of all tables.
        seconds: of the processor's time. Some texts take as many steps as the square of their length.
        shown: characters of all texts in any form, and of pictures that are within the page.
    """

    characters: int = 100_000
    cells: int = 5_000
    seconds: float = 2.0
    shown: int = 2_000_000

    def end(self) -> None:
        """Leave nothing: the client has left."""
        self.characters = self.cells = self.shown = 0
        self.seconds = 0.0

    def take(self, text: str, most: int = MAX_TEXT) -> str:
        """Return a text, or its beginning where it is too long for a page or for what is left of it; it is counted."""
        length = max(0, min(most, self.shown))
        beginning = printing.printable(text[:length])
        self.shown -= len(beginning) + MARKUP
        if len(text) <= length:
            return beginning
        note = f"… ({len(text):,} characters)"
        return f"{beginning}\n{note}" if beginning else note

    def fits(self, text: str) -> bool:
        """Return whether something that cannot be cut may still be shown; it is counted then."""
        if len(text) > self.shown:
            return False
        self.shown -= len(text) + MARKUP
        return True


@cache
def _reader() -> MarkdownIt:
    reader = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])
    reader.validateLink = is_safe_link  # type: ignore[method-assign]  # how its users set the policy
    reader.add_render_rule("image", _image_as_link)
    reader.block.ruler.at("table", _table_within_budget, {"alt": ["paragraph", "reference"]})
    reader.render("a", {"budget": Budget()})  # compiles the rules, which threads must not do at once
    return reader


def _table_within_budget(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read a table, unless it is too large: short rows are filled up, so that a few characters can be many cells."""
    budget: Budget = state.env["budget"]
    if start + 1 >= end or budget.cells <= 0:
        return False
    columns = state.src[state.bMarks[start + 1] : state.eMarks[start + 1]].strip("> |\t").count("|") + 1
    if columns > MAX_COLUMNS or not table(state, start, end, True):  # noqa: FBT003 - its signature
        return False
    if silent:
        return True
    last = min(end, start + 2 + budget.cells // columns)
    rows = next((line for line in range(start, last) if state.isEmpty(line)), last) - start
    budget.cells -= rows * columns
    return budget.cells > 0 and table(state, start, end, silent)


def is_safe_link(url: str) -> bool:
    """Return whether a link of a text may be one: to the web, or to write mail."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return False
    return parts.scheme.lower() in SCHEMES


def _image_as_link(_self: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    """A picture is a link to it: loading it would tell its server what was read, and what the address contains."""
    token = tokens[index]
    url = str(token.attrGet("src") or "")
    words = token.content or url
    text = escape(f"picture: {words}")
    return str(Markup('<a href="{}">{}</a>').format(url, text)) if is_safe_link(url) else str(text)


def markdown(text: str, budget: Budget) -> Markup:
    """Return a text as HTML that cannot do anything: no HTML of its own, no pictures, only links to the web.

    What is too long, or exceeds what is left of `budget`, is plain text, or the beginning of it.
    """
    shown = budget.take(text)
    budget.characters -= len(shown)
    if len(shown) > MAX_MARKDOWN or budget.characters < 0 or budget.seconds <= 0:
        return Markup('<div class="plain">{}</div>').format(shown)
    begun = thread_time()
    html = nh3.clean(
        _reader().render(shown, {"budget": budget}),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes=set(SCHEMES),
        link_rel=LINK_REL,
    )
    budget.seconds -= thread_time() - begun
    return Markup(html)  # noqa: S704 - cleaned just now


def cut(text: str) -> str:
    """Return a text, or its beginning if it is too long for a page."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}\n… ({len(text):,} characters)"


def first_line(text: str, length: int = 140) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length else line[: length - 1] + "…"


def heading(conversation: Any, groups: Iterable[Any]) -> str:
    """Return the title of a conversation; without one, what a user said first on the page."""
    said = (piece.text for group in groups for block in group.blocks if block.kind == "user" for piece in block.pieces)
    return str(conversation.title or next((line for text in said if (line := plain_line(text, 80))), "Untitled"))


def named_tool(tool: content.TypedObject) -> tuple[str, str]:
    """Return the name of a tool and what it says about itself; a built-in one may have no more than a type."""
    told = tool.to_object()
    if isinstance(payload := told.get("payload"), Mapping):  # of a tool that only one provider knows
        told = {**told, **payload}
    names = (told.get("name"), told.get("server_label"))
    name = next((name for name in names if isinstance(name, str) and name), "")
    kind, description = first_line(str(told.get("type"))), told.get("description")
    is_function = kind == "function" and bool(name)
    label = first_line(name) if is_function else f"{kind} {first_line(name)}".strip()
    return label, description if isinstance(description, str) else ""


def plain_line(text: str, length: int = 140) -> str:
    """Return the beginning of a text on one line, without the marks of Markdown."""
    return first_line(_MARKS.sub("", text[: 4 * length]), length)


def json_text(value: Any) -> str:
    """Return JSON on several lines; a text that is JSON itself is read first."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return str(value)
        if isinstance(value, str):
            return value
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    except TypeError:  # numbers beyond 64 bits, lone surrogates, and what is nested deeply
        pass
    try:
        return json.dumps(value, ensure_ascii=False, indent=2, default=str)
    except RecursionError:
        return str(value)


# Figures


def count(value: int | None) -> str:
    """Return a number, with commas."""
    return UNKNOWN if value is None else f"{value:,}"


def short_count(value: int | None) -> str:
    """Return a number in few characters: 950, 12.4k, 3.1M."""
    if value is None:
        return UNKNOWN
    for least, divisor, unit in _COUNTS:
        if value >= least:
            scaled = value / divisor
            return f"{scaled:.0f}{unit}" if scaled >= 100 else f"{scaled:.1f}{unit}"  # noqa: PLR2004 - three digits
    return f"{value:,}"


def money(nano: int | None) -> str:
    """Return nano-USD as dollars: small amounts with more digits."""
    if nano is None:
        return UNKNOWN
    dollars = nano / _NANO
    if nano == 0 or nano >= _NANO:
        return f"${dollars:,.2f}"
    return f"${dollars:.3f}" if nano >= _CENT else f"${dollars:.5f}"


def money_padding(nano: int | None) -> str:
    """Return the zeros with which an amount has as many decimals as the smallest ones."""
    decimals = len(money(nano).partition(".")[2])
    return "0" * (MAX_DECIMALS - decimals) if decimals else ""


def axis_count(value: float, largest: float) -> str:
    """Return a value of an axis in the unit of its largest one.

    >>> [axis_count(value, 20_000) for value in (0, 5_000, 20_000)]
    ['0', '5k', '20k']
    """
    divisor, unit = next(((divisor, unit) for least, divisor, unit in _COUNTS if largest >= least), (1, ""))
    return f"{round(value / divisor, 1):,g}{unit if value else ''}"


def axis_duration(value: float, largest: float) -> str:
    """Return milliseconds of an axis in the unit of its largest value.

    >>> [axis_duration(value, 2_000) for value in (0, 500, 2_000)]
    ['0', '0.5 s', '2 s']
    """
    if not value:
        return "0"
    return f"{value:,.0f} ms" if largest < _SECOND else f"{round(value / _SECOND, 1):,g} s"


def axis_money(nano: float, largest: float) -> str:
    """Return nano-USD on an axis as dollars, with as many decimals as a quarter of the largest value needs.

    >>> [axis_money(value * 10**9, 2 * 10**9) for value in (0, 0.5, 2)]
    ['$0.0', '$0.5', '$2.0']
    """
    quarter = largest / 4 / _NANO
    decimals = 0 if quarter >= 1 or not quarter else min(MAX_DECIMALS, 1 - floor(log10(quarter)) - 1)
    return f"${nano / _NANO:,.{decimals}f}"


def axis_percent(share: float) -> str:
    """Return a share on an axis."""
    return f"{round(100 * share, 1):g} %"


def duration(ms: float | None) -> str:
    """Return milliseconds as people say them.

    >>> [duration(ms) for ms in (1, 1_500, 65_000, 3_660_000, 90_000_000)]
    ['1 ms', '1.5 s', '1 min 5 s', '1 h 1 min', '1 d 1 h']
    """
    if ms is None:
        return UNKNOWN
    if ms < _MINUTE:
        return f"{ms:.0f} ms" if ms < _SECOND else f"{ms / _SECOND:.1f} s"
    units = ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "min"), (_MINUTE, "min", _SECOND, "s"))
    size, unit, part, name = next(one for one in units if ms >= one[0])
    return f"{int(ms // size)} {unit} {int(ms % size / part)} {name}"


def percent(share: float | None) -> str:
    """Return a share of 0 to 1 as percents."""
    return UNKNOWN if share is None else f"{100 * share:.1f} %" if 0 < share < 1 else f"{100 * share:.0f} %"


def size(number: float) -> str:
    """Return a number of bytes."""
    for unit in _UNITS[:-1]:
        if number < _KILO:
            return f"{number:.0f} {unit}" if unit == _UNITS[0] else f"{number:.1f} {unit}"
        number /= _KILO
    return f"{number:.1f} {_UNITS[-1]}"


def moment(at: datetime | None) -> str:
    """Return a time in UTC, to the second."""
    return UNKNOWN if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def short_moment(at: datetime | None) -> str:
    """Return a time in UTC, to the minute."""
    return UNKNOWN if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def day(at: datetime) -> str:
    """Return the day of a time, in UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%d")


def clock(at: datetime) -> str:
    """Return the time of a day, in UTC, to the minute."""
    return at.astimezone(UTC).strftime("%H:%M")


def labels_text(labels: Mapping[str, str]) -> list[str]:
    """Return labels as ``name=value``."""
    return [f"{name}={value}" for name, value in sorted(labels.items())]


def query_text(pairs: Iterable[tuple[str, Any]]) -> str:
    """Return the query of an address. Lone surrogates, which stored texts may have, become question marks."""
    return urlencode([(name, str(value).encode(errors="replace")) for name, value in pairs])


def visible(value: Any) -> Any:
    """Return a value for a template: texts with invisible characters written out. Markup stays as it is."""
    return printing.printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
