"""``threadkeep search`` and ``threadkeep reindex``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from threadkeep.cli.figures import number_of
from threadkeep.cli.output import (
    Cell,
    Column,
    clock,
    is_terminal,
    iso,
    note,
    print_json,
    print_table,
    print_text,
    printable,
    styled,
)
from threadkeep.cli.place import AsJson, Labels, Tenant, Url, labels_of, opened, place_of
from threadkeep.cli.times import Since, Until, moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from threadkeep.domain.jsontext import JsonObject
    from threadkeep.domain.stored import SearchResult

COLUMNS: Final = (
    Column("conversation", is_kept=True),
    Column("position", is_number=True),
    Column("branch", is_number=True),
    Column("type"),
    Column("role"),
    Column("created"),
    Column("user"),
    Column("title"),
    Column("snippet"),
)

Text = str | None
Words = Annotated[
    list[str],
    typer.Argument(metavar="TEXT…", help='Words, "several words", beginn*, -unwanted.', show_default=False),
]
OfUser = Annotated[Text, typer.Option("--user", metavar="ID", help="Only in conversations of this user.")]
Status = Annotated[
    Literal["active", "archived", "all"], typer.Option("--status", help="Only in conversations of this status.")
]
OneId = Annotated[Text, typer.Option("--conversation", metavar="ID", help="Only in this conversation.")]
Role = Annotated[Text, typer.Option("--role", metavar="NAME", help="Only messages of this role.")]
Type = Annotated[
    Text, typer.Option("--type", metavar="NAME", help="Only items of this type, such as message, or title.")
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", help="At most so many.")]
After = Annotated[Text, typer.Option("--after", metavar="NEXT", help="Go on where an earlier page ended.")]


def search(
    context: typer.Context,
    words: Words,
    *,
    user: OfUser = None,
    label: Labels = None,
    status: Status = "active",
    conversation: OneId = None,
    role: Role = None,
    type: Type = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 20,
    after: After = None,
    url: Url = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Find messages, calls and outputs of tools, and titles; the best first.

    All words must be there. Put `--` before words that begin with a minus.
    """
    place = place_of(context, url, tenant, is_json=as_json)
    with opened(place) as store:
        page = store.search(
            " ".join(words),
            user_id=user,
            labels=labels_of(label),
            status=None if status == "all" else status,
            conversation_id=conversation,
            type=type,
            role=role,
            since=moment("--since", since, "UTC"),
            until=moment("--until", until, "UTC"),
            limit=limit,
            after=after,
        )
    if place.is_json:
        print_json({"results": [_facts(found) for found in page], "next": page.next})
        return
    if is_terminal():
        _print_readable(page.items)
    else:
        print_table(COLUMNS, [_cells(found) for found in page])
    if not page.items:
        note(f"threadkeep: nothing found in {place.shown}")
    elif page.next is not None:
        note(f"threadkeep: there is more: --after {page.next}")


def reindex(
    context: typer.Context,
    *,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Forget the index and make it anew.")] = False,
    url: Url = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Let the search see everything that it has not seen yet.

    Searching does that, too, but then it takes longer.
    """
    place = place_of(context, url, tenant, is_json=as_json)
    with opened(place) as store:
        count = store.reindex(rebuild=rebuild)
    if place.is_json:
        print_json({"documents": count})
    else:
        print_text(f"{number_of(count, 'text')} {'is' if count == 1 else 'are'} new in the index of {place.shown}.")


def _print_readable(found: Sequence[SearchResult]) -> None:
    """A line about each result, and its snippet with the matches in bold."""
    for result in found:
        where = "title" if result.position is None else f"{result.position} {result.role or result.type}"
        about = (result.conversation_id, where, clock(result.created_at), result.user_id, result.title)
        print_text("  ".join(" ".join(text.split()) for text in about if text), is_dim=True)
        typer.echo(f"  {_marked(result)}")


def _marked(result: SearchResult) -> str:
    shown, end = [], 0
    for start, stop in result.marks:
        shown += [printable(result.snippet[end:start]), styled(printable(result.snippet[start:stop]), is_bold=True)]
        end = stop
    return "".join([*shown, printable(result.snippet[end:])])


def _cells(result: SearchResult) -> Sequence[Cell]:
    return (
        result.conversation_id, result.position, result.branch, result.type, result.role, result.created_at,
        result.user_id, result.title, result.snippet,
    )  # fmt: skip


def _facts(result: SearchResult) -> JsonObject:
    return {
        "conversation_id": result.conversation_id,
        "position": result.position,
        "branch": result.branch,
        "type": result.type,
        "role": result.role,
        "created_at": iso(result.created_at),
        "user_id": result.user_id,
        "title": result.title,
        "snippet": result.snippet,
        "marks": [list(mark) for mark in result.marks],
        "score": result.score,
    }
