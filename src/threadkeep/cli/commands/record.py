"""``threadkeep record``: stands between applications and providers, and stores what passes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from threadkeep.cli.options import on_target
from threadkeep.cli.output import note
from threadkeep.cli.serving import MAX_PORT, MIB
from threadkeep.cli.target import Target
from threadkeep.errors import InvalidOption

DEFAULT_PORT = 4011


@on_target("url", "tenant", "blobs")
def record(
    target: Target,
    *,
    upstream: Annotated[
        list[str] | None,
        Option("--upstream", metavar="NAME=FORMAT@URL", help="Provider whose calls are recorded; can be repeated."),
    ] = None,
    host: Annotated[str, Option("--host", metavar="ADDRESS", help="Address to listen on, of this machine.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, Option("--port", metavar="N", min=0, max=MAX_PORT, help="Port; 0: any.")] = DEFAULT_PORT,
    max_answer: Annotated[
        int, Option("--max-answer", metavar="MIB", min=1, help="How much of an answer is stored; all of it passes.")
    ] = 64,
    spool: Annotated[
        Path | None, Option("--spool", metavar="DIR", help="Keep calls there until they are stored, kills included.")
    ] = None,
    spool_limit: Annotated[
        int, Option("--spool-limit", metavar="MIB", min=1, help="How much this process may have in the spool.")
    ] = 1024,
) -> None:
    """Pass calls on to providers, and store them on the way.

    The first lines say what the base URL of clients must be. If the database has keys (`threadkeep keys create`), every
    call needs one, in `x-threadkeep-key` or after /k/ in the base URL; otherwise, only this machine is served. A
    missing SQLite file is created. Ctrl+C ends it.
    """
    from threadkeep.http import RecordedUpstream, recorder_app, site
    from threadkeep.http.upstreams import shown_url

    if not upstream:
        raise InvalidOption("is required, such as anthropic=messages@https://api.anthropic.com.", argument="--upstream")
    upstreams = [RecordedUpstream.named(text) for text in upstream]
    from threadkeep.cli.serving import authentication, checked_keys, listening_at, metrics_token, opened_store, run

    checked_keys(target, host)
    store = opened_store(target)
    recorder = recorder_app(
        opened_store(target), upstreams, auth=authentication(target, store), max_answer_bytes=max_answer * MIB,
        spool=spool, spool_limit=spool_limit * MIB,
    )  # fmt: skip
    application = site({"": recorder}, store=store, metrics_token=metrics_token())
    with listening_at(host, port) as (listening, url):
        for one in upstreams:
            note(f"threadkeep: recording {shown_url(one.url)} in {target.shown_url} at {url}/{one.name}")
        run(application, listening, store)
