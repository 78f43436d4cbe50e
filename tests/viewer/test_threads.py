"""The page of a conversation: items, answers with what they cost, branches, pages by position, media."""

from __future__ import annotations

import base64
import math
import re
from functools import partial
from typing import Any

import pytest

from tests.factories import a_message, an_answer
from tests.viewer.conftest import MAX_STATEMENTS, Pages
from tests.viewer.samples import PNG, answer, ask, with_decisions, with_tools
from threadkeep.viewer import exporting, html_of, thread
from threadkeep.viewer.texts import Budget, markdown

ITEM = re.compile(r'<article class="item ([\w-]+)" id="p(\d+)"')
MAX_CELLS = 5_000
MAX_PAGE = 400_000  # characters
HASH = "a" * 64
LARGE = PNG + bytes(10_000)


def items(html: str) -> list[tuple[str, int]]:
    return [(found[1], int(found[2])) for found in ITEM.finditer(html)]


def test_a_call_is_shown_with_its_output_and_an_answer_with_its_cost(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    html = pages.get(f"/c/{conversation.id}")
    assert items(html) == [("user", 0), ("call", 1), ("assistant", 3)]
    for text in (
        "<strong>10:02</strong>", 'id="p2"', "timetable", "&#34;Bern&#34;", "100 in (60.0 % cached)", "20 out",
        "1.5 s", "900 ms", "stop", "Overloaded", "failed", "team=travel", conversation.id,
    ):  # fmt: skip
        assert text in html, text


def test_calls_with_the_same_id_are_shown_with_their_own_outputs(pages: Pages) -> None:
    conversation = pages.store.create_conversation()
    for number, names in enumerate((("hull", "york"), ("ely",))):
        calls = an_answer(id=f"resp_{number}", calls=("call_1",) * len(names))
        for call, name in zip(calls["output"], names, strict=True):
            call["name"] = name
        conversation.add_response(calls, "open_responses")
        for name in names:
            conversation.add_function_call_output(call_id="call_1", output=f"sun in {name}")
    html = pages.get(f"/c/{conversation.id}")
    assert items(html) == [("call", 0), ("call", 1), ("call", 4)]
    shown = re.findall(r'<h2 class="role">(\w+)</h2>|<pre tabindex="0">sun in (\w+)</pre>', html)
    assert [name or output for name, output in shown] == ["hull", "hull", "york", "york", "ely", "ely"]


@pytest.mark.parametrize("origin", ["messages", "gemini", "converse"])
def test_thoughts_are_texts_whoever_signed_them(pages: Pages, origin: str) -> None:
    thought = {"type": "thinking", "thinking": "It goes at **ten**.", "signature": "c2ln"}
    item = {"type": "reasoning", "origin": origin, "content": [thought]}
    page = pages.get(f"/c/{pages.store.create_conversation(input=[item]).id}")
    assert "It goes at <strong>ten</strong>." in page
    assert "signature" not in page


def test_decisions_and_feedback_are_in_sight(pages: Pages) -> None:
    conversation = with_decisions(pages.store)
    html = pages.get(f"/c/{conversation.id}")
    shown = re.findall(r">((?:approved|denied|waits)[^<]*)</span>", html)
    assert shown == ["approved by ben", "denied by chiara", "waits for its output, or a decision"]
    assert "Twice is too often." in html
    assert re.findall(r'class="author">(\w+)</span>.*?>rated (-?1) </span>([^<]+)', html) == [
        ("ann", "1", "Quick."), ("ben", "-1", "Too quick."),
    ]  # fmt: skip


def test_the_last_marks_of_each_kind_are_led_to_from_any_page(pages: Pages) -> None:
    conversation = with_decisions(pages.store)
    links = re.compile(r'class="chip \w*" title="(\w+)[^"]*: to the last one" href="\?branch=\d&amp;from=\d+#p(\d+)"')
    expected = [("Calls", "6"), ("Calls", "3"), ("Calls", "1"), ("Bad", "5"), ("Good", "5")]
    for query in ("", "?from=6"):
        assert links.findall(pages.get(f"/c/{conversation.id}{query}")) == expected
    conversation.fork(at=2).user("Something else")
    assert links.findall(pages.get(f"/c/{conversation.id}?branch=1")) == [("Calls", "1")]


def test_a_user_sees_no_feedback_of_others(pages: Pages) -> None:
    conversation = with_decisions(pages.store)
    for path in ("/", f"/c/{conversation.id}"):
        html = pages.get(path, user="ann")
        assert ("good ratings" in html, "bad ratings" in html, "Too quick" in html) == (True, False, False)


def test_a_call_that_the_model_went_on_without_is_not_waiting(pages: Pages) -> None:
    conversation = with_decisions(pages.store)
    assert "1 waiting" in pages.get("/")
    conversation.user("Never mind.")
    ask(conversation, answer("All right.", number=4))
    for path in ("/", f"/c/{conversation.id}"):
        assert "waiting" not in pages.get(path)
    assert "no output here" in pages.get(f"/c/{conversation.id}")


def test_markup_is_text(pages: Pages) -> None:
    conversation = pages.store.create_conversation(title="<b>", model="<i>", user_id="<u>")
    conversation.user("<script>alert(1)</script> [link](javascript:alert(1)) ![x](https://evil.example/a?b) \u202e")
    html = pages.get(f"/c/{conversation.id}")
    for found in ("<script>alert", "<b>", "<i>", "<u>", 'href="javascript', "<img", "\u202e"):
        assert found not in html, found
    assert r"\u202e" in html
    assert '<a href="https://evil.example/a?b" rel="noopener noreferrer nofollow">picture: x</a>' in html


def test_long_conversations_have_pages_by_position(pages: Pages) -> None:
    conversation = pages.store.create_conversation()
    conversation.add_items([{"role": "user", "content": f"number {number}"} for number in range(120)])
    address: str | None = f"/c/{conversation.id}"
    seen: list[int] = []
    while address is not None:
        html = pages.get(address)
        seen += [position for _, position in items(html)]
        following = re.search(r'rel="next" href="([^"]+)"', html)
        address = None if following is None else f"/c/{conversation.id}{following[1]}".replace("&amp;", "&")
    assert seen == list(range(120))
    assert items(pages.get(f"/c/{conversation.id}?from=117")) == [("user", 117), ("user", 118), ("user", 119)]


def test_each_call_is_on_one_page(pages: Pages) -> None:
    conversation = pages.store.create_conversation(model="gpt-5.4")
    for number in range(30):
        conversation.user("Again?")
        ask(conversation, answer("Yes.", number=number))
    counts = [pages.get(f"/c/{conversation.id}?from={start}").count("100 in") for start in (0, 50)]
    assert counts == [25, 5]


def test_variants_lead_to_each_other(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    edited = conversation.edit(0, "And to Rome?")
    html = pages.get(f"/c/{conversation.id}")
    assert "And to Rome?" in html
    assert "2 of 2" in html
    assert 'href="?branch=0&amp;from=0"' in html
    other = pages.get(f"/c/{conversation.id}?branch=0")
    assert "When does the next train go?" in other
    assert "1 of 2" in other
    assert f'href="?branch={edited.branch}&amp;from=0"' in other


def test_a_branch_says_where_it_was_forked(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    conversation.edit(0, "And to Rome?")
    conversation.fork(at=1)
    html = pages.get(f"/c/{conversation.id}")
    assert "shares nothing" in html
    assert "after #1<" in html
    assert "#-1" not in html


def test_branches_without_anything_new_are_no_variants(pages: Pages) -> None:
    """Neither here nor for `siblings`: there would be nothing to go on to."""
    conversation = with_tools(pages.store)
    empty = conversation.fork(at=0)
    assert len(conversation.siblings(1).variants) == 1
    assert 'aria-label="Variants"' not in pages.get(f"/c/{conversation.id}?branch=0")
    empty.user("And to Rome?")
    assert len(conversation.siblings(1).variants) == 2
    assert "1 of 2" in pages.get(f"/c/{conversation.id}?branch=0")


def test_media_are_shown_by_their_hash(pages: Pages) -> None:
    conversation = pages.store.create_conversation(user_id="ann")
    url = f"data:image/png;base64,{base64.b64encode(LARGE).decode()}"
    conversation.user([{"type": "input_image", "image_url": url}])
    address = re.search(r'src="(/media/\w+)"', pages.get(f"/c/{conversation.id}"))
    assert address
    response = pages.client("ann").get(address[1])
    assert (response.content, response.headers["content-type"]) == (LARGE, "image/png")
    assert "sandbox" in response.headers["content-security-policy"]
    assert pages.client("ben").get(address[1]).status_code == 404


@pytest.mark.parametrize("media_type", ["text/html", "image/svg+xml", "application/javascript"])
def test_other_media_are_downloads(pages: Pages, media_type: str) -> None:
    conversation = pages.store.create_conversation()
    text = base64.b64encode(b"<script>alert(1)</script>" * 1_000).decode()
    part = {"type": "input_file", "filename": "a.html", "file_data": f"data:{media_type};base64,{text}"}
    conversation.user([part])
    html = pages.get(f"/c/{conversation.id}")
    address = re.search(r'href="(/media/\w+)" download', html)
    assert address
    response = pages.client().get(address[1])
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["content-disposition"].startswith("attachment")
    assert response.headers["x-content-type-options"] == "nosniff"


def test_tables_of_few_characters_and_many_cells_are_text(pages: Pages) -> None:
    wide = f"{'|a' * 250}|\n{'|-' * 250}|\n" + "|x\n" * 300
    narrow = f"{'|a' * 20}|\n{'|-' * 20}|\n" + "|x\n" * 3_000
    for table in (wide, narrow):
        conversation = pages.store.create_conversation()
        conversation.user([{"type": "input_text", "text": table}] * 2)
        for html in (pages.get(f"/c/{conversation.id}"), pages.get(f"/c/{conversation.id}/items")):
            assert html.count("<td") <= MAX_CELLS
            assert len(html) < MAX_PAGE
        assert html_of(pages.store, conversation.id).count("<td") <= 10 * MAX_CELLS


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Markdown may take any time: how much it takes depends on the garbage of other tests, too."""
    monkeypatch.setattr(thread, "Budget", partial(Budget, seconds=math.inf))


@pytest.mark.usefixtures("unhurried")
def test_tables_of_usual_size_are_tables(pages: Pages) -> None:
    conversation = pages.store.create_conversation()
    conversation.user("Some text, and\n\n> " + f"{'|a' * 20}|\n> {'|-' * 20}|\n" + f"> {'|x' * 20}|\n" * 50)
    conversation.user(("|a|b|\n|-|-|\n" + "|x|y|\n" * 50 + "\n") * 10)
    html = pages.get(f"/c/{conversation.id}")
    assert html.count("<td>") == 20 * 50 + 2 * 50 * 10


@pytest.mark.usefixtures("unhurried")
def test_markdown_beyond_a_limit_is_text(pages: Pages) -> None:
    conversation = pages.store.create_conversation()
    conversation.user([{"type": "input_text", "text": "**word** " * 2_000}] * 15)
    html = pages.get(f"/c/{conversation.id}")
    assert html.count("<strong>word</strong>") == 2_000 * 5
    assert html.count("**word**") >= 2_000 * 10


@pytest.mark.parametrize(
    "name",
    ["../record/llama/steal?x=1", "", "A" * 64, f"{'a' * 64}/x", f"{'a' * 64}\n", f"threadkeep-media:{'a' * 64}"],
)
def test_only_hashes_are_addresses_of_media(pages: Pages, name: str) -> None:
    conversation = pages.store.create_conversation()
    parts = [
        {"type": "input_image", "image_url": f"threadkeep-media:{name}"},
        {"type": "input_file", "filename": "a.txt", "file_url": f"threadkeep-media:{name}"},
    ]
    conversation.add_item({"role": "user", "content": parts}, known=False)
    html = pages.get(f"/c/{conversation.id}")
    assert "/media/" not in html
    assert "image (threadkeep-media:" in html
    assert "a.txt (threadkeep-media:" in html


def test_what_is_not_there_is_not_found(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    for path in (f"/c/{conversation.id}?branch=7", "/c/conv_1", "/media/nothing", f"/media/{'0' * 64}"):
        assert "Not found" in pages.get(path, status=404)
    assert "Not found" in pages.get(f"/c/{conversation.id}", user="ben", status=404)
    assert "whole number" in pages.get(f"/c/{conversation.id}?from=x", status=400)


def test_a_page_takes_a_few_statements(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    assert pages.statements(f"/c/{conversation.id}") <= MAX_STATEMENTS
    original = conversation
    for _ in range(3):
        conversation = original.edit(0, "And to Rome?")
    url = f"data:image/png;base64,{base64.b64encode(LARGE).decode()}"
    stored: Any = conversation.user([{"type": "input_image", "image_url": url}])
    conversation.label_item(stored.position, {"kind": "picture"})
    conversation.set_feedback(stored.position, rating=1, comment="Good")
    html = pages.get(f"/c/{conversation.id}")
    assert "kind=picture" in html
    assert re.search(r'<li class="good".*rated 1 .*Good</span></li>', html)
    assert pages.statements(f"/c/{conversation.id}") <= MAX_STATEMENTS


SLOW_TEXTS = ["![" * 10_000, "[" * 20_000, "1. a\n" * 4_000, "**x* " * 4_000]  # the square of their length in steps


def test_markdown_that_takes_long_is_plain_once_its_time_is_over() -> None:
    budget = Budget(characters=10**9, seconds=0.3)
    shown = [markdown(text, budget) for _ in range(40) for text in SLOW_TEXTS]
    assert budget.seconds <= 0
    assert shown[-1].startswith('<div class="plain">')
    assert not shown[0].startswith('<div class="plain">')
    assert markdown("**bold**", Budget()) == "<p><strong>bold</strong></p>\n"


def test_all_of_an_export_has_one_budget(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "PAGE", 2)
    monkeypatch.setattr(exporting, "MAX_MARKDOWN", 60)
    conversation = pages.store.create_conversation(input=[a_message(f"**{n}** " + "x" * 20) for n in range(5)])
    html = html_of(pages.store, conversation.id)
    assert [f"<strong>{number}</strong>" in html for number in range(5)] == [True, True, False, False, False]
    exported = pages.client("all").get(f"/c/{conversation.id}/export/html").text
    assert exported.count("<strong>") == html.count("<strong>")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of at most 20,000 characters of texts."""
    monkeypatch.setattr(thread, "Budget", partial(Budget, shown=20_000))


def parts_of_every_kind() -> list[Any]:
    """Items with 8,000 characters each, at every place that is shown."""
    text = "x" * 8_000
    return [
        a_message(text),
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}] * 3},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": text}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": text},
        {"type": "function_call_output", "call_id": "c", "output": text},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]},
        {"type": "x_other", "data": text},
        {"type": "message", "role": "user", "content": [
            {"type": "input_file", "filename": text, "file_url": f"https://example.com/{text}"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{text}"},
        ]},
    ]  # fmt: skip


