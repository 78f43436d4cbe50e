"""What the model saw: requests in every format, losses and repairs, differences, and the body as received."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest

from tests.viewer.conftest import MAX_STATEMENTS, Pages
from tests.viewer.samples import answer, ask, with_tools
from threadkeep.formats import NAMES
from threadkeep.viewer.seen import difference


def shown(page: str) -> Any:
    """The JSON that a page shows."""
    found = re.search(r'<pre class="payload"[^>]*>(.*?)</pre>', page, re.DOTALL)
    assert found
    return json.loads(html.unescape(found[1]))


@pytest.mark.parametrize("format", NAMES)
def test_the_request_of_an_answer_in_any_format(pages: Pages, format: Any) -> None:
    conversation = with_tools(pages.store)
    conversation.user("And then?")
    page = pages.get(f"/c/{conversation.id}/responses/1?format={format}")
    assert shown(page) == conversation.render(format, upto=2).payload


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


def test_pages_take_a_few_statements(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    path = f"/c/{conversation.id}/responses/1"
    for query in ("", "?format=gemini", "?show=changes", "?show=body"):
        assert pages.statements(path + query) <= MAX_STATEMENTS
