"""What the model saw: requests in every format, losses and repairs, differences, and the body as received."""

from __future__ import annotations

import base64
import html
import json
import re
import sys
from collections import Counter
from hashlib import sha256
from typing import Any

import pytest

from tests.viewer.conftest import MAX_STATEMENTS, Pages, text_of_tree
from tests.viewer.samples import PNG, answer, ask, with_tools
from threadkeep.formats import NAMES
from threadkeep.viewer import requests
from threadkeep.viewer.requests import Comparison, difference, read_seen

LARGE = PNG + bytes(10_000)


def shown(page: str) -> Any:
    """The JSON that a page shows."""
    return json.loads(text_of_tree(page.partition('<div class="whole">')[2]))


@pytest.mark.parametrize("format", NAMES)
def test_the_request_of_an_answer_in_any_format(pages: Pages, format: Any) -> None:
    conversation = with_tools(pages.store)
    conversation.user("And then?")
    page = pages.get(f"/c/{conversation.id}/responses/1?format={format}")
    assert shown(page) == conversation.render(format, upto=2).payload


@pytest.mark.parametrize("format", NAMES)
def test_stored_media_are_references(pages: Pages, format: Any) -> None:
    conversation = pages.store.create_conversation(model="m")
    picture, data = (base64.b64encode(one).decode() for one in (LARGE, b"%PDF-1.4\n" + bytes(9_000)))
    file = {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{data}"}
    conversation.user([{"type": "input_image", "image_url": f"data:image/png;base64,{picture}"}, file])
    ask(conversation, answer("A dot."))
    rendered = conversation.render(format, upto=0)
    expected = json.dumps(rendered.payload)
    for text in (picture, data):
        expected = expected.replace(text, f"threadkeep-media:{sha256(base64.b64decode(text)).hexdigest()}")
    path = f"/c/{conversation.id}/responses/0?format={format}"
    html = pages.get(path)
    assert shown(html) == json.loads(expected)
    assert "threadkeep-media:" in html
    assert all(loss.code in html for loss in rendered.losses)
    assert picture[:100] not in pages.get(f"{path}&show=changes")


def test_what_looks_like_the_mark_of_a_picture_is_text(pages: Pages) -> None:
    conversation = pages.store.create_conversation(model="m")
    forged = base64.b64encode(f"threadkeep-mark:{'a' * 64}:{'b' * 16}  ".encode()).decode()
    conversation.user(forged)
    ask(conversation, answer("Hm?"))
    [message] = shown(pages.get(f"/c/{conversation.id}/responses/0"))["messages"]
    assert forged in json.dumps(message)


def test_an_answer_is_shown_in_its_own_format_first(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    [message] = shown(pages.get(f"/c/{conversation.id}/responses/0"))["messages"]
    assert message["content"] == [{"type": "text", "text": "When does the next train go?"}]


def test_losses_lead_to_their_items(pages: Pages) -> None:
    conversation = pages.store.create_conversation(model="m")
    conversation.add_items([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}])
    conversation.user("Hello")
    ask(conversation, answer("Hi"))
    page = pages.get(f"/c/{conversation.id}/responses/0?format=chat_completion")
    assert "Losses" in page
    assert '#p0">#0</a>' in page


def test_what_is_new_since_the_answer_before(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    page = pages.get(f"/c/{conversation.id}/responses/1?show=changes")
    added = [html.unescape(line) for line in re.findall(r'<span class="add">(.*?)</span>', page)]
    assert any("10:02" in line for line in added)
    assert not any("When does the next train go?" in line for line in added)
    assert "nothing to compare" in pages.get(f"/c/{conversation.id}/responses/0?show=changes")


def test_an_answer_on_a_branch_is_compared_with_that_before_it_there(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    edited = conversation.edit(0, "And to Rome?")
    ask(edited, answer("At noon.", number=3))
    page = pages.get(f"/c/{conversation.id}/responses/2?show=changes")
    assert "nothing to compare" in page
    edited.user("Thanks")
    ask(edited, answer("You are welcome.", number=4))
    page = pages.get(f"/c/{conversation.id}/responses/3?show=changes")
    assert '/responses/2">answer 2' in page
    assert "At noon." in page


def test_the_body_as_it_was_received(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    body = answer("At **10:02**.", number=2)
    assert shown(pages.get(f"/c/{conversation.id}/responses/1?show=body")) == body
    response = pages.client().get(f"/c/{conversation.id}/responses/1/body")
    assert json.loads(response.content) == body
    assert response.headers["content-disposition"].startswith("attachment")


def test_what_cannot_be_shown(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    path = f"/c/{conversation.id}/responses"
    for wrong in (f"{path}/7", f"{path}/x", f"{path}/0?show=other", f"{path}/7/body"):
        assert "Not found" in pages.get(wrong, status=404)
    assert "Not found" in pages.get(f"{path}/0", user="ben", status=404)
    assert "This cannot be shown" in pages.get(f"{path}/0?format=other", status=400)


def test_long_differences_stay_quick() -> None:
    old = [f"line {number}" for number in range(4_000)]
    new = [*old[:2_000], "other", *old[2_000:]]
    lines = list(difference(old, new))
    assert [line.text for line in lines if line.kind == "add"] == ["+ other"]
    assert len(lines) < 20


def entangled(count: int) -> tuple[list[str], list[str]]:
    """Requests of which many lines are alike: each common block is one line, and may stand at many places."""
    return ["a"] * count, [line for number in range(count) for line in ("a", f"other {number}")]


def calls_of(function: Any) -> int:
    """How many functions are called, of any kind: the comparison calls one for each pair of equal lines."""
    counted: Counter[str] = Counter()
    before = sys.getprofile()
    sys.setprofile(lambda _frame, event, _argument: counted.update([event]))
    try:
        function()
    finally:
        sys.setprofile(before)
    return counted["call"] + counted["c_call"]


def test_lines_that_repeat_are_compared_in_a_bounded_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_STEPS", 20_000)
    for count in (50, 100, 200):
        old, new = entangled(count)
        assert calls_of(lambda old=old, new=new: list(difference(old, new))) < 2 * 20_000 + 100 * count
        lines = list(difference(old, new))
        assert [line.text[2:] for line in lines if line.kind == "add"][-1] == new[-1]


def test_requests_are_compared_once_they_were_read(pages: Pages) -> None:
    conversation = pages.store.create_conversation(model="m")
    conversation.user("Hello")
    for number, values in enumerate(entangled(100)):
        parameters = {"type": "object", "properties": {"x": {"enum": values}}}
        conversation.register_tools([{"type": "function", "name": "f", "parameters": parameters}])
        ask(conversation, answer("Hi", number=number))
    page = f"/c/{conversation.id}/responses/1?show=changes"
    assert 'class="add">+                 &#34;other 99&#34;' in pages.get(page)
    assert calls_of(lambda: read_seen(pages.store, conversation.id, 1, None, "changes")) < 20_000


def test_a_change_in_the_middle_of_a_long_request_is_found_among_lines_that_repeat() -> None:
    old = ["{", "  text", "}"] * 1_200
    new = [*old[:900], "first", *old[900:1_200], "second", *old[1_200:1_500], "third", *old[1_500:]]
    changes = [line for line in difference(old, new) if line.kind in ("add", "del")]
    assert [line.text for line in changes] == ["+ first", "+ second", "+ third"]
    comparison = Comparison(*entangled(400))
    comparison.get_opcodes()
    assert comparison.steps < 2 * requests.MAX_STEPS


def test_pages_take_a_few_statements(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    path = f"/c/{conversation.id}/responses/1"
    for query in ("", "?format=gemini", "?show=changes", "?show=body"):
        assert pages.statements(path + query) <= MAX_STATEMENTS
