"""``threadkeep search``, ``reindex`` and ``changes``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from typer import Argument, Option

from threadkeep.cli import options, output
from threadkeep.cli.options import Text, on_target
from threadkeep.cli.output import Column, iso
from threadkeep.cli.target import PAGE_SIZE, Target, full_id
from threadkeep.domain.printing import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from threadkeep import Change, SearchResult, Store


COLUMNS: Final = (
    Column("conversation", "conversation_id"), Column("position"), Column("branch"), Column("type"), Column("role"),
    Column("created", "created_at"), Column("user", "user_id"), Column("title"), Column("snippet"),
)  # fmt: skip

CONVERSATIONS: Final = (
    Column("conversation", "conversation_id"), Column("hits"), Column("newest", "newest_at"),
    Column("user", "user_id"), Column("title"), Column("position"), Column("snippet"),
)  # fmt: skip

By = Annotated[
    Literal["item", "conversation"], Option("--by", help="conversation: each once, with its best match and how many.")
]
Words = Annotated[
    list[str], Argument(metavar="TEXT…", help='Words, "a phrase", prefix*, -excluded.', show_default=False)
]
Conversation = Annotated[Text, Option("--conversation", metavar="ID", help="Only in this conversation.")]
Role = Annotated[Text, Option("--role", metavar="NAME", help="Only messages with this role.")]
Type = Annotated[Text, Option("--type", metavar="NAME", help="Only items of this type, such as message; or title.")]


@on_target()
def search(
    target: Target,
    words: Words,
    *,
    user: options.OnlyUser = None,
    label: options.Labels = None,
    status: options.Status = "active",
    conversation: Conversation = None,
    role: Role = None,
    type: Type = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: options.Limit = 20,
    after: options.After = None,
    by: By = "item",
) -> None:
    """Search messages, tool calls, tool outputs and titles.

    Results contain all of the words; best matches come first. Put `--` before words that begin with a minus.
    """
    filters: dict[str, Any] = {
        "user_id": user, "labels": options.labels_of(label), "status": options.status_of(status),
        "type": type, "role": role, **options.bounds_of(since, until),
    }  # fmt: skip
    draw = _print_results if output.is_terminal() else output.print_table
    place: dict[str, Any] = {"limit": limit, "after": after}
    with target.store() as store:
        if conversation is not None:
            filters["conversation_id"] = full_id(store, conversation)
        if by == "conversation":
            matches = store.search_conversations(" ".join(words), **place, **filters)
            records = [
                _result_record(one.best) | {"hits": one.hits, "newest_at": iso(one.newest_at)} for one in matches
            ]
            following = matches.next
        else:
            results = store.search(" ".join(words), **place, **filters)
            records, following = [_result_record(result) for result in results], results.next
    name, columns = ("results", COLUMNS) if by == "item" else ("conversations", CONVERSATIONS)
    target.report_list(name, records, columns, draw=draw, empty="nothing found", next=following)


def _result_record(result: SearchResult) -> dict[str, Any]:
    return asdict(result) | {"created_at": iso(result.created_at)}


@on_target()
def reindex(
    target: Target,
    *,
    rebuild: Annotated[bool, Option("--rebuild", help="Discard the index and build a new one.")] = False,
) -> None:
    """Add everything that is missing to the search index.

    Searching does so, too, but then takes longer.
    """
    with target.store() as store:
        count = store.reindex(rebuild=rebuild)
    verb = "is" if count == 1 else "are"
    target.report(
        {"documents": count}, f"{output.number_of(count, 'text')} {verb} new in the index of {target.shown_url}."
    )


def _print_results(_: Sequence[Column], records: Sequence[Mapping[str, Any]]) -> None:
    """Print a line about each result, and its snippet with the matches in bold."""
    for record in records:
        where = "title" if record["position"] is None else f"{record['position']} {record['role'] or record['type']}"
        created = output.clock(datetime.fromisoformat(record["created_at"]))
        hits = output.number_of(record["hits"], "match", "matches") if "hits" in record else None
        about = (record["conversation_id"], hits, where, created, record["user_id"], record["title"])
        output.print_text("  ".join(" ".join(text.split()) for text in about if text), is_dim=True)
        parts, end, snippet = [], 0, record["snippet"]
        for start, stop in record["marks"]:
            parts += [printable(snippet[end:start]), output.styled(printable(snippet[start:stop]), is_bold=True)]
            end = stop
        typer.echo("".join(["  ", *parts, printable(snippet[end:])]))


@on_target()
def changes(
    target: Target,
    *,
    after: Annotated[
        Text, Option("--after", metavar="CURSOR", help="Continue after the change with this cursor, or from `now`.")
    ] = None,
    follow: Annotated[bool, Option("--follow", help="Wait for further changes, until interrupted.")] = False,
    poll: Annotated[float, Option("--poll", metavar="SECONDS", help="How often to look, with --follow.")] = 1.0,
) -> None:
    """Print the change feed, as lines of JSON.

    It tells what was appended, changed and deleted, oldest first. The cursor in the last line is where to continue.
    """
    with target.store() as store:
        for change in store.watch(after, poll=poll) if follow else _all_changes(store, after):
            output.print_json_line({**change.to_dict(), "created_at": iso(change.created_at)})


def _all_changes(store: Store, after: str | None) -> Iterator[Change]:
    while page := store.changes(after, limit=PAGE_SIZE):
        yield from page
        after = page.cursor
