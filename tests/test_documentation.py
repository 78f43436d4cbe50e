"""The pages: their examples run, each is in the navigation, links lead somewhere, and the reference is whole."""

from __future__ import annotations

import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from sqlalchemy import Engine
from sybil import Document
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

import name_page
import rest_page
import threadkeep
from threadkeep import MissingExtra, Store
from threadkeep.domain.options import OPTIONS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
REFERENCE = {page.name: page.read_text() for page in DOCS.glob("reference/*.md")}
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)#\s]*)(?:#(?P<anchor>[^)\s]*))?\)")
MODEL = re.compile(r"claude-[\w.-]*\w")
DIRECTIVE = re.compile(r"^::: (?P<name>[\w.]+)$", re.MULTILINE)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return FENCE.sub("", page.read_text())


# Examples


PARSERS = (PythonCodeBlockParser(), SkipParser())
# pages about packages that are not in every environment of the tests
NEEDED = {"agents-sdk.md": "agents", "langchain.md": "langchain_openai"}


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=relative)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, in an empty folder: an example may use what the ones above it made."""
    if page.name in NEEDED:
        pytest.importorskip(NEEDED[page.name], reason="make test-peers has it")
    monkeypatch.chdir(tmp_path)
    examples = Document.parse(str(page), *PARSERS)
    try:
        for example in examples:
            example.evaluate()
    finally:
        close_all(examples.namespace)


def close_all(names: dict[str, Any]) -> None:
    """Close the stores and engines of a page, which it may leave open, as a program may when it ends."""
    for value in names.values():
        if isinstance(value, Store):
            value.close()
        elif isinstance(value, Engine):
            value.dispose()


def test_no_example_names_a_model_that_is_to_end() -> None:
    """Anthropic's SDK warns of these."""
    ending = importlib.import_module("anthropic.resources.messages.messages").DEPRECATED_MODELS
    pages = [*ROOT.glob("*.md"), *PAGES, *ROOT.glob("examples/*.py")]
    named = {(relative(page), model) for page in pages for model in MODEL.findall(page.read_text())}
    assert len(named) > 5
    assert [(page, model) for page, model in sorted(named) if model in ending] == []


# Navigation and links


def pages_in(navigation: Any) -> Iterator[str]:
    if isinstance(navigation, str):
        yield navigation
    else:
        yield from chain.from_iterable(
            map(pages_in, navigation.values() if isinstance(navigation, dict) else navigation)
        )


def test_every_page_is_in_the_navigation_once() -> None:
    site = tomllib.loads(ROOT.joinpath("zensical.toml").read_text())["project"]
    assert sorted(pages_in(site["nav"])) == sorted(page.relative_to(DOCS).as_posix() for page in PAGES)


def test_the_start_page_leads_to_every_page() -> None:
    targets = {link["target"] for link in LINK.finditer(DOCS.joinpath("index.md").read_text())}
    pages = {page.relative_to(DOCS).as_posix() for page in PAGES if page.parent == DOCS}
    assert pages - targets == {"index.md"}
    assert "reference/index.md" in targets


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of headings, as GitHub and the site name them, and those of names of the reference."""
    headings = (re.sub(r"[^\w\- ]", "", heading["text"].lower()) for heading in HEADING.finditer(prose(page)))
    return {heading.strip().replace(" ", "-") for heading in headings} | set(DIRECTIVE.findall(page.read_text()))


def trouble(page: Path, link: re.Match[str]) -> str:
    """Why a link leads nowhere; nothing if it leads somewhere."""
    target = page.parent / link["target"] if link["target"] else page
    if not target.exists():
        return "no such file"
    if link["anchor"] is not None and link["anchor"] not in anchors(target):
        return "no such heading"
    return "the site does not have it" if DOCS in page.parents and DOCS not in target.resolve().parents else ""


def test_links_lead_somewhere() -> None:
    pages = [*PAGES, *ROOT.glob("*.md"), *ROOT.glob("examples/*.md")]
    links = [(page, link) for page in pages for link in LINK.finditer(prose(page)) if "://" not in link["target"]]
    assert len(links) > len(pages)
    assert [(relative(page), link[0], why) for page, link in links if (why := trouble(page, link))] == []


# Promises


def test_every_promise_names_tests_that_exist() -> None:
    """… in the table of what holds under which fault."""
    table = re.search(
        r"^## What is promised .*?(?=^## )", (DOCS / "production.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert table is not None
    tests = set(
        chain.from_iterable(re.findall(r"def (test_\w+)", file.read_text()) for file in ROOT.rglob("tests/**/*.py"))
    )
    rows = [row for row in table[0].splitlines() if row.startswith("| ")][2:]
    assert len(rows) > 20
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row.split("|")[3])
        assert named, row
        assert set(named) <= tests, row


# Reference

NAMES = [name for page in REFERENCE.values() for name in DIRECTIVE.findall(page)]
MODULES = {"blobs", "formats", "models", "schema"}
WITH_EXTRAS = {"contrib", "http", "viewer"}  # packages that `import threadkeep` does not have
METHODS = (FunctionType, classmethod, staticmethod, property)


def resolved(name: str) -> Any:
    """What a directive of the reference names: `threadkeep.Store`, `threadkeep.schema.upgrade`."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except MissingExtra as missing:
        pytest.skip(f"{missing} make test-peers has it")


