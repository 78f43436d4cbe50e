"""``threadkeep append``: a provider's answer into a conversation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from threadkeep.cli.importing import STDIN
from threadkeep.cli.output import Column, print_json, print_table
from threadkeep.cli.place import AsJson, Branch, FormatName, Id, Tenant, Url, opened, place_of
from threadkeep.errors import InvalidOption

if TYPE_CHECKING:
    from threadkeep.domain.response import Response

COLUMNS: Final = (
    Column("id", is_kept=True),
    Column("status"),
    Column("model"),
    Column("items", is_number=True),
    Column("calls", is_number=True),
    Column("input_tokens", is_number=True),
    Column("output_tokens", is_number=True),
    Column("replayed"),
)


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
    int | None, typer.Option("--expected-head", metavar="N", help="Position where the branch must end; -1: empty.")
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
    branch: Branch = None,
    url: Url = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Append a provider's answer to a conversation.

    Its items, the raw body and a row of the usage ledger are written in one transaction. Of an answer that is an error
    only the ledger row is written, and the command fails.
    """
    place = place_of(context, url, tenant, is_json=as_json)
    body = content_of(file)
    with opened(place) as store:
        response = store.get_conversation(id, branch=branch).add_response(
            body,
            format,
            idempotency_key=key,
            expected_head=expected_head,
            on_conflict=on_conflict,
            provider=provider,
            latency_ms=latency_ms,
        )
    if place.is_json:
        print_json({"id": id, "replayed": response.replayed, "response": response.to_dict()})
    else:
        print_table(COLUMNS, [row_of(id, response)])


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


def content_of(name: str) -> bytes:
    """The bytes of a file, or of stdin.

    Raises:
        InvalidOption: it cannot be read.
    """
    if name == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise InvalidOption(f"Cannot read {name!r}: {error.strerror or error}.") from error
