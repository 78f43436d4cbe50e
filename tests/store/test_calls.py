"""Running a conversation: which calls wait for an output, who decides about them, and whose turn it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.factories import a_call, a_gemini_answer, a_message, a_picture, a_stream, an_answer, an_error, an_output
from tests.reference_cases import FORMATS
from tests.store.test_streams import FORMAT, left
from tests.store.watching import Tables
from threadkeep import Conflict, InvalidOption, NotFound, ProviderError, ResponseInProgress
from threadkeep.formats.shared.pairing import paired


@pytest.fixture
def asked(conversation: Any) -> Any:
    """A conversation whose model has called two functions."""
    conversation.user("Where is it warm?")
    body = an_answer("Let me see.", calls=("call_a", "call_b"))
    body["output"][1] |= {"name": "weather", "arguments": '{"city": "Hull"}'}
    body["output"][2] |= {"name": "weather", "arguments": '{"city": "Yo'}
    conversation.add_response(body, FORMAT)
    return conversation


def pending(conversation: Any) -> list[str]:
    return [call.call_id for call in conversation.pending_calls()]


# Pending calls


def test_a_call_without_an_output_is_pending(asked: Any) -> None:
    first, second = asked.pending_calls()
    assert (first.position, first.call_id, first.name, first.approval) == (2, "call_a", "weather", None)
    assert (first.id, first.item) == (asked.get_item(2).id, asked.get_item(2).item)
    assert first.arguments == {"city": "Hull"}
    assert second.arguments == '{"city": "Yo', "the text, where it is not JSON"
    asked.add_function_call_output(call_id="call_b", output="rain")
    assert pending(asked) == ["call_a"]
    asked.add_function_call_output(call_id="call_a", output="sun")
    assert asked.pending_calls() == []


def test_a_call_is_not_pending_once_the_model_went_on(asked: Any) -> None:
    """From then on, requests say that its result is missing; that it may still come is no reason to run it."""
    asked.user("Never mind. What is the time?")
    assert pending(asked) == ["call_a", "call_b"]
    asked.add_response(an_answer("Noon.", id="resp_2"), FORMAT, rendered=asked.render(FORMAT))
    assert asked.pending_calls() == []
    assert asked.next_step() == "user"


def test_calls_of_one_id_are_paired_as_in_requests(conversation: Any) -> None:
    conversation.user("Again and again")
    for number in range(2):
        conversation.add_response(an_answer(id=f"resp_{number}", calls=("c", "c")), FORMAT)
        conversation.add_function_call_output(call_id="c", output="once")
        assert [call.position for call in conversation.pending_calls()] == [3 * number + 2]
    [left_over] = conversation.pending_calls()
    assert conversation.deny("c").position == 7
    assert left_over.position == 5
    assert conversation.pending_calls() == []


def outputs_shown(store: Any, conversation: Any, format_name: str) -> list[tuple[str, str]]:
    """The city of each call that a request shows, and what it shows as its output."""
    payload = conversation.render(format_name).payload
    items = [stored.item for stored in store.import_request(payload, format_name, model="m").transcript()]
    cities: dict[str, str] = {}
    shown = []
    for item in items:
        if item.type == "function_call":
            cities[item.call_id] = json.loads(item.arguments)["city"]
        elif item.type == "function_call_output":
            shown.append((cities[item.call_id], text_of(item.output)))
    return shown


def text_of(output: Any) -> str:
    return output if isinstance(output, str) else "".join(part["text"] for part in output)


def the_weather_in(conversation: Any, *cities: str, number: int = 0) -> None:
    """A response of a host that gives all calls the same id."""
    body = an_answer(id=f"resp_{number}", calls=("call_1",) * len(cities))
    for call, city in zip(body["output"], cities, strict=True):
        call |= {"id": f"fc_{number}_{city}", "name": "weather", "arguments": json.dumps({"city": city})}
    conversation.add_response(body, FORMAT)


@pytest.mark.parametrize("format_name", FORMATS)
def test_parallel_calls_with_the_same_id_are_answered_in_their_order(store: Any, format_name: str) -> None:
    conversation = store.create_conversation(model="m")
    for day, cities in enumerate((("Hull", "York", "Bath"), ("Ely", "Hull"))):
        conversation.user(f"Day {day}")
        the_weather_in(conversation, *cities, number=day)
        for call in conversation.pending_calls():
            conversation.add_function_call_output(call_id="call_1", output=f"{day} {call.arguments['city']}")
    answered = [("Hull", "0 Hull"), ("York", "0 York"), ("Bath", "0 Bath"), ("Ely", "1 Ely"), ("Hull", "1 Hull")]
    assert outputs_shown(store, conversation, format_name) == answered


def test_calls_with_the_same_id_are_decided_about_in_their_order(store: Any, tables: Tables) -> None:
    """An output states the call id: the reason for one must not become the output of another one."""
    conversation = store.create_conversation(model="m")
    conversation.user("And now?")
    the_weather_in(conversation, "Hull", "York", "Bath")
    _, second, third = conversation.pending_calls()
    written = tables.written()
    for decide, call in [(conversation.approve, second.id), (conversation.deny, third.position)]:
        with pytest.raises(Conflict, match="of the one at position 1, which is answered first"):
            decide(call)
    assert written() == {}
    conversation.approve("call_1")
    conversation.approve(second.id)
    with pytest.raises(Conflict, match="of the one at position 1, which is answered first"):
        conversation.deny(third.id)
    conversation.add_function_call_output(call_id="call_1", output="sun")
    assert [call.position for call in conversation.pending_calls()] == [second.position, third.position]
    conversation.add_function_call_output(call_id="call_1", output="rain")
    conversation.deny("call_1", reason="Bath is closed.")
    assert conversation.pending_calls() == []
    assert outputs_shown(store, conversation, FORMAT) == [
        ("Hull", "sun"),
        ("York", "rain"),
        ("Bath", "Bath is closed."),
    ]


def test_of_calls_of_two_turns_the_newest_are_pending_first(store: Any) -> None:
    """Whoever answers pending calls one after another answers the ones that are meant."""
    conversation = store.create_conversation(model="m")
    for cities in (("Hull", "York"), ("Bath", "Ely")):
        conversation.user("And now?")
        conversation.add_items([a_call("call_1", "weather", json.dumps({"city": city})) for city in cities])
    calls = conversation.pending_calls()
    assert [call.arguments["city"] for call in calls] == ["Bath", "Ely", "Hull", "York"]
    for call in calls:
        conversation.add_function_call_output(call_id=call.call_id, output=f"sun in {call.arguments['city']}")
    shown = outputs_shown(store, conversation, FORMAT)
    assert sorted(shown) == [(city, f"sun in {city}") for city in ("Bath", "Ely", "Hull", "York")]


def test_a_call_that_broke_off_is_not_pending(conversation: Any) -> None:
    """Whether the format says so, or only that the response did."""
    function = {"name": "f", "arguments": '{"city": "Hu'}
    delta = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": function}]}
    chunk = {"id": "1", "model": "m", "choices": [{"index": 0, "delta": delta}]}
    begun = a_stream(calls=("d",))[:2]
    begun[1]["item"]["status"] = "in_progress"
    for wire, events in (("chat_completion", [chunk]), (FORMAT, begun)):
        conversation.user("Go")
        with conversation.stream_response(wire) as recorder:
            for event in events:
                recorder.feed(event)
        assert conversation.transcript()[-1].item.type == "function_call"
        assert conversation.pending_calls() == []
        assert conversation.next_step() == "user"


@pytest.mark.parametrize(
    ("call", "name", "arguments", "output"),
    [
        (
            {"type": "custom_tool_call", "call_id": "c", "name": "run", "input": "1 + 1"},
            "run", "1 + 1", {"type": "custom_tool_call_output", "call_id": "c", "output": "no"},
        ),
        (
            {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
            "shell_call", {"commands": ["ls"]},
            {
                "type": "shell_call_output", "call_id": "c",
                "output": [{"stdout": "", "stderr": "no", "outcome": {"type": "exit", "exit_code": 1}}],
            },
        ),
        (
            {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file", "path": "x"}},
            "apply_patch_call", {"type": "delete_file", "path": "x"},
            {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no"},
        ),
        (
            a_call("c", "look_up", '{"a": 1}'), "look_up", {"a": 1},
            {"type": "function_call_output", "call_id": "c", "output": "no", "status": "incomplete"},
        ),
    ],
)  # fmt: skip
def test_tools_that_the_application_runs(
    conversation: Any, call: Any, name: str, arguments: Any, output: dict[str, Any]
) -> None:
    conversation.add_items([a_message("Go"), call])
    [found] = conversation.pending_calls()
    assert (found.name, found.arguments) == (name, arguments)
    assert conversation.next_step() == "tools"
    assert conversation.deny("c", reason="no").item.to_dict() == output
    assert conversation.pending_calls() == []
    assert conversation.next_step() == "model"


def test_a_screen_cannot_be_denied(conversation: Any) -> None:
    """Its output is a picture."""
    conversation.add_items([a_message("Go"), {"type": "computer_call", "call_id": "c", "action": {"type": "click"}}])
    with pytest.raises(InvalidOption, match="computer_call"):
        conversation.deny("c")
    shown = {"type": "computer_call_output", "call_id": "c", "output": a_picture(b"screen")}
    conversation.add_item(shown)
    assert conversation.pending_calls() == []


def test_a_call_of_a_provider_that_gives_no_ids(conversation: Any) -> None:
    conversation.user("Go")
    body = a_gemini_answer()
    body["candidates"][0]["content"]["parts"] = [{"functionCall": {"name": "f", "args": {"x": 1}}}]
    conversation.add_response(body, "gemini")
    [call] = conversation.pending_calls()
    assert (call.name, call.arguments) == ("f", {"x": 1})
    conversation.add_input(
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"y": 2}}}]}, "gemini"
    )
    assert conversation.pending_calls() == []


def test_a_call_only_its_provider_knows(conversation: Any) -> None:
    call = {"id": "c", "type": "custom", "custom": {"name": "run", "input": "1 + 1"}}
    conversation.add_items([a_message("Go"), {"type": "provider_item", "format": "chat_completion", "payload": call}])
    [found] = conversation.pending_calls()
    assert (found.call_id, found.name, found.arguments) == ("c", "run", "1 + 1")


def test_each_branch_has_its_own(asked: Any) -> None:
    fork = asked.fork()
    early = asked.fork(at=2)
    asked.add_function_call_output(call_id="call_a", output="sun")
    assert [pending(one) for one in (asked, fork, early)] == [["call_b"], ["call_a", "call_b"], ["call_a"]]
    fork.add_function_call_output(call_id="call_a", output="snow")
    again = fork.fork()
    again.add_function_call_output(call_id="call_b", output="hail")
    assert [pending(one) for one in (asked, fork, again)] == [["call_b"], ["call_b"], []]


# Whose turn it is


def test_the_turns_of_a_conversation(store: Any) -> None:
    conversation = store.create_conversation(model="m", instructions="Be brief.")
    steps = [conversation.next_step()]
    for step in (
        lambda: conversation.system("Be kind."),
        lambda: conversation.user("Hi"),
        lambda: conversation.developer("Now be quick."),
        lambda: conversation.add_response(an_answer(calls=("c",)), FORMAT),
        lambda: conversation.add_function_call_output(call_id="c", output="sun"),
        lambda: conversation.compact(summary="It is warm."),
        lambda: conversation.add_response(an_answer("Warm.", id="resp_2"), FORMAT),
        conversation.undo_compaction,
        lambda: conversation.assistant("Anything else?"),
    ):
        step()
        steps.append(conversation.next_step())
    assert steps == ["user", "user", "model", "model", "tools", "model", "model", "user", "user", "user"]


def test_a_response_that_failed_is_the_users_turn(conversation: Any) -> None:
    """Whoever asks again decides that: a loop would ask for ever."""
    conversation.user("Hi")
    with pytest.raises(ProviderError):
        conversation.add_response(an_error(), FORMAT)
    assert conversation.next_step() == "model", "nothing was stored but the attempt"
    body = {**an_answer(), "status": "failed", "error": {"code": "server_error", "message": "Sorry"}}
    conversation.add_response(body, FORMAT)
    assert conversation.next_step() == "user"
    fork = conversation.fork()
    assert fork.next_step() == "model", "it was never asked on this branch"
    conversation.user("Please")
    assert conversation.next_step() == "model"


def test_while_a_response_arrives_it_is_the_models_turn(conversation: Any) -> None:
    conversation.user("Hi")
    with conversation.stream_response(FORMAT):
        assert conversation.next_step() == "model"
    assert conversation.next_step() == "user"


# Approvals


def test_a_call_is_approved_from_anywhere(store: Any, asked: Any, elsewhere: Any) -> None:
    other = elsewhere.get_conversation(asked.id)
    assert other.next_step() == "tools"
    approved = other.approve("call_a", decided_by="ann")
    assert (approved.position, approved.name, approved.arguments) == (2, "weather", {"city": "Hull"})
    assert (approved.approval.decision, approved.approval.decided_by) == ("approved", "ann")
    [first, second] = asked.pending_calls()
    assert (first.approval.decision, first.approval.reason, second.approval) == ("approved", None, None)
    assert first.approval.decided_at.utcoffset() is not None
    assert asked.next_step() == "tools"
    asked.approve(second.position)
    assert [call.approval.decided_by for call in other.pending_calls()] == ["ann", None]


def test_a_call_is_given_by_the_id_of_its_item(store: Any) -> None:
    """Its own, or the one that it has here, as for everything else that takes an item."""
    calls = [{**a_call("call_a"), "id": "fc_own"}, a_call("call_b"), a_call("call_c"), a_call("call_c")]
    asked = store.create_conversation(model="m", input=[a_message("And now?"), *calls])
    first, second, older, newer = asked.pending_calls()
    assert (first.id, second.id[:3]) == ("fc_own", "fc_")
    assert asked.approve("fc_own").position == 1
    assert asked.deny(second.id).item.call_id == "call_b"
    with pytest.raises(Conflict, match="output already"):
        asked.approve(second.id)
    assert [asked.approve(one.id).position for one in (older, newer)] == [3, 4]
    with pytest.raises(InvalidOption, match="is the id of an item of type 'message'"):
        asked.approve(asked.get_item(0).id)
    fork = asked.fork(at=0)
    for item_id in ("fc_own", second.id):
        with pytest.raises(NotFound):
            fork.approve(item_id)


def test_an_id_that_names_two_calls_is_refused(store: Any, tables: Tables) -> None:
    """A model that gives a call the id of another one's item must not have it approved in its place."""
    calls = [{**a_call("call_a"), "id": "fc_1"}, {**a_call("fc_1"), "id": "fc_2"}, {**a_call("fc_3"), "id": "fc_3"}]
    asked = store.create_conversation(model="m", input=[{**a_message("Hi"), "id": "fc_2"}, *calls])
    written = tables.written()
    for decide in (asked.approve, asked.deny):
        with pytest.raises(InvalidOption, match="at position 1, and the call id of another one, at 2"):
            decide("fc_1")
    assert written() == {}
    assert [asked.approve(call).position for call in ("fc_2", "fc_3")] == [2, 3]


