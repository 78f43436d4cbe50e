"""Cache marks and citations over a whole request: what the service counts and compares.

* There are four cache marks at most, the one of the request included; the oldest of the messages go first.
* A mark of an hour may not follow one of five minutes; it is then sent as one of five minutes.
* Citations are on for all documents or for none: the first document decides. With a schema there are none.

Source: Anthropic's guides on prompt caching and on citations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.messages.parts import block_type
from threadkeep.formats.shared.cache_marks import MARK, MOST, lost_marks, mark_request
from threadkeep.formats.shared.reports import Context

_HOUR: Final = "1h"
_FIVE_MINUTES: Final[JsonObject] = {"type": "ephemeral"}

Change = Callable[[JsonObject], JsonObject]


def with_fewer_marks(body: JsonObject, context: Context) -> JsonObject:
    """The request with as many cache marks as the service takes, in the order that it takes."""
    marks = [*_marks(body), *([body[MARK]] if body.get(MARK) is not None else [])]
    if not marks:
        return body
    excess = max(len(marks) - MOST, 0)
    is_late = any(_is_hour(later) and not _is_hour(mark) for mark, later in pairwise(marks))
    if not excess and not is_late:
        return body
    if excess:
        context.loss("cache_mark", MARK, f"{excess} cache marks were left out: the service takes {MOST}.")
    if is_late:
        context.loss(
            "cache_mark",
            MARK,
            "A cache mark of an hour that follows one of five minutes was made shorter.",
        )
    return _remarked(body, excess)


def with_own_marks(body: JsonObject, context: Context, end: int | None) -> JsonObject:
    """The request with marks where they help; a mark of the user that is beyond what the service takes is reported."""
    marked = mark_request(body, end)
    if excess := lost_marks(body, marked):
        context.loss("cache_mark", MARK, f"{excess} cache marks were left out: the service takes {MOST}.")
    return marked


def _is_hour(mark: Any) -> bool:
    return isinstance(mark, dict) and mark.get("ttl") == _HOUR


def _marks(element: Any) -> Iterator[Any]:
    """The marks on tools, system text and messages, in the order of the service."""
    for key in ("tools", "system", "messages", "content"):
        elements = element.get(key)
        for block in elements if isinstance(elements, list) else ():
            if isinstance(block, dict):
                yield from _marks(block) if "content" in block else ()
                if block.get(MARK) is not None:
                    yield block[MARK]


class MarkRewriter:
    """Goes over the marks from the first to the last: leaves out the first `excess`, and shortens late hours."""

    def __init__(self, excess: int) -> None:
        self.excess = excess
        self.is_short = False

    def __call__(self, element: JsonObject) -> JsonObject:
        """The block or tool with the mark that it may have."""
        if element.get(MARK) is None:
            return element
        if self.excess:
            self.excess -= 1
            return {key: value for key, value in element.items() if key != MARK}
        if self.is_short and _is_hour(element[MARK]):
            return {**element, MARK: dict(_FIVE_MINUTES)}
        self.is_short = self.is_short or not _is_hour(element[MARK])
        return element


def _remarked(body: JsonObject, excess: int) -> JsonObject:
    """The request with other marks; those of messages are left out before those of tools and system text."""
    inner = min(excess, len(list(_marks({"messages": body["messages"]}))))
    change = MarkRewriter(excess - inner)
    rewritten = dict(body)
    for key in ("tools", "system"):
        if isinstance(rewritten.get(key), list):
            rewritten[key] = _changed(rewritten[key], change)
    change.excess += inner
    rewritten["messages"] = _changed(rewritten["messages"], change)
    return change(rewritten)


def _changed(elements: list[Any], change: Change) -> list[Any]:
    """A list of blocks or messages, each of them and what it holds changed."""
    changed = []
    for element in elements:
        if isinstance(element, dict):
            inner = element.get("content")
            with_inner = {**element, "content": _changed(inner, change)} if isinstance(inner, list) else element
            changed.append(change(with_inner))
        else:
            changed.append(element)
    return changed


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

    def change(block: JsonObject) -> JsonObject:
        if block_type(block) != "document" or _is_cited(block) is is_cited:
            return block
        return {**block, "citations": {"enabled": is_cited}}

    return {**body, "messages": _changed(body["messages"], change)}


def _documents(elements: list[Any]) -> Iterator[JsonObject]:
    for element in elements:
        if block_type(element) == "document":
            yield element
        elif isinstance(element, dict) and isinstance(element.get("content"), list):
            yield from _documents(element["content"])


def _is_cited(document: JsonObject) -> bool:
    citations = document.get("citations")
    return isinstance(citations, dict) and citations.get("enabled") is True
