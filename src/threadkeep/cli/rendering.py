"""``threadkeep render``: the next request of a conversation."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from threadkeep.cli.output import note, print_json
from threadkeep.cli.place import AsJson, Branch, FormatName, Id, OfUser, Tenant, Url, opened, place_of
from threadkeep.cli.views import checked_dialect, context_of, turns_of
from threadkeep.errors import InvalidOption

if TYPE_CHECKING:
    from threadkeep.domain.jsontext import JsonObject
    from threadkeep.domain.wire import Loss, Rendered, Repair
    from threadkeep.store.requests import View

Upto = Annotated[
    int | None, typer.Option("--upto", metavar="N", min=-1, help="Show items up to and including this position.")
]
Window = Annotated[int | None, typer.Option("--window", metavar="N", min=1, help="Show the last N turns.")]
Step = Annotated[
    int | None, typer.Option("--step", metavar="N", min=1, help="Move the window once in N turns; with --window.")
]
NoVision = Annotated[bool, typer.Option("--no-vision", help="A note in the place of each picture.")]
NoReasoning = Annotated[bool, typer.Option("--no-reasoning", help="Show no reasoning of earlier answers.")]
DynamicContext = Annotated[
    str | None,
    typer.Option("--dynamic-context", metavar="JSON", help="What is true now: an object, or @FILE; @- is stdin."),
]
ContextAt = Annotated[
    Literal["front", "tail"] | None,
    typer.Option("--dynamic-context-at", help="Where it stands: before the history, or right before the question."),
]
Cache = Annotated[
    Literal["auto"] | None, typer.Option("--cache", help="Mark what the provider's prompt cache is to keep.")
]
Account = Annotated[
    str | None, typer.Option("--account", metavar="NAME", help="Whose explicit caches count; with --cache auto.")
]
Dialect = Annotated[
    str | None, typer.Option("--dialect", metavar="NAME", help="The vendor, where it speaks the format in its own way.")
]
ServerState = Annotated[
    Literal["auto", "none"],
    typer.Option("--server-state", help="none: send the whole history, also where the provider holds it."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Fail where the request would not be exact.")]
AsBody = Annotated[bool, typer.Option("--body", help="Print the very bytes to send, and no line break.")]


def render(
    context: typer.Context,
    *,
    id: Id,
    format: FormatName,
    upto: Upto = None,
    window: Window = None,
    step: Step = None,
    no_vision: NoVision = False,
    no_reasoning: NoReasoning = False,
    dynamic_context: DynamicContext = None,
    dynamic_context_at: ContextAt = None,
    cache: Cache = None,
    account: Account = None,
    dialect: Dialect = None,
    server_state: ServerState = "auto",
    strict: Strict = False,
    body: AsBody = False,
    branch: Branch = None,
    user: OfUser = None,
    url: Url = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Print the next request for a provider, as JSON.

    What it cannot say (losses) and what was mended (repairs) goes to stderr. With --json the report is part of the
    output: payload, losses, repairs, stable and head.
    """
    if account is not None and cache is None:
        raise InvalidOption("--account says whose explicit caches count: give --cache auto, too.")
    view: View = {
        "strict": strict, "upto": upto, "server_state": server_state, "vision": not no_vision,
        "reasoning": not no_reasoning, "window": turns_of(window, step), "cache": cache, "account": account or "",
        "dialect": checked_dialect(dialect), **context_of(dynamic_context, dynamic_context_at),
    }  # fmt: skip
    place = place_of(context, url, tenant, is_json=as_json)
    with opened(place, user=user) as store:
        rendered = store.get_conversation(id, branch=branch).render(format, **view)
    for line in report_of(rendered) if body or not place.is_json else ():
        note(line)
    if body:
        typer.echo(rendered.body, nl=False)
    else:
        print_json(object_of(rendered, format) if place.is_json else rendered.payload)


def object_of(rendered: Rendered, format: str) -> JsonObject:
    """A request with its report, as JSON."""
    return {
        "format": format,
        "payload": rendered.payload,
        "losses": [asdict(loss) for loss in rendered.losses],
        "repairs": [asdict(repair) for repair in rendered.repairs],
        "stable": rendered.stable,
        "head": rendered.head,
    }


def report_of(rendered: Rendered) -> list[str]:
    """A line for each loss and repair of a request."""
    return [_line("loss", loss) for loss in rendered.losses] + [_line("repair", repair) for repair in rendered.repairs]


def _line(kind: str, found: Loss | Repair) -> str:
    item = None if found.position is None else f"item {found.position}"
    place = ", ".join(part for part in (item, found.path) if part)
    return f"{kind}: {found.code}{f' ({place})' if place else ''}: {found.detail}"