def test_a_denied_call_is_answered_with_the_reason(asked: Any, elsewhere: Any, tables: Tables) -> None:
    other = elsewhere.get_conversation(asked.id)
    other.render(FORMAT)
    asked.render(FORMAT)
    written = tables.written()
    stored = other.deny("call_a", reason="Hull is closed.", decided_by="ann")
    assert written() == {"items": 1, "approvals": 1}
    assert (stored.position, stored.item.call_id, stored.item.output) == (4, "call_a", "Hull is closed.")
    assert pending(asked) == ["call_b"]
    asked.deny("call_b")
    assert asked.next_step() == other.next_step() == "model"
    outputs = [one["output"] for one in asked.request_payload(FORMAT)["input"] if one["type"].endswith("output")]
    assert outputs == ["Hull is closed.", "The call was denied."]
    assert other.render(FORMAT).body == asked.render(FORMAT).body
    assert asked.render("messages").payload["messages"][-1]["content"][0]["is_error"] is True
    rows = tables.rows("approvals", "position")
    assert [(row["decision"], row["reason"], row["decided_by"]) for row in rows] == [
        ("denied", "Hull is closed.", "ann"),
        ("denied", "The call was denied.", None),
    ]


def test_a_call_that_the_model_has_left_behind_is_not_approved(asked: Any, tables: Tables) -> None:
    asked.add_item({**a_call("call_later"), "async": True})
    asked.user("Never mind.")
    asked.approve("call_a")
    asked.add_response(an_answer("Fine."), FORMAT)
    written = tables.written()
    with pytest.raises(Conflict, match=r"'call_b' waits no more: .* After a new message of the user"):
        asked.approve("call_b")
    assert written() == {}
    assert asked.approve("call_later").is_approved


