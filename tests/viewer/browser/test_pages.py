"""Every page and flow in a real browser: wide, narrow and dark, by mouse and keys, with and without JavaScript."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.viewer.browser.conftest import Watched, serving, watching
from tests.viewer.samples import with_decisions
from threadkeep import Store
from threadkeep.viewer import Owner

pytestmark = pytest.mark.slow  # a browser takes longer to start than the pages to draw

WIDE: ViewportSize = {"width": 1280, "height": 860}
HUGE: ViewportSize = {"width": 2200, "height": 1200}
PHONE: ViewportSize = {"width": 360, "height": 740}
# Rules of axe that are about more than our own pages
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="session")
def paths(month: str) -> dict[str, str]:
    """The pages, by name."""
    with Store(month) as store:
        newest = store.list_summaries(limit=2).items
        [hit] = store.search_conversations("12a", status=None, role="user", limit=1)
        thread = f"/c/{hit.conversation_id}"
        branched = next(
            one.id for one in store.list_summaries(limit=100) if one.branch_count > 1 and one.item_count > 3
        )
    return {
        "list": "/", "errors": "/?errors=1&status=any", "thread": thread, "branches": f"/c/{branched}",
        "request": f"{thread}/responses/1?format=gemini", "changes": f"{thread}/responses/1?show=changes",
        "body": f"{thread}/responses/1?show=body", "search": "/search?q=order", "usage": "/usage",
        "tools": "/usage/tools", "live": "/?live=3600",
        "filtered": "/usage/tools?user=ann&label=team%3Dsupport&days=14&view=Support",
        "variants": f"/compare?c={branched}%3Fbranch%3D0&c={branched}%3Fbranch%3D1",
        "pair": f"/compare?c={newest[0].id}&c={newest[1].id}", "other": f"/compare?c={newest[0].id}",
    }  # fmt: skip


NAMES = ("list", "errors", "thread", "branches", "request", "changes", "body", "search", "usage", "tools",
         "filtered", "variants", "pair", "other")  # fmt: skip
LOOKS = {"wide": (WIDE, "light"), "dark": (WIDE, "dark"), "phone": (PHONE, "light")}


@pytest.mark.parametrize(("viewport", "scheme"), LOOKS.values(), ids=LOOKS)
def test_everybody_can_use_pages(
    chromium: Browser, site: str, paths: dict[str, str], axe: str, viewport: Any, scheme: Any
) -> None:
    with watching(chromium, site, viewport=viewport, color_scheme=scheme, bypass_csp=True) as watched:
        for name in (*NAMES, "live"):
            page = watched.open(paths[name])
            page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            assert serious_problems(page, axe) == [], name


def serious_problems(page: Page, axe: str) -> list[tuple[str, str]]:
    """What people who use assistive technology cannot use."""
    page.evaluate(axe)
    found = page.evaluate("axe.run({resultTypes: ['violations']})")
    return [(one["id"], one["nodes"][0]["html"]) for one in found["violations"] if one["impact"] in SERIOUS]


@pytest.mark.parametrize(("viewport", "scheme"), LOOKS.values(), ids=LOOKS)
def test_administrators_can_use_pages(chromium: Browser, tmp_path: Path, axe: str, viewport: Any, scheme: Any) -> None:
    url = f"sqlite:///{tmp_path}/tenants.db"
    with Store(url, tenants=True) as store:
        for name in ("acme", "A long name of many words " * 7, "Donaudampfschifffahrt" * 9):
            with_decisions(store.create_tenant(name))
    administrator = Owner(scopes=frozenset({"usage", "tenants"}))
    with (
        serving(url, tenants=True, auth=lambda _: administrator) as address,
        watching(chromium, address, viewport=viewport, color_scheme=scheme, bypass_csp=True) as watched,
    ):
        page = watched.open("/tenants")
        for _ in range(2):
            page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            assert serious_problems(page, axe) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
            page.get_by_role("link", name="Donau").or_(page.get_by_role("link", name="Tenants").last).first.click()


def test_pages_are_as_wide_as_the_window(chromium: Browser, site: str, paths: dict[str, str]) -> None:
    with watching(chromium, site, color_scheme="dark") as watched:
        for name in NAMES:
            page = watched.open(paths[name])
            page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            for viewport in (PHONE, HUGE):
                page.set_viewport_size(viewport)
                assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"], name


def test_colors_follow_the_system(chromium: Browser, site: str) -> None:
    def background(scheme: Any) -> tuple[int, ...]:
        with watching(chromium, site, color_scheme=scheme) as watched:
            page = watched.open("/")
            color: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
            return tuple(map(int, re.findall(r"\d+", color)[:3]))

    assert min(background("light")) > 200
    assert max(background("dark")) < 60


def test_from_the_list_to_what_the_model_saw_and_back(view: Watched) -> None:
    page = view.open("/")
    links, call = page.get_by_role("link", name="Where is order 48213?"), page.locator("article.call").first
    for number in range(links.count()):  # which of these conversations have calls depends on the day
        links.nth(number).click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Where is order 48213?")
        if call.count():
            break
        page.go_back()
    expect(call.locator(".json").first).to_be_hidden()
    call.locator("summary").first.click()
    expect(call.get_by_role("heading", name="Output")).to_be_visible()
    page.get_by_role("link", name="What the model saw").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("What the model saw")
    page.get_by_role("link", name="converse").click()
    expect(page.locator(".whole")).to_contain_text("toolSpec")
    page.get_by_role("link", name="Answer as received").click()
    expect(page.locator(".whole")).to_contain_text("usage", ignore_case=True)
    page.get_by_role("link", name="its items").click()
    expect(page.locator(":target")).to_be_visible()


def test_filters_and_pages_of_the_list(view: Watched) -> None:
    page = view.open("/")
    page.get_by_label("User").fill("ann")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody tr")).not_to_have_count(0)
    assert set(page.locator("tbody tr td.user-name").all_inner_texts()) == {"ann"}
    page.get_by_role("link", name="Clear").click()
    first = page.locator("a.title").first.get_attribute("href")
    page.get_by_role("link", name="Older").click()
    assert page.locator("a.title").first.get_attribute("href") != first
    page.get_by_role("link", name="Newest").click()
    assert page.locator("a.title").first.get_attribute("href") == first


def test_variants(view: Watched, paths: dict[str, str]) -> None:
    page = view.open(paths["branches"])
    expect(page.get_by_text("2 of 2")).to_be_visible()
    said = page.locator("article.assistant").last.inner_text()
    page.get_by_role("link", name="Previous variant").click()
    expect(page.get_by_text("1 of 2")).to_be_visible()
    assert page.locator("article.assistant").last.inner_text() != said
    page.get_by_role("link", name="Next variant").click()
    expect(page.get_by_text("2 of 2")).to_be_visible()


def test_two_that_are_ticked_are_compared(chromium: Browser, site: str) -> None:
    with watching(chromium, site, viewport=PHONE, java_script_enabled=False) as watched:
        page = watched.open("/")
        ticks = page.get_by_label("Compare this conversation")
        words = [one.inner_text().split()[0] for one in page.locator("a.title").all()]
        for number in (0, next(number for number, word in enumerate(words) if word != words[0])):
            ticks.nth(number).check()
        page.get_by_role("button", name="Compare two").first.click()
        expect(page.get_by_role("heading", name="Compare")).to_be_visible()
        boxes = [one.bounding_box() for one in page.locator(".pair").first.locator("> *").all()]
        assert boxes[0] is not None
        assert boxes[1] is not None
        assert boxes[1]["y"] >= boxes[0]["y"] + boxes[0]["height"]  # one below the other


def test_search_leads_to_the_place(view: Watched) -> None:
    page = view.open("/")
    page.get_by_role("searchbox").fill("semaphore")
    page.keyboard.press("Enter")
    expect(page.locator("mark").first).to_have_text("semaphore", ignore_case=True)
    page.locator("a.title").first.click()
    expect(page.locator(":target")).to_contain_text("semaphore")


def test_figures_of_the_dashboard_lead_to_what_they_count(view: Watched) -> None:
    page = view.open("/usage")
    page.locator("svg a").first.click()
    expect(page).to_have_url(re.compile(r"on=\d{4}-\d\d-\d\d"))
    expect(page.locator("tbody tr")).not_to_have_count(0)
    page.go_back()
    page.get_by_role("link", name="gpt-5.4").first.click()
    expect(page.locator("tbody tr")).not_to_have_count(0)
    page.go_back()
    section = page.locator("section", has=page.get_by_role("heading", name="Tokens by day"))
    section.locator("summary").click()
    expect(section.get_by_role("columnheader", name="Output")).to_be_visible()


def test_keys(view: Watched) -> None:
    page = view.open("/")
    for key in ("j", "j", "k"):
        page.keyboard.press(key)
    expect(page.locator("tr.here a.title")).to_have_attribute(
        "href", str(page.locator("a.title").first.get_attribute("href"))
    )
    page.keyboard.press("o")
    expect(page).to_have_url(re.compile("/c/conv_"))
    page.keyboard.press("j")
    expect(page.locator("article.here")).to_have_count(1)
    page.keyboard.press("u")
    expect(page.locator("table.list")).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("jk")
    expect(page.get_by_role("searchbox")).to_have_value("jk")
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    expect(page).to_have_url(re.compile("after="))
    page.goto(view.address)
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to content")).to_be_focused()


def test_keys_can_be_switched_off(view: Watched) -> None:
    page = view.open("/")
    switch = page.get_by_role("button", name="Single-letter keys")
    expect(switch).to_have_attribute("aria-pressed", "true")
    switch.focus()
    page.keyboard.press("Enter")
    expect(switch).to_have_attribute("aria-pressed", "false")
    for key in ("j", "o", "n", "/"):
        page.keyboard.press(key)
    expect(page.locator(".here")).to_have_count(0)
    page.reload()
    expect(switch).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("j")
    expect(page.locator(".here")).to_have_count(0)
    switch.click()
    page.keyboard.press("j")
    expect(page.locator(".here")).to_have_count(1)


def test_the_keys_are_listed(view: Watched) -> None:
    page = view.open("/")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("search")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()


def test_json_folds_and_is_copied(chromium: Browser, site: str, paths: dict[str, str]) -> None:
    permissions = ["clipboard-read", "clipboard-write"]
    with watching(chromium, site, permissions=permissions, viewport=WIDE) as watched:
        page = watched.open(paths["request"])
        line = page.locator(".json .key").first
        page.locator(".json summary").first.click()
        expect(line).to_be_hidden()
        page.get_by_role("button", name="Copy", exact=True).click()
        expect(page.get_by_text("Copied", exact=True)).to_be_attached()
        assert "contents" in json.loads(page.evaluate("navigator.clipboard.readText()"))
        page.locator(".json summary").first.click()
        expect(line).to_be_visible()


def in_sight(page: Page, text: str) -> bool:
    box = page.get_by_role("columnheader", name=text).bounding_box()
    window = page.viewport_size
    return box is not None and window is not None and box["x"] + box["width"] <= window["width"]


@pytest.mark.parametrize("width", [800, 1024, 1280])
def test_costs_and_times_of_the_list_are_in_sight(chromium: Browser, tmp_path: Any, width: int) -> None:
    url = f"sqlite:///{tmp_path}/long.db"
    with Store(url) as store:
        labels = {f"a-long-label-{number}": "and-its-value" * 3 for number in range(6)}
        user = "someone-with-a-long-name@a-department.example.com"
        for title in ("A long title of many words " * 7, "Donaudampfschifffahrt" * 9):
            store.create_conversation(title=title, user_id=user, labels=labels, model="m").user("Hello")
    size: ViewportSize = {"width": width, "height": 860}
    with serving(url) as address, watching(chromium, address, viewport=size) as watched:
        page = watched.open("/")
        assert [in_sight(page, name) for name in ("Cost", "Last active")] == [True, True]
        heights = page.locator("tbody tr").evaluate_all("rows => rows.map(row => row.offsetHeight)")
        assert max(heights) < 220


def test_on_a_phone_the_header_is_one_row_and_filters_are_folded(chromium: Browser, site: str) -> None:
    with watching(chromium, site, viewport=PHONE) as watched:
        page = watched.open("/")
        header = page.locator("header.top").bounding_box()
        assert header is not None
        assert header["height"] < 60
        expect(page.get_by_label("User")).to_be_hidden()
        page.get_by_text("Filters", exact=True).click()
        expect(page.get_by_label("User")).to_be_visible()
        expect(watched.open("/?user=ann").get_by_role("link", name="user ann")).to_be_visible()


def test_the_id_is_copied_by_key(chromium: Browser, site: str, paths: dict[str, str]) -> None:
    permissions = ["clipboard-read", "clipboard-write"]
    with watching(chromium, site, permissions=permissions, viewport=WIDE) as watched:
        page = watched.open(paths["thread"])
        page.get_by_role("button", name="Copy the id").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_text("Copied", exact=True)).to_be_attached()
        assert page.evaluate("navigator.clipboard.readText()") == paths["thread"].removeprefix("/c/")


def test_signing_in_and_out(chromium: Browser, month: str) -> None:
    def who(request: Any) -> Owner | None:
        return Owner() if request.headers.get("authorization") == "Bearer right" else None

    with serving(month, auth=who, sign_in=True) as address, watching(chromium, address, viewport=WIDE) as watched:
        page = watched.page
        page.goto(address)
        for key in ("wrong", "right"):
            page.get_by_label("Your key").fill(key)
            page.get_by_role("button", name="Sign in").click()
            if key == "wrong":
                expect(page.get_by_role("alert")).to_contain_text("This key is unknown")
        expect(page.locator("table.list")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Your key")).to_be_visible()
        watched.problems = [problem for problem in watched.problems if "status of 401" not in problem]  # as it should


def content(page: Page) -> str:
    return re.sub(r"\s+", " ", page.locator("body").inner_text())


def test_without_javascript_the_content_is_the_same(chromium: Browser, site: str, paths: dict[str, str]) -> None:
    with (
        watching(chromium, site, viewport=WIDE) as scripted,
        watching(chromium, site, viewport=WIDE, java_script_enabled=False) as plain,
    ):
        for name in NAMES:
            assert content(scripted.open(paths[name])) == content(plain.open(paths[name])), name
        page = plain.open(paths["list"])
        page.get_by_role("searchbox").fill("order")
        page.get_by_role("searchbox").press("Enter")
        expect(page.locator("mark").first).to_be_visible()


def test_new_items_appear_while_it_is_open(chromium: Browser, tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/live.db"
    with Store(url) as store, serving(url) as address:
        conversation = store.create_conversation(model="m")
        conversation.user("First")
        with watching(chromium, address) as view:
            page = view.open(f"/c/{conversation.id}")
            conversation.assistant("Second <b>now</b>")
            expect(page.get_by_text("Second <b>now</b>")).to_be_visible()
            with conversation.stream_response("chat_completion") as recorder:
                expect(page.get_by_text("An answer is in progress")).to_be_visible()
                delta = {"content": "Third"}
                recorder.feed({"id": "a", "choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}]})
            expect(page.get_by_text("Third")).to_be_visible()
            expect(page.get_by_text("An answer is in progress")).to_be_hidden()
            assert page.locator("article").count() == 3


def test_without_javascript_a_live_list_shows_what_is_new(chromium: Browser, tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/live.db"
    with Store(url) as store, serving(url) as address:
        store.create_conversation(title="First").user("Hello")
        with watching(chromium, address, java_script_enabled=False) as view:
            page = view.open("/?live=5")
            expect(page.get_by_role("link", name="First")).to_be_visible()
            store.create_conversation(title="Second").user("Hello")
            expect(page.get_by_role("link", name="Second")).to_be_visible()
            page.get_by_role("link", name="Stop").click()
            expect(page.get_by_label("User")).to_be_visible()
