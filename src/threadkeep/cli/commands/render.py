"""``threadkeep render``: renders the next request of a conversation."""

from __future__ import annotations

import codecs
from dataclasses import asdict
from reprlib import repr as short_repr
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Option

from threadkeep.cli.options import Branch, ConversationId, Owner, Text, WireFormat, format_name, on_target
from threadkeep.cli.output import note, open_input, print_json
from threadkeep.cli.target import Target, open_conversation
from threadkeep.domain.jsontext import loads
from threadkeep.errors import InvalidOption

if TYPE_CHECKING:
    from threadkeep import Loss, Rendered, Repair, Turns

Upto = Annotated[
    int | None, Option("--upto", metavar="N", min=-1, help="Show items up to and including this position.")
]
Window = Annotated[int | None, Option("--window", metavar="N", min=1, help="Show the last N turns.")]
Step = Annotated[
    int | None, Option("--step", metavar="N", min=1, help="With --window: move the window once every N turns.")
]
NoVision = Annotated[bool, Option("--no-vision", help="Replace each image with a note.")]
Pictures = Annotated[
    str | None, Option("--pictures", metavar="N|auto", help="Show the newest N images; auto: what the provider takes.")
]
NoReasoning = Annotated[bool, Option("--no-reasoning", help="Omit the reasoning of earlier responses.")]
ReasoningText = Annotated[
    bool, Option("--reasoning-text", help="Send reasoning that only another provider could read as text.")
]
DynamicContext = Annotated[
    Text, Option("--dynamic-context", metavar="JSON", help="Current facts: a JSON object, or @FILE; @- is stdin.")
]
ContextAt = Annotated[
    Literal["front", "tail"] | None,
    Option("--dynamic-context-at", help="Place of these facts: before the history, or directly before the question."),
]
Cache = Annotated[Literal["auto"] | None, Option("--cache", help="Mark what the provider's prompt cache should store.")]
Provider = Annotated[
    Text, Option("--provider", metavar="NAME", help="Who gets the request: what only others can read is left out.")
]
Account = Annotated[Text, Option("--account", metavar="NAME", help="The account there, if there are several.")]
Dialect = Annotated[
    Text, Option("--dialect", metavar="NAME", help="The vendor, if it uses its own version of the format.")
]
ToolResults = Annotated[
    Literal["json"] | None, Option("--tool-results", help="Send tool outputs of several parts as JSON text.")
]
MediaUrl = Annotated[
    Text, Option("--media-url", metavar="URL", help="Send URLs in place of media: https://files.example/{hash}.")
]
ServerState = Annotated[
    Literal["auto", "none"],
    Option("--server-state", help="none: send the whole history, even if the provider stores it."),
]
Strict = Annotated[bool, Option("--strict", help="Fail if the request is not exact.")]
AsBody = Annotated[bool, Option("--body", help="Print exactly the bytes to send, without a newline.")]


@on_target()
def render(
    target: Target,
    *,
    id: ConversationId,
    format: WireFormat,
    upto: Upto = None,
    window: Window = None,
    step: Step = None,
    no_vision: NoVision = False,
    pictures: Pictures = None,
    no_reasoning: NoReasoning = False,
    reasoning_text: ReasoningText = False,
    dynamic_context: DynamicContext = None,
    dynamic_context_at: ContextAt = None,
    cache: Cache = None,
    provider: Provider = None,
    account: Account = None,
    dialect: Dialect = None,
    tool_results: ToolResults = None,
    media_url: MediaUrl = None,
    server_state: ServerState = "auto",
    strict: Strict = False,
    body: AsBody = False,
    branch: Branch = None,
    user: Owner = None,
) -> None:
    """Print the next request for a provider, as JSON.

    What the format cannot express (losses) and what had to be repaired is printed on stderr. With --json, the report is
    part of the output: payload, losses, repairs, stable and head.
    """
    if no_reasoning and reasoning_text:
        raise InvalidOption("--no-reasoning and --reasoning-text exclude each other.")
    view: dict[str, Any] = {
        "strict": strict, "upto": upto, "server_state": server_state, "vision": not no_vision,
        "pictures": int(pictures) if pictures is not None and pictures.isdecimal() else pictures,
        "reasoning": "text" if reasoning_text else not no_reasoning, "window": _window_of(window, step), "cache": cache,
        "provider": provider, "account": account or "", "dialect": dialect, "tool_results": tool_results,
        "media_url": media_url,
        **_dynamic_context_of(dynamic_context, dynamic_context_at),
    }  # fmt: skip
    with target.store(user=user) as store:
        rendered = open_conversation(store, id, branch).render(format_name(format), **view)
    if target.is_json and not body:
        print_json(record_of(rendered, format))
        return
    for line in report_lines(rendered):
        note(line)
    if body:
        typer.echo(rendered.body, nl=False)
    else:
        print_json(rendered.payload)


def _window_of(window: int | None, step: int | None) -> Turns | None:
    """Return the window of a request."""
    from threadkeep import Turns

    if window is None:
        if step is not None:
            raise InvalidOption("--step says how the window moves: give --window, too.")
        return None
    return Turns(window, step=1 if step is None else step)


def _dynamic_context_of(text: str | None, at: str | None) -> dict[str, Any]:
    """Return the dynamic context and its place as options of the library; nothing without the option."""
    if text is None:
        if at is not None:
            raise InvalidOption("--dynamic-context-at says where the context goes: give --dynamic-context, too.")
        return {}
    return {"dynamic_context": _json_object(text), "dynamic_context_at": at or "front"}


def _json_object(text: str) -> dict[str, Any]:
    """Return the JSON object given by the option, or in the file named after an ``@``."""
    if text.startswith("@"):
        with open_input(text[1:]) as file:
            data = file.read().removeprefix(codecs.BOM_UTF8)
    else:
        data = text.encode("utf-8", "surrogateescape")
    try:
        value, reason = loads(data), ""
    except ValueError as error:
        value, reason = None, f": {error}"
    if not isinstance(value, dict):
        raise InvalidOption(
            f"--dynamic-context {short_repr(text)} is not {'JSON' if reason else 'a JSON object'}{reason}. "
            'Give an object such as \'{"time":"12:00"}\', or @FILE with one.'
        )
    return value


def record_of(rendered: Rendered, format: str) -> dict[str, Any]:
    """Return a request with its report, as JSON."""
    return {
        "format": format, "payload": rendered.payload, "losses": [asdict(loss) for loss in rendered.losses],
        "repairs": [asdict(repair) for repair in rendered.repairs], "stable": rendered.stable, "head": rendered.head,
    }  # fmt: skip


def report_lines(rendered: Rendered) -> list[str]:
    """Return a line for each loss and repair of a request."""
    losses = [_report_line("loss", loss) for loss in rendered.losses]
    return losses + [_report_line("repair", repair) for repair in rendered.repairs]


def _report_line(kind: str, report: Loss | Repair) -> str:
    item = None if report.position is None else f"item {report.position}"
    where = ", ".join(part for part in (item, report.path) if part)
    return f"{kind}: {report.code}{f' ({where})' if where else ''}: {report.detail}"
