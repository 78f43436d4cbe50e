"""Annotations of the public names can be resolved: frameworks and tools that read them find what they name."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Self, get_type_hints

from sqlalchemy import Connection
from sqlalchemy.orm import Session, scoped_session

import threadkeep
from threadkeep import AsyncConversation, AsyncRecorder, AsyncStore, Page, Store, blobs, formats, schema

HOMES = (threadkeep, blobs, formats, schema)


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions, and the public methods and properties of public classes, but for inherited ones."""
    for home in HOMES:
        for name in getattr(home, "__all__", None) or [name for name in vars(home) if not name.startswith("_")]:
            thing = getattr(home, name)
            if inspect.isfunction(thing):
                yield name, thing
            for member, value in vars(thing).items() if inspect.isclass(thing) else ():
                function = getattr(value, "__func__", getattr(value, "fget", value))
                if inspect.isfunction(function) and (not member.startswith("_") or member == "__init__"):
                    yield f"{name}.{member}", function


# Formats are made by their own packages, with types of these
FUNCTIONS = {name: function for name, function in functions() if name != "Format.__init__"}


def test_the_functions_are_found() -> None:
    assert {"Store.within", "AsyncStore.within", "AsyncConversation.fork", "Page.of", "Session.render"} <= set(
        FUNCTIONS
    )
    assert len(FUNCTIONS) > 300


def hints_of(function: Callable[..., Any]) -> set[str] | Exception:
    """The names that have a hint, or why the hints cannot be resolved."""
    try:
        return set(get_type_hints(function))
    except Exception as error:  # noqa: BLE001 - whatever it is, the test names the function
        return error


def test_hints_can_be_resolved() -> None:
    found = {name: (hints_of(call), set(getattr(call, "__annotations__", {}))) for name, call in FUNCTIONS.items()}
    assert {name: (hints, wanted) for name, (hints, wanted) in found.items() if hints != wanted} == {}


def test_hints_name_what_is_meant() -> None:
    """The methods of the asyncio classes return asyncio classes; a host may be of the ORM."""
    host = get_type_hints(Store.within)["host"]
    assert host == Connection | Session | scoped_session[Any]
    returned = {
        AsyncStore.create_conversation: AsyncConversation,
        AsyncStore.find_conversation: AsyncConversation | None,
        AsyncStore.list_conversations: Page[AsyncConversation],
        AsyncStore.for_tenant: AsyncStore,
        AsyncStore.export: AsyncIterator[str],
        AsyncConversation.fork: Self,
        AsyncConversation.stream_response: AsyncRecorder,
        Store.export: Iterator[str],
    }
    assert {call: get_type_hints(call)["return"] for call in returned} == returned


def test_sqlalchemy_is_imported_with_the_first_store() -> None:
    code = (
        "import sys, typing; import threadkeep; before = 'sqlalchemy' in sys.modules; "
        "hints = typing.get_type_hints(threadkeep.Store.within); from sqlalchemy.orm import Session; "
        "print(before, Session in typing.get_args(hints['host']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
