"""``threadkeep append``: appends a provider's response to a conversation, complete or streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final, Literal

from typer import Argument, Option

from threadkeep.cli.file_io import open_input
from threadkeep.cli.options import Branch, ConversationId, Owner, Text, WireFormat, format_name, on_target
from threadkeep.cli.output import Column, note, print_json, print_table, record
from threadkeep.cli.target import Target, open_conversation
from threadkeep.domain.jsontext import loads
from threadkeep.domain.objects import event_text
from threadkeep.errors import CannotParse, ProviderError

if TYPE_CHECKING:
    from threadkeep import Conversation, Response

COLUMNS: Final = (
    Column("id", no_wrap=True), Column("status"), Column("model", drop_order=1), Column("items", is_number=True),
    Column("calls", is_number=True, drop_order=2), Column("input_tokens", is_number=True, drop_order=4),
    Column("output_tokens", is_number=True, drop_order=3), Column("replayed"),
)  # fmt: skip

STREAM_ENDED: Final = {"reason": "stream_ended"}  # the incomplete_details of a stream that broke off

Body = Annotated[
    str, Argument(metavar="FILE", help="The response body as the provider sent it; - is stdin.", show_default=False)
]
Key = Annotated[Text, Option("--key", metavar="KEY", help="Idempotency key: the same response is only stored once.")]
Provider = Annotated[Text, Option("--provider", metavar="NAME", help="The provider, for usage reports.")]
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


@on_target()
def append(
    target: Target,
    *,
    id: ConversationId,
    file: Body,
    format: WireFormat,
    key: Key = None,
    provider: Provider = None,
    latency_ms: Latency = None,
    first_token_ms: FirstToken = None,
    expected_head: Head = None,
    on_conflict: OnConflict = "raise",
    stream: Stream = False,
    branch: Branch = None,
    user: Owner = None,
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
        _report_end_of_stream(response, format)


def _append_body(conversation: Conversation, source: BinaryIO, format: str, options: dict[str, Any]) -> Response:
    """Append a complete body; return the response."""
    body = source.read()
    try:
        return conversation.add_response(body, format_name(format), **options)
    except CannotParse as error:
        if not isinstance(error, ProviderError) and _holds_events(body):
            error.hint = "If the file contains the events of a stream, use --stream."
        raise


def _append_stream(conversation: Conversation, source: BinaryIO, format: str, options: dict[str, Any]) -> Response:
    """Append a stream with one event per line, as JSON or server-sent events; return the response."""
    has_events = False
    with conversation.stream_response(format_name(format), **options) as recorder:
        for event in filter(None, map(event_text, source)):
            recorder.feed(event)
            has_events = True
        if not has_events:
            raise CannotParse("There were no events, so the response is incomplete. There must be one event per line.")
    return recorder.partial


def _report_end_of_stream(response: Response, format: str) -> None:
    """Print a note if a stream broke off, or fail if it reported an error."""
    from threadkeep import Response

    if response.incomplete_details == STREAM_ENDED:
        nothing = f"nothing in it was a response in {format} (omit --stream if the file is one complete body)"
        result = "what arrived is stored" if response.output else nothing
        note(f"threadkeep: the stream ended early, so the response is incomplete; {result}")
    if response.failed:
        Response.parse({"error": response.error}, format_name(format))  # raises, as for a body that is an error


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
