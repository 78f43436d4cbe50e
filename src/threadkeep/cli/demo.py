"""``threadkeep demo``: one conversation, two providers, two processes, five formats.

What the user, the tools and the providers say is in ``data/``; nothing is sent anywhere.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from threadkeep.cli.demo_data import OPEN_RESPONSES, OTHERS, PROVIDERS, Script, body_of, script
from threadkeep.cli.outline import outline
from threadkeep.cli.output import is_terminal, note, print_json, print_text
from threadkeep.cli.pages import every
from threadkeep.cli.place import AsJson, place_of
from threadkeep.cli.rendering import report_of
from threadkeep.cli.showing import print_item
from threadkeep.cli.usage import row_object
from threadkeep.cli.usage_table import print_usage
from threadkeep.errors import InvalidOption, ThreadkeepError

if TYPE_CHECKING:
    from sqlalchemy import URL

    from threadkeep.domain.jsontext import JsonObject
    from threadkeep.domain.response import Response
    from threadkeep.domain.wire import Rendered
    from threadkeep.store.conversation import Conversation
    from threadkeep.store.store import Store

BY: Final = ("provider", "model", "format")


def demo(
    context: typer.Context,
    *,
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="FILE", help="Keep the SQLite file of the demo under this new name.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="ID", help="Do the second half only, in the file of --keep.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show an exchange with tools and two providers.

    A question with a picture, calls and their outputs, the final answer of another provider; then a second process
    resumes the conversation by its id and renders it for everybody. It works on a SQLite file of its own, and sends
    nothing: the providers' answers come with the package.
    """
    is_json = place_of(context, None, None, is_json=as_json).is_json
    if resume is not None:
        if keep is None or not Path(keep).exists():
            raise InvalidOption("--resume needs --keep with the file of an earlier demo.")
        second_half(Path(keep), resume, is_json=is_json)
        return
    with fresh_file(keep) as file:
        stored = first_half(file, is_json=is_json)
        run_second_half(file, stored, is_json=is_json)
    if keep is not None and not is_json:
        url = shlex.quote(url_of(Path(keep)).render_as_string())
        note(f"threadkeep: kept in {keep}; try: threadkeep --url {url} show {stored}")


@contextmanager
def fresh_file(keep: str | None) -> Iterator[Path]:
    """The path of a SQLite file that does not exist yet; a temporary one is removed at the end.

    Raises:
        InvalidOption: there is such a file already.
    """
    if keep is not None:
        if Path(keep).exists():
            raise InvalidOption(f"{keep!r} exists already. Give --keep the name of a new file.")
        if not Path(keep).parent.is_dir():
            raise InvalidOption(f"There is no folder for {keep!r}. Give --keep a name in one that exists.")
        yield Path(keep)
        return
    with tempfile.TemporaryDirectory(prefix="threadkeep-demo-", ignore_cleanup_errors=True) as folder:
        yield Path(folder, "demo.db")


def url_of(file: Path) -> URL:
    """The URL of a SQLite file, whatever characters its name has."""
    from sqlalchemy import URL

    return URL.create("sqlite", database=str(file))


def store_of(file: Path) -> Store:
    """The store in a SQLite file."""
    from threadkeep.store.store import Store

    return Store(url_of(file))


def first_half(file: Path, *, is_json: bool) -> str:
    """A question, an answer with calls, their outputs, and the final answer of another provider; returns the id."""
    given = script()
    with store_of(file) as store:
        conversation = store.create_conversation(tools=given["tools"], **given["conversation"])
        conversation.user(given["question"])
        ask(conversation, OPEN_RESPONSES, given)
        ask(conversation, "chat_completion", given)
        if not is_json:
            print_text("The providers' answers are recorded ones; nothing is sent anywhere.")
            headline(f"Process {os.getpid()} stores {conversation.id}, “{conversation.title}”, turn by turn")
            answers = {one.from_position: one for one in conversation.responses()}
            for stored in every(conversation.items):
                print_item(stored, answers.get(stored.position))
    return conversation.id


def ask(conversation: Conversation, format: str, given: Script) -> Response:
    """One round: render the request, add the answer that a provider once gave, and run the tools it calls."""
    conversation.update(model=given["models"][format])
    rendered = conversation.render(format)
    response = conversation.add_response(body_of(format), format, rendered=rendered, **PROVIDERS[format])
    for call in response.tool_calls:
        conversation.add_function_call_output(call_id=call.call_id, output=given["tool_outputs"][call.name])
    return response


def run_second_half(file: Path, id: str, *, is_json: bool) -> None:
    """Resume in another process, which has nothing but the file and the id.

    Raises:
        ThreadkeepError: it failed; what it said is on stderr.
    """
    command = [sys.executable, "-m", "threadkeep", "demo", "--keep", str(file), "--resume", id]
    sys.stdout.flush()
    # A terminal is handed on, so that both processes print alike; else the output is passed on from here.
    output = None if is_terminal() else subprocess.PIPE
    done = subprocess.run([*command, "--json"] if is_json else command, check=False, stdout=output)  # noqa: S603 - ourselves
    if done.stdout:
        typer.echo(done.stdout, nl=False)
    if done.returncode:
        raise ThreadkeepError(f"The second process failed with exit code {done.returncode}.")


def second_half(file: Path, id: str, *, is_json: bool) -> None:
    """Resume by id, ask one more question, and show the requests for all providers and what all of it used."""
    given, requests = script(), {}
    with store_of(file) as store:
        conversation = store.get_conversation(id)
        asked = conversation.user(given["follow_up"])
        for wire, model in {**OTHERS, **given["models"]}.items():
            conversation.update(model=model)
            requests[wire] = conversation.render(wire)
        rows = store.usage(by=BY)
        total = store.usage()[0]
    if is_json:
        found = {wire: request_object(rendered) for wire, rendered in requests.items()}
        print_json({"id": id, "requests": found, "usage": [row_object(row) for row in rows]})
        return
    headline(f"Process {os.getpid()} resumes {id} and asks on")
    print_item(asked)
    for wire in given["models"]:
        print_request(wire, requests[wire])
    headline("And in the other formats, in short; `threadkeep render` prints them")
    for wire in OTHERS:
        print_report(wire, requests[wire])
    headline("What it used, by `threadkeep usage --by provider,model,format`")
    print_text("")
    print_usage(BY, rows, total, is_aligned=True)


def request_object(rendered: Rendered) -> JsonObject:
    """A request as JSON, with the lines of its report."""
    return {"payload": rendered.payload, "report": report_of(rendered)}


def print_request(format: str, rendered: Rendered) -> None:
    """Print a request in short, and what it does not say."""
    headline(
        f"The next request in {format}: {len(rendered.body):,} bytes, its first {rendered.stable} turns are settled"
    )
    print_text("")
    print_text("\n".join(f"  {line}" for line in outline(rendered.payload)))
    for line in report_of(rendered):
        print_text(f"  {line}", is_dim=True)


def print_report(format: str, rendered: Rendered) -> None:
    """Print how large a request is, and what it does not say."""
    print_text("")
    print_text(f"  {format}: {len(rendered.body):,} bytes, its first {rendered.stable} turns are settled")
    for line in report_of(rendered):
        print_text(f"  {line}", is_dim=True)


def headline(text: str) -> None:
    """Print the title of a section."""
    print_text("")
    print_text(f"── {text}", is_bold=True, colour="blue")
