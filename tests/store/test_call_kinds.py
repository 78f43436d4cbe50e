"""Calls of every kind of tool: which wait for an output, what stands for one, and what belongs together."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import a_message, an_answer
from tests.formats.sdk_types import unfit
from threadkeep import InvalidOption, LossError, Session, Turns
from threadkeep.domain.call_kinds import BY_CALL, KINDS
from threadkeep.formats import FormatName, get_format

pytestmark = pytest.mark.one_face

Json = dict[str, Any]
FORMAT: FormatName = "open_responses"
PIXEL = "data:image/png;base64,iVBORw0KGgo="
EXIT = {"type": "exit", "exit_code": 0}
# kind -> a call as OpenAI gives it, and its output
PAIRS: dict[str, tuple[Json, Json]] = {
    "function": (
        {"type": "function_call", "id": "fc_1", "name": "look", "arguments": "{}", "status": "completed"},
        {"type": "function_call_output", "output": "seen"},
    ),
    "custom": (
        {"type": "custom_tool_call", "id": "ctc_1", "name": "grep", "input": "x"},
        {"type": "custom_tool_call_output", "output": "seen"},
    ),
    "shell": (
        {"type": "shell_call", "id": "sh_1", "action": {"commands": ["ls"]}, "status": "in_progress"},
        {"type": "shell_call_output", "output": [{"stdout": "a", "stderr": "", "outcome": EXIT}]},
    ),
    "apply_patch": (
        {
            "type": "apply_patch_call", "id": "apc_1", "status": "completed",
            "operation": {"type": "delete_file", "path": "a"},
        },
        {"type": "apply_patch_call_output", "status": "completed", "output": "Done"},
    ),
    "computer": (
        {
            "type": "computer_call", "id": "cu_1", "status": "completed", "action": {"type": "screenshot"},
            "pending_safety_checks": [],
        },
        {"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": PIXEL}},
    ),
    "local_shell": (
        {
            "type": "local_shell_call", "id": "lsh_1", "status": "completed",
            "action": {"type": "exec", "command": ["ls"], "env": {}},
        },
        {"type": "local_shell_call_output", "id": "call_1", "output": "a"},
    ),
    "tool_search": (
        {
            "type": "tool_search_call", "id": "tsc_1", "execution": "client", "status": "completed",
            "arguments": {"query": "mail"},
        },
        {"type": "tool_search_output", "execution": "client", "status": "completed", "tools": []},
    ),
    "mcp_approval": (
        {"type": "mcp_approval_request", "id": "call_1", "name": "send", "server_label": "mail", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "call_1", "approve": True},
    ),
}  # fmt: skip
KIND = pytest.mark.parametrize("kind", PAIRS)
# what the provider runs itself: it gives the output in the same answer, or none
HOSTED: dict[str, list[Json]] = {
    "web search": [{"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}],
    "code interpreter": [
        {"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "container_id": "c", "code": "1",
         "outputs": None}
    ],
    "MCP call": [{"type": "mcp_call", "id": "mcp_1", "name": "send", "server_label": "mail", "arguments": "{}"}],
    "tool search": [
        {"type": "tool_search_call", "id": "tsc_1", "execution": "server", "call_id": None, "arguments": {}},
        {"type": "tool_search_output", "id": "tso_1", "execution": "server", "call_id": None, "tools": []},
    ],
    "shell in a container": [
        {
            "type": "shell_call", "id": "sh_1", "call_id": "call_1", "action": {"commands": ["ls"]},
            "environment": {"type": "container_reference", "container_id": "c"}, "status": "completed",
        },
        {"type": "shell_call_output", "id": "sho_1", "call_id": "call_1", "output": []},
    ],
    "program": [
        {"type": "program", "id": "prog_1", "call_id": "call_1", "code": "1", "fingerprint": "f"},
        {"type": "program_output", "id": "progo_1", "call_id": "call_1", "result": "1", "status": "completed"},
    ],
    "program that waits": [
        {"type": "program", "id": "prog_1", "call_id": "call_1", "code": "1", "fingerprint": "f"},
    ],
}  # fmt: skip


def the_call(kind: str, **keys: Any) -> Json:
    call = PAIRS[kind][0]
    return {**call, **({} if BY_CALL[call["type"]].call_key == "id" else {"call_id": "call_1"}), **keys}


def the_output(kind: str, **keys: Any) -> Json:
    output = PAIRS[kind][1]
    has_reference = kind in ("local_shell", "mcp_approval")
    return {**output, **({} if has_reference else {"call_id": "call_1"}), **keys}


def called(conversation: Any, *calls: Json) -> Any:
    """A conversation whose model has made these calls."""
    conversation.user("Go.")
    conversation.add_response({**an_answer(), "output": [dict(call) for call in calls]}, FORMAT)
    return conversation


def types(rendered: Any) -> list[str]:
    return [item["type"] for item in rendered.payload["input"]]


def test_each_kind_has_a_case_here() -> None:
    assert {kind.name for kind in KINDS} == {*PAIRS, "program"}


@KIND
def test_a_call_waits_for_its_output(conversation: Any, kind: str) -> None:
    called(conversation, the_call(kind))
    [waiting] = conversation.pending_calls()
    assert (waiting.position, waiting.call_id, waiting.item.type) == (1, "call_1", the_call(kind)["type"])
    assert conversation.next_step() == "tools"
    conversation.add_item(the_output(kind))
    assert (conversation.pending_calls(), conversation.next_step()) == ([], "model")


@KIND
def test_an_answered_call_is_sent_as_it_is(conversation: Any, kind: str) -> None:
    called(conversation, the_call(kind))
    conversation.add_item(the_output(kind))
    conversation.user("Thanks.")
    rendered = conversation.render(FORMAT)
    assert types(rendered) == ["message", the_call(kind)["type"], the_output(kind)["type"], "message"]
    assert not rendered.losses
    assert [repair.code for repair in rendered.repairs] == (["call_id"] if kind == "local_shell" else [])
    assert rendered.payload["input"][1] == the_call(kind)
    assert rendered.payload["input"][2].items() >= the_output(kind).items()


@KIND
def test_a_placeholder_stands_for_a_missing_output(conversation: Any, kind: str) -> None:
    called(conversation, the_call(kind))
    conversation.user("Stop.")
    rendered = conversation.render(FORMAT)
    assert types(rendered) == ["message", the_call(kind)["type"], the_output(kind)["type"], "message"]
    assert [(repair.code, repair.position) for repair in rendered.repairs] == [("missing_output", 1)]
    assert list(unfit(rendered.payload, FORMAT)) == []
    placeholder, key = rendered.payload["input"][2], BY_CALL[the_call(kind)["type"]].output_key
    assert placeholder[key] == "call_1"
    assert rendered.payload["input"] == conversation.session().request_payload(FORMAT)["input"]


@KIND
def test_an_output_that_came_too_late_is_said_by_the_user(conversation: Any, kind: str) -> None:
    called(conversation, the_call(kind))
    conversation.user("Go on.")
    sent = conversation.render(FORMAT)
    conversation.add_response(an_answer("Well.", id="resp_2"), FORMAT, rendered=sent)
    conversation.add_item(the_output(kind))
    rendered = conversation.render(FORMAT)
    assert rendered.payload["input"][: len(sent.payload["input"])] == sent.payload["input"]
    late = rendered.payload["input"][-1]
    assert (late["type"], late["role"], rendered.repairs[-1].code) == ("message", "user", "late_output")
    assert "call_1" in late["content"][0]["text"]
    assert list(unfit(rendered.payload, FORMAT)) == []


@KIND
def test_an_output_without_its_call_is_left_out(conversation: Any, kind: str) -> None:
    called(conversation, the_call(kind))
    conversation.add_item(the_output(kind))
    conversation.user("Thanks.")
    conversation.remove_item(1)
    rendered = conversation.render(FORMAT)
    assert types(rendered) == ["message", "message"]
    assert [loss.code for loss in rendered.losses] == ["orphan_output"]


@KIND
def test_a_second_output_of_a_call_is_left_out(conversation: Any, kind: str) -> None:
    called(conversation, the_call(kind))
    conversation.add_item(the_output(kind))
    conversation.add_item(the_output(kind), known=False)
    rendered = conversation.render(FORMAT)
    assert types(rendered).count(the_output(kind)["type"]) == 1
    assert [(loss.code, loss.position) for loss in rendered.losses] == [("orphan_output", 3)]


@KIND
def test_a_compaction_does_not_cover_a_call_that_waits(conversation: Any, kind: str) -> None:
    called(conversation, the_call(kind))
    conversation.compact(summary="They began.")
    conversation.add_item(the_output(kind))
    conversation.user("Go on.")
    rendered = conversation.render(FORMAT)
    assert types(rendered) == ["message", the_call(kind)["type"], the_output(kind)["type"], "message"]
    assert not rendered.losses


@KIND
def test_a_compaction_covers_a_call_with_its_output(conversation: Any, kind: str) -> None:
    called(conversation, the_call(kind))
    conversation.add_item(the_output(kind))
    conversation.compact(upto=1, summary="They began.")
    assert types(conversation.render(FORMAT)) == ["message", the_call(kind)["type"], the_output(kind)["type"]]
    conversation.undo_compaction()
    conversation.compact(upto=2, summary="They began.")
    assert types(conversation.render(FORMAT)) == ["message"]


@KIND
def test_a_window_does_not_part_a_call_from_its_output(conversation: Any, kind: str) -> None:
    called(conversation, the_call(kind))
    conversation.user("And?")
    conversation.add_item(the_output(kind))
    conversation.user("Now?")
    rendered = conversation.render(FORMAT, window=Turns(2))
    assert types(rendered) == ["message", the_call(kind)["type"], "message", the_output(kind)["type"], "message"]


@KIND
def test_a_fork_between_call_and_output_has_a_placeholder(conversation: Any, kind: str) -> None:
    called(conversation, the_call(kind))
    conversation.add_item(the_output(kind))
    branch = conversation.fork(at=1)
    assert [call.position for call in branch.pending_calls()] == [1]
    branch.user("Something else.")
    rendered = branch.render(FORMAT)
    assert types(rendered) == ["message", the_call(kind)["type"], the_output(kind)["type"], "message"]
    assert [repair.code for repair in rendered.repairs] == ["missing_output"]


@KIND
def test_what_is_redacted_still_belongs_together(conversation: Any, kind: str) -> None:
    called(conversation, the_call(kind))
    conversation.add_item(the_output(kind))
    for position in (1, 2):
        conversation.redact_item(position)
    rendered = conversation.render(FORMAT)
    assert types(rendered) == ["message", the_call(kind)["type"], the_output(kind)["type"]]
    assert not rendered.losses
    assert list(unfit(rendered.payload, FORMAT)) == []


@KIND
def test_a_denied_call_has_its_reason_as_its_output(conversation: Any, kind: str) -> None:
    called(conversation, the_call(kind, caller={"type": "program", "caller_id": "prog_1"}))
    if BY_CALL[the_call(kind)["type"]].text_output is None:
        with pytest.raises(InvalidOption, match="cannot be a text"):
            conversation.deny("call_1", reason="No.")
        return
    denied = conversation.deny("call_1", reason="No.").item.to_dict()
    assert denied["type"] == the_output(kind)["type"]
    assert "No." in str(denied)
    assert ("caller" in denied) is BY_CALL[the_call(kind)["type"]].has_caller
    assert conversation.next_step() == "model"
    assert list(unfit(conversation.request_payload(FORMAT), FORMAT)) == []


@pytest.mark.parametrize("name", HOSTED)
def test_what_the_provider_runs_gets_no_placeholder(conversation: Any, name: str) -> None:
    called(conversation, *HOSTED[name], an_answer("So.")["output"][0])
    assert (conversation.pending_calls(), conversation.next_step()) == ([], "user")
    conversation.user("Thanks.")
    rendered = conversation.render(FORMAT)
    assert rendered.payload["input"][1 : 1 + len(HOSTED[name])] == HOSTED[name]
    assert (rendered.losses, rendered.repairs) == ([], [])


def test_a_call_in_a_container_without_its_output_is_left_out(conversation: Any) -> None:
    called(conversation, *HOSTED["shell in a container"])
    conversation.remove_item(2)
    conversation.user("Thanks.")
    rendered = conversation.render(FORMAT)
    assert types(rendered) == ["message", "message"]
    assert [loss.code for loss in rendered.losses] == ["unanswered_call"]
    with pytest.raises(InvalidOption, match="not of a call that the application answers"):
        conversation.deny("call_1", reason="No.")


def test_safety_checks_are_never_acknowledged_by_a_placeholder(conversation: Any) -> None:
    """The service refuses a computer call whose checks are not acknowledged, which the application alone can do."""
    checks = [{"id": "cu_sc_1", "code": "malicious_instructions", "message": "Look."}]
    called(conversation, the_call("computer", pending_safety_checks=checks))
    assert [call.call_id for call in conversation.pending_calls()] == ["call_1"]
    rendered = conversation.render(FORMAT)
    assert types(rendered) == ["message"]
    assert [loss.code for loss in rendered.losses] == ["unanswered_call"]
    with pytest.raises(LossError):
        conversation.render(FORMAT, strict=True)
    conversation.add_item(the_output("computer", acknowledged_safety_checks=checks))
    rendered = conversation.render(FORMAT, strict=True)
    assert types(rendered) == ["message", "computer_call", "computer_call_output"]


@pytest.mark.parametrize("key", ["id", "call_id"])
def test_the_output_of_a_local_shell_names_its_call_as_the_service_reads_it(conversation: Any, key: str) -> None:
    """The types of the openai package have `id` alone; the service finds no output without a `call_id`."""
    called(conversation, the_call("local_shell"))
    conversation.add_item({"type": "local_shell_call_output", key: "call_1", "output": "a"})
    assert conversation.request_payload(FORMAT)["input"][2]["call_id"] == "call_1"


def test_a_local_shell_call_may_be_answered_as_a_function(conversation: Any) -> None:
    called(conversation, the_call("local_shell"))
    conversation.add_item(the_output("function"))
    rendered = conversation.render(FORMAT, strict=True)
    assert types(rendered) == ["message", "local_shell_call", "function_call_output"]
    assert conversation.pending_calls() == []


def test_an_imported_history_keeps_what_it_had_unpaired(store: Any) -> None:
    items = [a_message("Go."), *(the_call(kind, id=f"x_{kind}") for kind in PAIRS if kind != "mcp_approval")]
    items += [
        the_output(kind, call_id=f"other_{kind}") for kind in PAIRS if kind not in ("mcp_approval", "local_shell")
    ]
    request = {"model": "gpt-5.4", "input": items}
    assert store.import_request(request, FORMAT).request_payload(FORMAT) == request


# Asynchronous calls


def test_the_model_goes_on_without_the_output_of_an_asynchronous_call(conversation: Any) -> None:
    started = the_call("function", **{"async": True})
    called(conversation, started)
    assert ([call.call_id for call in conversation.pending_calls()], conversation.next_step()) == (["call_1"], "tools")
    conversation.user("And until then?")
    assert ([call.call_id for call in conversation.pending_calls()], conversation.next_step()) == (["call_1"], "model")
    sent = conversation.render(FORMAT, strict=True)
    assert (types(sent), sent.repairs) == (["message", "function_call", "message"], [])
    conversation.add_response(an_answer("Wait.", id="resp_2"), FORMAT, rendered=sent)
    conversation.add_item(the_output("function"))
    assert conversation.next_step() == "model"
    rendered = conversation.render(FORMAT, strict=True)
    assert types(rendered) == ["message", "function_call", "message", "message", "function_call_output"]
    assert rendered.payload["input"][:3] == sent.payload["input"]
    assert rendered.repairs == []


@pytest.mark.parametrize("kind", ["function", "custom"])
@pytest.mark.parametrize("other", ["chat_completion", "messages", "gemini", "converse", "pydantic_ai"])
def test_elsewhere_an_asynchronous_call_is_one_like_others(kind: str, other: FormatName) -> None:
    """These formats demand results right behind their calls."""
    session = Session(model="gpt-5.4", input="Go.")
    session.add_item(the_call(kind, **{"async": True}))
    session.user("And until then?")
    rendered = get_format(other).render(session)
    assert [repair.code for repair in rendered.repairs if repair.code == "missing_output"] == ["missing_output"]


@pytest.mark.parametrize("other", ["chat_completion", "messages", "gemini", "converse", "pydantic_ai"])
def test_that_a_tool_is_asynchronous_is_a_loss_elsewhere(other: FormatName) -> None:
    tool = {"type": "function", "name": "build", "parameters": {"type": "object", "properties": {}}, "async": True}
    session = Session(model="gpt-5.4", input="Go.", tools=[tool])
    assert session.request_payload(FORMAT, strict=True)["tools"][0]["async"] is True
    losses = get_format(other).render(session).losses
    assert [(loss.code, loss.path) for loss in losses] == [("option", "tools[0].async")]


def test_a_compaction_does_not_cover_an_asynchronous_call_that_waits(conversation: Any) -> None:
    called(conversation, the_call("function", **{"async": True}))
    conversation.add_response(an_answer("Meanwhile.", id="resp_2"), FORMAT)
    conversation.user("Go on.")
    conversation.compact(summary="They began.")
    conversation.add_item(the_output("function"))
    rendered = conversation.render(FORMAT, strict=True)
    assert types(rendered)[:2] == ["message", "function_call"]
    assert types(rendered)[-1] == "function_call_output"


# Outputs that name a tool


NAMED = {"type": "function_call_output", "name": "weather", "output": "rain"}


def test_an_output_may_name_its_tool_in_place_of_a_call(conversation: Any) -> None:
    conversation.user("What is the weather?")
    conversation.add_item(NAMED)
    rendered = conversation.render(FORMAT, strict=True)
    assert rendered.payload["input"][1] == NAMED
    called(conversation, {**NAMED, "id": "fco_1", "status": "completed"})
    assert conversation.request_payload(FORMAT)["input"][-1] == {**NAMED, "id": "fco_1", "status": "completed"}


@pytest.mark.parametrize("other", ["chat_completion", "messages", "gemini", "converse", "pydantic_ai"])
def test_elsewhere_such_an_output_is_said_by_the_user(other: FormatName) -> None:
    session = Session(model="gpt-5.4", input="What is the weather?")
    session.add_item(NAMED)
    rendered = get_format(other).render(session)
    assert "rain" in rendered.body.decode()
    assert "weather" in rendered.body.decode()
    assert ([loss.code for loss in rendered.losses], [r.code for r in rendered.repairs]) == ([], ["named_output"])


# Calls of programs


def test_a_placeholder_repeats_who_called(conversation: Any) -> None:
    """Which program goes on with an output."""
    caller = {"type": "program", "caller_id": "call_0"}
    called(conversation, {**HOSTED["program"][0], "call_id": "call_0"}, the_call("function", caller=caller))
    assert conversation.next_step() == "tools"
    conversation.user("Stop.")
    items = conversation.request_payload(FORMAT)["input"]
    assert [item["type"] for item in items] == [
        "message",
        "program",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert items[3]["caller"] == caller