@pytest.mark.usefixtures("small")
def test_texts_of_a_page_have_a_limit(pages: Pages) -> None:
    for one in parts_of_every_kind():
        for items_before in (0, 3):
            conversation = pages.store.create_conversation(input=[a_message("x" * 8_000)] * items_before)
            conversation.add_items([one] * 3, known=False)
            html = pages.get(f"/c/{conversation.id}")
            assert html.count("x") < 27_000, one["type"]
            assert len(items(html)) >= items_before + 1
            if items_before:
                assert re.search(r"… \([\d,]+ (characters|more parts)\)|image/png, [\d,]+ characters|xxx…\)", html)


@pytest.mark.usefixtures("small")
def test_parts_and_errors_of_a_page_have_a_limit(pages: Pages) -> None:
    conversation = pages.store.create_conversation()
    conversation.user([{"type": "input_text", "text": "x"}] * 5_000)
    html = pages.get(f"/c/{conversation.id}")
    assert html.count('<div class="md">') <= 100
    assert re.search(r"… \(4,9\d\d more parts\)", html)
    conversation = pages.store.create_conversation()
    conversation.user("Hello")
    for _ in range(5):
        error = {"error": {"message": "y" * 8_000, "type": "server_error"}}
        conversation.record_attempt("chat_completion", error=error, provider="openai")
    assert pages.get(f"/c/{conversation.id}").count("y") < 27_000