def members(name: str) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class, without what it has from classes of other packages."""
    for base in resolved(name).__mro__:
        if base.__module__.startswith("threadkeep."):
            for member, value in vars(base).items():
                if not member.startswith("_") and isinstance(value, METHODS):
                    yield member, value


def test_every_public_name_is_in_the_reference_once() -> None:
    public = {f"threadkeep.{name}" for name in threadkeep.__all__ if not name.startswith("_")}
    assert len(NAMES) == len(set(NAMES))
    assert {name for name in NAMES if name.count(".") == 1} == public - {f"threadkeep.{name}" for name in MODULES}


def test_the_page_of_all_names_is_up_to_date() -> None:
    assert name_page.page() == REFERENCE["names.md"], "the page is out of date: run make docs"
    rows = REFERENCE["names.md"].splitlines()
    listed = {name.removeprefix("threadkeep.") for name in NAMES if not name.startswith("threadkeep.contrib.")}
    assert all(any(row.startswith((f"| `{name}`", f"| `{name}(")) for row in rows) for name in listed)


def test_the_page_of_rest_operations_is_up_to_date() -> None:
    """It needs an example of each operation."""
    assert rest_page.page() == DOCS.joinpath("rest-operations.md").read_text(), "the page is out of date: run make docs"


def test_every_function_for_the_schema_is_in_the_reference() -> None:
    functions = {name for name in threadkeep.schema.__all__ if inspect.isfunction(getattr(threadkeep.schema, name))}
    assert functions == {name.removeprefix("threadkeep.schema.") for name in NAMES if ".schema." in name}
    others = {name for name in threadkeep.schema.__all__ if f"`schema.{name}`" in REFERENCE["schema.md"]}
    assert functions | others == set(threadkeep.schema.__all__)


def test_every_model_is_in_the_reference() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", REFERENCE["models.md"], re.MULTILINE)
    assert set(listed) == set(threadkeep.models.__all__)


def undescribed(name: str) -> Iterator[str]:
    """What has no docstring: the name itself, and members of a class."""
    if not (inspect.getdoc(resolved(name)) or alias_docstring(name.rpartition(".")[2])):
        yield name
    if inspect.isclass(resolved(name)):
        yield from (f"{name}.{member}" for member, value in members(name) if not inspect.getdoc(value))


@pytest.mark.parametrize("module", sorted({name.rpartition(".")[0] for name in NAMES}))
def test_what_the_reference_names_has_docstrings(module: str) -> None:
    """The site leaves out what has none."""
    names = [name for name in NAMES if name.rpartition(".")[0] == module]
    assert [what for name in names for what in undescribed(name)] == []


def alias_docstring(name: str) -> str | None:
    """The text below the assignment of a type alias, which Python does not keep."""
    for path in (ROOT / "src").rglob("*.py"):
        found = re.search(rf'^{name}(?:: \w+)? = [^"]*?(?:"\w+"[^"]*?)*^"""(.+)"""$', path.read_text(), re.MULTILINE)
        if found is not None:
            return found[1]
    return None


def test_every_session_option_is_in_the_reference() -> None:
    page = (DOCS / "options.md").read_text()
    assert OPTIONS.keys() - set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE)) == set()


def test_the_overview_names_what_each_page_has() -> None:
    rows = re.findall(r"^\| \[.*?\]\((.*?)\) \| (.*?) \|$", REFERENCE["index.md"], re.MULTILINE)
    listed = {page: set(re.findall(r"`(\w+)`", names)) for page, names in rows}
    assert listed.keys() == REFERENCE.keys() - {"index.md", "names.md"}
    for page, names in listed.items():
        if page == "errors.md":
            assert names == {"ThreadkeepError"}
        elif names - MODULES - WITH_EXTRAS:
            assert names == {name.removeprefix("threadkeep.") for name in DIRECTIVE.findall(REFERENCE[page])}
