"""Requests of Open Responses are read and given back as they came."""

from __future__ import annotations

import contextlib
import copy
import json
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.domain.jsonvalues import JSON, same
from tests.domain.test_items import KEYS as KEYS_OF_ITEMS
from tests.formats.requests_open_responses import CALL, HI, ITEMS, KEYS, OUTPUT, PARTS, SAID, THOUGHT, TOOL_ITEMS, TOOLS
from tests.formats.spelling_open_responses import leveled
from threadkeep.domain.call_kinds import MISSING_OUTPUT
from threadkeep.domain.items import item_from_object
from threadkeep.domain.rendering import RenderOptions
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse, CannotRender, ThreadkeepError
from threadkeep.formats import NAMES, FormatName, get_format
from threadkeep.formats.canonical.entries import entry_of
from threadkeep.formats.open_responses.fields import FIELDS
from threadkeep.formats.open_responses.request import input_object
from threadkeep.formats.shared.fields import Field, FieldGroup, NoField, SpecialField

NAME: Final = "open_responses"
FORMAT = get_format(NAME)
Json = dict[str, Any]
SCREENSHOT: Final[Json] = {
    "type": "computer_call_output",
    "call_id": "c",
    "output": {"type": "computer_screenshot", "file_id": "f"},
}


def request(*items: Any, **keys: Any) -> Json:
    """A request with these items."""
    return {"model": "gpt-5.4", **keys, "input": list(items)}


def back(payload: Any) -> Json:
    """What rendering makes of a request that was read."""
    rendered = FORMAT.render(FORMAT.parse_request(payload))
    assert (rendered.losses, rendered.repairs) == ([], [])
    return rendered.payload


def parsed(*items: Any, **keys: Any) -> Session:
    return FORMAT.parse_request(request(*items, **keys))


@pytest.mark.parametrize("items", [pytest.param(items, id=name) for name, items in ITEMS])
def test_items_go_back_as_they_came(items: list[Json]) -> None:
    assert back(request(*items)) == request(*items)


@pytest.mark.parametrize("item", TOOL_ITEMS, ids=lambda item: str(item["type"]))
def test_items_of_all_types_go_back_as_they_came(item: Json) -> None:
    assert back(request(HI, item)) == request(HI, item)


@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_parts_go_back_as_they_came(part: Any) -> None:
    message = {"role": "user", "content": [{"type": "input_text", "text": "See:"}, part]}
    assert leveled(back(request(message))) == leveled(request(message))


@pytest.mark.parametrize("keys", KEYS, ids=repr)
def test_keys_of_the_request_go_back_as_they_came(keys: Json) -> None:
    assert back(request(HI, **keys)) == request(HI, **keys)


@pytest.mark.parametrize("tool", TOOLS, ids=repr)
def test_tools_go_back_as_they_came(tool: Any) -> None:
    assert back(request(HI, tools=[tool, tool])) == request(HI, tools=[tool, tool])


@pytest.mark.parametrize("given", ["Hi", "", [HI]])
def test_the_input_keeps_its_shape(given: Any) -> None:
    assert back({"model": "m", "input": given}) == {"model": "m", "input": given}


@pytest.mark.parametrize(
    "keys", [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}, {"prompt": {"id": "p"}}]
)
def test_a_request_may_do_without_input(keys: Json) -> None:
    for payload in ({"model": "m", **keys}, {"model": "m", **keys, "input": []}):
        assert back(payload) == payload


def test_a_request_is_read_from_text_too() -> None:
    assert back(json.dumps(request(HI))) == request(HI)


def test_the_string_of_the_first_request_becomes_a_list_when_there_is_more() -> None:
    session = FORMAT.parse_request({"model": "m", "input": "Hi"})
    session.assistant("Hello.")
    items = FORMAT.render(session).payload["input"]
    assert [item["role"] for item in items] == ["user", "assistant"]
    assert FORMAT.render(session, RenderOptions(upto=0)).payload["input"] == "Hi"


@pytest.mark.parametrize("items", [pytest.param(items, id=name) for name, items in ITEMS])
def test_a_session_keeps_what_was_read_as_a_dict(items: list[Json]) -> None:
    session = FORMAT.parse_request(request(*items))
    assert FORMAT.render(Session.from_dict(session.to_dict())).payload == request(*items)


