"""``threadkeep demo``: one conversation, two providers, two processes, the formats of six APIs.

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
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer import Option

from threadkeep.cli.commands import conversations, usage
from threadkeep.cli.commands.render import report_lines
from threadkeep.cli.options import Text, format_name, on_target
from threadkeep.cli.output import is_terminal, note, print_json, print_text, progress
from threadkeep.cli.target import Target
from threadkeep.cli.usage_table import print_usage
from threadkeep.domain import jsontext, transcripts
from threadkeep.errors import InvalidOption, ThreadkeepError

if TYPE_CHECKING:
    from sqlalchemy import URL

    from threadkeep import Rendered

BY: Final = ("provider", "model", "format")
# wire format of a provider's response -> what is known about the call; in the order of the responses
PROVIDERS: Final[dict[str, dict[str, Any]]] = {
    "open_responses": {"provider": "openai", "latency_ms": 4_180},
    "chat_completion": {"provider": "openrouter", "latency_ms": 1_020},
}

# wire formats without a response in the demo -> the model that would be used
OTHER_MODELS: Final = {
    "messages": "claude-sonnet-4-5",
    "gemini": "gemini-3-pro-preview",
    "interactions": "gemini-3-pro-preview",
    "converse": "us.amazon.nova-2-lite-v1:0",
}


@on_target("as_json")
def demo(
    target: Target,
    *,
    keep: Annotated[
        Text, Option("--keep", metavar="FILE", help="Keep the SQLite file of the demo under this new name.")
    ] = None,
    resume: Annotated[
        Text, Option("--resume", metavar="ID", help="Only run the second half, in the file of --keep.")
    ] = None,
    data: Annotated[
        Text, Option("--data", metavar="DIR", help="Instead, fill a database with a month: a folder for it, or a URL.")
    ] = None,
) -> None:
    """Show an exchange with tools and two providers.

    A question with an image, tool calls and their outputs, and the final response from another provider; then a second
    process resumes the conversation by id and renders it for all providers. The demo uses a SQLite file of its own and
    sends nothing: the providers' responses are part of the package.
    """
    if data is not None:
        if keep is not None or resume is not None:
            raise InvalidOption("--data cannot be combined with --keep or --resume.")
        _fill_month(data, is_json=target.is_json)
        return
    if resume is not None:
        if keep is None or not Path(keep).exists():
            raise InvalidOption("--resume needs --keep with the file of an earlier demo.")
        _run_second_half(Path(keep), resume, is_json=target.is_json)
        return
    with _new_file(keep) as file:
        stored = _run_first_half(file, is_json=target.is_json)
        _start_second_half(file, stored, is_json=target.is_json)
    if keep is not None and not target.is_json:
        url = shlex.quote(_url_of(Path(keep)).render_as_string())
        note(f"threadkeep: kept in {keep}; try: threadkeep --url {url} show {stored}")


def _fill_month(data: str, *, is_json: bool) -> None:
    """Fill an empty database with a month of conversations."""
    from datetime import UTC, datetime

    from threadkeep import Store
    from threadkeep.cli.demo_month import PRICES, fill

    url = data
    if "://" not in data:
        Path(data).mkdir(parents=True, exist_ok=True)
        url = _url_of(Path(data, "demo.db")).render_as_string()
    with Store(url, prices=PRICES) as store, progress("conversations") as advance:
        if len(store.list_conversations(status=None, limit=1)):
            raise InvalidOption(f"{data!r} has conversations already: give --data a new folder or an empty database.")
        count = fill(store, datetime.now(UTC).replace(microsecond=0), advance)
    shown = Target(url, None, is_json).shown_url
    if is_json:
        print_json({"url": shown, "conversations": count})
    else:
        note(f"threadkeep: {count} conversations of a month; try: threadkeep --url {shlex.quote(shown)} view")


@contextmanager
def _new_file(keep: str | None) -> Iterator[Path]:
    """Provide the path of a new SQLite file; a temporary one is removed at the end."""
    if keep is not None:
        if Path(keep).exists():
            raise InvalidOption(f"{keep!r} exists already. Give --keep the name of a new file.")
        if not Path(keep).parent.is_dir():
            raise InvalidOption(f"There is no folder for {keep!r}. Give --keep a name in one that exists.")
        yield Path(keep)
        return
    with tempfile.TemporaryDirectory(prefix="threadkeep-demo-", ignore_cleanup_errors=True) as folder:
        yield Path(folder, "demo.db")


def _url_of(file: Path) -> URL:
    """Return the URL of a SQLite file, whatever characters its name contains."""
    from sqlalchemy import URL

    return URL.create("sqlite", database=str(file))


def _run_first_half(file: Path, *, is_json: bool) -> str:
    """Store a question, a response with calls, their outputs, and another provider's final response; return the id."""
    from threadkeep import Store

    script = load_script()
    with Store(_url_of(file)) as store:
        conversation = store.create_conversation(tools=script["tools"], **script["conversation"])
        conversation.user(script["question"])
        for wire, call in PROVIDERS.items():
            conversation.update(model=script["models"][wire])
            rendered = conversation.render(format_name(wire))
            response = conversation.add_response(body_of(wire), format_name(wire), rendered=rendered, **call)
            for tool in response.tool_calls:
                conversation.add_function_call_output(call_id=tool.call_id, output=script["tool_outputs"][tool.name])
        if not is_json:
            print_text("The providers' responses are recordings; nothing is sent anywhere.")
            _print_headline(f"Process {os.getpid()} stores {conversation.id}, “{conversation.title}”, turn by turn")
            conversations.print_items(conversation, conversation.transcript())
    return conversation.id