def test_a_page_of_long_messages_is_not_longer_than_a_few_megabytes(pages: Pages) -> None:
    conversation = pages.store.create_conversation()
    conversation.user([{"type": "input_text", "text": "<&" * 50_000}] * 40)
    for path in (f"/c/{conversation.id}", f"/c/{conversation.id}/items"):
        assert len(pages.get(path)) < 10_000_000


def test_what_is_said_of_a_conversation_has_a_limit(pages: Pages) -> None:
    tools = [{"type": "function", "name": f"f{number}", "description": "z" * 5_000} for number in range(250)]
    conversation = pages.store.create_conversation(instructions="w" * 300_000, tools=tools)
    html = pages.get(f"/c/{conversation.id}")
    assert html.count("w" * 1_000) <= 100
    assert "… (300,000 characters)" in html
    assert "… (50 more)" in html
    assert html.count("z") < 2_000 * 200


@pytest.mark.parametrize(
    ("tool", "shown"),
    [
        ({"type": "function", "name": "lookup", "description": "Looks up."}, "<code>lookup</code> Looks up."),
        ({"type": "web_search"}, "<code>web_search</code>"),
        ({"type": "custom", "name": "python", "description": None}, "<code>custom python</code>"),
        ({"type": "mcp", "server_label": "wiki", "server_url": "https://x.test"}, "<code>mcp wiki</code>"),
        ({"type": "provider_tool", "format": "messages", "payload": {"type": "bash_20250124", "name": "bash"}},
         "<code>bash_20250124 bash</code>"),
        ({"type": "provider_tool", "format": "gemini", "payload": {"googleSearch": {}}}, "<code>provider_tool</code>"),
        ({"type": "new_kind", "name": 7, "description": ["odd"]}, "<code>new_kind</code>"),
    ],
)  # fmt: skip
def test_tools_of_any_type_are_named(pages: Pages, tool: dict[str, Any], shown: str) -> None:
    conversation = pages.store.create_conversation(tools=[tool])
    assert f"<li>{shown}</li>" in pages.get(f"/c/{conversation.id}")
    assert f"<li>{shown}</li>" in html_of(pages.store, conversation.id)


def test_a_call_its_output_and_how_long_it_took_are_apart(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    html = pages.get(f"/c/{conversation.id}")
    call = html[html.index("timetable") :]
    for text in ('<span class="chip">call</span>', 'class="took"', '<span class="chip">output</span>', "10:02"):
        assert text in call


def test_errors_and_empty_answers_are_said_in_words(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    conversation.user("And then?")
    ask(conversation, answer(None, number=3))
    html = pages.get(f"/c/{conversation.id}")
    assert "The call failed." in html
    assert "<summary>Overloaded</summary>" in html
    assert "The answer is empty." in html
