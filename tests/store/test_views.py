"""Compaction, and replaying what an earlier request showed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import a_call, a_completion, a_message, a_stream, an_answer, an_output
from threadkeep import HeadConflict, IdempotencyConflict, InvalidItem, InvalidOption, Turns
from threadkeep.formats.shared.views import SUMMARY

pytestmark = pytest.mark.one_face

FORMAT = "open_responses"


@pytest.fixture
def talk(conversation: Any) -> Any:
    """Two turns: positions 0 to 3."""
    for number in (1, 2):
        conversation.user(f"question {number}")
        conversation.add_response(an_answer(f"answer {number}", id=f"resp_{number}"), FORMAT)
    return conversation


def texts(conversation: Any, **view: Any) -> list[str]:
    sent = conversation.request_payload(FORMAT, **view)["input"]
    return [one["content"][0]["text"] if "content" in one else one["type"] for one in sent]


# Compaction


def test_the_model_sees_the_summary_and_people_everything(talk: Any, store: Any, elsewhere: Any) -> None:
    made = talk.compact(upto=1, summary="They spoke.")
    assert (made.position, made.item.extra["upto"]) == (4, 1)
    expected = [f"{SUMMARY}\n\nThey spoke.", "question 2", "answer 2"]
    for handle in (talk, store.get_conversation(talk.id), elsewhere.get_conversation(talk.id)):
        assert texts(handle) == expected
    assert [one.position for one in talk.transcript()] == [0, 1, 2, 3, 4]


def test_everything_is_covered_unless_a_position_is_named(talk: Any) -> None:
    talk.compact(summary="They spoke.")
    talk.user("go on")
    assert texts(talk) == [f"{SUMMARY}\n\nThey spoke.", "go on"]


def test_a_compaction_can_be_taken_back(talk: Any, elsewhere: Any) -> None:
    before = talk.request_body(FORMAT)
    talk.compact(upto=1, summary="first")
    talk.compact(upto=3, summary="second")
    talk.undo_compaction()
    assert texts(talk) == [f"{SUMMARY}\n\nfirst", "question 2", "answer 2"]
    talk.undo_compaction()
    assert talk.request_body(FORMAT) == before == elsewhere.get_conversation(talk.id).request_body(FORMAT)
    with pytest.raises(InvalidOption, match="no compaction"):
        talk.undo_compaction()


def test_a_handle_knows_what_it_appended(talk: Any) -> None:
    made = talk.compact(summary="They spoke.")
    assert talk.head == made.position
    undone = talk.undo_compaction(expected_head=talk.head)
    assert (talk.head, talk.user("go on", expected_head=talk.head).position) == (undone.position, undone.position + 1)
    assert texts(talk)[-1] == "go on"


def test_on_a_branch_of_its_own_it_covers_what_that_branch_has(talk: Any) -> None:
    talk.compact(upto=1, summary="first")
    talk.user("question 3")
    made = talk.compact(summary="They spoke.", expected_head=3, on_conflict="branch")
    assert (made.branch, made.item.extra["upto"]) == (1, 3)
    assert texts(talk.on_branch(1)) == [f"{SUMMARY}\n\nThey spoke."]
    assert texts(talk) == [f"{SUMMARY}\n\nfirst", "question 2", "answer 2", "question 3"]
    with pytest.raises(InvalidOption, match="no compaction"):
        talk.undo_compaction(expected_head=3, on_conflict="branch")


def test_a_copy_of_a_branch_is_covered_as_far(talk: Any, store: Any) -> None:
    """Positions count over all branches; in a copy they are others."""
    branch = talk.fork(at=1)
    talk.add_items([a_message(f"more {number}") for number in range(5)])
    branch.user("of the branch")
    branch.compact(summary="They spoke.")
    branch.user("go on")
    branch.compact(summary="They went on.")
    branch.undo_compaction()
    branch.user("and on")
    expected = [f"{SUMMARY}\n\nThey spoke.", "go on", "and on"]
    assert texts(branch) == texts(branch.session()) == expected
    saved = store.save(branch.session())
    saved.user("later")
    assert texts(saved) == [*expected, "later"]
    saved.undo_compaction()
    assert texts(saved)[-4:] == ["of the branch", "go on", "and on", "later"]


def test_no_call_is_parted_from_its_output(conversation: Any) -> None:
    conversation.add_items([a_message(), a_call("c1"), an_output("c1"), a_message("more")])
    assert conversation.compact(upto=1, summary="s").item.extra["upto"] == 0
    assert conversation.compact(upto=2, summary="s").item.extra["upto"] == 2


def test_a_call_whose_output_may_still_come_is_not_covered(conversation: Any) -> None:
    conversation.add_items([a_message(), a_call("c1"), a_call("c2"), an_output("c1")])
    assert conversation.compact(summary="s").item.extra["upto"] == 0
    conversation.undo_compaction()
    conversation.user("Never mind.")
    assert conversation.compact(summary="s").item.extra["upto"] == 6


def test_an_answer_is_covered_whole_or_not_at_all(conversation: Any) -> None:
    conversation.user("question")
    conversation.add_response(an_answer("one", "two"), FORMAT)
    conversation.user("thanks")
    assert conversation.compact(upto=1, summary="s").item.extra["upto"] == 0


def test_what_a_provider_made_counts_for_its_own_format(talk: Any) -> None:
    talk.compact(item={"type": "compaction", "encrypted_content": "opaque"})
    talk.user("go on")
    assert texts(talk) == ["question 1", "question 2", "compaction", "go on"]  # a window of OpenAI's endpoint
    assert len(talk.request_payload("chat_completion")["messages"]) == 5


def test_a_fork_before_a_compaction_does_not_know_it(talk: Any) -> None:
    talk.compact(upto=1, summary="They spoke.")
    assert texts(talk.fork(at=3)) == ["question 1", "answer 1", "question 2", "answer 2"]
    assert texts(talk.fork(at=4)) == [f"{SUMMARY}\n\nThey spoke.", "question 2", "answer 2"]


def test_a_repeated_key_gives_the_first_compaction(talk: Any) -> None:
    first = talk.compact(upto=1, summary="s", idempotency_key="k")
    again = talk.compact(upto=1, summary="s", idempotency_key="k")
    assert (again.position, again.item, again.replayed) == (first.position, first.item, True)
    with pytest.raises(IdempotencyConflict):
        talk.compact(upto=1, summary="other", idempotency_key="k")
    assert len(talk.transcript()) == 5


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, InvalidOption),
        ({"summary": "s", "item": {"type": "compaction"}}, InvalidOption),
        ({"summary": "  "}, InvalidOption),
        ({"summary": "s", "upto": -1}, InvalidOption),
        ({"item": {"type": "message", "role": "user", "content": "x"}}, InvalidItem),
        ({"summary": "s", "expected_head": 0}, HeadConflict),
    ],
)
def test_a_refused_compaction_writes_nothing(talk: Any, options: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        talk.compact(**options)
    assert len(talk.transcript()) == 4
    assert talk.head == 3


# Replay


def asked(conversation: Any, question: str, number: int, **view: Any) -> bytes:
    """A turn whose request is recorded; returns its body."""
    conversation.user(question)
    rendered = conversation.render(FORMAT, **view)
    conversation.add_response(an_answer("answer", id=f"resp_{number}"), FORMAT, rendered=rendered)
    body: bytes = rendered.body
    return body


def test_an_earlier_request_is_replayed_as_it_was_sent(conversation: Any, elsewhere: Any) -> None:
    sent = [asked(conversation, "one", 1)]
    conversation.update(temperature=0.2)
    conversation.register_tool("look_up", description="finds", parameters={"type": "object", "properties": {}})
    sent.append(asked(conversation, "two", 2, dynamic_context={"time": "12:00"}))
    conversation.update(temperature=0.9, instructions="Be brief.")
    conversation.remove_tool("look_up")
    sent.append(asked(conversation, "three", 3, window=Turns(1)))
    conversation.compact(summary="They spoke.")
    for handle in (conversation, elsewhere.get_conversation(conversation.id)):
        for number, body in enumerate(sent):
            rendered = handle.render(FORMAT, upto=2 * number)
            assert rendered.body == body
            assert rendered.repairs == []
        assert "They spoke." in texts(handle)[0]


def test_what_was_not_recorded_is_rendered_with_the_options_of_today(talk: Any) -> None:
    talk.update(temperature=0.5)
    rendered = talk.render(FORMAT, upto=2)
    assert rendered.payload["temperature"] == 0.5
    assert [repair.code for repair in rendered.repairs] == ["not_recorded"]


def test_a_request_is_replayed_though_options_changed_before_its_answer(conversation: Any, elsewhere: Any) -> None:
    conversation.update(instructions="old")
    conversation.user("one")
    sent = conversation.render(FORMAT)
    elsewhere.get_conversation(conversation.id).update(instructions="new")
    conversation.register_tool("look_up")
    conversation.add_response(an_answer("answer"), FORMAT, rendered=sent)
    assert conversation.render(FORMAT, upto=0).body == sent.body
    again = conversation.render(FORMAT, upto=0)
    branch = conversation.fork(at=0)
    with branch.stream_response(FORMAT, rendered=again) as recorder:
        for event in a_stream("answer"):
            recorder.feed(event)
    assert branch.render(FORMAT, upto=0).body == sent.body
    assert branch.request_payload(FORMAT)["instructions"] == "new"


def test_a_request_without_items_is_replayed(conversation: Any, elsewhere: Any) -> None:
    """Chat Completions takes instructions alone; other formats do where the provider stores what was said."""
    conversation.update(instructions="Say hello.", previous_response_id="resp_0")
    for name, answer in {"chat_completion": a_completion(), FORMAT: an_answer("Hello")}.items():
        sent = conversation.render(name)
        conversation.add_response(answer, name, rendered=sent)
        conversation.user("Hi")
        for handle in (conversation, elsewhere.get_conversation(conversation.id)):
            again = handle.render(name, upto=-1)
            assert (again.body, again.repairs, again.head) == (sent.body, sent.repairs, -1)
        conversation.clear()


def test_a_request_whose_options_are_gone_is_not_recorded(conversation: Any, store: Any) -> None:
    conversation.update(instructions="old")
    conversation.user("one")
    sent = conversation.render(FORMAT)
    conversation.update(instructions="new")
    store.retain(content=1)
    conversation.add_response(an_answer("answer"), FORMAT, rendered=sent)
    assert [repair.code for repair in conversation.render(FORMAT, upto=0).repairs] == ["not_recorded"]


def test_a_position_beyond_all_columns_is_refused(talk: Any) -> None:
    with pytest.raises(InvalidOption, match="upto lies behind the last item"):
        talk.render(FORMAT, upto=2**70)


def test_options_that_are_given_come_before_those_that_were_recorded(conversation: Any) -> None:
    asked(conversation, "one", 1, dynamic_context={"time": "12:00"})
    assert len(texts(conversation, upto=0)) == 2
    assert len(texts(conversation, upto=0, dynamic_context=None)) == 1


def test_the_request_of_another_branch_is_not_replayed(conversation: Any) -> None:
    conversation.user("one")
    fork = conversation.fork(at=0)
    fork.update(temperature=0.1)
    rendered = fork.render(FORMAT)
    fork.add_response(an_answer("answer"), FORMAT, rendered=rendered)
    assert [repair.code for repair in conversation.render(FORMAT, upto=0).repairs] == ["not_recorded"]
    assert fork.render(FORMAT, upto=0).body == rendered.body


def test_of_several_requests_that_of_the_same_branch_is_replayed(conversation: Any) -> None:
    """All of them end at one position: that of the branch itself, or of what it shares with another one."""
    conversation.user("one")
    branches, sent = [conversation, conversation.fork(), conversation.fork()], []
    for number in (1, 0):
        branches[number].update(instructions=f"of branch {number}")
        rendered = branches[number].render(FORMAT)
        branches[number].add_response(an_answer("answer", id=f"resp_{number}"), FORMAT, rendered=rendered)
        sent.append(rendered.body)
    of_fork, of_root = sent
    branches += [branches[0].fork(), branches[1].fork()]  # with the answers
    assert [branch.render(FORMAT, upto=0).body for branch in branches] == [of_root, of_fork, of_root, of_root, of_fork]
    branches[1].pop()
    assert branches[1].render(FORMAT, upto=0).body == of_fork
