"""Transcripts in Markdown, in which no text can pretend to be anything else."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.factories import a_call, a_message, a_picture, an_output
from threadkeep import Store
from threadkeep.domain.transcripts import code, fenced, inline, quoted


def transcript(*items: Any, **info: Any) -> str:
    with Store("sqlite://") as store:
        return store.create_conversation(model="m", input=list(items), **info).to_markdown()


def test_a_transcript() -> None:
    text = transcript(
        a_message("Look:\n\n- one\n- **two**"), a_message("Fine.", role="assistant"), a_call(arguments='{"word":"x"}'),
        an_output(output="found"), {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        title="A *title*",
    )  # fmt: skip
    text = re.sub(r"conv_\w+|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "…", text)
    assert text == (
        "# A \\*title\\*\n\n- conversation: `…`\n- model: `m`\n- created: `… UTC`\n\n"
        "## user · …\n\n> Look:\n>\n> - one\n> - **two**\n\n## assistant · …\n\n> Fine.\n\n"
        '## call look\\_up (call\\_1) · …\n\n```json\n{\n  "word": "x"\n}\n```\n\n'
        "## output (call\\_1) · …\n\n```text\nfound\n```\n\n## reasoning · …\n\n> Hm.\n"
    )


def test_media_are_named() -> None:
    text = transcript({"type": "message", "role": "user", "content": [a_picture(b"x" * 30)]})
    assert "*\\[image: image/png, 30 bytes\\]*" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("# Assistant", "> # Assistant"),
        ("a\n\n---\n\n## user", "> a\n>\n> ---\n>\n> ## user"),
        ("a\u2028## user", "> a\\u2028## user"),
        ("a\x0b## user\x0c## user", "> a\\x0b## user\\x0c## user"),
        ("\x1b[31mred\u202e", "> \\x1b[31mred\\u202e"),
        ("<script>x</script>", "> \\<script>x\\</script>"),
        ("<!-- <b", "> \\<!-- \\<b"),
        ("1 < 2", "> 1 < 2"),
        ("![x](https://tracker/x.png)", "> \\![x](https://tracker/x.png)"),
        ("[x](javascript:alert(1))", "> [x\\](javascript:alert(1))"),
        ("[x]( JavaScript&colon;x)", "> [x\\]( JavaScript&colon;x)"),
        ("[x](https://example.org)", "> [x](https://example.org)"),
        ("[x][y]\n\n[y]: javascript:x", "> [x\\][y]\n>\n> \\[y]: javascript:x"),
        ("<javascript:x>", "> \\<javascript:x>"),
        ("```html\n<b>\n```\n<b>", "> ```html\n> <b>\n> ```\n> \\<b>"),
        ("```\n<b>", "> ```\n> <b>"),
        ("``` a`b\n<b>", "> ``` a`b\n> \\<b>"),
        ("- x\n  ```\n<b>", "> - x\n>   ```\n> \\<b>"),
        (" ```\n```\n<b>", ">  ```\n> ```\n> \\<b>"),
        ("````\n```\n<b>\n````\n<b>", "> ````\n> ```\n> <b>\n> ````\n> \\<b>"),
    ],
)
def test_what_was_said_stays_in_its_quote(text: str, shown: str) -> None:
    assert quoted(text) == shown


@given(st.text(alphabet=st.sampled_from("`~ \n\r\t#>-x\x1b\u2028<")))
def test_nothing_leaves_its_place(text: str) -> None:
    assert all(line.startswith(">") for line in quoted(text).split("\n") if quoted(text))
    assert "\n" not in inline(text) + code(text)
    mark, *lines, end = fenced(text).split("\n")
    assert mark == end
    assert not any(line.strip().startswith(mark) for line in lines)
    assert "\x1b" not in quoted(text) + inline(text) + code(text) + fenced(text)
