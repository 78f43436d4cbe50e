"""Conversations as Markdown, in which a text cannot pretend to be anything else.

What was said is a block quote: its headings, lists and code stay in it. HTML, pictures that a reader would load, and
links to anything but the web are written so that they are text. Whatever is data is code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.printing import printable
from threadkeep.domain.stored import StoredItem
from threadkeep.domain.transcripts import lines_of, title_of

_TEXTS: Final = frozenset({"input_text", "output_text", "text", "reasoning_text", "summary_text"})
_PUNCTUATION: Final = re.compile(r"([\\`*_\[\]<>&#~])")
_FENCE: Final = re.compile(r"(`{3,}(?=[^`]*$)|~{3,})(.*)")  # at the beginning of a line
_FENCE_ELSEWHERE: Final = re.compile(r"[\s>*+.)\-\d]+(```|~~~)")
# What begins HTML, an address in <>, a picture, a link that is not to the web, or a definition of one
_ACTIVE: Final = re.compile(
    r"<(?=[A-Za-z/!?])|!(?=\[)|\](?=\(\s*<?(?!https?://|mailto:|#))|\](?=\s*\[)|^(?P<start>[\s>*+.)\-\d]*)\[(?=[^\]]*\]:)"
)
_RUNS: Final = re.compile("`+")


def markdown_of(title: str, facts: Iterable[tuple[str, str]], items: Iterable[StoredItem]) -> str:
    """A title, a list of facts, and the items."""
    head = [f"# {inline(title)}", "\n".join(f"- {inline(name)}: {code(value)}" for name, value in facts)]
    return "\n\n".join([*filter(None, head), *(part for stored in items for part in _item(stored))]) + "\n"


def inline(text: str) -> str:
    """A text on one line, without any markup in it."""
    return _PUNCTUATION.sub(r"\\\1", printable(" ".join(text.split())))


def code(text: str) -> str:
    """A text on one line, as code."""
    shown = printable(" ".join(text.split()))
    mark = "`" * (1 + max(map(len, _RUNS.findall(shown)), default=0))
    return f"{mark} {shown} {mark}" if shown.startswith("`") or shown.endswith("`") else f"{mark}{shown}{mark}"


def fenced(text: str, language: str = "") -> str:
    """A text as a block of code, whatever is in it."""
    shown = "\n".join(printable(text).splitlines())
    mark = "`" * max(3, 1 + max(map(len, _RUNS.findall(shown)), default=0))
    return f"{mark}{language}\n{shown}\n{mark}"


def quoted(text: str) -> str:
    """A text as a block quote that keeps its own Markdown."""
    return "\n".join(f"> {line}".rstrip() for line in _harmless(printable(text).splitlines()))


def _harmless(lines: Iterable[str]) -> Iterator[str]:
    """Lines whose HTML, pictures and odd links are text; code in fences at the margin stays as it is.

    Where a fence is not at the margin, readers may differ about where it ends: from there on nothing is taken for code.
    """
    fence, is_certain = "", True
    for line in lines:
        mark = _FENCE.match(line) if is_certain else None
        if fence:
            yield line
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
            continue
        if mark:
            fence = mark[1]
            yield line
            continue
        is_certain = is_certain and not _FENCE_ELSEWHERE.match(line)
        yield _ACTIVE.sub(_escaped, line)


def _escaped(match: re.Match[str]) -> str:
    start = match["start"]
    return f"\\{match[0]}" if start is None else f"{start}\\["


def _item(stored: StoredItem) -> Iterator[str]:
    item = stored.to_object()
    words = [title_of(item), f"by {stored.author_id}" if stored.author_id is not None else None]
    time = None if stored.created_at is None else stored.created_at.strftime("%Y-%m-%d %H:%M:%S")
    yield "## " + " · ".join(inline(word) for word in (*words, time) if word is not None)
    yield from _CONTENTS.get(item["type"], _other)(item)


def _content(content: Any, *, is_quoted: bool = True) -> Iterator[str]:
    """The parts of a content; what is not text is named."""
    show = quoted if is_quoted else _data
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") in _TEXTS:
            if text := str(part.get("text", "")):
                yield show(text)
        else:
            found: JsonObject = {"type": "message", "content": [part]}
            yield "\n".join(f"*{inline(line)}*" for line in lines_of(found))


def _data(value: Any) -> str:
    """JSON, or a text that may be JSON, as a block of code."""
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
        return fenced(json.dumps(parsed, ensure_ascii=False, indent=2), "json")
    except (ValueError, RecursionError):
        return fenced(str(value), "text")


def _thoughts(item: JsonObject) -> Iterator[str]:
    found = [*_content(item.get("summary")), *_content(item.get("content"))]
    yield from found or _other(item)


def _other(item: JsonObject) -> Iterator[str]:
    lines = lines_of(item)
    if lines:
        yield fenced("\n".join(lines))


# item type -> what it says
_CONTENTS: Final[dict[str, Callable[[JsonObject], Iterator[str]]]] = {
    "message": lambda item: _content(item.get("content")),
    "function_call": lambda item: iter([_data(item.get("arguments"))]),
    "function_call_output": lambda item: _content(item.get("output"), is_quoted=False),
    "reasoning": _thoughts,
    "compaction": _thoughts,
}
