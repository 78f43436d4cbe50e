"""Histories that clients hold themselves: what is new is appended, what differs goes on a branch of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from tests.factories import a_call, a_message, a_picture, a_stream, an_answer, an_output, noise, texts_of
from tests.store.test_importing import CALLS, LISTS, REQUESTS, imported
from tests.store.watching import Tables
from threadkeep import CannotParse, HeadConflict, ResponseInProgress, SyncResult, UnknownFormat
from threadkeep.formats import NAMES

pytestmark = pytest.mark.one_face

WIRE = "chat_completion"


def said(*texts: str, first: str = "user") -> list[dict[str, Any]]:
    """Messages of user and assistant in turn."""
    roles = ("user", "assistant") if first == "user" else ("assistant", "user")
    return [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]


def sync(conversation: Any, *messages: Any, **how: Any) -> Any:
    return conversation.sync_request({"model": "other", "messages": list(messages)}, WIRE, **how)


@pytest.fixture
def talk(store: Any) -> Any:
    """A conversation of two turns, the second of which was answered."""
    made = store.create_conversation(model="m", instructions="Be brief.")
    sync(made, *said("one", "1", "two", "2"))
    return made


# What is new


def test_what_is_new_is_appended(talk: Any, elsewhere: Any) -> None:
    result = sync(elsewhere.get_conversation(talk.id), *said("one", "1", "two", "2", "three"))
    assert result == SyncResult(matched=4, appended=1, branched_at=None)
    assert (result.branch, [item.position for item in result.items], result.replayed) == (0, [4], False)
    assert texts_of(talk.transcript()) == ["one", "1", "two", "2", "three"]
    assert sync(talk, *said("one", "1", "two", "2", "three")) == SyncResult(5, 0)


def test_answers_that_the_client_has_are_appended_too(store: Any) -> None:
    conversation = store.create_conversation(model="m")
    assert sync(conversation, *said("one")) == SyncResult(0, 1)
    assert sync(conversation, *said("one", "1", "two")) == SyncResult(1, 2)
    assert [item.item.role for item in conversation.transcript()] == ["user", "assistant", "user"]


@pytest.mark.parametrize("wire", REQUESTS)
def test_a_client_that_echoes_changes_nothing(store: Any, wire: str, tables: Tables) -> None:
    """… in any format; ids, marks, the order of outputs and reasoning do not matter."""
    payload, _ = REQUESTS[wire]
    name = LISTS.get(wire, "messages")
    history = [*payload[name], *CALLS[wire][0], *CALLS[wire][1]]
    conversation = imported(store, wire)
    assert conversation.sync_request({**payload, name: history}, wire) == SyncResult(1, 4)
    written = tables.written()
    assert conversation.sync_request({**payload, name: history}, wire) == SyncResult(5, 0)
    assert conversation.sync_request(conversation.request_payload(wire), wire) == SyncResult(5, 0)
    assert written() == {}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("is_answered", [False, True])
def test_each_call_of_an_answer_may_be_sent_with_its_output(
    store: Any, order: tuple[int, ...], is_answered: bool
) -> None:
    """As ADK for JavaScript 2.0.0 sends calls that were streamed, one by one; calls without an output differ."""
    calls = [a_call(f"call_{number}", arguments=f'{{"n": {number}}}') for number in range(4)]
    outputs = [an_output(f"call_{number}", str(number)) for number in range(3)]
    conversation = store.create_conversation(model="m", input="Go on")
    conversation.add_response({**an_answer(), "output": calls[:3]}, "open_responses")
    if is_answered:
        for number in range(3):
            conversation.add_function_call_output(call_id=f"call_{number}", output=str(number))
    history = [a_message("Go on"), *(item for number in order for item in (calls[number], outputs[number]))]
    result = conversation.sync_request({"model": "m", "input": history}, "open_responses")
    assert (result.branched_at, result.appended) == (None, 0 if is_answered else 3)
    again = conversation.sync_request({"model": "m", "input": [*history, a_message("On")]}, "open_responses")
    assert (again.branched_at, again.appended) == (None, 1)
    other = conversation.sync_request({"model": "m", "input": [*history[:3], calls[3], *history[3:]]}, "open_responses")
    assert other.branched_at is not None


@pytest.mark.parametrize("wrapped", ['{"type":"text","value":"7 °C"}', '{"type":"text","text":"7 °C"}'])
def test_an_output_may_come_back_in_an_object(store: Any, wrapped: str) -> None:
    """VoltAgent 2.10.0 has the AI SDK's objects in its memory, and sends their JSON with each later question."""
    conversation = store.create_conversation(model="m", input="Look")
    conversation.add_response(an_answer(calls=("call_0",)), "open_responses")
    call = {"id": "call_0", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "Look"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_0", "content": "7 °C"},
    ]
    assert sync(conversation, *history) == SyncResult(2, 1)
    assert sync(conversation, *history[:2], {**history[2], "content": wrapped}) == SyncResult(3, 0)