def test_a_decision_is_final(asked: Any, tables: Tables) -> None:
    asked.approve("call_a", decided_by="ann")
    asked.deny("call_b")
    written = tables.written()
    for decide in (asked.approve, asked.deny):
        with pytest.raises(Conflict, match="approved already by 'ann'"):
            decide("call_a")
        for call in ("call_b", 3):
            with pytest.raises(Conflict, match="output already"):
                decide(call)
    asked.add_function_call_output(call_id="call_a", output="sun")
    with pytest.raises(Conflict, match="output already"):
        asked.deny(2)
    assert written() == {"items": 1}


def test_a_repeated_decision_under_a_key_is_the_first_one(asked: Any, tables: Tables) -> None:
    first = asked.approve("call_a", idempotency_key="yes")
    denied = asked.deny("call_b", reason="no", idempotency_key="no")
    written = tables.written()
    assert asked.approve("call_a", idempotency_key="yes") == first
    again = asked.deny("call_b", reason="no", idempotency_key="no")
    assert (again.replayed, again.position, again.item) == (True, denied.position, denied.item)
    with pytest.raises(Conflict):
        asked.deny("call_b", reason="never", idempotency_key="no")
    assert written() == {}


@pytest.mark.parametrize("purge", [True, False])
def test_a_repeated_decision_about_a_call_that_was_removed(asked: Any, tables: Tables, purge: bool) -> None:
    """Nothing of the call is returned: not by an approval; a denial returns what its caller gave."""
    asked.approve("call_a", idempotency_key="yes")
    denied = asked.deny("call_b", reason="no", idempotency_key="no")
    for position in (2, 3):
        asked.remove_item(position, purge=purge)
    written = tables.written()
    with pytest.raises(NotFound, match="has no item at position 2"):
        asked.approve("call_a", idempotency_key="yes")
    again = asked.deny("call_b", reason="no", idempotency_key="no")
    assert (again.replayed, again.position, again.item) == (True, denied.position, denied.item)
    assert written() == {}


