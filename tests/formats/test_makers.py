"""Who made it decides what goes back, and not which format it came in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.formats.factories import Json
from threadkeep import LossError, Rendered, Session, Store, Turns
from threadkeep.domain.response import Maker, maker_from
from threadkeep.errors import InvalidItem, InvalidOption
from threadkeep.formats import FormatName
from threadkeep.formats.shared.makers import RequestTarget, can_read, family_of, plain_model, provider_name


def claude_body(model: str, *blocks: Json) -> Json:
    return {
        "id": "m1", "type": "message", "role": "assistant", "model": model, "stop_reason": "end_turn",
        "content": [*blocks, {"type": "text", "text": "Humber."}], "usage": {"input_tokens": 5, "output_tokens": 5},
    }  # fmt: skip


def thinking(model: str, signature: str | None = "c2lnbmVk") -> Json:
    signed = {} if signature is None else {"signature": signature}
    return claude_body(model, {"type": "thinking", "thinking": "Hm.", **signed})


def encrypted(model: str) -> Json:
    text = {"type": "output_text", "text": "Humber.", "annotations": []}
    return {
        "id": "resp_1", "object": "response", "status": "completed", "model": model,
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}],
             "encrypted_content": "gAAA"},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]},
        ],
    }  # fmt: skip


def signed_call(model: str) -> Json:
    call = {"functionCall": {"name": "clock", "args": {}, "id": "c1"}, "thoughtSignature": "c2lnbmVk"}
    content = {"role": "model", "parts": [{"text": "Hm.", "thought": True, "thoughtSignature": "dGhvdWdodA=="}, call]}
    return {"candidates": [{"content": content, "finishReason": "STOP"}], "modelVersion": model}


def signed_by_bedrock(_model: str) -> Json:
    reasoning = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2lnbmVk"}}}
    return {
        "output": {"message": {"role": "assistant", "content": [reasoning, {"text": "Humber."}]}},
        "stopReason": "end_turn", "usage": {"inputTokens": 5, "outputTokens": 5, "totalTokens": 10},
    }  # fmt: skip


def detailed(model: str) -> Json:
    details = [{"type": "reasoning.encrypted", "data": "gAAA", "format": "openai-responses-v1"}]
    message = {"role": "assistant", "content": "Humber.", "reasoning": "Hm.", "reasoning_details": details}
    return {"id": "c1", "model": model, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def googles_call(model: str) -> Json:
    call = {
        "id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "c2lnbmVk"}},
    }  # fmt: skip
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"id": "c1", "model": model, "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}


@pytest.mark.parametrize("format_name", ["messages", "open_responses", "chat_completion", "converse", "pydantic_ai"])
def test_a_signature_of_nobody_is_lost_where_the_format_has_none(format_name: FormatName) -> None:
    session = Session(model="m")
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}", "thought_signature": "c2ln"}
    session.add_items([call, {"type": "function_call_output", "call_id": "c1", "output": "1"}])
    rendered = session.render(format_name)
    assert "signature" in [loss.code for loss in rendered.losses]
    assert b"c2ln" not in rendered.body
    assert b"c2ln" in session.render("gemini").body


BODIES: dict[FormatName, Callable[[str], Json]] = {
    "messages": thinking,
    "open_responses": encrypted,
    "gemini": signed_call,
    "converse": signed_by_bedrock,
    "chat_completion": detailed,
}
SEALED = ("c2lnbmVk", "gAAA", "dGhvdWdodA==", "thinking", "rs_1", "msg_1", "reasoning_details")


class Switch(NamedTuple):
    """An answer of a maker, and the next request: its format, its model, and what it says of the provider."""

    format: FormatName
    made_by: str | None
    model: str
    target: FormatName
    asks: str | None  # None: for the same model
    view: Json
    is_sent: bool

    def __str__(self) -> str:
        says = "".join(map(str, self.view.values()))
        return f"{self.format} of {self.made_by} {self.model} to {self.target} {self.asks} {says} {self.is_sent}"


OPUS, SONNET, FABLE = "claude-opus-5", "claude-sonnet-5", "claude-fable-5-1"
BEDROCK_OPUS = "us.anthropic.claude-opus-5-20260601-v1:0"
TO = {name: {"provider": name} for name in ("azure", "openai", "vertex", "google", "xai", "openrouter", "anthropic")}
SWITCHES = [
    # the same again: whoever it was, also by another name
    Switch("messages", None, OPUS, "messages", None, {}, True),
    Switch("messages", "anthropic", OPUS, "messages", None, {}, True),
    Switch("messages", "zai", "glm-4.7", "messages", None, {}, True),
    Switch("open_responses", "azure", "gpt-5.4", "open_responses", None, {}, True),
    Switch("open_responses", "Azure.AI.OpenAI", "gpt-5.4", "open_responses", None, TO["azure"], True),
    Switch("open_responses", "my-gateway", "gpt-5.4", "open_responses", None, {}, True),
    Switch("open_responses", None, "gpt-5.4-2026-03-05", "open_responses", "gpt-5.4", {}, True),
    Switch("open_responses", "openai", "gpt-5.4", "open_responses", "gpt-5.4-mini", {}, True),
    Switch("gemini", "google-gla", "gemini-3-pro", "gemini", "gemini-3-flash", {}, True),
    Switch("converse", "bedrock", BEDROCK_OPUS, "converse", None, {}, True),
    Switch("chat_completion", "openrouter", "openai/gpt-5.4", "chat_completion", None, {}, True),
    Switch("chat_completion", None, "openai/gpt-5.4", "chat_completion", None, {"dialect": "openrouter"}, True),
    # another provider that speaks the same format
    Switch("messages", "zai", "glm-4.7", "messages", OPUS, {}, False),
    Switch("messages", None, "glm-4.7", "messages", OPUS, {}, False),
    Switch("messages", "minimax", "MiniMax-M2.1", "messages", OPUS, {}, False),
    Switch("messages", "moonshot", "kimi-k3", "messages", OPUS, {}, False),
    Switch("messages", "deepseek", "deepseek-v4", "messages", OPUS, {}, False),
    Switch("messages", "zai", "claude-opus-5", "messages", None, TO["anthropic"], False),
    Switch("messages", "anthropic", OPUS, "messages", "glm-4.7", {}, False),
    Switch("open_responses", "openai", "gpt-5.4", "open_responses", None, TO["azure"], False),
    Switch("open_responses", None, "gpt-5.4", "open_responses", None, TO["azure"], False),
    Switch("open_responses", "azure", "gpt-5.4", "open_responses", None, TO["openai"], False),
    Switch("open_responses", "openai", "gpt-5.4", "open_responses", None, {"dialect": "openrouter"}, False),
    Switch("open_responses", "openai", "gpt-5.4", "open_responses", "grok-4", {}, False),
    Switch("open_responses", "xai", "grok-4", "open_responses", "gpt-5.4", {}, False),
    Switch("gemini", "google", "gemini-3-pro", "gemini", None, TO["vertex"], False),
    Switch("gemini", "gcp.vertex_ai", "gemini-3-pro", "gemini", None, TO["google"], False),
    Switch("chat_completion", "openrouter", "openai/gpt-5.4", "chat_completion", "x-ai/grok-4", {}, False),
    Switch("chat_completion", "openrouter", "openai/gpt-5.4", "chat_completion", None, TO["openai"], False),
    # Claude's signatures: on all platforms, for the models that read them
    Switch("converse", "bedrock", BEDROCK_OPUS, "messages", OPUS, {}, True),
    Switch("messages", "anthropic", OPUS, "converse", BEDROCK_OPUS, {}, True),
    Switch("messages", "anthropic", OPUS, "messages", None, TO["vertex"], True),
    Switch("messages", "azure_foundry", OPUS, "messages", None, TO["anthropic"], True),
    Switch("messages", "anthropic", OPUS, "messages", SONNET, {}, False),
    Switch("messages", "anthropic", OPUS, "messages", FABLE, {}, True),
    Switch("messages", "anthropic", FABLE, "messages", OPUS, {}, False),
    Switch("messages", "anthropic", "claude-haiku-5-5", "messages", OPUS, {}, True),
    # accounts, where both are known
    Switch("open_responses", "openai", "gpt-5.4", "open_responses", None, {"account": "eu"}, True),
]


def talk(switch: Switch, account: str | None = None) -> Session:
    session = Session(model=switch.model, input="Name a river.")
    body = BODIES[switch.format](switch.model)
    session.add_response(body, switch.format, provider=switch.made_by, account=account)
    if switch.format == "gemini":
        session.add_function_call_output(call_id="c1", output="noon")
    session.user("And a hill?")
    session.update(model=switch.asks or switch.model)
    return session


def is_sealed_in(rendered: Rendered) -> bool:
    return any(word in rendered.body.decode() for word in SEALED)


@pytest.mark.parametrize("switch", SWITCHES, ids=str)
def test_what_only_its_maker_can_read_goes_to_its_maker_alone(switch: Switch) -> None:
    rendered = talk(switch).render(switch.target, **switch.view)
    assert is_sealed_in(rendered) is switch.is_sent
    codes = {loss.code for loss in rendered.losses}
    assert bool(codes & {"reasoning", "signature"}) is not switch.is_sent
    if not switch.is_sent:
        with pytest.raises(LossError):
            talk(switch).render(switch.target, strict=True, **switch.view)


@pytest.mark.share(3)
@pytest.mark.parametrize("switch", SWITCHES, ids=str)
def test_a_stored_conversation_says_the_same_as_a_session(switch: Switch) -> None:
    session = talk(switch)
    with Store("sqlite://") as store:
        made = store.create_conversation(model=switch.model, input="Name a river.")
        made.add_response(BODIES[switch.format](switch.model), switch.format, provider=switch.made_by)
        if switch.format == "gemini":
            made.add_function_call_output(call_id="c1", output="noon")
        made.user("And a hill?")
        made.update(model=switch.asks or switch.model)
        expected = session.render(switch.target, **switch.view)
        copy = store.save(Session.from_dict(session.to_dict()))
        opened = store.get_conversation(made.id)
        for one in (made, opened, opened.session(), copy, Session.from_dict(session.to_dict())):
            rendered = one.render(switch.target, **switch.view)
            assert rendered.body == expected.body
            assert [loss.code for loss in rendered.losses] == [loss.code for loss in expected.losses]


@pytest.mark.parametrize(("then", "now", "is_sent"), [("eu", "us", False), ("eu", "eu", True), ("eu", "", True)])
def test_one_account_cannot_read_what_another_has_encrypted(then: str, now: str, *, is_sent: bool) -> None:
    switch = Switch("open_responses", "openai", "gpt-5.4", "open_responses", None, {}, is_sent)
    assert is_sealed_in(talk(switch, then).render("open_responses", account=now)) is is_sent


def test_the_session_option_names_the_provider_of_answers_and_requests() -> None:
    session = Session(model="deployment-7", provider="azure", input="Name a river.")
    session.add_response(encrypted("gpt-5.4"), "open_responses")
    assert session.makers == [None, *["azure/gpt-5.4//deployment-7"] * 2]
    assert is_sealed_in(session.render("open_responses"))
    assert not is_sealed_in(session.render("open_responses", provider="openai"))
    assert "provider" not in session.request_payload("open_responses")
    session.update(provider="openai")
    assert not is_sealed_in(session.render("open_responses"))


def test_a_deployment_is_asked_for_under_its_own_name() -> None:
    """The answer names another model than the request."""
    session = Session(model="deployment-7", input="Name a river.")
    session.add_response(encrypted("gpt-5.4"), "open_responses", provider="azure")
    assert is_sealed_in(session.render("open_responses"))
    session.update(model="gpt-5.4-mini")
    assert not is_sealed_in(session.render("open_responses"))


def test_a_request_uses_what_rendered_said_of_the_provider() -> None:
    with Store("sqlite://") as store:
        made = store.create_conversation(model="gpt-5.4", input="Name a river.")
        rendered = made.render("open_responses", provider="azure", account="eu")
        made.add_response(encrypted("gpt-5.4"), "open_responses", rendered=rendered)
        assert made.session().makers == [None, *["azure/gpt-5.4/eu"] * 2]
        assert is_sealed_in(made.render("open_responses", provider="azure", account="eu"))
        assert not is_sealed_in(made.render("open_responses", provider="azure", account="us"))
        assert made.render("open_responses", upto=rendered.head).body == rendered.body


def test_a_stream_is_as_much_its_providers_as_a_whole_answer() -> None:
    body = encrypted("gpt-5.4")
    begun = {**body, "status": "in_progress", "output": []}
    with Store("sqlite://") as store:
        made = store.create_conversation(model="gpt-5.4", input="Name a river.")
        with made.stream_response("open_responses", provider="azure") as recorder:
            recorder.feed({"type": "response.created", "sequence_number": 0, "response": begun})
            recorder.feed({"type": "response.completed", "sequence_number": 1, "response": body})
        assert made.session().makers == [None, *["azure/gpt-5.4"] * 2]
        assert is_sealed_in(made.render("open_responses"))
        assert not is_sealed_in(made.render("open_responses", provider="openai"))


def test_forks_and_copies_know_the_makers() -> None:
    with Store("sqlite://") as store:
        made = store.create_conversation(model="gpt-5.4", input="Name a river.")
        made.add_response(encrypted("gpt-5.4"), "open_responses", provider="azure")
        for one in (made.fork(at=2), store.copy_conversation(made.id)):
            one.user("And a hill?")
            assert is_sealed_in(one.render("open_responses"))
            assert not is_sealed_in(one.render("open_responses", provider="openai"))


# Calls and ids


def test_a_call_goes_on_without_the_signature_of_another_maker() -> None:
    """Google's API refuses a call that has none: it gets the one that Google's guide names for such calls."""
    session = talk(Switch("gemini", "google", "gemini-3-pro", "gemini", None, {}, False))
    (_, called, *_) = session.request_payload("gemini", provider="vertex")["contents"]
    assert [part["thoughtSignature"] for part in called["parts"]] == ["c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="]


@pytest.mark.parametrize(("model", "is_sent"), [("gemini-3-pro", True), ("gpt-5.4", False)])
def test_googles_signature_behind_chat_completions_is_googles(model: str, *, is_sent: bool) -> None:
    session = Session(model="gemini-3-pro", input="What time is it?")
    session.add_response(googles_call("gemini-3-pro"), "chat_completion")
    session.add_function_call_output(call_id="c1", output="noon")
    session.update(model=model)
    assert is_sealed_in(session.render("chat_completion")) is is_sent
    assert is_sealed_in(session.render("gemini")) is is_sent


def answer_of_tools(*items: Json) -> Session:
    session = Session(model="gpt-5.4", input="Look.")
    session.add_response(
        {"id": "r", "object": "response", "status": "completed", "model": "gpt-5.4", "output": list(items)},
        "open_responses",
        provider="openai",
    )
    session.user("And now?")
    return session


@pytest.mark.parametrize(
    "item",
    [
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "a"}},
        {"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "container_id": "cntr_1", "code": "1",
         "outputs": None},
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "aGk="},
        {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "n", "arguments": "{}", "output": "x"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    ],
    ids=lambda item: str(item["type"]),
)  # fmt: skip
def test_items_that_one_provider_keeps_are_not_sent_to_another(item: Json) -> None:
    said = {"type": "output_text", "text": "There.", "annotations": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [said]}
    session = answer_of_tools(item, message)
    assert [one.get("id") for one in session.request_payload("open_responses")["input"]][1:3] == [item["id"], "msg_1"]
    rendered = session.render("open_responses", provider="azure")
    assert [one["type"] for one in rendered.payload["input"]] == ["message"] * 3
    assert item["id"] not in rendered.body.decode()
    assert "msg_1" not in rendered.body.decode()
    assert [loss.position for loss in rendered.losses] == [1]
    assert [repair.code for repair in rendered.repairs] == ["item_id"]


def test_a_citation_of_a_file_that_one_provider_keeps_is_left_out_elsewhere() -> None:
    cited = {"type": "file_citation", "file_id": "file-1", "filename": "a.pdf", "index": 3}
    linked = {"type": "url_citation", "url": "https://a.example", "title": "A", "start_index": 0, "end_index": 1}
    text = {"type": "output_text", "text": "There.", "annotations": [cited, linked]}
    session = answer_of_tools({"type": "message", "id": "msg_1", "role": "assistant", "content": [text]})
    assert session.request_payload("open_responses")["input"][1]["content"][0]["annotations"] == [cited, linked]
    rendered = session.render("open_responses", provider="azure")
    assert rendered.payload["input"][1]["content"][0]["annotations"] == [linked]
    assert [(loss.code, loss.path) for loss in rendered.losses] == [("signature", "content[0].annotations[0]")]


# What followed reasoning goes without its id


def reasoned(face: Any) -> Any:
    face.user("What time is it?")
    face.add_response(
        {"id": "resp_1", "object": "response", "status": "completed", "model": "gpt-5.4", "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "clock", "arguments": "{}"},
            {"type": "function_call", "id": "fc_2", "call_id": "c2", "name": "clock", "arguments": "{}"}]},
        "open_responses",
    )  # fmt: skip
    face.add_function_call_output(call_id="c1", output="noon")
    face.add_function_call_output(call_id="c2", output="noon")
    reasoning, message = encrypted("gpt-5.4")["output"]
    answer = {**encrypted("gpt-5.4"), "output": [{**reasoning, "id": "rs_2"}, message]}
    face.add_response(answer, "open_responses")
    face.user("Thanks.")
    return face


def ids(rendered: Rendered) -> list[str]:
    return [item["id"] for item in rendered.payload["input"] if "id" in item]


def test_followers_of_reasoning_that_a_view_leaves_out_have_no_ids() -> None:
    session = reasoned(Session(model="gpt-5.4"))
    assert ids(session.render("open_responses")) == ["rs_1", "fc_1", "fc_2", "rs_2", "msg_1"]
    rendered = session.render("open_responses", reasoning=False)
    assert ids(rendered) == []
    assert [(repair.code, repair.position) for repair in rendered.repairs] == [("item_id", at) for at in (2, 3, 7)]


@pytest.mark.parametrize("how", ["remove_item", "redact_item"])
def test_followers_of_reasoning_that_is_gone_have_no_ids(how: str) -> None:
    with Store("sqlite://") as store:
        made = reasoned(store.create_conversation(model="gpt-5.4"))
        assert ids(made.render("open_responses")) == ["rs_1", "fc_1", "fc_2", "rs_2", "msg_1"]
        getattr(made, how)(1)
        for one in (made, store.get_conversation(made.id)):
            assert ids(one.render("open_responses")) == ["rs_2", "msg_1"]
            one.user("And?")


def test_reasoning_that_the_provider_has_not_kept_is_left_out_where_it_is_only_an_id() -> None:
    """OpenAI: "Items are not persisted when `store` is set to false"."""
    body = encrypted("gpt-5.4")
    del body["output"][0]["encrypted_content"]
    for store, expected in ((None, ["rs_1", "msg_1"]), (True, ["rs_1", "msg_1"]), (False, [])):
        session = Session(model="gpt-5.4", store=store, input="Name a river.")
        session.add_response(body, "open_responses")
        rendered = session.render("open_responses")
        assert ids(rendered) == expected
        assert [loss.code for loss in rendered.losses] == ["reasoning"] * (store is False)


# What a provider keeps of a conversation, and what it has compacted


def test_another_provider_is_sent_everything_that_one_keeps() -> None:
    session = Session(model="gpt-5.4", previous_response_id="resp_0", input="Name a river.")
    session.add_response(encrypted("gpt-5.4"), "open_responses", provider="openai")
    session.user("And a hill?")
    kept = session.request_payload("open_responses")
    assert (kept["previous_response_id"], len(kept["input"])) == ("resp_1", 1)
    rendered = session.render("open_responses", provider="azure")
    assert "previous_response_id" not in rendered.payload
    assert [item["role"] for item in rendered.payload["input"]] == ["user", "assistant", "user"]
    assert [repair.path for repair in rendered.repairs if repair.code == "option"] == ["previous_response_id"]


def test_what_one_provider_has_compacted_is_shown_in_full_to_another() -> None:
    compaction = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAB"}
    body = encrypted("gpt-5.4")
    body["output"] = [compaction, body["output"][1]]
    with Store("sqlite://") as store:
        made = store.create_conversation(model="gpt-5.4", input="Name a river.")
        made.assistant("Exe.")
        made.user("Another one.")
        made.add_response(body, "open_responses", provider="openai")
        made.user("And a hill?")
        views: list[Json] = [{}, {"window": Turns(3)}]
        for view in views:
            kinds = [item["type"] for item in made.request_payload("open_responses", **view)["input"]]
            assert kinds == ["compaction", "message", "message"]
            rendered = made.render("open_responses", provider="azure", **view)
            assert [item["type"] for item in rendered.payload["input"]] == ["message"] * 5
            assert [loss.code for loss in rendered.losses] == ["item"]


# Requests that were imported


def test_the_model_of_a_request_has_made_what_its_history_has_of_a_model() -> None:
    content = [{"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"}, {"type": "text", "text": "Exe."}]
    payload = {
        "model": OPUS, "max_tokens": 100,
        "messages": [
            {"role": "user", "content": "Name a river."}, {"role": "assistant", "content": content},
            {"role": "user", "content": "And a hill?"},
        ],
    }  # fmt: skip
    with Store("sqlite://") as store:
        made = store.import_request(payload, "messages")
        assert made.request_payload("messages") == payload
        made.update(model="glm-4.7")
        assert not is_sealed_in(made.render("messages"))
        bought = store.import_request(payload, "messages", provider="my-gateway")
        assert bought.request_payload("messages") == payload
        assert not is_sealed_in(bought.render("messages", provider="anthropic"))


# Pydantic AI sends a signature to the provider that its part names


@pytest.mark.parametrize(
    ("format", "provider", "model", "name"),
    [
        ("open_responses", None, "gpt-5.4", "openai"), ("open_responses", "azure_openai", "gpt-5.4", "azure"),
        ("open_responses", None, "grok-4", "xai"), ("messages", "vertex_ai", OPUS, "anthropic"),
        ("messages", None, OPUS, "anthropic"), ("messages", "z.ai", "glm-4.7", "zai"),
        ("converse", "aws.bedrock", BEDROCK_OPUS, "bedrock"),
    ],
)  # fmt: skip
def test_parts_of_pydantic_ai_name_the_maker(format: FormatName, provider: str | None, model: str, name: str) -> None:
    session = talk(Switch(format, provider, model, "pydantic_ai", None, {}, True))
    (thought, *_) = session.request_payload("pydantic_ai")["message_history"][1]["parts"]
    assert (thought["part_kind"], thought["provider_name"]) == ("thinking", name)


# As text


def test_reasoning_of_another_maker_is_sent_as_text_where_the_view_asks_for_it() -> None:
    session = talk(Switch("messages", "zai", "glm-4.7", "messages", OPUS, {}, False))
    said = session.request_payload("messages", reasoning="text")["messages"][1]
    assert [block["text"] for block in said["content"]] == ["<thinking>\nHm.\n</thinking>", "Humber."]
    assert session.render("messages", reasoning="text").losses == []


@pytest.mark.parametrize("target", ["messages", "chat_completion", "gemini", "converse"])
def test_reasoning_of_another_format_is_sent_as_text_too(target: FormatName) -> None:
    session = talk(Switch("open_responses", None, "gpt-5.4", target, None, {}, False))
    rendered = session.render(target, reasoning="text")
    assert "<thinking>\\nHm.\\n</thinking>" in rendered.body.decode()
    assert "reasoning" not in {loss.code for loss in rendered.losses}


def test_reasoning_that_its_maker_reads_stays_reasoning() -> None:
    session = talk(Switch("open_responses", None, "gpt-5.4", "open_responses", None, {}, True))
    assert session.request_body("open_responses", reasoning="text") == session.request_body("open_responses")


# Unsigned thinking


@pytest.mark.parametrize(("signature", "is_sent"), [("c2lnbmVk", True), ("", False), (None, False)])
def test_claude_gets_no_thinking_without_a_signature(signature: str | None, *, is_sent: bool) -> None:
    session = Session(model=OPUS, input="Name a river.")
    session.add_response(thinking(OPUS, signature), "messages", provider="anthropic")
    rendered = session.render("messages")
    assert [block["type"] for block in rendered.payload["messages"][1]["content"]] == ["thinking"] * is_sent + ["text"]
    assert [loss.code for loss in rendered.losses] == ["reasoning"] * (not is_sent)


def test_others_get_their_unsigned_thinking_back() -> None:
    session = Session(model="MiniMax-M2.1", input="Name a river.")
    session.add_response(thinking("MiniMax-M2.1", None), "messages", provider="minimax")
    assert session.request_payload("messages")["messages"][1]["content"][0] == {"type": "thinking", "thinking": "Hm."}


# Names


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("azure.ai.openai", "azure"), ("AzureOpenAI", "azure"), ("aws.bedrock", "bedrock"), ("google-gla", "google"),
        ("gcp.gemini", "google"), ("google_vertexai", "vertex"), ("gcp.vertex_ai", "vertex"), ("x_ai", "xai"),
        ("Z.ai", "zai"), ("my-gateway", "mygateway"),
    ],
)  # fmt: skip
def test_a_provider_has_many_names(given: str, name: str) -> None:
    assert provider_name(given) == name


@pytest.mark.parametrize(
    ("model", "family", "plain"),
    [
        ("gpt-5.4-2026-03-05", "gpt", "gpt-5.4"), ("o3", "gpt", "o3"), ("openai/gpt-oss-20b", "gpt-oss", "gpt-oss-20b"),
        ("eu.anthropic.claude-sonnet-4-20250514-v1:0", "claude", "claude-sonnet-4"),
        ("claude-sonnet-4-0", "claude", "claude-sonnet-4"), ("claude-opus-4-5@20251101", "claude", "claude-opus-4-5"),
        ("anthropic/claude-opus-4.5", "claude", "claude-opus-4-5"), ("MiniMax-M2.1", "minimax", "minimax-m2.1"),
        ("deployment-7", None, "deployment-7"),
    ],
)  # fmt: skip
def test_a_model_has_a_family_and_a_plain_name(model: str, family: str | None, plain: str) -> None:
    assert (family_of(model), plain_model(model)) == (family, plain)


def test_thinking_of_some_models_stays_with_the_account() -> None:
    target = RequestTarget("anthropic", "claude-sonnet-5-5", "a")
    assert can_read(target, "messages", Maker("anthropic", "claude-sonnet-5-5", "a"))
    assert not can_read(target, "messages", Maker("anthropic", "claude-sonnet-5-5", "b"))
    assert can_read(RequestTarget("anthropic", OPUS, "a"), "messages", Maker("bedrock", OPUS, "b"))


@pytest.mark.parametrize(
    "maker",
    [
        Maker("openai", "gpt-5.4"),
        Maker(None, "a/b c\\d\x00é"),
        Maker("azure", "gpt-5.4", "eu", "deployment 7"),
        Maker(),
    ],
)
def test_a_maker_is_one_word(maker: Maker) -> None:
    text = maker.text
    assert maker_from(text or "") == maker
    assert text is None or (
        text.isascii() and text.isprintable() and "/" in text and " " not in text and "\\" not in text
    )


def test_the_longest_names_of_a_maker_are_left_out() -> None:
    assert Maker("openai", "m" * 300).text == "openai/"
    assert Maker("p" * 300, "m" * 300).text is None


@pytest.mark.parametrize("makers", ["openai", ["openai"] * 3, [1, 2]])
def test_makers_of_a_dict_are_one_for_each_item(makers: Any) -> None:
    with pytest.raises(InvalidOption, match="makers"):
        Session.from_dict({"input": [{"type": "message", "role": "user", "content": "a"}] * 2, "makers": makers})


def test_a_word_with_too_many_parts_is_no_maker() -> None:
    with pytest.raises(InvalidItem, match="PROVIDER/MODEL/ACCOUNT/MODEL"):
        Session.from_dict({"input": "a", "makers": ["a/b/c/d/e"]})