@pytest.mark.parametrize("wire", REQUESTS)
@pytest.mark.parametrize("other", NAMES)
def test_a_history_may_come_in_another_format(store: Any, wire: str, other: str) -> None:
    """What was stored from one format is known when a client sends it in another."""
    payload, _ = REQUESTS[wire]
    name = LISTS.get(wire, "messages")
    conversation = imported(store, wire)
    conversation.sync_request({**payload, name: [*payload[name], *CALLS[wire][0], *CALLS[wire][1]]}, wire)
    before = conversation.head
    result = conversation.sync_request(conversation.request_payload(other), other)
    assert (result.appended, result.branched_at, conversation.head) == (0, None, before)


def test_options_stay_as_they_are_stored(talk: Any) -> None:
    history = [{"role": "system", "content": "Be long."}, {"role": "developer", "content": "And rude."}]
    talk.sync_request(
        {"model": "x", "temperature": 2, "messages": [*history, *said("one", "1", "two", "2", "3")]}, WIRE
    )
    assert (talk.model, talk.instructions, talk.temperature) == ("m", "Be brief.", None)
    assert texts_of(talk.transcript()) == ["one", "1", "two", "2", "3"]


def test_the_system_message_in_the_middle_is_appended(talk: Any) -> None:
    result = sync(talk, *said("one", "1", "two", "2"), {"role": "system", "content": "Now in French."}, *said("three"))
    assert result == SyncResult(4, 2)
    assert sync(talk, *said("one", "1", "two", "2", "three", "3")).appended == 1


def test_ids_do_not_matter(store: Any) -> None:
    """New outputs get the ids of the stored calls."""
    conversation = store.create_conversation(model="m", input="Look")
    conversation.add_response(an_answer("Yes", calls=("c1", "c2")), "open_responses")
    calls = [
        {"id": f"mine_{n}", "type": "function", "function": {"name": "look_up", "arguments": " { } "}} for n in range(2)
    ]
    history = [
        *said("Look"), {"role": "assistant", "content": "Yes", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "mine_1", "content": "second"},
        {"role": "tool", "tool_call_id": "mine_0", "content": "first"},
    ]  # fmt: skip
    result = sync(conversation, *history)
    assert result == SyncResult(4, 2)
    assert [(item.item.call_id, item.item.output) for item in result.items] == [("c2", "second"), ("c1", "first")]
    assert conversation.render(WIRE).losses == []
    assert sync(conversation, *history[:2], history[3], history[2]) == SyncResult(6, 0)


def test_borders_do_not_matter(talk: Any) -> None:
    """Turns may be joined or cut, and what is new in a joined turn is found."""
    talk.user("three")
    parts = [{"type": "text", "text": text} for text in ("thr", "ee", "four")]
    result = sync(talk, *said("one", "1", "two", "2"), {"role": "user", "content": parts})
    assert (result.appended, result.branched_at) == (1, None)
    assert texts_of(talk.transcript())[-2:] == ["three", "four"]
    assert sync(talk, *said("one", "1", "two", "2"), *said("three")[:1], *said("four")).appended == 0


