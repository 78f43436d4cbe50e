"""Requests of Open Responses, beyond the vectors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from tests.formats.factories import answer, assistant, call, codes, output, reasoning, render, snapshot, user
from threadkeep.domain.call_kinds import MISSING_OUTPUT
from threadkeep.domain.rendering import ImportInfo, RenderOptions
from threadkeep.errors import CannotRender, ItemRefused, LossError
from threadkeep.formats import FormatName, get_format
from threadkeep.formats.canonical.entries import ServerState

FORMAT: Final = "open_responses"
STATE = ServerState("resp_1", 2)
MISSING = {"type": "function_call_output", "call_id": "c1", "output": MISSING_OUTPUT}


def sent(*items: Any, **settings: Any) -> list[Any]:
    items_sent: list[Any] = render(FORMAT, *items, **settings).payload["input"]
    return items_sent


def test_the_turn_list_is_the_last_key() -> None:
    rendered = render(FORMAT, user("Hi"), temperature=0.5, extra={FORMAT: {"prompt": {"id": "p"}, "input": "no"}})
    assert list(rendered.payload) == ["model", "temperature", "prompt", "input"]
    assert rendered.body.endswith(
        b'"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]}]}'
    )


def test_a_stored_item_is_sent_byte_for_byte() -> None:
    """Also what another JSON library would change."""
    item = {"type": "web_search_call", "status": "completed", "x": [2**70, -0.0]}
    assert snapshot(item).entries[0].payload in render(FORMAT, item).body  # type: ignore[operator]  # there is one


def test_an_unanswered_call_gets_a_placeholder_behind_the_calls_of_its_turn() -> None:
    rendered = render(FORMAT, user("Go"), answer(call("c1"), call("c2")), user("And?"))
    assert [item.get("call_id") for item in rendered.payload["input"]] == [None, "c1", "c2", "c1", "c2", None]
    assert codes(rendered) == ([], ["missing_output", "missing_output"])
    assert rendered.stable == 1


def test_an_output_after_its_placeholder_was_sent_is_told_at_its_own_place() -> None:
    rendered = render(FORMAT, user("Go"), answer(call()), user("And?"), answer(assistant("Well.")), output())
    items = rendered.payload["input"]
    assert items[2] == MISSING
    assert [item.get("role") for item in items[3:]] == ["user", "assistant", "user"]
    assert "c1" in items[-1]["content"][0]["text"]
    assert items[-1]["content"][1]["text"] == "done"
    assert codes(rendered) == ([], ["missing_output", "late_output"])
    assert rendered.stable == 6


def test_an_output_that_no_request_waited_for_answers_its_call_where_it_is() -> None:
    rendered = render(FORMAT, user("Go"), answer(call()), user("And?"), output())
    assert rendered.payload["input"][3]["output"] == "done"
    assert codes(rendered) == ([], [])


def test_an_orphan_output_is_left_out() -> None:
    assert codes(render(FORMAT, user("Hi"), output())) == (["orphan_output"], [])
    assert codes(render(FORMAT, call(), output(), output())) == (["orphan_output"], [])


def test_an_output_for_a_call_that_the_provider_may_hold_is_sent() -> None:
    assert sent({"type": "item_reference", "id": "fc_9"}, output())[1]["call_id"] == "c1"
    assert sent(output(), state=ServerState("resp_0", -1))[0]["call_id"] == "c1"


def test_server_state_sends_what_follows_the_answer() -> None:
    rendered = render(FORMAT, user("1"), answer(assistant("2")), user("3"), state=ServerState("resp_1", 1))
    assert rendered.payload["previous_response_id"] == "resp_1"
    assert len(rendered.payload["input"]) == 1
    assert rendered.stable == 0


def test_server_state_sends_what_came_in_while_the_provider_was_answering() -> None:
    items = [user("1"), user("2"), answer(assistant("To the first."), seen=0), user("3")]
    texts = [item["content"][0]["text"] for item in sent(*items, state=STATE)]
    assert texts == ["2", "3"]


def test_server_state_answers_the_calls_that_the_provider_waits_for() -> None:
    items = [user("1"), answer(assistant("Looking."), call())]
    assert sent(*items, user("Never mind"), state=STATE)[0] == MISSING
    assert sent(*items, output(), state=STATE) == [{"type": "function_call_output", "call_id": "c1", "output": "done"}]


def test_there_is_no_input_when_the_provider_has_everything() -> None:
    rendered = render(FORMAT, user("1"), answer(assistant("2")), state=ServerState(None, 1), conversation="conv_1")
    assert rendered.payload == {"model": "gpt-5.4", "conversation": "conv_1"}


def test_server_state_can_be_left_aside() -> None:
    found = snapshot(user("1"), answer(assistant("2")), user("3"), state=STATE, previous_response_id="resp_0")
    rendered = get_format(FORMAT).render(found, RenderOptions(server_state="none"))
    assert "previous_response_id" not in rendered.payload
    assert len(rendered.payload["input"]) == 3


@pytest.mark.parametrize(
    "settings",
    [
        {"model": None},
        {"previous_response_id": "resp_1", "conversation": "conv_1", "state": STATE},
        {"background": True, "store": False},
        {"tool_choice": {"type": "function"}},
    ],
)
def test_what_the_service_always_refuses_is_never_sent(settings: dict[str, Any]) -> None:
    with pytest.raises(CannotRender):
        render(FORMAT, user("Hi"), **settings)


def test_nothing_to_send_is_refused() -> None:
    with pytest.raises(CannotRender, match="nothing to send"):
        render(FORMAT)
    with pytest.raises(CannotRender, match="nothing to send"):
        render(FORMAT, output())
    for state in (None, STATE):
        with pytest.raises(CannotRender, match="nothing to send"):
            get_format(FORMAT).render(
                snapshot(user("Hi"), instructions="Be brief.", state=state), RenderOptions(upto=-1)
            )


def test_reasoning_needs_the_item_it_led_to() -> None:
    cut = RenderOptions(upto=1)
    rendered = render(FORMAT, user("Hi"), answer(reasoning(), assistant("Yes.")), options=cut)
    assert [item["type"] for item in rendered.payload["input"]] == ["message"]
    assert codes(rendered) == ([], ["reasoning_follower"])
    assert len(sent(user("Hi"), answer(reasoning(), reasoning(), call()), output())) == 5
    assert len(sent(answer(reasoning()), assistant("Mine."))) == 1


def test_reasoning_goes_back_only_where_it_came_from() -> None:
    own = {"type": "reasoning", "id": "rs_1", "content": [{"type": "reasoning_text", "text": "hm"}]}
    assert sent(answer(own, assistant("Yes.")))[0] == {**own, "summary": []}
    rendered = render(FORMAT, user("Hi"), answer(reasoning(), assistant("Yes."), origin="messages"))
    assert len(rendered.payload["input"]) == 2
    assert codes(rendered) == (["reasoning"], [])


def test_ids_come_once() -> None:
    twice = assistant("Yes.", id="msg_1")
    rendered = render(FORMAT, twice, twice, {"type": "item_reference", "id": "msg_1"})
    assert [item.get("id") for item in rendered.payload["input"]] == ["msg_1", None]
    assert codes(rendered) == ([], ["duplicate_id", "duplicate_id"])


def test_a_call_id_that_comes_again_is_hashed_with_its_output() -> None:
    items = sent(call(), output(text="1"), call(), output(text="2"))
    ids = [item["call_id"] for item in items]
    assert ids[:2] == ["c1", "c1"]
    assert ids[2] == ids[3] != "c1"
    assert ids == [item["call_id"] for item in sent(call(), output(text="1"), call(), output(text="2"))]


def test_a_call_id_of_the_wrong_length_is_hashed() -> None:
    items = sent(call("x" * 65), output("x" * 65))
    assert items[0]["call_id"] == items[1]["call_id"]
    assert len(items[0]["call_id"]) <= 64


def test_ids_of_other_services_are_left_out() -> None:
    rendered = render(FORMAT, user("Hi", id="item_1"), call(id="toolu_1"), output(id="anything"))
    assert [item.get("id") for item in rendered.payload["input"]] == [None, None, "anything"]
    assert codes(rendered)[1] == ["item_id", "item_id"]


def test_names_are_cleaned_in_calls_tools_and_choice_alike() -> None:
    tools = [{"type": "function", "name": name} for name in ("my.tool", "my_tool")]
    choice = {"type": "function", "name": "my.tool"}
    payload = render(FORMAT, call(name="my.tool"), output(), tools=tools, tool_choice=choice).payload
    name = payload["tools"][0]["name"]
    assert name not in ("my.tool", "my_tool")
    assert payload["input"][0]["name"] == payload["tool_choice"]["name"] == name
    assert payload["tools"][1]["name"] == "my_tool"


def test_a_cleaned_name_is_sent_where_it_is_unique() -> None:
    assert sent(call(name="my.tool"), output())[0]["name"] == "my_tool"


def test_text_takes_the_part_type_of_its_role() -> None:
    items = sent(assistant({"type": "input_text", "text": "A"}), user({"type": "output_text", "text": "B"}))
    assert [item["content"][0]["type"] for item in items] == ["output_text", "input_text"]


def test_media_in_an_assistant_message_become_notes() -> None:
    rendered = render(FORMAT, assistant({"type": "input_image", "image_url": "https://img.example.org/a.png"}))
    assert rendered.payload["input"][0]["content"] == [
        {"type": "output_text", "text": "[image not included: https://img.example.org/a.png]"}
    ]
    assert codes(rendered) == (["media"], [])


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"file_url": "data:text/plain,hi"}, {"type": "input_file", "file_data": "data:text/plain;base64,aGk="}),
        (
            {"file_data": "data:image/png;base64,aW1n"},
            {"type": "input_image", "image_url": "data:image/png;base64,aW1n"},
        ),
        (
            {"file_data": "data:audio/mpeg;base64,aW1n"},
            {"type": "input_text", "text": "[file not included: audio/mpeg]"},
        ),
        ({"filename": "a.pdf"}, {"type": "input_text", "text": "[file not included: a.pdf]"}),
    ],
)
def test_files_are_sent_as_the_service_takes_them(part: dict[str, Any], expected: dict[str, Any]) -> None:
    assert sent(user({"type": "input_file", **part}))[0]["content"] == [expected]


def test_an_image_with_two_sources_keeps_its_url_unless_rendering_is_strict() -> None:
    image = {"type": "input_image", "image_url": "https://img.example.org/a.png", "file_id": "file_1"}
    rendered = render(FORMAT, user(image))
    assert rendered.payload["input"][0]["content"][0] == {key: image[key] for key in ("type", "image_url")}
    with pytest.raises(ItemRefused):
        render(FORMAT, user(image), options=RenderOptions(strict=True))


def test_malformed_arguments_become_an_empty_object_unless_rendering_is_strict() -> None:
    rendered = render(FORMAT, answer(call(arguments='{"n":')), output())
    assert rendered.payload["input"][0]["arguments"] == "{}"
    assert codes(rendered) == ([], ["malformed_arguments"])
    with pytest.raises(ItemRefused):
        render(FORMAT, call(arguments="{"), output(), options=RenderOptions(strict=True))


def test_keys_of_todays_api_are_fields() -> None:
    rich = call(namespace="crm", caller={"type": "direct"}, cache_control={"type": "ephemeral"})
    assert sent({**rich, "async": True}, output())[0] == {
        "type": "function_call", "call_id": "c1", "name": "lookup", "arguments": "{}",
        "namespace": "crm", "caller": {"type": "direct"}, "async": True,
    }  # fmt: skip


def test_native_keys_and_blocks_go_back_to_this_format_only() -> None:
    own = assistant("Yes.", native={FORMAT: {"vendor_lane": 3}})
    foreign = assistant("No.", native={"messages": {"lane": 3}})
    block = {"type": "provider_item", "format": "gemini", "payload": {}}
    rendered = render(FORMAT, answer(own), foreign, user("Hi", block), block)
    assert rendered.payload["input"][0]["vendor_lane"] == 3
    assert "lane" not in rendered.payload["input"][1]
    assert codes(rendered) == (["native", "provider_item", "provider_item"], [])


def test_unknown_items_are_sent_as_they_are_and_those_of_other_formats_are_not() -> None:
    strange = {"type": "program", "id": "pr_1", "code": "1"}
    assert sent(strange)[0] == strange
    assert codes(render(FORMAT, user("Hi"), answer(strange, origin="gemini"))) == (["item"], [])


def test_settings_of_other_formats_are_reported() -> None:
    rendered = render(
        FORMAT, user("Hi"), reasoning={"effort": "low", "budget_tokens": 900}, max_output_tokens=3,
        stream_options={"include_usage": True}, metadata={"n": 1, "k" * 65: "x", "deep": {}},
    )  # fmt: skip
    assert rendered.payload["reasoning"] == {"effort": "low"}
    assert rendered.payload["max_output_tokens"] == 16
    assert rendered.payload["metadata"] == {"n": "1"}
    assert "stream_options" not in rendered.payload
    assert codes(rendered) == (["metadata", "metadata", "option"], ["max_output_tokens"])


def test_strict_rendering_refuses_losses_with_their_list() -> None:
    with pytest.raises(LossError) as raised:
        render(FORMAT, user("Hi"), output(), options=RenderOptions(strict=True))
    assert [loss.code for loss in raised.value.losses] == ["orphan_output"]


def test_tools_that_the_provider_runs_are_sent_as_they_are() -> None:
    tools = [{"type": "web_search"}, {"type": "provider_tool", "format": "messages", "payload": {"type": "bash"}}]
    rendered = render(FORMAT, user("Hi"), tools=tools)
    assert rendered.payload["tools"] == [{"type": "web_search"}]
    assert codes(rendered) == (["provider_item"], [])


def test_the_choice_of_a_tool_that_is_not_offered_is_left_out() -> None:
    rendered = render(FORMAT, user("Hi"), tool_choice={"type": "function", "name": "gone"})
    assert "tool_choice" not in rendered.payload
    assert codes(rendered) == ([], ["tool_choice"])


@pytest.mark.parametrize(
    ("imported", "text", "sends"),
    [
        (ImportInfo("gemini", 1), "Hi", False),
        (ImportInfo("gemini", 1), "Hi, in JSON", True),
        (ImportInfo(FORMAT, 1), "Hi", True),
        (ImportInfo(FORMAT, 2), "Hi", False),
        (None, "Hi", True),
    ],
)
def test_json_mode_needs_the_word_in_the_input_of_requests_that_did_not_come_so(
    imported: ImportInfo | None, text: str, *, sends: bool
) -> None:
    settings: dict[str, Any] = {"text": {"format": {"type": "json_object"}, "verbosity": "low"}, "instructions": "JSON"}
    rendered = get_format(FORMAT).render(replace(snapshot(user(text), **settings), imported=imported))
    wanted = settings["text"] if sends else {"verbosity": "low"}
    assert rendered.payload["text"] == wanted
    assert codes(rendered) == ([] if imported else ["refused"], [] if sends else ["option"])


CITATION = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (CITATION, [CITATION]),
        ({**CITATION, "content": "the page"}, [CITATION]),
        ({"type": "url_citation", "url": "u"}, []),
        ({"type": "url_citation", "url_citation": {**CITATION, "content": "c"}}, [CITATION]),
        ({"type": "elsewhere"}, []),
    ],
)
def test_annotations_have_the_keys_of_their_type(annotation: dict[str, Any], expected: list[Any]) -> None:
    part = {"type": "output_text", "text": "Hi", "annotations": [annotation]}
    rendered = render(FORMAT, user("Hi"), {"type": "message", "role": "assistant", "content": [part]})
    assert rendered.payload["input"][1]["content"][0]["annotations"] == expected
    assert codes(rendered)[0] == ([] if annotation == CITATION else ["annotations"])


def test_a_schema_without_a_name_gets_one_unless_the_request_came_without() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    form = {"type": "json_schema", "json_schema": {"schema": {}}}
    session = get_format("chat_completion").parse_request({**body, "response_format": form})
    assert session.request_payload(FORMAT)["text"]["format"] == {
        "type": "json_schema",
        "name": "response",
        "schema": {},
    }
    assert session.request_payload("chat_completion")["response_format"] == form
    payload = {"model": "m", "text": {"format": {"type": "json_schema", "schema": {}}}, "input": "Hi"}
    assert get_format(FORMAT).parse_request(payload).request_payload(FORMAT) == payload


@pytest.mark.parametrize("tier", ["standard", "standard_only", "unspecified", "reserved"])
@pytest.mark.parametrize("format_name", ["open_responses", "chat_completion"])
def test_service_tiers_of_other_apis_are_lost(format_name: FormatName, tier: str) -> None:
    rendered = render(format_name, user("Hi"), service_tier=tier)
    assert "service_tier" not in rendered.payload
    assert codes(rendered) == (["option"], [])


def test_the_service_tier_of_one_server_goes_back_to_its_format_only() -> None:
    payload = {"model": "m", "service_tier": "on_demand", "messages": [{"role": "user", "content": "Hi"}]}
    session = get_format("chat_completion").parse_request(payload)
    assert session.request_payload("chat_completion") == payload
    assert "service_tier" not in session.request_payload(FORMAT)
