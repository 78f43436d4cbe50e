from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.domain.jsonvalues import OBJECTS, same
from threadkeep.domain import formats
from threadkeep.domain.content import InputText, UnknownPart
from threadkeep.domain.formats import Format, Signs
from threadkeep.domain.items import FunctionCall, FunctionCallOutput, Message
from threadkeep.domain.rendering import Rendered, RenderOptions, ViewOptions
from threadkeep.domain.response import Response
from threadkeep.domain.session import Session
from threadkeep.errors import InvalidItem, InvalidOption, UnknownFormat
from threadkeep.formats.canonical.entries import Snapshot

VECTORS = Path(__file__).parents[1] / "vectors" / "session_roundtrip.jsonl"
CASES = [json.loads(line) for line in VECTORS.read_text().splitlines()]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_stored_session_comes_back(case: dict[str, Any]) -> None:
    assert Session.from_dict(case["session"]).to_dict() == case["session"]


EXTRAS = OBJECTS.map(lambda found: {f"key of my own: {key}": value for key, value in found.items()})  # no format


@given(st.lists(st.fixed_dictionaries({"type": st.just("web_search_call")}, optional={"x": OBJECTS})), EXTRAS)
def test_reading_what_was_written_changes_nothing(items: list[dict[str, Any]], extra: dict[str, Any]) -> None:
    data = {"model": "m", **({"input": items} if items else {}), **({"extra": extra} if extra else {})}
    assert same(Session.from_dict(data).to_dict(), data)


# Building


def test_a_session_begins_with_system_and_input() -> None:
    session = Session(model="m", input="Hello", system="Be brief")
    assert session.to_dict()["input"] == [
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Be brief"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
    ]


@pytest.mark.parametrize(
    ("given_input", "roles"),
    [
        (None, []),
        ([], []),
        ([{"type": "input_text", "text": "a"}, "b"], ["user"]),
        ({"text": "a"}, ["user"]),
        ([{"role": "user", "content": "a"}, Message("assistant", "b")], ["user", "assistant"]),
        ([{"type": "provider_item", "format": "gemini", "payload": 1}], ["user"]),
        ([{"type": "input_text", "text": "a"}, UnknownPart(type="martian", x=1)], ["user"]),
    ],
)
def test_input_is_content_or_items(given_input: Any, roles: list[str]) -> None:
    items = Session(input=given_input).items
    assert [item.role for item in items if isinstance(item, Message)] == roles
    assert len(items) == len(roles)


def test_input_of_items_takes_every_type() -> None:
    items: list[dict[str, Any]] = [
        {"role": "user", "content": "hi"},
        {"type": "mcp_call", "id": "mcp_1", "name": "roll"},
        {"type": "provider_item", "format": "gemini", "payload": {"a": 1}},
        {"type": "reasoning", "summary": []},
    ]
    assert [item.type for item in Session(input=items).items] == ["message", *(item["type"] for item in items[1:])]
    assert [item.type for item in Session(input=items[1:2]).items] == ["mcp_call"]


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
def test_builders_return_the_item_they_add(role: str) -> None:
    session = Session()
    message = getattr(session, role)(["a", {"text": "b"}, InputText(text="c")], author_id="ann")
    assert session.items == [message]
    assert (message.role, message.text, message.author_id) == (role, "abc", "ann")
    assert message.content[0].type == ("output_text" if role == "assistant" else "input_text")
    assert session.to_dict()["input"][0]["author_id"] == "ann"
    with pytest.raises(InvalidItem, match=r"^content"):
        getattr(session, role)(None)


def test_outputs_of_calls_are_added_by_id() -> None:
    session = Session()
    assert session.add_function_call_output("c1", "ok") == FunctionCallOutput("c1", "ok")
    assert session.add_function_call_output(call_id="c2", result="ok", status="completed").status == "completed"
    assert [getattr(item, "call_id", None) for item in session.items] == ["c1", "c2"]


def test_items_are_added_all_or_none() -> None:
    session = Session()
    with pytest.raises(InvalidItem, match=r"^items\[1\]"):
        session.add_items([{"role": "user", "content": "a"}, {"role": "user", "content": 5}])
    assert session.items == []
    assert session.add_item({"role": "user", "content": "a"}) == session.items[0]


# Options


def test_options_are_attributes() -> None:
    options: Any = {"temperature": "0.5"}  # more than the types say
    session = Session(model="m", **options)
    assert session.temperature == 0.5
    session.temperature = "0.25"  # type: ignore[assignment]
    assert session.temperature == 0.25
    session.temperature = None
    assert session.settings == {"model": "m"}
    with pytest.raises(InvalidOption, match=r"^top_p"):
        session.top_p = "much"  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        session.temprature = 1  # type: ignore[attr-defined]


def test_unknown_options_are_refused() -> None:
    options: Any = {"modle": "m"}
    for make in (lambda: Session(**options), lambda: Session().update(**options)):
        with pytest.raises(InvalidOption, match=r"^modle is not"):
            make()
    inputs: Any = {"inptu": "Hi"}
    with pytest.raises(InvalidOption, match="Did you mean 'input'"):
        Session(**inputs)


