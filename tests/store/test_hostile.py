"""Values that break databases: stored and returned exactly, or refused before anything is written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from tests.domain.jsonvalues import same
from tests.factories import a_call, a_message, an_answer, an_error, an_output
from tests.store.watching import Tables
from threadkeep import (
    CannotParse,
    InvalidItem,
    InvalidOption,
    LossError,
    NotFound,
    ProviderError,
    Session,
    UnknownFormat,
)

pytestmark = pytest.mark.one_face

TEXTS = {
    "U+0000": "a\x00b",
    "lone surrogate": "a\ud800b",
    "surrogates in the wrong order": "\udc00\ud800",
    "every control character": "".join(map(chr, range(32))) + "\x7f\x80\x9f\u2028\u2029\ufeff\uffff",
    "backslashes": "\\u0000 \\x00 \\\\ %s %(a)s :b ' \" `",
    "emoji": "👩‍👩‍👧 é e\u0301 \U0010ffff",
    "blanks": "  a \t\n",
    "SQL": "'; DROP TABLE items; --",
}
NUMBERS = {
    "2**53+1": 2**53 + 1,
    "2**63": 2**63,
    "2**64": 2**64,
    "-2**70": -(2**70),
    "400 digits": 10**400,
    "NaN": math.nan,
    "Infinity": math.inf,
    "-0.0": -0.0,
    "1e-320": 1e-320,
    "0.1": 0.1,
    "1e22": 1e22,
    "1.0": 1.0,
}
LONG = 3_000


def nested(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found


def by_name(values: dict[str, Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("value", values.values(), ids=values)


def stored(elsewhere: Any, conversation: Any) -> list[Any]:
    return [found.item.to_dict() for found in elsewhere.get_conversation(conversation.id).transcript()]


@by_name(TEXTS)
def test_any_text_comes_back(store: Any, elsewhere: Any, value: str) -> None:
    conversation = store.create_conversation(
        model=value, instructions=value, input=value, tools=[{"type": "function", "name": "t", "description": value}],
        metadata={value: value}, extra={value: value},
    )  # fmt: skip
    conversation.user(value, author_id=value)
    conversation.add_item(a_call(value, value, json.dumps({value: value})))
    conversation.add_item({**an_output(value, value), "id": value, "status": value})
    conversation.add_item({"type": "web_search_call", value: {value: [value]}})
    body = an_answer(value, id=value, model=value, metadata={value: value})
    conversation.add_response(body, "open_responses", idempotency_key=value, provider=value)
    conversation.add_response(json.dumps(body), "open_responses")
    conversation.record_attempt("open_responses", error=value, model=value, status=value)
    found = elsewhere.get_conversation(conversation.id)
    items = [item.item.to_dict() for item in found.transcript()]
    assert [item["content"][0]["text"] for item in (items[0], items[1], items[-1])] == [value] * 3
    assert items[2] == a_call(value, value, json.dumps({value: value}))
    assert items[3] == {**an_output(value, value), "id": value, "status": value}
    assert items[4] == {"type": "web_search_call", value: {value: [value]}}
    assert (found.model, found.instructions, found.settings["metadata"]) == (value, value, {value: value})
    assert found.tools[0]["description"] == value
    assert found.get_item(1).author_id == value
    assert next(iter(found.responses())).provider_response_id == value
    assert [row.model for row in found.usage(by=("model",))] == [value]
    assert json.loads(found.response_body(0)) == body
    assert found.render("open_responses").body == conversation.render("open_responses").body
    sent = "".join("\ufffd" if "\ud800" <= letter <= "\udfff" else letter for letter in value)
    assert orjson.loads(found.request_body("open_responses"))["instructions"] == sent
    assert same(found.session().to_dict(), conversation.session().to_dict())


@by_name(NUMBERS)
def test_any_number_of_a_provider_comes_back(store: Any, elsewhere: Any, value: float) -> None:
    is_json = isinstance(value, int) or math.isfinite(value)
    conversation = store.create_conversation(
        model="m", extra={"open_responses": {"x": value if is_json else 1}},
        tools=[{"type": "function", "name": "t", "parameters": {"maximum": value if is_json else 1}}],
    )  # fmt: skip
    conversation.add_item({"type": "web_search_call", "x": [value, {"y": value}]}, known=False)
    conversation.add_response(an_answer("Hi", metadata={"x": value}), "open_responses")
    found = elsewhere.get_conversation(conversation.id)
    assert same(found.get_item(0).item.to_dict(), {"type": "web_search_call", "x": [value, {"y": value}]})
    assert same(found.settings["extra"], {"open_responses": {"x": value if is_json else 1}})
    assert same(found.tools[0]["parameters"], {"maximum": value if is_json else 1})
    assert same(json.loads(found.response_body(0))["metadata"], {"x": value})
    sent = [value, {"y": value}] if is_json else [None, {}]
    assert same(json.loads(found.request_body("open_responses"))["input"][0]["x"], sent)


@pytest.mark.parametrize("figure", [2**63, -1, 1.5, "many", math.nan, True], ids=str)
def test_any_figure_of_usage_is_survived(store: Any, conversation: Any, figure: Any) -> None:
    """The provider's own object is kept; a figure that is no count is unknown."""
    usage = {"input_tokens": figure, "output_tokens": 5}
    conversation.add_response(an_answer("Hi", usage=usage), "open_responses")
    assert conversation.usage().output_tokens == 5
    assert store.usage(by=("day",))[0].attempts == 1


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "1,024-deep JSON": (lambda c: c.add_item({"type": "x", "deep": nested(1_024)}), InvalidItem),
    "1,024-deep output": (lambda c: c.add_response(an_answer("x", deep=nested(1_024)), "open_responses"), InvalidItem),
    "100,000-deep text": (lambda c: c.add_response("[" * 100_000, "open_responses"), CannotParse),
    "a deep option": (lambda c: c.update(extra={"deep": nested(1_024)}), InvalidOption),
    "a deep tool": (lambda c: c.register_tool("t", parameters={"deep": nested(1_024)}), InvalidOption),
    "a datetime": (lambda c: c.add_item({"type": "x", "at": datetime.now(UTC)}), InvalidItem),
    "bytes": (lambda c: c.add_item({"type": "x", "data": b"x"}), InvalidItem),
    "a set": (lambda c: c.update(extra={"x": {1}}), InvalidOption),
    "a key that is no text": (lambda c: c.add_item({"type": "x", "data": {1: 2}}), InvalidItem),
    "no item": (lambda c: c.add_item(7), InvalidItem),
    "one of several": (lambda c: c.add_items([a_message(), {"role": "user", "content": 7}]), InvalidItem),
    "a loop": (lambda c: c.add_item({"type": "x", "loop": LOOP}), InvalidItem),
    "no content": (lambda c: c.user(None), InvalidItem),
    "an output that is no text": (lambda c: c.add_function_call_output(call_id="c", output=7), InvalidItem),
    "a long type": (lambda c: c.add_item({"type": "x" * LONG}), InvalidItem),
    "a long role": (lambda c: c.add_item(a_message("x", "r" * LONG)), InvalidItem),
    "U+0000 in a type": (lambda c: c.add_item({"type": "x\x00"}), InvalidItem),
    "an unknown option": (lambda c: c.update(temprature=1), InvalidOption),
    "an unknown view": (lambda c: c.render("open_responses", vision=1), InvalidOption),
    "an unknown server state": (lambda c: c.render("open_responses", server_state="all"), InvalidOption),
    "a position that is none": (lambda c: c.render("open_responses", upto="1"), InvalidOption),
    "an unknown format": (lambda c: c.render("soap"), UnknownFormat),
    "an unknown format of an answer": (lambda c: c.add_response(an_answer("x"), "soap"), UnknownFormat),
    "an unknown format of an attempt": (lambda c: c.record_attempt("soap"), UnknownFormat),
    "no format": (lambda c: c.add_response(an_answer("x"), None), UnknownFormat),
    "no JSON": (lambda c: c.add_response("<html>", "open_responses"), CannotParse),
    "nothing": (lambda c: c.add_response(b"", "chat_completion"), CannotParse),
    "null": (lambda c: c.add_response(None, "chat_completion"), CannotParse),
    "a list": (lambda c: c.add_response([1], "open_responses"), CannotParse),
    "an empty object": (lambda c: c.add_response({}, "chat_completion"), CannotParse),
    "bytes that are no text": (lambda c: c.add_response(b"\xff{}", "open_responses"), CannotParse),
    "a part of a stream": (
        lambda c: c.add_response({"object": "chat.completion.chunk", "choices": []}, "chat_completion"), CannotParse,
    ),
    "another request": (lambda c: c.add_response(an_answer("x"), "open_responses", rendered=7), InvalidOption),
    "an odd latency": (lambda c: c.add_response(an_answer("x"), "open_responses", latency_ms=-1), InvalidOption),
    "a long user_id": (lambda c: c.update(user_id="u" * LONG), InvalidOption),
    "a long external_id": (lambda c: c.update(external_id="é" * 128), InvalidOption),
    "a long label": (lambda c: c.update(labels={"k": "v" * LONG}), InvalidOption),
    "a long name of a label": (lambda c: c.update(labels={"k" * LONG: "v"}), InvalidOption),
    "a long author": (lambda c: c.user("Hi", author_id="a" * LONG), InvalidOption),
    "a long key": (lambda c: c.user("Hi", idempotency_key="k" * LONG), InvalidOption),
    "a key that grows": (lambda c: c.user("Hi", idempotency_key="\x00" * 50), InvalidOption),
    "a long provider": (lambda c: c.add_response(an_answer("x"), "open_responses", provider="p" * LONG), InvalidOption),
    "a long status": (lambda c: c.record_attempt("open_responses", status="s" * LONG), InvalidOption),
    "U+0000 in a title": (lambda c: c.update(title="a\x00"), InvalidOption),
    "a surrogate in a title": (lambda c: c.update(title="a\ud800"), InvalidOption),
}  # fmt: skip
LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_before_anything_is_written(conversation: Any, tables: Tables, name: str) -> None:
    call, error = REFUSED[name]
    conversation.user("Hi")
    written, rows = tables.written(), tables.rows("conversations", "id")
    with pytest.raises(error):
        call(conversation)
    assert written() == {}
    assert tables.rows("conversations", "id") == rows
    assert conversation.request_payload("open_responses")["input"][0]["content"][0]["text"] == "Hi"


