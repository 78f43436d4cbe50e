"""Commands that change a conversation: append a response, whole or streamed; title, label, fork, archive, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final, Literal

from typer import Argument, Option

from threadkeep.cli import options as given
from threadkeep.cli.output import Column, note, number_of, open_input, print_json, print_table, print_text, record
from threadkeep.cli.target import Target, open_conversation
from threadkeep.domain.jsontext import event_text, loads
from threadkeep.errors import CannotParse, InvalidOption, ProviderError

if TYPE_CHECKING:
    from threadkeep import Conversation, Response, Store


COLUMNS: Final = (
    Column("id", no_wrap=True), Column("status"), Column("model", drop_order=1), Column("items", is_number=True),
    Column("calls", is_number=True, drop_order=2), Column("input_tokens", is_number=True, drop_order=4),
    Column("output_tokens", is_number=True, drop_order=3), Column("replayed"),
)  # fmt: skip

STREAM_ENDED: Final = {"reason": "stream_ended"}  # the incomplete_details of a stream that broke off

Body = Annotated[
    str, Argument(metavar="FILE", help="The response body as the provider sent it; - is stdin.", show_default=False)
]
Key = Annotated[
    given.Text, Option("--key", metavar="KEY", help="Idempotency key: the same response is only stored once.")
]
Provider = Annotated[given.Text, Option("--provider", metavar="NAME", help="The provider, for usage reports.")]
Latency = Annotated[float | None, Option("--latency-ms", metavar="MS", help="Latency of the response.")]
FirstToken = Annotated[
    float | None, Option("--first-token-ms", metavar="MS", help="Time from the request to the first token.")
]
Head = Annotated[
    int | None, Option("--expected-head", metavar="N", min=-1, help="Position where the branch must end; -1 if empty.")
]
Stream = Annotated[bool, Option("--stream", help="The file contains events, one per line: JSON or server-sent events.")]
OnConflict = Annotated[
    Literal["raise", "append", "branch"], Option("--on-conflict", help="What to do if the branch ends elsewhere.")
]


@given.on_target()
def append(
    target: Target,
    *,
    id: given.ConversationId,
    file: Body,
    format: given.WireFormat,
    key: Key = None,
    provider: Provider = None,
    latency_ms: Latency = None,
    first_token_ms: FirstToken = None,
    expected_head: Head = None,
    on_conflict: OnConflict = "raise",
    stream: Stream = False,
    branch: given.Branch = None,
    user: given.Owner = None,
) -> None:
    """Append a provider's response to a conversation.

    Its items, the raw body and a row in the usage ledger are written in one transaction. If the response is an error,
    only the ledger row is written, and the command fails. With --stream, the file contains the events of a streamed
    response, which are stored as they arrive.
    """
    options: dict[str, Any] = {
        "idempotency_key": key, "expected_head": expected_head, "on_conflict": on_conflict, "provider": provider,
        "latency_ms": latency_ms, "first_token_ms": first_token_ms,
    }  # fmt: skip
    with open_input(file) as source, target.store(user=user) as store:
        conversation = open_conversation(store, id, branch)
        response = (_append_stream if stream else _append_body)(conversation, source, format, options)
    if target.is_json:
        print_json({"id": conversation.id, "replayed": response.replayed, "response": response.to_dict()})
    else:
        print_table(COLUMNS, [_record_of(conversation.id, response)])
    if stream:
        # Print a note if a stream broke off, or fail if it reported an error
        from threadkeep import Response

        if response.incomplete_details == STREAM_ENDED:
            nothing = f"nothing in it was a response in {format} (omit --stream if the file is one complete body)"
            result = "what arrived is stored" if response.output else nothing
            note(f"threadkeep: the stream ended early, so the response is incomplete; {result}")
        if response.failed:
            Response.parse(
                {"error": response.error}, given.format_name(format)
            )  # raises, as for a body that is an error


def _append_body(conversation: Conversation, source: BinaryIO, format: str, options: dict[str, Any]) -> Response:
    body = source.read()
    try:
        return conversation.add_response(body, given.format_name(format), **options)
    except CannotParse as error:
        if not isinstance(error, ProviderError) and _holds_events(body):
            error.hint = "If the file contains the events of a stream, use --stream."
        raise


def _append_stream(conversation: Conversation, source: BinaryIO, format: str, options: dict[str, Any]) -> Response:
    """Append a stream with one event per line, as JSON or server-sent events; return the response."""
    has_events = False
    with conversation.stream_response(given.format_name(format), **options) as recorder:
        for event in filter(None, map(event_text, source)):
            recorder.feed(event)
            has_events = True
        if not has_events:
            raise CannotParse("There were no events, so the response is incomplete. There must be one event per line.")
    return recorder.partial


def _holds_events(body: bytes) -> bool:
    """Return whether a body looks like a stream: server-sent events, or several lines, the first of which is JSON."""
    line, _, others = body.strip().partition(b"\n")
    if event_text(line) != line.strip():
        return True
    try:
        return bool(others) and isinstance(loads(line), dict)
    except ValueError:
        return False


def _record_of(id: str, response: Response) -> dict[str, Any]:
    """Return a response as a row."""
    usage = response.usage and response.usage.normalized
    return record(response, "status", "model", "replayed") | {
        "id": id, "items": len(response.output), "calls": len(response.tool_calls),
        "input_tokens": usage and usage.input_tokens, "output_tokens": usage and usage.output_tokens,
    }  # fmt: skip


Ids = Annotated[
    list[str], Argument(metavar="ID...", help="Ids of conversations, or their beginnings.", show_default=False)
]


def _opened(store: Store, ids: list[str]) -> list[Conversation]:
    """All of them, before anything is changed."""
    return list({one.id: one for one in (open_conversation(store, text) for text in ids)}.values())


@given.on_target()
def delete(target: Target, *, ids: Ids, user: given.Owner = None, yes: given.Yes = False) -> None:
    """Delete conversations; the ledger is kept."""
    with target.store(user=user) as store:
        found = [conversation.id for conversation in _opened(store, ids)]
        if not yes:
            named = ", ".join(found)
            raise InvalidOption(
                f"This deletes {number_of(len(found), 'conversation')} for good: {named}. Use --yes to confirm."
            )
        for one in found:
            store.delete_conversation(one)
    target.report({"deleted": found}, f"{number_of(len(found), 'conversation')} deleted.")


@given.on_target()
def archive(target: Target, *, ids: Ids, user: given.Owner = None) -> None:
    """Archive conversations, which hides them in lists."""
    with target.store(user=user) as store:
        found = _opened(store, ids)
        for conversation in found:
            conversation.archive()
    target.report({"archived": [one.id for one in found]}, f"{number_of(len(found), 'conversation')} archived.")


@given.on_target()
def unarchive(target: Target, *, ids: Ids, user: given.Owner = None) -> None:
    """Make archived conversations active again."""
    with target.store(user=user) as store:
        found = _opened(store, ids)
        for conversation in found:
            conversation.unarchive()
    target.report({"unarchived": [one.id for one in found]}, f"{number_of(len(found), 'conversation')} active again.")


@given.on_target()
def title(
    target: Target,
    *,
    id: given.ConversationId,
    text: Annotated[str | None, Argument(metavar="[TEXT]", help="The new title; default: print it.")] = None,
    remove: Annotated[bool, Option("--remove", help="Remove the title.")] = False,
    user: given.Owner = None,
) -> None:
    """Print, set or remove the title of a conversation."""
    if remove and text is not None:
        raise InvalidOption("Give a title, or --remove, but not both.")
    with target.store(user=user) as store:
        conversation = open_conversation(store, id)
        if remove or text is not None:
            conversation.update(title=text)
        target.report({"id": conversation.id, "title": conversation.title}, conversation.title or "")


@given.on_target()
def label(
    target: Target,
    *,
    id: given.ConversationId,
    labels: Annotated[
        list[str] | None, Argument(metavar="[KEY=VALUE...]", help="Labels to set; without any, they are printed.")
    ] = None,
    remove: Annotated[
        list[str] | None, Option("--remove", metavar="KEY", help="Remove this label; can be repeated.")
    ] = None,
    user: given.Owner = None,
) -> None:
    """Print, set or remove labels of a conversation."""
    new, gone = given.labels_of(labels), set(remove or ())
    with target.store(user=user) as store:
        conversation = open_conversation(store, id)
        if new or gone:
            kept = {name: value for name, value in conversation.labels.items() if name not in gone}
            conversation.update(labels=kept | new)
        lines = [f"{name}={value}" for name, value in sorted(conversation.labels.items())]
        target.report({"id": conversation.id, "labels": conversation.labels}, "\n".join(lines))


@given.on_target()
def fork(
    target: Target,
    *,
    id: given.ConversationId,
    at: Annotated[
        int | None, Option("--at", metavar="N", help="The last position that is shared; default: all.")
    ] = None,
    activate: Annotated[bool, Option("--activate", help="Make the new branch the active one.")] = False,
    branch: given.Branch = None,
    user: given.Owner = None,
) -> None:
    """Fork a conversation and print the number of the new branch."""
    with target.store(user=user) as store:
        forked = open_conversation(store, id, branch).fork(at=at)
        if activate:
            forked.set_active_branch(forked.branch)
    if target.is_json:
        print_json({"id": forked.id, "branch": forked.branch, "active": activate})
    else:
        print_text(str(forked.branch))
