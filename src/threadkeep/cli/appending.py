"""``threadkeep append``: a provider's answer into a conversation, whole or streamed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from threadkeep.cli.files import binary
from threadkeep.cli.output import Column, note, print_json, print_table
from threadkeep.cli.place import AsJson, Branch, FormatName, Id, OfUser, Tenant, Url, opened, place_of
from threadkeep.errors import CannotParse

if TYPE_CHECKING:
    from threadkeep.domain.response import Response
    from threadkeep.store.conversation import Conversation

COLUMNS: Final = (
    Column("id", is_kept=True),
    Column("status"),
    Column("model", exit=1),
    Column("items", is_number=True),
    Column("calls", is_number=True, exit=2),
    Column("input_tokens", is_number=True, exit=4),
    Column("output_tokens", is_number=True, exit=3),
    Column("replayed"),
)


SSE_FIELDS: Final = frozenset({b"data", b"event", b"id", b"retry", b""})  # a line of the last kind is a comment

Body = Annotated[
    str,
    typer.Argument(metavar="FILE", help="The answer's body as the provider sent it; - is stdin.", show_default=False),
]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Idempotency key: the same answer is stored only once.")
]
Provider = Annotated[str | None, typer.Option("--provider", metavar="NAME", help="Who answered, for `usage`.")]
Latency = Annotated[float | None, typer.Option("--latency-ms", metavar="MS", help="How long the provider took.")]
Head = Annotated[
    int | None,
    typer.Option("--expected-head", metavar="N", min=-1, help="Position where the branch must end; -1: empty."),
]
Stream = Annotated[
    bool, typer.Option("--stream", help="The file holds events, one on each line: JSON, or server-sent events.")
]
OnConflict = Annotated[
    Literal["raise", "append", "branch"], typer.Option("--on-conflict", help="What to do where it ends elsewhere.")
]


def append(
    context: typer.Context,
    *,
    id: Id,
    file: Body,
    format: FormatName,
    key: Key = None,
    provider: Provider = None,
    latency_ms: Latency = None,
    expected_head: Head = None,
    on_conflict: OnConflict = "raise",
    stream: Stream = False,
    branch: Branch = None,
    user: OfUser = None,
    url: Url = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Append a provider's answer to a conversation.

    Its items, the raw body and a row of the usage ledger are written in one transaction. Of an answer that is an error
    only the ledger row is written, and the command fails. With --stream the file holds the events of a streamed answer,
    which are stored while they come.
    """
    place = place_of(context, url, tenant, is_json=as_json)
    how: Any = {
        "idempotency_key": key, "expected_head": expected_head, "on_conflict": on_conflict, "provider": provider,
        "latency_ms": latency_ms,
    }  # fmt: skip
    with binary(file) as source, opened(place, user=user) as store:
        conversation = store.get_conversation(id, branch=branch)
        if stream:
            response = recorded(conversation, source, format, how)
        else:
            response = conversation.add_response(source.read(), format, **how)
    if place.is_json:
        print_json({"id": id, "replayed": response.replayed, "response": response.to_dict()})
    else:
        print_table(COLUMNS, [row_of(id, response)])
    if stream:
        note_an_end_too_soon(response, format)
    if stream and response.failed:
        from threadkeep.formats.streams import told_error

        raise told_error(response.error)


def recorded(conversation: Conversation, lines: Iterable[bytes], format: str, how: Any) -> Response:
    """The response of a stream: one event on each line, as JSON or as server-sent events have it.

    Raises:
        CannotParse: a line is no event; what came before is stored. Or none is.
    """
    has_events = False
    with conversation.stream_response(format, **how) as recorder:
        for event in filter(None, map(event_in, lines)):
            recorder.feed(event)
            has_events = True
        if not has_events:
            raise CannotParse("There were no events, so the answer is incomplete. There must be one on each line.")
    return recorder.partial


def note_an_end_too_soon(response: Response, format: str) -> None:
    """Say beside the output that a stream broke off."""
    from threadkeep.formats.streams import BROKEN_OFF

    if response.incomplete_details == BROKEN_OFF:
        nothing = f"nothing in it was an answer in {format} (leave out --stream where the file is one whole body)"
        found = "what came of it is stored" if response.output else nothing
        note(f"threadkeep: the stream ended before the answer did, which is incomplete; {found}")


def event_in(line: bytes) -> bytes:
    """The event on a line; nothing for the other lines of server-sent events."""
    text = line.strip()
    name, colon, data = text.partition(b":")
    if colon and name in SSE_FIELDS:
        return data.strip() if name == b"data" else b""
    return text


def row_of(id: str, response: Response) -> tuple[str | int | None, ...]:
    """An answer in one row."""
    figures = None if response.usage is None else response.usage.normalized
    return (
        id,
        response.status,
        response.model,
        len(response.output),
        len(response.tool_calls),
        None if figures is None else figures.input_tokens,
        None if figures is None else figures.output_tokens,
        "yes" if response.replayed else "no",
    )