def test_marks_do_not_matter(store: Any) -> None:
    conversation = store.create_conversation(model="m")

    def messages(*marked: int) -> list[dict[str, Any]]:
        found = []
        for number, text in enumerate(("one", "1", "two")):
            content: list[dict[str, Any]] = [{"text": text}]
            if number in marked:
                content.append({"cachePoint": {"type": "default"}})
            found.append({"role": ("user", "assistant")[number % 2], "content": content})
        return found

    for end, marked in ((1, (0,)), (1, ()), (3, (1, 2)), (3, ()), (3, (0, 1, 2))):
        result = conversation.sync_request({"messages": messages(*marked)[:end]}, "converse")
        assert result.branched_at is None
    assert [item.item.content[0].text for item in conversation.transcript()] == ["one", "1", "two"]


def test_reasoning_that_the_client_dropped_does_not_matter(store: Any) -> None:
    conversation = store.create_conversation(model="m", input="Think")
    thinking = {"type": "thinking", "thinking": "Hm", "signature": "c2lnbmF0dXJl"}
    answer = {"type": "message", "role": "assistant", "content": [thinking, {"type": "text", "text": "Done"}]}
    conversation.add_response({**answer, "id": "msg_1", "model": "m", "stop_reason": "end_turn"}, "messages")
    for content in ([thinking, {"type": "text", "text": "Done"}], [{"type": "text", "text": "Done"}], "Done"):
        history = [{"role": "user", "content": "Think"}, {"role": "assistant", "content": content}]
        result = conversation.sync_request({"model": "m", "max_tokens": 9, "messages": history}, "messages")
        assert (result.appended, result.branched_at) == (0, None)


def test_a_text_beside_a_call_that_the_client_dropped_does_not_matter(store: Any) -> None:
    """As langchain-mistralai 1.1 and @ai-sdk/cohere 4 do. What is said in its place, or with other calls, does."""
    conversation = store.create_conversation(model="m", input="Look")
    conversation.add_response(an_answer("I look it up", calls=("c1",)), "open_responses")
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    calls = {"role": "assistant", "content": "", "tool_calls": [call]}
    output = {"role": "tool", "tool_call_id": "c1", "content": "found"}
    for more, appended in (([], 1), ([], 0), (said("Found", "Thanks", first="assistant"), 2)):
        result = sync(conversation, *said("Look"), calls, output, *more)
        assert (result.appended, result.branched_at) == (appended, None)
    assert texts_of(conversation.transcript())[1] == "I look it up"
    calls["content"] = "I guess"
    assert sync(conversation, *said("Look"), calls, output).branched_at == 0
    call["id"] = output["tool_call_id"] = "c2"
    calls["content"] = ""
    assert sync(conversation, *said("Look"), calls, output).branched_at == 0


def test_a_text_beside_a_search_that_the_client_dropped_does_not_matter(store: Any) -> None:
    """As ag2 1.2 does, which keeps the last text of an answer. Beside another search, it does."""
    conversation = store.create_conversation(model="m", input="Look", max_output_tokens=9)
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    texts = [{"type": "text", "text": text} for text in ("I search.", "Found.")]
    answer = {"role": "assistant", "content": [texts[0], search, found, texts[1]]}
    conversation.add_response({**answer, "id": "msg_1", "stop_reason": "end_turn", "type": "message"}, "messages")
    answer["content"] = [search, found, texts[1]]
    history = {"model": "m", "max_tokens": 9, "messages": [*said("Look"), answer, *said("Thanks")]}
    assert conversation.sync_request(history, "messages") == SyncResult(matched=4, appended=1)
    assert [one.item.text for one in conversation.transcript()] == ["Look", "I search.Found.", "Thanks"]
    search["input"], found["tool_use_id"] = {"query": "other"}, "srvtoolu_2"
    assert conversation.sync_request(history, "messages").branched_at == 0