def _start_second_half(file: Path, id: str, *, is_json: bool) -> None:
    """Resume in another process, which has only the file and the id."""
    command = [sys.executable, "-m", "threadkeep", "demo", "--keep", str(file), "--resume", id]
    sys.stdout.flush()
    # Both processes print to a terminal themselves, and alike; otherwise this one prints what the other one says.
    output = None if is_terminal() else subprocess.PIPE
    done = subprocess.run([*command, "--json"] if is_json else command, check=False, stdout=output)  # noqa: S603 - ourselves
    if done.stdout:
        typer.echo(done.stdout, nl=False)
    if done.returncode:
        raise ThreadkeepError(f"The second process failed with exit code {done.returncode}.")


def _run_second_half(file: Path, id: str, *, is_json: bool) -> None:
    """Resume by id, ask another question, and show the requests for all providers and the total usage."""
    from threadkeep import Store

    script, requests = load_script(), {}
    with Store(_url_of(file)) as store:
        conversation = store.get_conversation(id)
        question = conversation.user(script["follow_up"])
        for wire, model in {**OTHER_MODELS, **script["models"]}.items():
            conversation.update(model=model)
            requests[wire] = conversation.render(format_name(wire))
        rows = store.usage(by=BY)
        total = store.usage()[0]
    if is_json:
        reports = {
            wire: {"payload": rendered.payload, "report": report_lines(rendered)} for wire, rendered in requests.items()
        }
        print_json({"id": id, "requests": reports, "usage": [usage.record_of(row) for row in rows]})
        return
    _print_headline(f"Process {os.getpid()} resumes {id} and asks another question")
    conversations.print_item(question)
    for wire in script["models"]:
        _print_headline(f"The next request in {_summary(wire, requests[wire])}")
        print_text("".join(f"\n  {line}" for line in transcripts.preview_lines(requests[wire].payload)))
        _print_report(requests[wire])
    _print_headline("The other formats in brief; `threadkeep render` prints the requests")
    for wire in OTHER_MODELS:
        print_text(f"\n  {_summary(wire, requests[wire])}")
        _print_report(requests[wire])
    _print_headline("The usage, as `threadkeep usage --by provider,model,format` prints it")
    print_text("")
    print_usage(BY, rows, total, is_aligned=True)


def _summary(format: str, rendered: Rendered) -> str:
    """Describe the size of a request, and how much of it later turns leave unchanged."""
    return f"{format}: {len(rendered.body):,} bytes, its first {rendered.stable} turns are final"


def _print_report(rendered: Rendered) -> None:
    """Print what a request does not express."""
    for line in report_lines(rendered):
        print_text(f"  {line}", is_dim=True)


def _print_headline(text: str) -> None:
    """Print the title of a section."""
    print_text("")
    print_text(f"── {text}", is_bold=True, colour="blue")


def load_script() -> dict[str, Any]:
    """Return everything but responses: options, tools, tool outputs by function, models by wire format, questions."""
    script: dict[str, Any] = jsontext.loads(_read("demo"))
    script["tool_outputs"] = {name: jsontext.dumps(output).decode() for name, output in script["tool_outputs"].items()}
    return script


def body_of(format: str) -> bytes:
    """Return the body of a provider's response, byte for byte."""
    return _read(f"answer_{format}")


def _read(name: str) -> bytes:
    return files("threadkeep.cli").joinpath("data", f"{name}.json").read_bytes()
