"""Texts that are no Unicode: whoever stores a lone surrogate breaks no page, for nobody."""

from __future__ import annotations

import httpx2
import pytest

from tests.factories import a_call, an_answer, an_output
from tests.server.conftest import Bridge
from tests.viewer.conftest import Pages
from threadkeep.http import rest_app

ODD = "odd\ud800\udfffd"
SHOWN = r"odd\ud800\udfffd"
COLUMNS = ("model", "user_id", "provider")
WITHOUT = ("/x/branches", "/search?q=odd")  # lists in which none of the texts is


@pytest.fixture
def odd(pages: Pages) -> str:
    """A conversation in which each text that somebody gives is odd."""
    store = pages.store.for_user(ODD)
    conversation = store.create_conversation(
        model=ODD, instructions=ODD, external_id=ODD, labels={ODD: ODD}, properties={ODD: ODD},
        metadata={ODD: ODD},
    )  # fmt: skip
    question = conversation.user(ODD, author_id=ODD)
    body = an_answer(ODD, calls=(ODD,), model=ODD, id=ODD, error={"code": ODD, "message": ODD})
    body["output"][-1] |= {"name": ODD, "arguments": f'{{"{ODD}": "{ODD}"}}'}
    conversation.add_response(body, "open_responses", provider=ODD)
    conversation.add_item(an_output(ODD, ODD))
    conversation.add_item(a_call(ODD, ODD, ODD))
    conversation.deny(conversation.head, reason="No.", decided_by=ODD)
    conversation.set_feedback(question.position, user_id=ODD, rating=1)
    conversation.label_item(question.id, {ODD: ODD})
    conversation.set_state(ODD, {ODD: ODD})
    return conversation.id


@pytest.mark.parametrize(
    "path",
    [
        "/", "/?q=odd", "/search?q=odd", "/c/{id}", "/c/{id}/items?from=0", "/c/{id}/responses/0", "/usage",
        "/usage/tools", *(f"/usage.csv?by={name}" for name in COLUMNS),
        *(f"/c/{{id}}/export/{kind}" for kind in ("html", "markdown", "jsonl")),
    ],
)  # fmt: skip
def test_every_page_shows_them(pages: Pages, odd: str, path: str) -> None:
    assert SHOWN in pages.get(path.format(id=odd))


@pytest.mark.parametrize("path", ["", "/x", "/x/messages", "/x/states", *WITHOUT, "/usage?by=model"])
def test_every_list_has_them(pages: Pages, odd: str, path: str) -> None:
    application = rest_app(pages.shared, auth=pages.authenticate)
    headers = {"Authorization": "Bearer all"}
    with httpx2.Client(
        transport=Bridge(pages.runner, application), base_url="http://localhost/api", headers=headers
    ) as api:
        place = path if path.startswith(("/search", "/usage")) else f"/conversations{path.replace('x', odd)}"
        answer = api.get(place)
        assert (answer.status_code, r"\ud800" in answer.text) == (200, path not in WITHOUT), answer.text