def test_what_only_dicts_have_is_no_option_to_write() -> None:
    with pytest.raises(InvalidOption, match=r"Options: .*, input, tools\.$"):
        Session.from_dict({"xyzzy": 1})


def test_an_update_is_all_or_nothing() -> None:
    session = Session(model="m")
    options: Any = {"model": "n", "temperature": "warm"}
    with pytest.raises(InvalidOption):
        session.update(**options)
    assert session.model == "m"


def test_extra_reads_as_a_copy_and_is_replaced_as_a_whole() -> None:
    session = Session(extra={"seed": 7})
    session.extra["top_k"] = 3
    assert session.extra == {"seed": 7}
    session.extra = {"top_k": 3}
    assert session.to_dict() == {"extra": {"top_k": 3}}
    session.extra = None
    assert session.extra == session.to_dict() == {}


def test_metadata_is_unset_when_empty_at_creation() -> None:
    session = Session(metadata={})
    assert session.metadata is None
    session.metadata = {}
    assert session.to_dict() == {"metadata": {}}


def test_json_output_and_think_set_their_options() -> None:
    session = Session(text={"verbosity": "low"})
    session.json_output({"type": "object"}, name="plant", strict=True)
    assert session.text is not None
    assert session.text["verbosity"] == "low"
    assert session.text["format"]["name"] == "plant"
    session.think(effort="high")
    session.think(budget_tokens=1024)
    assert session.reasoning == {"budget_tokens": 1024}
    session.think(False)
    assert session.reasoning is None


def test_clear_keeps_the_configuration() -> None:
    session = Session(model="m", instructions="i", previous_response_id="r", input="a", extra={"k": 1})
    session.register_tool("t")
    session.add_response(Response.from_text("b"))
    assert session.clear() is session
    assert session.to_dict() == {"model": "m", "extra": {"k": 1}, "tools": [{"type": "function", "name": "t"}]}
    assert (session.response_boundary, session.turns) == (0, [])


def test_clone_config_takes_no_items_and_no_state() -> None:
    session = Session(model="m", instructions="i", previous_response_id="r", metadata={"a": "b"}, input="a")
    session.register_tool("t")
    clone = session.clone_config()
    assert clone.to_dict() == {
        "model": "m",
        "instructions": "i",
        "metadata": {"a": "b"},
        "tools": [{"type": "function", "name": "t"}],
    }
    clone.remove_tool("t")
    assert session.tools


# Responses


def answer(**fields: Any) -> Response:
    return Response.from_text("Larch.", **fields)


def test_a_response_adds_its_items_as_one_turn() -> None:
    session = Session(input="a")
    output = [Message("assistant", "b"), FunctionCall("f", "c1")]
    response = session.add_response(Response(output=output))
    session.add_function_call_output("c1", "ok")
    session.add_response(answer())
    assert response.output == output
    assert session.turns == [None, 0, 0, None, 1]


def test_only_a_session_in_server_state_follows_the_response() -> None:
    """The boundary moves in any case; a response without an id leaves the id alone."""
    local, remote = Session(input="a"), Session(input="a", previous_response_id="resp_0")
    assert (local.local_state, remote.local_state) == (True, False)
    for session in (local, remote):
        session.add_response(answer(id="resp_1"))
        session.add_response(answer())
    assert (local.previous_response_id, remote.previous_response_id) == (None, "resp_1")
    assert local.response_boundary == remote.response_boundary == 3
    assert Session(conversation="conv_1").local_state is False


def test_an_answer_of_another_provider_does_not_move_the_state() -> None:
    """The provider that keeps the conversation has not seen it, so it must be sent."""
    session = Session(input="a", previous_response_id="resp_0")
    session.add_response(answer(id="msg_1", format="messages"))
    assert (session.previous_response_id, session.response_boundary) == ("resp_0", 0)
    session.add_response(answer(id="resp_1", format="open_responses"))
    assert (session.previous_response_id, session.response_boundary) == ("resp_1", 3)


def test_something_else_is_no_response() -> None:
    with pytest.raises(InvalidOption, match=r"must be a Response.*format="):
        Session().add_response({"output": []})


# Dicts


