"""The field tables: complete, and each option only once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from threadkeep.domain.content import PARTS
from threadkeep.domain.items import ITEMS
from threadkeep.domain.options import OPTIONS
from threadkeep.formats.ag_ui import fields as ag_ui_fields
from threadkeep.formats.ag_ui.turns import ThreadWriter
from threadkeep.formats.canonical import items as responses_content
from threadkeep.formats.canonical import items as responses_items
from threadkeep.formats.chat_completion import fields as chat_fields
from threadkeep.formats.chat_completion import parts as chat_content
from threadkeep.formats.chat_completion.turns import ChatWriter
from threadkeep.formats.converse import fields as converse_fields
from threadkeep.formats.converse import parts as converse_content
from threadkeep.formats.converse.turns import ConverseWriter
from threadkeep.formats.gemini.turns import GeminiWriter
from threadkeep.formats.messages.turns import MessagesWriter
from threadkeep.formats.open_responses import fields as responses_fields
from threadkeep.formats.pydantic_ai import fields as pydantic_ai_fields
from threadkeep.formats.pydantic_ai.turns import PydanticWriter
from threadkeep.formats.shared.fields import Field, FieldGroup, NoField, Row, SpecialField, render_fields
from threadkeep.formats.shared.rendering import WRITERS
from threadkeep.formats.shared.reports import Context
from threadkeep.formats.ui_messages import fields as ui_fields
from threadkeep.formats.ui_messages.turns import UiWriter

TABLES = {
    "open_responses": responses_fields.FIELDS,
    "chat_completion": chat_fields.FIELDS,
    "converse": converse_fields.FIELDS,
    "pydantic_ai": pydantic_ai_fields.FIELDS,
    "ui_messages": ui_fields.FIELDS,
    "ag_ui": ag_ui_fields.FIELDS,
}


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_option_has_exactly_one_row(name: str) -> None:
    assert sorted(row.option for row in TABLES[name]) == sorted(OPTIONS)


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_row_says_what_becomes_of_its_option(name: str) -> None:
    """So that the compatibility page can be printed from the tables."""
    for row in TABLES[name]:
        text = {Field: "target", NoField: "reason", SpecialField: "what", FieldGroup: "targets"}[type(row)]
        assert getattr(row, text)


def test_every_item_type_has_a_mapper() -> None:
    assert ITEMS.keys() <= responses_items.ITEMS.keys()
    assert ITEMS.keys() <= WRITERS.keys()


@pytest.mark.parametrize(
    "writer", [ThreadWriter, ChatWriter, ConverseWriter, GeminiWriter, MessagesWriter, PydanticWriter, UiWriter]
)
def test_every_writer_has_the_methods_of_the_table(writer: type) -> None:
    assert all(callable(getattr(writer, name)) for name in WRITERS.values())


def test_every_part_type_has_a_mapper() -> None:
    assert PARTS.keys() <= responses_content.PARTS.keys()
    tables: list[Mapping[str, object]] = [*chat_content.PARTS.values()]
    tables += [converse_content.SYSTEM, converse_content.USER, converse_content.RESULT]
    for mappers in tables:
        assert PARTS.keys() <= mappers.keys()


def test_rows_place_values_and_report_what_is_dropped() -> None:
    rows: tuple[Row, ...] = (
        Field("temperature", "config.sampling.temperature"),
        Field("top_p", "config.topP", lambda value, _context: value or None),
        FieldGroup("top_logprobs", ("a", "b"), lambda value, _context: {"a": True, "b": value}),
        NoField("background", "there is none"),
        NoField("truncation", "there is none", silent=("disabled",)),
        SpecialField("tools", "elsewhere"),
    )
    context = Context()
    settings = {
        "temperature": 0, "top_p": 0, "top_logprobs": 2, "background": True, "truncation": "disabled", "tools": 1,
    }  # fmt: skip
    assert render_fields(rows, settings, context) == {"config": {"sampling": {"temperature": 0}}, "a": True, "b": 2}
    assert [(loss.code, loss.path) for loss in context.losses] == [("option", "background")]