def test_reasoning_of_another_answer_stays_with_that_answer(store: Any) -> None:
    """Its signature holds for what follows it."""
    conversation = store.create_conversation(model="m", max_output_tokens=9)

    def history(number: int) -> list[dict[str, Any]]:
        thinking = {"type": "thinking", "thinking": f"Hm {number}", "signature": f"c2lnbmF0dXJl{number:04}"}
        answer = [thinking, {"type": "text", "text": f"Answer {number}"}]
        return [
            {"role": "user", "content": [{"type": "text", "text": "Think"}]},
            {"role": "assistant", "content": answer},
            {"role": "user", "content": [{"type": "text", "text": "Go on"}]},
        ]

    for number in range(3):
        payload = {"model": "m", "max_tokens": 9, "messages": history(number)}
        result = conversation.sync_request(payload, "messages")
        assert result.branched_at == (None, 0, 0)[number]
        assert conversation.on_branch(result.branch).request_payload("messages") == payload


def test_media_are_compared_by_their_bytes(store: Any) -> None:
    picture = a_picture(noise(10_000))
    conversation = store.create_conversation(model="m", input=[picture])
    url = picture["image_url"]

    def shown(url: str) -> list[dict[str, Any]]:
        return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url, "detail": "low"}}]}]

    assert sync(conversation, *shown(url)).appended == 0
    assert sync(conversation, *shown(url[:-40] + "A" * 40)).branched_at == -1