@pytest.mark.parametrize("items", [pytest.param(items, id=name) for name, items in ITEMS])
def test_rows_keep_an_item_as_it_is_sent_and_know_what_it_says(items: list[Json]) -> None:
    for sent, item in zip(items, parsed(*items).items, strict=True):
        entry = entry_of(item.to_object(), position=0)
        assert json.loads(entry.payload or b"null") == sent
        known = entry.item()
        assert {**known, "summary": known.get("summary", [])} == {"summary": [], **item.to_object()}


def test_a_text_is_stored_once_whatever_its_spelling() -> None:
    (item,) = parsed({"role": "user", "content": "a long text"}).items
    entry = entry_of(item.to_object(), position=0)
    assert b"a long text" in (entry.payload or b"")
    assert b"a long text" not in (entry.rest or b"")


def test_options_are_settings_and_everything_else_is_an_extra() -> None:
    session = parsed(HI, temperature=1, stream=True, provider={"order": []}, max_output_tokens=3)
    assert session.temperature == 1
    assert session.settings["stream"] is True
    assert session.extra == {"open_responses": {"provider": {"order": []}, "max_output_tokens": 3}}


@pytest.mark.parametrize("row", FIELDS, ids=lambda row: row.option)
def test_every_option_is_read_from_its_key(row: Any) -> None:
    """A new option is one row: its key is read without another line of code."""
    assert isinstance(row, Field | SpecialField), "there are options that cannot be read back"
    assert not isinstance(row, NoField | FieldGroup)


def test_what_the_payload_does_not_say_can_be_given() -> None:
    session = FORMAT.parse_request({"prompt": {"id": "p"}}, model="m", stream=True)
    assert (session.model, session.settings["stream"]) == ("m", True)
    assert FORMAT.parse_request(request(HI, stream=False), model="other", stream=True).settings["stream"] is False
    assert parsed(HI).model == "gpt-5.4"


def test_server_state_is_a_setting_and_all_input_is_new() -> None:
    session = parsed(OUTPUT, HI, previous_response_id="resp_1")
    assert (session.previous_response_id, session.response_boundary) == ("resp_1", 0)
    session.add_response({"id": "resp_2", "object": "response", "status": "completed", "output": [SAID]}, NAME)
    session.user("More")
    payload = FORMAT.render(session).payload
    assert payload["previous_response_id"] == "resp_2"
    assert [item["content"][0]["text"] for item in payload["input"]] == ["More"]


@pytest.mark.parametrize(
    ("items", "turns"),
    [
        ([HI, HI], [0, 1]),
        ([HI, THOUGHT, CALL, {**CALL, "call_id": "c2"}, OUTPUT, {**OUTPUT, "call_id": "c2"}], [0, 1, 1, 1, 2, 2]),
        ([HI, SAID, CALL, OUTPUT, THOUGHT, SAID, HI], [0, 1, 1, 2, 3, 3, 4]),
        ([{"role": "developer", "content": "a"}, {"role": "system", "content": "b"}, HI], [0, 1, 2]),
        ([HI, TOOL_ITEMS[14], SAID, TOOL_ITEMS[12], HI], [0, 1, 1, 2, 3]),
        ([HI, {"role": "assistant", "content": {"odd": 1}}, SAID, HI], [0, 1, 1, 2]),
    ],
)
def test_the_items_of_one_response_are_one_turn(items: list[Json], turns: list[int]) -> None:
    assert parsed(*items).turns == turns
    assert [len(turn) for turn in FORMAT.parse_turns(items)] == [turns.count(turn) for turn in dict.fromkeys(turns)]


def test_turns_are_given_alone_or_as_a_list() -> None:
    for turns in (HI, [HI], json.dumps(HI)):
        ((item,),) = FORMAT.parse_turns(turns)
        assert item.to_object()["content"] == [{"type": "input_text", "text": "Hi"}]


def test_what_was_unpaired_stays_so_and_what_a_cut_leaves_alone_is_mended() -> None:
    session = parsed(OUTPUT, HI, CALL, {**OUTPUT, "call_id": "c9"})
    assert FORMAT.render(session).payload["input"] == [OUTPUT, HI, CALL, {**OUTPUT, "call_id": "c9"}]
    session = parsed(HI, CALL, OUTPUT)
    missing = FORMAT.render(session, RenderOptions(upto=1))
    assert missing.payload["input"] == [HI, CALL, {**OUTPUT, "output": MISSING_OUTPUT}]
    assert [repair.code for repair in missing.repairs] == ["missing_output"]


