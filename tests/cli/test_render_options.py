"""render: what a request shows, and how; on every database."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.runs import Cli, Result
from tests.databases import Database
from tests.factories import a_gemini_answer, a_message, a_picture, an_answer, noise
from threadkeep import Conversation, Store, Turns
from threadkeep.formats import FormatName

NOW = {"time": "12:00", "place": "Zürich"}
Option = tuple[list[str], str, dict[str, Any]]

# arguments, wire format, and the same for the Python API
OPTIONS: tuple[Option, ...] = (
    (["--upto", "1"], "chat_completion", {"upto": 1}),
    (["--window", "2"], "chat_completion", {"window": Turns(2)}),
    (["--window", "1", "--step", "3"], "messages", {"window": Turns(1, step=3)}),
    (["--no-vision"], "chat_completion", {"vision": False}),
    (["--pictures", "0"], "messages", {"pictures": 0}),
    (["--no-reasoning"], "open_responses", {"reasoning": False}),
    (["--dynamic-context", json.dumps(NOW)], "gemini", {"dynamic_context": NOW}),
    (
        ["--dynamic-context", json.dumps(NOW), "--dynamic-context-at", "tail"],
        "chat_completion",
        {"dynamic_context": NOW, "dynamic_context_at": "tail"},
    ),
    (["--cache", "auto"], "messages", {"cache": "auto"}),
    (["--dialect", "mistral"], "chat_completion", {"dialect": "mistral"}),
    (["--window", "2", "--no-vision"], "messages", {"window": Turns(2), "vision": False}),
)  # fmt: skip


@dataclass
class Rendering:
    """A conversation, and what the command line makes of it."""

    conversation: Conversation
    run: Callable[..., Result]

    def __call__(self, *args: str, code: int = 0, input: str | None = None) -> Result:
        return self.run("render", self.conversation.id, *args, code=code, input=input)


@pytest.fixture
def rendering(database: Database) -> Iterator[Rendering]:
    """A conversation with five turns, a picture and reasoning, in a tenant of its own."""
    name = f"render-{secrets.token_hex(4)}"
    with Store(database.url, tenants=True) as store:
        conversation = store.create_tenant(name).create_conversation(model="m-1", max_output_tokens=100)
        conversation.user(["What is this?", a_picture(b"\x89PNG")])
        conversation.add_item({"type": "reasoning", "summary": [], "encrypted_content": "sealed"})
        conversation.assistant("A picture.")
        for city in ("Rome", "Oslo", "Lima"):
            conversation.add_items([a_message(f"What is {city} like?"), a_message("Lovely.", "assistant")])
        conversation.user("Thanks!")
        yield Rendering(conversation, lambda *args, **how: Cli(database.url)("--tenant", name, *args, **how))


@pytest.mark.parametrize(("args", "format", "view"), OPTIONS, ids=[" ".join(args) for args, _, _ in OPTIONS])
def test_options_are_those_of_the_python_api(
    rendering: Rendering, args: list[str], format: FormatName, view: dict[str, Any]
) -> None:
    expected = rendering.conversation.render(format, **view)
    assert expected.payload != rendering.conversation.request_payload(format)
    assert rendering("-f", format, *args).json == expected.payload
    assert rendering("-f", format, "--body", *args).out.encode() == expected.body
    result = rendering("-f", format, "--json", *args).json
    assert (result["payload"], result["stable"], result["head"]) == (expected.payload, expected.stable, expected.head)


def test_what_is_true_now_comes_from_a_file_or_stdin(rendering: Rendering, tmp_path: Path) -> None:
    expected = rendering.conversation.request_payload("gemini", dynamic_context=NOW)
    file = tmp_path / "now.json"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(NOW, indent=1).encode())
    assert rendering("-f", "gemini", "--dynamic-context", f"@{file}").json == expected
    assert rendering("-f", "gemini", "--dynamic-context", "@-", input=json.dumps(NOW)).json == expected


def test_what_the_provider_holds_can_be_sent_again(rendering: Rendering) -> None:
    rendering.conversation.update(previous_response_id="resp_8")
    rendering.conversation.add_response(an_answer("Bye.", id="resp_9"), "open_responses")
    rendering.conversation.user("One more thing.")
    assert rendering("-f", "open_responses").json["previous_response_id"] == "resp_9"
    result = rendering("-f", "open_responses", "--server-state", "none").json
    assert "previous_response_id" not in result
    assert result == rendering.conversation.request_payload("open_responses", server_state="none")


def test_an_account_has_caches_of_its_own(rendering: Rendering) -> None:
    conversation = rendering.conversation
    conversation.update(model="gemini-2.5-flash", instructions="Be brief.")
    conversation.add_response(a_gemini_answer("Bye.", prompt=50_000), "gemini")
    conversation.user("One more thing.")
    plan = conversation.plan_context_cache("gemini", threshold=1000, account="work")
    conversation.record_context_cache(plan, name="cachedContents/1", expires_at="2099-01-01T00:00:00Z")
    result = rendering("-f", "gemini", "--cache", "auto", "--account", "work").json
    assert result["cachedContent"] == "cachedContents/1"
    assert "cachedContent" not in rendering("-f", "gemini", "--cache", "auto").json


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--window", "0"], "Invalid value for '--window': Input should be greater than or equal to 1"),
        (["--window", "x"], "Invalid value for '--window'"),
        (["--step", "2"], "--step says how the window moves: give --window, too."),
        (["--window", "2", "--step", "0"], "Invalid value for '--step'"),
        (["--upto", "-2"], "Invalid value for '--upto': Input should be greater than or equal to -1"),
        (["--cache", "on"], "Invalid value for '--cache': 'on' is not"),
        (["--no-reasoning", "--reasoning-text"], "--no-reasoning and --reasoning-text exclude each other."),
        (["--pictures", "all"], "a number of images, or 'auto'"),
        (["--pictures", "-1"], "a number of images, or 'auto'"),
        (["--tool-results", "xml"], "Invalid value for '--tool-results'"),
        (["--dialect", "klingon"], "one of compatible, deepseek, minimax"),
        (["--dynamic-context", "{"], "--dynamic-context '{' is not JSON"),
        (["--dynamic-context", "[1]"], "--dynamic-context '[1]' is not a JSON object. Give an object such as"),
        (["--dynamic-context", "\udcff"], "is not JSON"),
        (["--dynamic-context", "@nowhere.json"], "Cannot read 'nowhere.json': No such file or directory."),
        (["--dynamic-context", "@."], "Cannot read '.': Is a directory."),
        (["--dynamic-context-at", "tail"], "give --dynamic-context, too"),
        (["--dynamic-context", "{}", "--dynamic-context-at", "end"], "Invalid value for '--dynamic-context-at'"),
        (["--server-state", "off"], "Invalid value for '--server-state'"),
    ],
)
def test_options_that_cannot_be_used(cli: Cli, stored: str, args: list[str], message: str) -> None:
    result = cli("render", stored, "-f", "chat_completion", *args, code=2)
    assert message in result.err
    assert result.err.startswith("threadkeep: ")
    assert len(result.err.splitlines()) == 1
    assert result.out == ""


def test_urls_take_the_place_of_media(rendering: Rendering) -> None:
    rendering.conversation.user([a_picture(noise(20_000))])
    result = rendering("-f", "messages", "--media-url", "https://files.example/{hash}").json
    assert "https://files.example/" in json.dumps(result)
