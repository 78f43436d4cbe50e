"""``threadkeep render``: the next request of a conversation."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from threadkeep.cli.output import note, print_json
from threadkeep.cli.place import AsJson, Branch, FormatName, Id, Tenant, Url, opened, place_of

if TYPE_CHECKING:
    from threadkeep.domain.wire import Loss, Rendered, Repair


def render(
    context: typer.Context,
    *,
    id: Id,
    format: FormatName,
    upto: Annotated[
        int | None, typer.Option("--upto", metavar="N", help="Show items up to and including this position.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail where the request would not be exact.")] = False,
    body: Annotated[bool, typer.Option("--body", help="Print the very bytes to send, and no line break.")] = False,
    server_state: Annotated[
        Literal["auto", "none"],
        typer.Option("--server-state", help="none: send the whole history, also where the provider holds it."),
    ] = "auto",
    branch: Branch = None,
    url: Url = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Print the next request for a provider, as JSON.

    What it cannot say (losses) and what was mended (repairs) goes to stderr. With --json the report is part of the
    output: payload, losses, repairs, stable and head.
    """
    place = place_of(context, url, tenant, is_json=as_json)
    with opened(place) as store:
        conversation = store.get_conversation(id, branch=branch)
        rendered = conversation.render(format, strict=strict, upto=upto, server_state=server_state)
        for line in report_of(rendered) if body or not place.is_json else ():
            note(line)
        if body:
            typer.echo(rendered.body, nl=False)
        elif place.is_json:
            print_json(
                {
                    "format": format,
                    "payload": rendered.payload,
                    "losses": [asdict(loss) for loss in rendered.losses],
                    "repairs": [asdict(repair) for repair in rendered.repairs],
                    "stable": rendered.stable,
                    "head": rendered.head,
                }
            )
        else:
            print_json(rendered.payload)


def report_of(rendered: Rendered) -> list[str]:
    """A line for each loss and repair of a request."""
    return [_line("loss", loss) for loss in rendered.losses] + [_line("repair", repair) for repair in rendered.repairs]


def _line(kind: str, found: Loss | Repair) -> str:
    item = None if found.position is None else f"item {found.position}"
    place = ", ".join(part for part in (item, found.path) if part)
    return f"{kind}: {found.code}{f' ({place})' if place else ''}: {found.detail}"