@pytest.mark.parametrize(
    "options",
    [
        {"temprature": 1}, {"input": 7}, {"input": [{"type": "x", "deep": nested(1_024)}]}, {"tools": [7]},
        {"extra": {"x": {1}}}, {"user_id": "u" * LONG}, {"external_id": "e" * LONG}, {"labels": {"a": "b" * LONG}},
        {"title": "\x00"}, {"idempotency_key": "k" * LONG},
    ],
    ids=["unknown option", "input", "deep item", "tool", "extra", "user", "external id", "label", "title", "key"],
)  # fmt: skip
def test_no_conversation_is_created_of_it(store: Any, tables: Tables, options: dict[str, Any]) -> None:
    written = tables.written()
    with pytest.raises((InvalidItem, InvalidOption)):
        store.create_conversation(model="m", **options)
    assert written() == {}


def test_a_bad_session_among_many(store: Any, tables: Tables) -> None:
    """A batch is stored whole or not at all."""
    written = tables.written()
    bad = Session(model="m")
    bad.add_item({"type": "x" * LONG}, known=False)
    with pytest.raises(InvalidItem):
        store.save_many([Session(model="m", input="Hi"), bad])
    assert written() == {}


def test_ids_of_providers_have_any_length(conversation: Any, elsewhere: Any) -> None:
    long = "c" * LONG
    conversation.add_item({**a_call(long, "n" * LONG), "id": long, "status": "s" * LONG})
    conversation.add_response(an_answer("Hi", id=long, model="m" * LONG), "open_responses", idempotency_key="key")
    found = elsewhere.get_conversation(conversation.id)
    item = found.get_item(0).item.to_dict()
    assert (item["call_id"], item["id"], item["name"], item["status"]) == (long, long, "n" * LONG, "s" * LONG)
    [response] = found.responses()
    assert (response.provider_response_id, response.model) == (long, "m" * LONG)
    assert len(found.usage(by=("model",))) == 1