@pytest.mark.parametrize("sent_back", [{"audio": {"id": "audio_1"}}, {"content": "Hello."}])
def test_a_spoken_answer_is_sent_back_by_its_id_or_as_what_it_says(store: Any, sent_back: dict[str, Any]) -> None:
    conversation = store.create_conversation(model="m", input="one")
    spoken = {"id": "audio_1", "data": "AAEC", "transcript": "Hello.", "expires_at": 1}
    message = {"role": "assistant", "content": None, "audio": spoken}
    conversation.add_response({"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}, WIRE)
    history = [*said("one"), {"role": "assistant", **sent_back}, *said("two")]
    assert sync(conversation, *history) == SyncResult(2, 1)
    assert sync(conversation, *history) == SyncResult(3, 0)
    history[1] = {"role": "assistant", "audio": {"id": "audio_2"}}
    assert sync(conversation, *history).branched_at == 0


@pytest.mark.parametrize("seen", ["one two", "one two three ", "one two three four", "one"])
def test_of_an_answer_that_broke_off_a_client_may_have_seen_more_or_less(store: Any, seen: str) -> None:
    """What the browser had shown when it left need not be what was stored."""
    conversation = store.create_conversation(model="m", input="Count")
    with conversation.stream_response("open_responses") as recorder:
        for event in a_stream("one two three four five")[:5]:
            recorder.feed(event)
    result = sync(conversation, *said("Count", seen, "Go on"))
    assert result == SyncResult(2, 1)
    assert texts_of(conversation.transcript()) == ["Count", "one two three ", "Go on"]
    assert sync(conversation, *said("Count", "two", "Go on")).branched_at == 0


# Histories that were cut at the beginning


@pytest.mark.parametrize("dropped", [0, 1, 2, 3])
def test_of_the_end_of_a_history_only_what_is_new_is_appended(talk: Any, dropped: int) -> None:
    result = sync(talk, *said("one", "1", "two", "2", "three")[dropped:])
    assert result == SyncResult(4 - dropped, 1)
    assert texts_of(talk.transcript()) == ["one", "1", "two", "2", "three"]


def test_the_longest_end_counts(store: Any) -> None:
    """Turns may repeat."""
    conversation = store.create_conversation(model="m")
    sync(conversation, *said("go on", "1", "go on", "2", "go on", "3"))
    assert sync(conversation, *said("go on", "2", "go on", "3", "go on")) == SyncResult(4, 1)
    assert sync(conversation, *said("go on", "1", "go on", "2", "go on", "3", "go on")) == SyncResult(7, 0)


def test_the_end_of_a_history_may_differ(talk: Any) -> None:
    result = sync(talk, *said("1", "two", "other", "three", first="assistant"))
    assert (result.branched_at, result.appended) == (2, 2)
    assert texts_of(talk.on_branch(result.branch).transcript()) == ["one", "1", "two", "other", "three"]


def test_where_the_provider_holds_the_history_all_is_new(store: Any) -> None:
    """What is sent follows the answer that it names."""
    wire = "open_responses"
    conversation = store.import_request({"model": "m", "previous_response_id": "resp_0", "input": "one"}, wire)
    assert conversation.sync_request({"previous_response_id": "resp_0", "input": "one"}, wire) == SyncResult(1, 0)
    conversation.add_response(an_answer("1", id="resp_1"), wire)
    for _ in range(2):
        conversation.sync_request({"previous_response_id": "resp_1", "input": "one"}, wire)
    assert texts_of(conversation.transcript()) == ["one", "1", "one"]
    conversation.add_response(an_answer("2", id="resp_2"), wire)
    result = conversation.sync_request({"previous_response_id": "resp_1", "input": "other"}, wire)
    assert (result.branched_at, result.appended) == (1, 1)
    assert texts_of(conversation.on_branch(1).transcript()) == ["one", "1", "other"]


def test_a_conversation_of_the_provider_only_gets_what_is_new(store: Any) -> None:
    wire = "open_responses"
    conversation = store.import_request({"model": "m", "conversation": "conv_1", "input": "one"}, wire)
    conversation.add_response(an_answer("1", id="resp_1"), wire)
    for _ in range(2):
        conversation.sync_request({"conversation": "conv_1", "input": "two"}, wire)
    assert texts_of(conversation.transcript()) == ["one", "1", "two"]
    assert conversation.request_payload(wire)["conversation"] == "conv_1"


# Histories that differ


def test_a_history_that_differs_goes_on_elsewhere(talk: Any, tables: Tables) -> None:
    result = sync(talk, *said("one", "1", "edited"))
    assert result == SyncResult(matched=2, appended=1, branched_at=1)
    assert (talk.branch, result.branch) == (0, 1)
    assert texts_of(talk.transcript()) == ["one", "1", "two", "2"]
    assert texts_of(talk.on_branch(1).transcript()) == ["one", "1", "edited"]
    written = tables.written()
    assert sync(talk, *said("one", "1", "edited")) == SyncResult(3, 0)
    assert written() == {}


def test_it_goes_on_there(talk: Any, elsewhere: Any) -> None:
    """The branch that has the client's history is found again, whatever branch the handle is on."""
    sync(talk, *said("one", "1", "edited"))
    for handle in (elsewhere.get_conversation(talk.id), elsewhere.get_conversation(talk.id, branch=1)):
        result = sync(handle, *said("one", "1", "edited", "!", "more"))
        assert (result.branched_at, result.branch) == (None, 1)
    assert texts_of(talk.on_branch(1).transcript()) == ["one", "1", "edited", "!", "more"]
    result = sync(talk.on_branch(1), *said("one", "1", "two", "2", "three"))
    assert (result.branched_at, result.branch) == (None, 0)


def test_an_edit_of_the_first_turn(talk: Any) -> None:
    result = sync(talk, *said("zero"))
    assert result == SyncResult(0, 1, -1)
    assert texts_of(talk.on_branch(result.branch).transcript()) == ["zero"]


def test_a_history_that_ends_earlier_is_a_new_try(talk: Any) -> None:
    """The next answer belongs where the client is; asking again makes no further branch."""
    result = sync(talk, *said("one", "1", "two"))
    assert result == SyncResult(3, 0, 2)
    branch = talk.on_branch(result.branch)
    assert sync(talk, *said("one", "1", "two")).branch == branch.branch
    branch.add_response(an_answer("zwei"), "open_responses")
    assert texts_of(branch.transcript()) == ["one", "1", "two", "zwei"]
    assert len(list(talk.branches())) == 2


def test_a_new_try_on_another_branch_has_what_is_stored_there(talk: Any) -> None:
    """It begins on the branch that has most of the history, whatever branch the handle is on."""
    sync(talk, *said("one", "1", "edited", "!", "more"))
    result = sync(talk, *said("one", "1", "edited"))
    assert (result, result.branch) == (SyncResult(matched=3, appended=0, branched_at=4), 2)
    assert texts_of(talk.on_branch(2).transcript()) == ["one", "1", "edited"]
    result = sync(talk, *said("one", "1", "edited", "!", "less"))
    assert (result, result.branch) == (SyncResult(matched=4, appended=1, branched_at=5), 3)
    assert texts_of(talk.on_branch(3).transcript()) == ["one", "1", "edited", "!", "less"]


def test_a_history_is_found_where_another_answer_began_alike(talk: Any) -> None:
    branch = talk.on_branch(sync(talk, *said("one")).branch)
    branch.add_response(an_answer("1"), "open_responses")
    assert sync(branch, *said("one", "1", "other", "!")) == SyncResult(matched=2, appended=2)
    result = sync(talk, *said("one", "1", "other", "!"))
    assert (result, result.branch) == (SyncResult(matched=4, appended=0), branch.branch)


def test_a_history_follows_the_answer_that_it_names_on_other_branches_too(store: Any) -> None:
    wire = "open_responses"
    conversation = store.create_conversation(model="m", input="one")
    conversation.add_response(an_answer("1", id="resp_1"), wire)
    conversation.user("two")
    first = {"previous_response_id": "resp_1", "input": "go on"}
    branch = conversation.on_branch(conversation.sync_request(first, wire).branch)
    branch.add_response(an_answer("2", id="resp_2"), wire)
    branch.sync_request({"previous_response_id": "resp_2", "input": "go on"}, wire)
    result = conversation.sync_request(first, wire)
    assert (result, result.branch) == (SyncResult(matched=1, appended=0, branched_at=3), 2)
    assert texts_of(conversation.on_branch(2).transcript()) == ["one", "1", "go on"]


def test_white_space_of_users_matters(talk: Any) -> None:
    assert sync(talk, *said("one ", "1", "two", "2")).branched_at == -1


def test_typography_of_answers_does_not(store: Any) -> None:
    conversation = store.create_conversation(model="m")
    sync(conversation, *said("one", "It\u2019s \u201cone\u201d\u2026"))
    assert sync(conversation, *said("one", 'It\'s "one"...', "two")) == SyncResult(2, 1)


# Appending


def test_the_history_is_compared_while_others_wait(stores: Any, tenant: str) -> None:
    """Requests at the same time with the same news do not append them twice."""
    store = stores.get("sync").for_tenant(tenant)
    conversation = store.create_conversation(model="m")
    sync(conversation, *said("one", "1"))
    handles = [store.get_conversation(conversation.id) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda handle: sync(handle, *said("one", "1", "two")), handles))
    assert sorted(result.appended for result in results) == [0] * 7 + [1]
    assert texts_of(conversation.transcript()) == ["one", "1", "two"]


def test_it_takes_what_other_appends_take(talk: Any, tables: Tables) -> None:
    with pytest.raises(HeadConflict):
        sync(talk, *said("one", "1", "two", "2", "three"), expected_head=1)
    with talk.stream_response("open_responses") as recorder:
        with pytest.raises(ResponseInProgress):
            sync(talk, *said("one", "1", "two", "2", "three"))
        recorder.feed(a_stream("x")[0])
    first = sync(talk, *said("one", "1", "two", "2", "three"), idempotency_key="key")
    written = tables.written()
    again = sync(talk, *said("one", "1", "two", "2", "three"), idempotency_key="key")
    assert (again, again.replayed, [item.item for item in again.items]) == (first, True, [i.item for i in first.items])
    assert written() == {}


def test_what_is_no_request_is_refused(talk: Any, tables: Tables) -> None:
    written = tables.written()
    bad: list[Any] = ["no JSON", None, [], {"messages": 1}]
    for payload in bad:
        with pytest.raises(CannotParse):
            talk.sync_request(payload, WIRE)
    with pytest.raises(UnknownFormat):
        talk.sync_request({"messages": []}, "nonsense")
    assert written() == {}


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_a_host_that_sees_an_old_state_appends_nothing_twice(stores: Any, tenant: str, watching: Engine) -> None:
    """REPEATABLE READ is what MySQL does unless it is told; on PostgreSQL the host is told to begin anew."""
    store = stores.get("sync").for_tenant(tenant)
    talk = store.create_conversation(input="one")
    with watching.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        seen = store.within(connection).get_conversation(talk.id)
        talk.add_items([a_message("1", "assistant"), a_message("two")])
        payload = {"messages": said("one", "1", "two", "2", "three")}
        if watching.dialect.name == "postgresql":
            with pytest.raises(DBAPIError, match="serialize"):
                seen.sync_request(payload, WIRE)
        else:
            assert seen.sync_request(payload, WIRE).appended == 2
            assert seen.compact(summary="They spoke.").item.extra["upto"] == 4
            connection.commit()
            assert texts_of(talk.transcript())[:5] == ["one", "1", "two", "2", "three"]


def test_calls_that_the_client_gave_one_id_are_those_of_the_store(store: Any) -> None:
    """The first output of the client is that of the first call of its turn, whatever the ids here are."""
    conversation = store.create_conversation(model="m")
    conversation.user("And now?")
    conversation.add_response(an_answer(calls=("call_a", "call_b")), "open_responses")
    call = {"id": "x", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    sync(
        conversation,
        {"role": "user", "content": "And now?"},
        {"role": "assistant", "tool_calls": [call, call]},
        *({"role": "tool", "tool_call_id": "x", "content": text} for text in ("first", "second")),
    )
    outputs = [stored.item for stored in conversation.transcript() if stored.item.type == "function_call_output"]
    assert [(output.call_id, output.output) for output in outputs] == [("call_a", "first"), ("call_b", "second")]


@pytest.mark.parametrize("end", [2, 3, 4])
@pytest.mark.parametrize("outputs", [0, 1])
def test_an_answer_with_a_text_before_calls_that_are_stored_without_one_is_another_one(
    store: Any, end: int, outputs: int
) -> None:
    """Two models may ask for the same; the text stays in front of the calls, and these have the client's ids.

    It does not matter how much either history has after the calls.
    """
    conversation = store.create_conversation(model="m")
    conversation.user("And now?")
    conversation.add_response(an_answer(calls=("call_a",)), "open_responses")
    if outputs:
        conversation.add_function_call_output(call_id="call_a", output="7 °C")
    call = {"id": "x", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "And now?"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "x", "content": "7 °C"},
        {"role": "assistant", "content": "It is cold."},
    ][:end]
    result = sync(conversation, *messages)
    assert (result.matched, result.branched_at) == (1, 0)
    branch = conversation.on_branch(result.branch)
    kinds = ["message", "message", "function_call", "function_call_output", "message"]
    assert [stored.item.type for stored in branch.transcript()] == kinds[: end + 1]
    if end > 2:
        assert branch.request_payload(WIRE, dialect="compatible")["messages"] == messages
    assert sync(conversation, *messages) == SyncResult(matched=end + 1, appended=0)


def test_an_output_that_is_sent_twice_is_the_same(store: Any) -> None:
    """As Gemini CLI sends it after a resume."""
    called = {"role": "model", "parts": [{"functionCall": {"id": "call_1", "name": "look", "args": {}}}]}
    output = {"functionResponse": {"id": "call_1", "name": "look", "response": {"output": "hi"}}}
    contents = [{"role": "user", "parts": [{"text": "Look"}]}, called, {"role": "user", "parts": [output]}]
    conversation = store.import_request({"contents": contents}, "gemini", model="gemini-3-pro")
    again = [*contents[:2], {"role": "user", "parts": [output, output]}, {"role": "user", "parts": [{"text": "On"}]}]
    result = conversation.sync_request({"contents": again}, "gemini")
    assert (result.branched_at, result.appended) == (None, 1)
