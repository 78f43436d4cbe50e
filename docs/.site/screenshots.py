"""Take the pictures of the viewer in `docs/assets`, from a month of conversations: ``make screenshots``.

They have few colours, so that they stay small.
"""

from __future__ import annotations

import shutil
import tempfile
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from tests.viewer.browser.conftest import NAMES, serving
from threadkeep import Store
from threadkeep.cli.demo_month import PRICES, fill
from threadkeep.viewer import html_of

ASSETS: Final = Path(__file__).parents[1] / "assets"
LAST: Final = datetime(2026, 11, 20, 17, 30, tzinfo=UTC)
WIDE: Final = (1200, 760)
PHONE: Final = (390, 760)
COLORS: Final = 224


def main() -> None:
    """Take all pictures."""
    ASSETS.mkdir(exist_ok=True)
    path = next(filter(None, map(shutil.which, NAMES)))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        url = f"sqlite:///{folder}/month.db"
        with Store(url, prices=PRICES) as store:
            fill(store, LAST, lambda _: None)
            found = store.search_conversations("12a", status=None, role="user", limit=50)
            hit = next(one for one in found if store.get_conversation(one.conversation_id).model == "gpt-5.4")
            file = Path(folder) / "conversation.html"
            file.write_text(html_of(store, hit.conversation_id), encoding="utf-8")
            [chart] = store.search_conversations("chart", status=None, type="title", limit=1)
            branched = next(one.id for one in store.list_summaries(limit=100) if one.branch_count > 1)
        compared = f"/compare?c={branched}%3Fbranch%3D0&c={branched}%3Fbranch%3D1"
        thread = f"/c/{hit.conversation_id}"
        days = "/usage?since=2026-10-22&until=2026-11-20"
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        with serving(url) as address:
            for name, path, size, scheme in (
                ("viewer-list", "/?status=any&until=2026-11-20", WIDE, "light"),
                ("viewer-conversation", thread, WIDE, "light"),
                ("viewer-picture-dark", f"/c/{chart.conversation_id}", WIDE, "dark"),
                ("viewer-changes", f"{thread}/responses/1?show=changes", WIDE, "light"),
                ("viewer-losses", f"{thread}/responses/1?format=gemini", WIDE, "light"),
                ("viewer-compare", compared, WIDE, "light"),
                ("viewer-search", "/search?q=order", WIDE, "light"),
                ("viewer-usage", days, (1200, 1180), "light"),
                ("viewer-usage-dark", days, WIDE, "dark"),
                ("viewer-functions", "/usage/tools?since=2026-10-22&until=2026-11-20", (1200, 570), "light"),
                ("viewer-phone", thread, PHONE, "light"),
            ):
                take(browser, address + path, ASSETS / f"{name}.png", size, scheme)
        take(browser, file.as_uri(), ASSETS / "viewer-file.png", WIDE, "light")
        browser.close()


def take(browser: Browser, address: str, file: Path, size: tuple[int, int], scheme: Any) -> None:
    """Take a picture of a page."""
    viewport: Any = {"width": size[0], "height": size[1]}
    context = browser.new_context(viewport=viewport, color_scheme=scheme)
    page = context.new_page()
    page.goto(address)
    page.wait_for_load_state()
    picture = Image.open(BytesIO(page.screenshot()))
    picture.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(file, optimize=True)
    context.close()


if __name__ == "__main__":
    main()