@pytest.mark.parametrize("model", ["\x00" * 120, "\\" * 120, "\ud800" * 40, "é" * 200, "\x00" * 3_000], ids=ascii)
def test_names_of_models_have_any_form(conversation: Any, elsewhere: Any, model: str) -> None:
    conversation.add_response(an_answer("Hi", model=model), "open_responses")
    conversation.record_attempt("open_responses", model=model)
    found = elsewhere.get_conversation(conversation.id)
    assert next(iter(found.responses())).model == model
    assert sum(row.attempts for row in found.usage(by=("model",))) == 2


def test_an_error_envelope_leaves_its_ledger_row(store: Any, conversation: Any, tables: Tables) -> None:
    for wire in ("open_responses", "chat_completion"):
        written = tables.written()
        with pytest.raises(ProviderError) as caught:
            conversation.add_response(an_error("a\x00\ud800"), wire, latency_ms=12.4)
        assert caught.value.code == "rate_limit_exceeded"
        assert written() == {"usage_records": 1}
    row = tables.rows("usage_records", "id")[0]
    assert (row["status"], row["latency_ms"], row["input_tokens"], row["response"]) == ("failed", 12, None, None)
    assert json.loads(row["error"])["message"] == "a\x00\ud800"
    assert store.usage(by=("status",))[0].attempts == 2


def test_an_unanswered_call_is_no_lossless_request(conversation: Any) -> None:
    conversation.user("Hi")
    conversation.add_item({"type": "input_audio_x", "x": 1}, known=False)
    with pytest.raises(LossError):
        conversation.render("chat_completion", strict=True)


def test_an_empty_append_is_nothing(conversation: Any, tables: Tables) -> None:
    written = tables.written()
    assert conversation.add_items([]) == []
    assert written() == {}
    assert conversation.user("Hi").position == 0


def test_a_position_beyond_the_end(conversation: Any) -> None:
    for position in (-1, 0, 7):
        with pytest.raises(NotFound):
            conversation.get_item(position)