def test_a_call_shared_by_branches_is_denied_on_each(asked: Any) -> None:
    """The decision is about the call; the output is on the branch where it was given."""
    fork = asked.fork()
    asked.deny("call_a", reason="no")
    asked.approve("call_b")
    assert [(call.call_id, call.approval.decision, call.is_approved) for call in fork.pending_calls()] == [
        ("call_a", "denied", False), ("call_b", "approved", True),
    ]  # fmt: skip
    with pytest.raises(Conflict, match="denied already"):
        fork.approve("call_a")
    assert fork.deny("call_a", reason="no").branch == 1
    assert pending(fork) == ["call_b"]


@pytest.mark.parametrize("call", ["call_x", "", 99, -1, 2**70])
def test_there_has_to_be_such_a_call(asked: Any, tables: Tables, call: Any) -> None:
    written = tables.written()
    for decide in (asked.approve, asked.deny):
        with pytest.raises(NotFound):
            decide(call)
    assert written() == {}


def test_a_message_is_no_call(asked: Any) -> None:
    with pytest.raises(InvalidOption, match="message"):
        asked.approve(0)


def test_a_call_of_another_branch_is_not_there(asked: Any) -> None:
    fork = asked.fork(at=0)
    fork.add_item(a_call("call_x"))
    for call in ("call_a", 2):
        with pytest.raises(NotFound):
            fork.approve(call)
    for call in ("call_x", 4):
        with pytest.raises(NotFound):
            asked.deny(call)


