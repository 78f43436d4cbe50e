"""``threadkeep serve``: OpenAI's Conversations and Responses over a database, for whoever has a key."""

from __future__ import annotations

from collections.abc import Iterable
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from typer import Option

from threadkeep.cli.failures import about
from threadkeep.cli.options import on_target
from threadkeep.cli.output import note
from threadkeep.cli.serving import MAX_PORT, MIB
from threadkeep.cli.target import Target
from threadkeep.errors import InvalidOption, MissingExtra

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from threadkeep import AsyncStore
    from threadkeep.http import Upstream
    from threadkeep.web.keys import KeysOnceMade
    from threadkeep.web.owners import Authenticate

DEFAULT_PORT: Final = 4010
Rate = Annotated[
    int | None, Option("--rate", metavar="N", min=1, help="Requests a minute for each key; default: any number.")
]
Cors = Annotated[
    list[str] | None,
    Option("--cors", metavar="ORIGIN", help="Site whose pages may call it from a browser; can be repeated."),
]
MaxRequests = Annotated[int, Option("--max-requests", metavar="N", min=1, help="Requests in flight at once.")]
MaxBody = Annotated[int, Option("--max-body", metavar="MIB", min=1, help="Largest body of a request.")]
MaxAnswer = Annotated[
    int, Option("--max-answer", metavar="MIB", min=1, help="Longest answer of a provider that is read and stored.")
]
MaxSeconds = Annotated[
    int, Option("--max-seconds", metavar="N", min=1, help="How long a request may take, with its answer.")
]
Log = Annotated[Literal["info", "warning", "error"], Option("--log", help="What is logged; info: every request.")]


@on_target("url", "tenant", "blobs")
def serve(
    target: Target,
    *,
    host: Annotated[str, Option("--host", metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option("--port", metavar="N", min=0, max=MAX_PORT, help="Port; 0: any.")] = DEFAULT_PORT,
    upstream: Annotated[
        list[str] | None,
        Option("--upstream", metavar="NAME=FORMAT@URL", help="Provider that answers; its key is in NAME_API_KEY."),
    ] = None,
    model: Annotated[
        list[str] | None, Option("--model", metavar="PATTERN=NAME", help="Models that an upstream has.")
    ] = None,
    mask: Annotated[
        list[str] | None,
        Option("--mask", metavar="INCLUDE", help="What items lack unless a request includes it; can be repeated."),
    ] = None,
    cors: Cors = None,
    rate: Rate = None,
    max_requests: MaxRequests = 1_000,
    max_body: MaxBody = 16,
    max_answer: MaxAnswer = 64,
    max_seconds: MaxSeconds = 1_800,
    log: Log = "warning",
) -> None:
    """Serve OpenAI's Conversations and Responses.

    The first line says what `base_url` of clients must be. If the database has keys (`threadkeep keys create`), every
    request needs one; otherwise, only this machine is served. Calls to /record/NAME/ pass on to that upstream, and are
    recorded. A missing SQLite file is created. Ctrl+C ends it.
    """
    import threadkeep.http  # says what to install where that is missing
    from threadkeep.cli.serving import authentication, checked_keys, listening_at, metrics_token, opened_store, run
    from threadkeep.web.limits import Limits
    from threadkeep.web.site import site

    has_keys = checked_keys(target, host)
    store = opened_store(target)
    auth = authentication(target, store, rate)
    body = max_body * MIB
    both: Any = {
        "auth": auth, "prefix": "", "upstreams": _upstreams(upstream or (), model or ()), "max_body_bytes": body,
        "max_answer_bytes": max_answer * MIB, "cors": cors or (),
    }  # fmt: skip
    openai = threadkeep.http.app(store, masked=mask or (), **both)
    rest = threadkeep.http.rest_app(store, **both)
    pages, token = _pages(target, store, auth)
    recorder = _recorder(upstream or (), opened_store(target), auth, max_answer * MIB)
    faces = {"/v1": openai, "/api": rest, **recorder, **pages}
    limits = Limits(max(body, Limits().max_body_bytes), max_requests, max_seconds)
    application = site(faces, store=store, limits=limits, metrics_token=metrics_token())
    with listening_at(host, port) as (listening, url):
        note(f"threadkeep: serving {target.shown_url} at {url}/v1")
        if pages:
            note(f"threadkeep: pages for a browser at {url}/{'' if has_keys else f'?token={token}'}")
        run(application, listening, store, log)


def _recorder(upstreams: Iterable[str], store: AsyncStore, auth: Authenticate, most: int) -> dict[str, Starlette]:
    """The recorder under its path, if there is a provider whose calls it can pass on."""
    from threadkeep.http import RecordedUpstream, recorder_app

    recorded = [RecordedUpstream.named(text) for text in upstreams]
    return {"/record": recorder_app(store, recorded, auth=auth, max_answer_bytes=most)} if recorded else {}


def _pages(target: Target, store: AsyncStore, keys: KeysOnceMade) -> tuple[dict[str, Starlette], str]:
    """The viewer under its path, where its extra is installed; and a token.

    Once there are keys, it asks for one. Until then, a browser needs the token in the address.
    """
    from threadkeep.cli.serving import local_caller

    try:
        from threadkeep.viewer import app
    except MissingExtra:
        return {}, ""
    token = token_urlsafe(24)
    return {"": app(store, keys=keys, owner=local_caller(target), token=token)}, token


def _upstreams(upstreams: Iterable[str], models: Iterable[str]) -> dict[str, Upstream]:
    """The table of models: what is given with --model; without it, a single upstream has all of them."""
    from threadkeep.http import named_upstream

    with about("--upstream"):
        known = {made.name: made for made in map(named_upstream, upstreams)}
    table = {}
    for text in models:
        pattern, equals, name = text.rpartition("=")
        if not equals or not pattern or name not in known:
            problem = f"must be PATTERN=NAME, with the name of an --upstream, not {text!r}."
            raise InvalidOption(problem, argument="--model")
        table[pattern] = known[name]
    if known and not table:
        if len(known) > 1:
            raise InvalidOption("must say which of several upstreams has which models.", argument="--model")
        [table["*"]] = known.values()
    return table