def test_string_input_and_wire_names_are_read() -> None:
    assert Session.from_dict({"input": "a"}).items == [Message("user", "a")]
    read = Session.from_dict({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]})
    assert read.to_dict()["input"][0]["content"] == [{"type": "input_image", "url": "x"}]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"inputs": []}, "^inputs is not an option.*input"),
        ({"max_tokens": 5}, "^max_tokens is not"),
        ({"temperature": "warm"}, "^temperature"),
        ({"tools": {"name": "a"}}, "^tools"),
        ({"tools": [{"type": "function"}]}, r"^tools\[0\].name"),
        ({"response_boundary": 1}, "^response_boundary"),
        ({"response_boundary": -1}, "^response_boundary"),
        ({"turns": [1]}, "^turns"),
        ({"turns": ["a"], "input": "b"}, "^turns"),
        ([], "^data must be the dict of a session"),
    ],
    ids=str,
)
def test_a_wrong_session_is_refused(data: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        Session.from_dict(data)


def test_a_wrong_item_is_refused_with_its_place() -> None:
    with pytest.raises(InvalidItem, match=r"^input\[1\].content\[0\] "):
        Session.from_dict({"input": [{"role": "user", "content": "a"}, {"role": "user", "content": [None]}]})
    with pytest.raises(InvalidItem, match=r"^content\[0\] must be a content part"):
        Session(input=[{"type": ["message"]}])
    with pytest.raises(InvalidItem, match=r"^input must be a list of items, not 5"):
        Session.from_dict({"input": 5})


def test_null_is_absent() -> None:
    assert Session.from_dict({"input": None, "tools": None, "model": None, "extra": None}).to_dict() == {}


def test_the_boundary_is_stored() -> None:
    """A resumed session in server state goes on where it was, and does not send its history again."""
    session = Session(model="m", previous_response_id="resp_0", input="a")
    session.add_response(answer(id="resp_1"))
    session.user("b")
    stored = session.to_dict()
    assert stored["response_boundary"] == 2
    assert "turns" not in stored
    assert Session.from_dict(stored).response_boundary == 2


def test_turns_are_stored_where_the_items_do_not_tell_them() -> None:
    """Two answers in a row would else be read as one."""
    session = Session(input="a")
    session.add_response(answer())
    session.add_response(answer())
    assert session.to_dict()["turns"] == [None, 0, 1]
    assert Session.from_dict(session.to_dict()).turns == [None, 0, 1]
    assert Session.from_dict(session.to_dict()).new_turn() == 2


def test_a_session_shares_nothing_with_its_dicts() -> None:
    data: dict[str, Any] = {"metadata": {"a": "b"}, "tools": [{"type": "function", "name": "t", "parameters": {}}]}
    session = Session.from_dict(data)
    data["tools"][0]["parameters"]["x"] = session.to_dict()["tools"][0]["parameters"]["y"] = 1
    assert session.to_dict()["tools"] == [{"type": "function", "name": "t", "parameters": {}}]


# Requests


class Echo(Format):
    """A format that renders what it was given."""

    def __init__(self) -> None:
        super().__init__("echo", "echo", Signs("echo", {}))

    def render(self, session: Session | Snapshot, options: RenderOptions = RenderOptions()) -> Rendered:  # noqa: B008
        payload = {"model": session.settings["model"], "strict": options.strict, "upto": options.upto}
        return Rendered([], [], 0, -1, options.view(self.name), payload)

    def parse_response(self, body: Any, headers: Mapping[str, str] | None = None) -> Response:
        return Response.from_text(body["text"], id=(headers or {}).get("id"), format=self.name)


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(formats._loaders, "echo", Echo)
    monkeypatch.setitem(formats._formats, "echo", Echo())
    return "echo"


def test_requests_are_rendered_by_the_format(echo: Any) -> None:
    session = Session(model="m", input="Hello")
    assert session.request_payload(echo, strict=True) == {"model": "m", "strict": True, "upto": None}
    assert json.loads(session.request_body(echo, upto=0)) == {"model": "m", "strict": False, "upto": 0}
    assert session.render(echo).view == {"format": "echo"}


def test_unknown_formats_and_options_of_rendering_are_refused(echo: Any) -> None:
    with pytest.raises(UnknownFormat):
        Session().render("fax")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="Did you mean 'strict'"):
        Session().render(echo, strikt=True)  # type: ignore[call-arg]


def test_the_keyword_types_name_every_option_of_rendering() -> None:
    """All but one, which the store sets."""
    assert ViewOptions.__annotations__.keys() == {field.name for field in fields(RenderOptions)} - {"context_cache"}


def test_bodies_are_parsed_by_the_format(echo: Any) -> None:
    """Given as a dict, as JSON text or as an object of an SDK."""

    class SdkObject:
        def model_dump(self, **_: Any) -> dict[str, Any]:
            return {"text": "hi"}

    for body in ({"text": "hi"}, b'{"text": "hi"}', '{"text": "hi"}', SdkObject()):
        assert Response.parse(body, echo, {"id": "r1"}).text == "hi"
    session = Session(input="a")
    assert session.add_response(b'{"text": "hi"}', echo, headers={"id": "r1"}).id == "r1"
    assert len(session.items) == 2


@pytest.mark.parametrize("options", [{"upto": -2}, {"upto": "end"}, {"upto": True}, {"server_state": "all"}])
def test_values_of_rendering_options_are_checked(echo: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=f"^{next(iter(options))} must be "):
        Session(model="m", input="Hi").render(echo, **options)


def test_the_repr_of_a_request_names_the_public_class() -> None:
    rendered = Session(model="m", input="Hi").render("chat_completion")
    view = {"format": "chat_completion"}
    assert repr(rendered) == f"Rendered(losses=[], repairs=[], stable=1, head=0, view={view!r})"