def test_nobody_decides_for_others(store: Any) -> None:
    conversation = store.create_conversation(model="m", user_id="ann", input=[a_message(), a_call("c")])
    seen_by_ann = store.for_user("ann").get_conversation(conversation.id)
    assert pending(seen_by_ann) == ["c"]
    conversation.update(user_id="bob")
    for call in (
        seen_by_ann.pending_calls,
        seen_by_ann.next_step,
        lambda: seen_by_ann.approve("c"),
        lambda: seen_by_ann.deny(1),
    ):
        with pytest.raises(NotFound):
            call()
    assert [call.approval for call in conversation.pending_calls()] == [None]


def test_a_branch_in_use_takes_an_approval_but_no_output(asked: Any) -> None:
    left(asked)
    asked.approve("call_a")
    with pytest.raises(ResponseInProgress):
        asked.deny("call_b")
    assert [call.approval and call.approval.decision for call in asked.pending_calls()] == ["approved", None]


ITEMS = st.lists(
    st.tuples(st.sampled_from(["user", "call", "output", "answer", "stale", "fork"]), st.sampled_from("ab")),
    max_size=12,
)


def test_the_calls_are_those_for_which_a_request_waits(stores: Any, tenant: str) -> None:
    """Whatever was appended in whatever order: as if all items had been read and paired for a request."""
    store = stores.get("sync").for_tenant(tenant)

    @settings(max_examples=20)
    @given(ITEMS)
    def run(steps: Any) -> None:
        conversation = store.create_conversation(model="m", input="Hi")
        rendered = conversation.render(FORMAT)
        for number, (step, name) in enumerate(steps):
            match step:
                case "user":
                    conversation.user("Go on")
                case "call":
                    conversation.add_item(a_call(name))
                case "output":
                    conversation.add_item(an_output(name), known=False)
                case "fork":
                    conversation = conversation.fork(at=conversation.transcript()[-1].position)
                case _:
                    asked = rendered if step == "stale" else conversation.render(FORMAT)
                    body = an_answer("Well", id=f"resp_{number}", calls=(name,))
                    conversation.add_response(body, FORMAT, rendered=asked)
        pairing = paired(conversation.handle.read_snapshot().entries)
        assert {call.position for call in conversation.pending_calls()} == pairing.pending()

    run()