def test_a_call_that_was_left_alone_may_still_get_its_output() -> None:
    session = parsed(HI, CALL)
    session.add_function_call_output("c1", "late")
    assert FORMAT.render(session).payload["input"] == [HI, CALL, {**OUTPUT, "output": "late"}]


def test_calls_that_are_appended_are_mended_though_the_imported_ones_are_not() -> None:
    session = parsed(CALL, OUTPUT, CALL, OUTPUT)
    session.add_items([{**CALL, "id": None}, HI])
    *imported, call, output, _ = FORMAT.render(session).payload["input"]
    assert imported == [CALL, OUTPUT, CALL, OUTPUT]
    assert call["call_id"] == output["call_id"] != "c1"


def test_a_host_gets_the_ids_back_that_it_gave() -> None:
    """Call ids of any length, and an id that it gave twice in one answer; but no id of another answer again."""
    long_id = "call_" + "x" * 99
    answer = {"id": "r", "status": "completed", "output": [THOUGHT, THOUGHT, {**CALL, "call_id": long_id}]}
    session = Session(model="m", input="Hi")
    session.add_response(FORMAT.parse_response(answer))
    session.add_function_call_output(long_id, "done")
    rendered = FORMAT.render(session)
    assert rendered.payload["input"][1:] == [*answer["output"], {**OUTPUT, "call_id": long_id}]
    assert (rendered.losses, rendered.repairs) == ([], [])
    session.add_response(FORMAT.parse_response(answer))
    rendered = FORMAT.render(session)
    ids = [item.get("id") for item in rendered.payload["input"]]
    assert ids == [None, "rs_1", "rs_1", None, None, None, None, None, None]
    call, output = rendered.payload["input"][-2:]
    assert call["call_id"] == output["call_id"] != long_id
    assert [repair.code for repair in rendered.repairs] == [
        "duplicate_id", "duplicate_id", "duplicate_call_id", "missing_output"
    ]  # fmt: skip


def test_an_unanswered_call_is_answered_under_the_id_that_it_is_sent_with() -> None:
    session = parsed(HI)
    session.add_response(FORMAT.parse_response({"output": [{**CALL, "call_id": "x" * 99}], "status": "completed"}))
    assert FORMAT.render(session).payload["input"][-1]["call_id"] == "x" * 99


def test_a_wish_for_compaction_is_sent_as_the_last_item_only() -> None:
    trigger = {"type": "compaction_trigger"}
    session = parsed(HI, trigger)
    rendered = FORMAT.render(session)
    assert (rendered.payload["input"][-1], rendered.stable) == (trigger, 1)
    session.user("Go on")
    rendered = FORMAT.render(session)
    assert [item.get("role") for item in rendered.payload["input"]] == ["user", "user"]
    assert [repair.code for repair in rendered.repairs] == ["compaction_trigger"]


@pytest.mark.parametrize("status", ["done", [], {}, 7])
def test_a_status_that_the_input_does_not_have_becomes_one_that_it_has(status: Any) -> None:
    rendered = FORMAT.render(parsed({**SCREENSHOT, "status": status}))
    assert rendered.payload["input"][0]["status"] == "incomplete"
    assert "range" in {repair.code for repair in rendered.repairs}


def test_malformed_arguments_are_mended_as_everywhere() -> None:
    rendered = FORMAT.render(parsed({**CALL, "arguments": '{"n":'}, OUTPUT))
    assert rendered.payload["input"][0]["arguments"] == "{}"
    assert [repair.code for repair in rendered.repairs] == ["malformed_arguments"]


@pytest.mark.parametrize(
    "payload",
    [7, "no JSON", [], {}, {"model": "m"}, {"messages": []}, {"input": 7}, {"input": {"role": "u"}}, {"input": ["Hi"]}],
)
def test_what_is_no_request_is_refused(payload: Any) -> None:
    with pytest.raises(CannotParse):
        FORMAT.parse_request(payload)


@pytest.mark.parametrize("turns", [None, 7, "text", ["Hi"], [None]])
def test_what_are_no_turns_is_refused(turns: Any) -> None:
    with pytest.raises(CannotParse):
        FORMAT.parse_turns(turns)


