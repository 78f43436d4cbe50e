"""Texts that attack whoever reads them, in every field, in a real browser: nothing runs, nothing is asked elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser

from tests.viewer.browser.conftest import Watched, serving, watching
from tests.viewer.samples import PNG, answer
from threadkeep import Conversation, Store
from threadkeep.viewer import html_of

pytestmark = pytest.mark.slow  # a browser takes longer to start than the pages to draw

ATTACKS = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</textarea></style></noscript><img src=x onerror=alert(1)>",
    '"><img src=x onerror=alert(1)>',
    "'\"--><svg onload=alert(1)>",
    '" autofocus onfocus=alert(1) x="',
    "<iframe srcdoc='<script>parent.alert(1)</script>'></iframe>",
    "<img src=https://evil.example/a.png>",
    "<link rel=stylesheet href=https://evil.example/a.css>",
    "<style>@import 'https://evil.example/b.css'</style>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<base href=https://evil.example/>",
    "<form action=https://evil.example/><button>go</button></form>",
    "{{ 7 * 7 }}{% raw %}${7*7}",
    "javascript:alert(1)",
    "[link](javascript:alert(1))",
    "[link](data:text/html,<script>alert(1)</script>)",
    "[link](  JaVaScRiPt:alert(1))",
    "[link](vbscript:x) <javascript:alert(1)>",
    "![picture](https://evil.example/pixel.png?secret)",
    '![picture](x "onerror=alert(1)")',
    "[ref]: javascript:alert(1)\n[ref]",
    '[a](https://evil.example/ ""onmouseover=alert(1)")',
    "`<script>alert(1)</script>`\n\n```html\n<script>alert(1)</script>\n```",
    "| a | <img src=x onerror=alert(1)> |\n| - | - |\n| <script>alert(1)</script> | b |",
    "<!--<script>alert(1)//--><!--><script>alert(1)</script>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "\u202ereversed\u202c \u200b\u2066hidden\u2069 \x1b[31mred",
    "&lt;script&gt;alert(1)&lt;/script&gt; &#x3C;img src=x onerror=alert(1)&#x3E;",
)
ALL = "\n\n".join(ATTACKS)
LINKS = "[...document.querySelectorAll('a')].map(one => new URL(one.href.baseVal ?? one.href, location).protocol)"


def attacked(store: Store, attack: str, number: int) -> Conversation:
    """A conversation with an attack in every field."""
    conversation = store.create_conversation(
        model=attack[:200], title=attack[:1_000], user_id=attack[:200], labels={"note": attack[:200]},
        external_id=f"{number}{attack}"[:200], instructions=attack, properties={"key": attack[:400]},
        tools=[{"type": "function", "name": "tool", "description": attack}],
    )  # fmt: skip
    data = f"data:image/svg+xml;base64,{base64.b64encode(b'<svg onload=alert(1)>').decode()}"
    content: list[Any] = [
        {"type": "input_text", "text": attack},
        {
            "type": "input_file",
            "filename": attack,
            "file_data": f"data:text/html;base64,{base64.b64encode(PNG).decode()}",
        },
        {"type": "input_image", "image_url": "https://evil.example/pixel.png"},
        {"type": "input_image", "image_url": data},
        {"type": "input_image", "image_url": f"threadkeep-media:../c/x?{attack}"},
    ]
    message = {"type": "message", "role": "user", "content": content}
    stored = conversation.add_item(message, author_id=attack[:200], known=False)
    conversation.label_item(stored.position, {"note": attack[:200]})
    conversation.set_feedback(stored.position, comment=attack)
    call = {"name": attack, "arguments": attack}
    body = answer(attack, number=number, call=call)
    body["model"], body["choices"][0]["finish_reason"] = attack, attack
    conversation.add_response(body, "chat_completion", provider=attack[:200])
    conversation.deny(f"call_{number}", reason=attack, decided_by=attack[:200])
    conversation.add_item({"type": "reasoning", "summary": [{"type": "summary_text", "text": attack}]})
    conversation.add_item({"type": "message", "role": attack[:100], "content": attack}, known=False)
    conversation.add_item({"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": attack}]})
    conversation.add_item({"type": f"x_{number}", "data": attack}, known=False)
    conversation.record_attempt("chat_completion", error={"error": {"message": attack}}, model=attack[:200])
    return conversation


@pytest.fixture(scope="module")
def attacks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str], Store]]:
    url = f"sqlite:///{tmp_path_factory.mktemp('attacks')}/attacks.db"
    with Store(url) as store:
        ids = [attacked(store, attack, number).id for number, attack in enumerate((*ATTACKS, ALL))]
        with serving(url) as address:
            yield address, ids, store


def open_everything(watched: Watched, path: str) -> None:
    page = watched.page
    response = page.goto(watched.address + path)
    assert response is not None
    assert response.status == 200
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    for handler in ("a", "button", "img"):
        assert page.locator(f"{handler}[onclick], {handler}[onerror], {handler}[onmouseover]").count() == 0
    links = page.evaluate(LINKS)
    assert set(links) <= {"http:", "https:", "mailto:"}


def test_nothing_of_a_conversation_runs(chromium: Browser, attacks: tuple[str, list[str], Store]) -> None:
    address, ids, _ = attacks
    with watching(chromium, address) as watched:
        for one in ids:
            open_everything(watched, f"/c/{one}")


def test_nothing_of_other_pages_runs(chromium: Browser, attacks: tuple[str, list[str], Store]) -> None:
    address, ids, _ = attacks
    with watching(chromium, address) as watched:
        for path in ("/", "/search?q=alert", "/search?q=script", "/usage"):
            open_everything(watched, path)
        for one in ids[:-1:4]:
            for query in ("", "?format=gemini", "?show=body"):
                open_everything(watched, f"/c/{one}/responses/0{query}")


def test_nothing_of_an_address_runs(chromium: Browser, attacks: tuple[str, list[str], Store]) -> None:
    address, _, _ = attacks
    with watching(chromium, address) as watched:
        for attack in ATTACKS[:10]:
            for name, path in (("q", "/search"), ("user", "/"), ("model", "/usage"), ("on", "/"), ("from", "/c/x")):
                watched.page.goto(f"{address}{path}?{urlencode({name: attack})}")
        watched.problems = [problem for problem in watched.problems if "status of 40" not in problem]  # as it should


def test_nothing_of_a_file_runs(chromium: Browser, attacks: tuple[str, list[str], Store], tmp_path: Path) -> None:
    _, ids, store = attacks
    file = tmp_path / "all.html"
    file.write_text(html_of(store, ids[-1]), encoding="utf-8")
    with watching(chromium, file.as_uri()) as watched:
        watched.page.goto(file.as_uri())
        watched.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert watched.page.locator("article").count() > 5
        assert watched.page.evaluate("getComputedStyle(document.querySelector('article')).borderRadius") != "0px"


def test_what_nobody_sees_is_written_out(chromium: Browser, attacks: tuple[str, list[str], Store]) -> None:
    address, ids, _ = attacks
    with watching(chromium, address) as watched:
        page = watched.open(f"/c/{ids[28]}")
        text = page.locator("body").inner_text()
        assert r"\u202ereversed\u202c" in text
        assert "\u202e" not in text
        assert r"\u200b" in text
