"""Formats by name: what is registered, and that a sixth one is a package and one registration."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.formats import prompt_format
from threadkeep import FormatName, Session, Store, formats
from threadkeep.domain import formats as table
from threadkeep.domain.formats import format_names, get_format, register_format
from threadkeep.errors import CannotParse, InvalidOption, ProviderError, UnknownFormat
from threadkeep.formats import NAMES

PACKAGES = Path(formats.__file__).parent


def test_every_package_that_declares_a_format_is_registered_under_its_name() -> None:
    declared = {path.parent.name for path in PACKAGES.glob("*/__init__.py") if "FORMAT: Final" in path.read_text()}
    assert declared == set(NAMES) == set(get_args(FormatName)) == set(format_names())
    assert [get_format(name).name for name in NAMES] == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_functions_of_a_format_are_those_of_its_rooms(name: str) -> None:
    rooms = dict.fromkeys(("render", "parse_request", "parse_turns"), "request") | {
        "parse_response": "response",
        "assembler": "stream",
    }
    functions = ["render", "parse_request", "parse_turns", "parse_response"]
    for function in [*functions, *(["assembler"] if get_format(name).has_streams else [])]:
        room = import_module(f"threadkeep.formats.{name}.{rooms[function]}")
        assert getattr(get_format(name), function) is getattr(room, function)
        assert getattr(room, function).__doc__


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    names: list[Any] = ["fax", "", None, ["messages"]]
    for name in names:
        with pytest.raises(UnknownFormat, match="chat_completion, converse, gemini"):
            get_format(name)


def test_importing_the_package_loads_no_format() -> None:
    code = "import sys, threadkeep; print([name for name in sys.modules if name.startswith('threadkeep.')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert sorted(eval(loaded)) == [
        "threadkeep.domain", "threadkeep.domain.formats", "threadkeep.errors", "threadkeep.formats",
        "threadkeep.lazy",
    ]  # fmt: skip


# A sixth format


@pytest.fixture
def prompt() -> Iterator[Any]:
    register_format("prompt", lambda: prompt_format.FORMAT)
    yield "prompt"
    del table._loaders["prompt"], table._formats["prompt"]


def test_sessions_speak_a_sixth_format(prompt: Any) -> None:
    session = Session(model="m", instructions="Be brief.", input="Hi", temperature=0.5, background=True)
    session.add_response({"completion": "Hello!", "end": "done"}, prompt)
    session.add_item({"type": "function_call", "call_id": "c1", "name": "clock", "arguments": "{}"})
    rendered = session.render(prompt)
    texts = ["rules: Be brief.", "user: Hi", "assistant: Hello!"]
    assert rendered.payload == {"engine": "m", "settings": {"temperature": 0.5}, "prompt": texts}
    assert [(loss.code, loss.path) for loss in rendered.losses] == [("option", "background"), ("item", "")]
    assert session.request_payload("messages")["messages"][1]["content"][0]["text"] == "Hello!"


def test_requests_of_a_sixth_format_are_read_with_keys_of_its_own(prompt: Any) -> None:
    request = {"engine": "m", "settings": {"temperature": 0.5}, "style": "plain", "prompt": ["user: Hi"]}
    session = get_format(prompt).parse_request(request)
    assert (session.model, session.temperature, session.extra) == ("m", 0.5, {"prompt": {"style": "plain"}})
    assert [loss.path for loss in session.render("messages").losses] == ["extra.prompt.style"]
    with pytest.raises(InvalidOption, match="prompt"):
        Session(extra={"promt": {}})


def test_other_formats_recognize_a_sixth_one(prompt: Any) -> None:
    with pytest.raises(CannotParse, match=r"looks like .*prompt"):
        get_format("messages").parse_response({"completion": "Hi"})
    with pytest.raises(CannotParse, match="chat_completion"):
        get_format(prompt).parse_response({"choices": []})
    with pytest.raises(ProviderError) as raised:
        get_format(prompt).parse_response({"failure": {"what": "overload", "number": "7", "why": "Come back later."}})
    assert (raised.value.type, raised.value.code, raised.value.message) == ("overload", "7", "Come back later.")


def test_a_format_may_have_neither_streams_nor_context_caches(prompt: Any) -> None:
    wire = get_format(prompt)
    assert wire.prefixes(Session(model="m", input="Hi")) is None
    with pytest.raises(CannotParse, match="no streams"):
        wire.assembler()


def test_stores_keep_conversations_in_a_sixth_format(prompt: Any) -> None:
    with Store("sqlite://") as store:
        conversation = store.create_conversation(model="m")
        conversation.user("Hi")
        conversation.add_response({"completion": "Hello!", "end": "done"}, prompt)
        assert conversation.render(prompt).payload["prompt"] == ["user: Hi", "assistant: Hello!"]
        other = store.import_request({"engine": "m", "prompt": ["user: Hi", "assistant: Hello!"]}, prompt)
        assert other.render("chat_completion").payload["messages"][1]["role"] == "assistant"
