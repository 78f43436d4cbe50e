"""Cache marks and citations over a whole request: what the service counts and compares.

* There are four cache marks at most, the one of the request included; the oldest of the messages go first.
* A mark of an hour may not follow one of five minutes; it is then sent as one of five minutes.
* Citations are on for all documents or for none: the first document decides. With a schema there are none.

Source: Anthropic's guides on prompt caching and on citations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.messages.parts import block_type
from threadkeep.formats.shared.cache_marks import MARK, MOST, lost_marks, mark_request, marks_in
from threadkeep.formats.shared.fields import value_at
from threadkeep.formats.shared.reports import Context


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
    lost = min(excess, len(inner))  # those of messages go before those of tools and system text
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
    """The marks, those of an hour behind one of five minutes made shorter."""
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