def test_the_spelling_stays_out_of_other_formats() -> None:
    session = parsed(HI, {**CALL, "arguments": {"q": "x"}}, OUTPUT)
    rendered = get_format("chat_completion").render(session)
    assert b"spelling" not in rendered.body
    assert rendered.losses == []


# Any JSON, and any JSON in the place of something that belongs there


@st.composite
def bent(draw: st.DrawFn, things: list[Any]) -> Any:
    """One of these, now and then with a key that is missing, strange, or holds something else."""
    found = copy.deepcopy(draw(st.sampled_from(things)))
    if isinstance(found, dict) and draw(st.booleans()):
        key = draw(
            st.sampled_from([*found, "id", "type", "status", "content", "extra", "native", "origin", "spelling"])
        )
        found[key] = draw(JSON)
        if draw(st.booleans()):
            del found[key]
    return found


BENT_ITEMS = st.one_of(
    bent([item for _, items in ITEMS for item in items]),
    bent(TOOL_ITEMS),
    st.builds(lambda parts, role: {"role": role, "content": parts}, st.lists(bent(PARTS), max_size=3), JSON),
    st.builds(lambda parts: {**OUTPUT, "output": parts}, st.lists(bent(PARTS), max_size=2)),
)
BENT_REQUESTS = st.builds(
    lambda items, tools, keys: request(*items, **keys) | ({"tools": tools} if tools else {}),
    st.lists(BENT_ITEMS, max_size=5),
    st.lists(bent(TOOLS), max_size=2),
    bent(KEYS),
)


@given(payload=st.one_of(BENT_REQUESTS, BENT_REQUESTS, JSON))
def test_any_request_is_read_or_refused_and_never_changed(payload: Any) -> None:
    before = copy.deepcopy(payload)
    with contextlib.suppress(ThreadkeepError):
        session = FORMAT.parse_request(payload)
        FORMAT.render(session)
        get_format("chat_completion").render(session)
    assert repr(payload) == repr(before)


@given(payload=BENT_REQUESTS)
@example(
    payload={"model": "m", "input": [{"type": "custom_tool_call_output", "call_id": "c", "output": "", "status": 7}]}
)
@example(payload=request({**SCREENSHOT, "status": []}))
def test_any_request_that_is_read_goes_back_as_it_came(payload: Any) -> None:
    with contextlib.suppress(CannotParse, CannotRender):
        rendered = FORMAT.render(FORMAT.parse_request(payload))
        assert {loss.code for loss in rendered.losses} <= {"number"}  # JSON has no NaN, and UTF-8 no lone surrogate
        assert {repair.code for repair in rendered.repairs} <= {
            "malformed_arguments",
            "empty_arguments",
            "invalid_text",
            "range",  # a value that the input does not have
        }
        if not rendered.losses and not rendered.repairs:
            assert repr_of(leveled(rendered.payload)) == repr_of(leveled(payload))


@given(turns=st.one_of(st.lists(BENT_ITEMS, max_size=4), JSON))
@example(turns=[{"role": ["user"], "content": "Hi"}])
def test_any_turns_are_read_or_refused_and_never_changed(turns: Any) -> None:
    before = copy.deepcopy(turns)
    with contextlib.suppress(ThreadkeepError):
        FORMAT.parse_turns(turns)
    assert repr(turns) == repr(before)


def repr_of(thing: Any) -> str:
    """A JSON value as text in which NaN is NaN, and 1 is 1.0."""
    return json.dumps(thing, sort_keys=True).replace(".0", "")


@pytest.mark.parametrize("format_name", NAMES)
def test_a_choice_beside_a_tool_whose_name_is_no_text(format_name: FormatName) -> None:
    tool = {"type": "function", "name": ["odd"], "parameters": {}}
    session = FORMAT.parse_request(request(tools=[tool], tool_choice={"type": "function", "name": "other"}))
    session.user("Hello")
    with contextlib.suppress(ThreadkeepError):
        get_format(format_name).render(session)


@given(KEYS_OF_ITEMS)
def test_usual_elements_are_read_alone_as_they_are_among_others(element: Json) -> None:
    """Importers read one element at a time, and most of them without a detour."""
    try:
        [[expected]] = FORMAT.parse_turns([element])
    except CannotParse:
        with pytest.raises(CannotParse):
            input_object(element)
    else:
        assert same(item_from_object(input_object(element)).to_object(), expected.to_object())
