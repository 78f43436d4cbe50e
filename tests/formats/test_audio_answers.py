"""Spoken answers of Chat Completions: sent by their id while the service has them, and then as what they say."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from threadkeep import InvalidOption, Session, Store
from threadkeep.domain.rendering import RenderOptions
from threadkeep.formats import NAMES, FormatName, get_format

Json = dict[str, Any]

EXPIRES = 2_000_000_000
SPOKEN: Json = {"id": "audio_1", "data": "AAEC", "transcript": "Hello, Ada.", "expires_at": EXPIRES}
OTHERS = tuple(name for name in NAMES if name != "chat_completion")


def body(audio: Any, content: Any = None, **keys: Any) -> Json:
    message = {"role": "assistant", "content": content, "refusal": None, "audio": audio, **keys}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": "gpt-audio", "choices": [choice]}


def chunks(audio: Json) -> list[Json]:
    """The same as a stream, which says one thing after the other."""
    deltas: list[Json] = [
        {"role": "assistant", "audio": {"id": audio["id"], "transcript": audio["transcript"][:5]}},
        {"audio": {"transcript": audio["transcript"][5:]}},
        {"audio": {"data": audio["data"]}},
        {"audio": {"expires_at": audio["expires_at"]}},
    ]
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-audio"}
    events = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    return [*events, {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]


def spoken(audio: Any = SPOKEN, content: Any = None, **keys: Any) -> Session:
    session = Session(model="gpt-audio", input="Say hello.")
    session.add_response(body(audio, content, **keys), "chat_completion")
    session.user("And now?")
    return session


def sent(session: Session, now: int | None = None) -> tuple[Json, list[str], list[str]]:
    """The message of the answer, and the codes of losses and repairs."""
    rendered = session.render("chat_completion", now=now)
    losses, repairs = ([one.code for one in reports] for reports in (rendered.losses, rendered.repairs))
    return rendered.payload["messages"][1], losses, repairs


def test_what_an_answer_says_is_its_text() -> None:
    response = get_format("chat_completion").parse_response(body(SPOKEN))
    assert response.text == "Hello, Ada."
    assembler = get_format("chat_completion").assembler()
    for event in chunks(SPOKEN):
        assembler.feed(event)
    assert [item.to_object() for item in assembler.response.output] == [item.to_object() for item in response.output]


@pytest.mark.parametrize("content", [None, "", "Hello, Ada.", "In writing."])
@pytest.mark.parametrize("now", [EXPIRES - 1, None])
def test_audio_that_the_service_has_is_sent_by_its_id(content: str | None, now: int | None) -> None:
    later = {**SPOKEN, "expires_at": max(EXPIRES, int(time.time()) + 3600)}
    message, losses, repairs = sent(spoken(later, content), now)
    assert message["audio"] == {"id": "audio_1"}
    assert message["content"] in (content, None if content == "" else [{"type": "text", "text": content}])
    assert (losses, repairs) == ([], [])


@pytest.mark.parametrize("now", [EXPIRES, EXPIRES + 1])
@pytest.mark.parametrize("content", [None, "", "In writing."])
def test_audio_that_has_expired_becomes_its_transcript(content: str | None, now: int) -> None:
    message, losses, repairs = sent(spoken(SPOKEN, content), now)
    written = [{"type": "text", "text": content}] if content else []
    assert message == {"role": "assistant", "content": [*written, {"type": "text", "text": "Hello, Ada."}]}
    assert (losses, repairs) == ([], ["audio"])


@pytest.mark.parametrize("expires_at", [0, 1, 1.5])
def test_the_time_is_that_of_rendering_by_default(expires_at: float) -> None:
    message, _, repairs = sent(spoken({**SPOKEN, "expires_at": expires_at}))
    assert ("audio" in message, repairs) == (False, ["audio"])


@pytest.mark.parametrize("expires_at", [None, "soon", True, {}])
def test_audio_that_does_not_say_when_it_expires_is_sent_by_its_id(expires_at: Any) -> None:
    audio = {key: value for key, value in {**SPOKEN, "expires_at": expires_at}.items() if value is not None}
    message, losses, repairs = sent(spoken(audio), EXPIRES + 1)
    assert (message["audio"], losses, repairs) == ({"id": "audio_1"}, [], [])


@pytest.mark.parametrize("transcript", [None, "", 5])
def test_expired_audio_without_a_transcript_is_a_loss(transcript: Any) -> None:
    session = spoken({**SPOKEN, "transcript": transcript})
    rendered = session.render("chat_completion", now=EXPIRES + 1)
    assert [message["role"] for message in rendered.payload["messages"]] == ["user", "user"]
    assert [(loss.code, loss.position) for loss in rendered.losses] == [("media", 1)]
    written, losses, _ = sent(spoken({**SPOKEN, "transcript": transcript}, "In writing."), EXPIRES + 1)
    assert (written["content"], "audio" in written, losses) == (
        [{"type": "text", "text": "In writing."}],
        False,
        ["media"],
    )


def test_calls_and_annotations_stay_with_their_answer() -> None:
    note = {"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": 0, "end_index": 1}}
    call = {"id": "k1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    session = spoken(SPOKEN, None, annotations=[note], tool_calls=[call])
    for now, has_audio in ((EXPIRES - 1, True), (EXPIRES, False)):
        message, _, _ = sent(session, now)
        assert ("audio" in message, message["annotations"], message["tool_calls"]) == (has_audio, [note], [call])


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("expires_at", [1, EXPIRES, None])
def test_other_formats_get_the_transcript(name: FormatName, expires_at: int | None) -> None:
    rendered = spoken({**SPOKEN, "expires_at": expires_at}).render(name)
    assert "Hello, Ada." in json.dumps(rendered.payload)
    assert "audio_1" not in json.dumps(rendered.payload)
    assert {loss.code for loss in rendered.losses} == {"native"}


def test_the_time_is_recorded_with_the_request() -> None:
    """So that the request of an answer is rendered the same, though the audio has expired since."""
    later = {**SPOKEN, "expires_at": int(time.time()) + 3600}
    with Store("sqlite://") as store:
        conversation = store.create_conversation(model="gpt-audio", input="Say hello.")
        conversation.add_response(body(later), "chat_completion")
        conversation.user("And now?")
        rendered = conversation.render("chat_completion")
        assert isinstance(rendered.view["now"], int)
        conversation.add_response(body(None, "Good bye."), "chat_completion", rendered=rendered)
        assert conversation.render("chat_completion", upto=2).payload == rendered.payload
        assert (
            conversation.render("chat_completion", now=later["expires_at"]).payload["messages"][1].get("audio") is None
        )
        assert RenderOptions.recorded(rendered.view).now == rendered.view["now"]


def test_nothing_is_recorded_where_time_does_not_matter() -> None:
    session = Session(model="gpt-audio", input="Say hello.")
    assert session.render("chat_completion").view == {"format": "chat_completion"}


def test_messages_before_audio_that_will_expire_are_stable() -> None:
    session = spoken()
    assert session.render("chat_completion", now=EXPIRES - 1).stable == 1
    assert session.render("chat_completion", now=EXPIRES).stable == 3


@pytest.mark.parametrize("odd", ["soon", 1.5, {}])
def test_a_time_that_is_none_is_refused(odd: Any) -> None:
    with pytest.raises(InvalidOption, match="now must be a whole number of seconds since 1970"):
        spoken().render("chat_completion", now=odd)
