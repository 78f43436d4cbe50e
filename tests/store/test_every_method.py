"""Every public method, by reflection, called with values that nobody should pass.

Only errors of threadkeep come out, and a call that is refused changes nothing.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import MATRIX, is_set
from tests.factories import a_gemini_answer, a_message, a_stream, an_answer
from tests.store.faces import BlockingWatcher
from tests.store.odd_values import BODIES, ODD, PLAIN, TURNS, World, parameters_of, required_of, valid
from tests.store.watching import Tables
from threadkeep import (
    ChangeWatcher,
    Conversation,
    HeadConflict,
    ProviderError,
    ResponseInProgress,
    Store,
    ThreadkeepError,
)
from threadkeep.formats import NAMES

EXAMPLES = 500 if is_set("THREADKEEP_LONG") else 3 if MATRIX == "quick" else 12
# a closed store can be asked nothing else, backups and exports make files of any name, and errors of a
# function are the caller's
UNTOUCHED = {"close", "backup", "export_usage", "run_in_transaction"}
TENANTS = {"for_tenant", "create_tenant", "delete_tenant"}
STRUCTURES = {"payload", "body", "turns", "content", "item", "items", "input", "tools", "schema", "extra", "metadata"}
COUNTED = (ProviderError, HeadConflict, ResponseInProgress)  # their ledger row is written before they are raised

METHODS = [
    (kind, name)
    for kind in (Store, Conversation)
    for name, method in vars(kind).items()
    if inspect.isfunction(method) and not name.startswith("_") and name not in UNTOUCHED
]
IDS = [f"{kind.__name__}.{name}" for kind, name in METHODS]

pytestmark = [
    pytest.mark.one_face,
    pytest.mark.sampled,
    pytest.mark.timeout(1_800 if is_set("THREADKEEP_LONG") else 240),
]


@pytest.fixture
def foreign(stores: Any) -> Any:
    """A conversation of another tenant."""
    owner = stores.get("sync").create_tenant(f"other {id(stores)} {next(_numbers)}")
    found = owner.create_conversation(model="gpt-5.4", user_id="somebody", input=[a_message("secret")])
    found.add_response(an_answer("secret"), "open_responses")
    return found


_numbers = iter(range(10**9))


def world_of(store: Any, foreign: Any) -> World:
    conversation = store.create_conversation(model="gemini-2.5-flash", input=[a_message("word")], user_id="u")
    rendered = conversation.render("gemini")
    conversation.add_response(a_gemini_answer(prompt=50_000), "gemini", rendered=rendered)
    conversation.user("word")
    conversation.add_response(an_answer("Hi", calls=("c1",)), "open_responses")
    return World(store, conversation, foreign)


def changed(tables: Tables, conversation: Any) -> Any:
    """What can be seen of a change: how many rows there are, and the row of the conversation."""
    return tables.counts(), tables.rows("conversations", "id")[-1:], conversation.id


@st.composite
def odd_json(draw: st.DrawFn) -> Any:
    """A provider's body or request, of which one value is another one."""
    root: dict[Any, Any] = {"": copy.deepcopy(draw(st.sampled_from([*BODIES.values(), *TURNS.values()])))}
    holder: Any = root
    key: Any = ""
    while isinstance(value := holder[key], dict | list) and value and draw(st.integers(0, 4)):
        holder, key = value, draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
    holder[key] = ODD[draw(st.sampled_from(PLAIN))](None)  # type: ignore[arg-type]
    return root[""]


def call_of(data: st.DataObject, kind: type, name: str, world: World) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of a call, of which one or more are odd."""
    method, wire = getattr(kind, name), data.draw(st.sampled_from(NAMES), label="format")
    kinds = parameters_of(method)
    arguments = {one: valid(one, world, wire) for one in required_of(method)}
    odd = data.draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=2, unique=True)) if kinds else []
    for one in odd:
        is_json = data.draw(st.booleans()) and one in STRUCTURES
        arguments[one] = data.draw(odd_json()) if is_json else ODD[data.draw(st.sampled_from(sorted(ODD)), one)](world)
    if callable(arguments.get("progress")):  # its errors are the caller's
        del arguments["progress"]
    positional = [
        arguments.pop(one)
        for one, how in kinds.items()
        if one in arguments and how in {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL}
    ]
    return positional, arguments


@pytest.mark.share(3)
@pytest.mark.parametrize(("kind", "name"), METHODS, ids=IDS)
def test_only_errors_of_threadkeep_come_out(
    store: Any, stores: Any, face: str, foreign: Any, tables: Tables, kind: type, name: str
) -> None:
    world = world_of(store, foreign)

    @settings(max_examples=EXAMPLES)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        nonlocal world
        target = stores.get(face) if name in TENANTS else world.store if kind is Store else world.conversation
        positional, arguments = call_of(data, kind, name, world)
        if name.startswith("search"):
            world.store.search("word")  # which indexes what is new, also before a refusal
        before = changed(tables, world.conversation)
        try:
            finish(getattr(target, name)(*positional, **arguments), data, world)
        except COUNTED:
            pass
        except ThreadkeepError as error:
            assert 0 < len(str(error)) < 10_000  # noqa: PT017 - other errors are to be seen as they are
            assert changed(tables, world.conversation) == before
        else:
            world = world_of(store, foreign)  # whatever it is now

    run()


def finish(result: Any, data: st.DataObject, world: World) -> None:
    """Feed a recorder something odd; read the rest of what was returned."""
    if hasattr(result, "feed"):
        event = ODD[data.draw(st.sampled_from(sorted(ODD)), label="event")](world)
        with result as recorder, suppress(ThreadkeepError):
            for one in [*a_stream("Hi")[:2], event]:
                recorder.feed(one)
    elif isinstance(result, ChangeWatcher | BlockingWatcher):  # which has no end
        result.close()
    elif isinstance(result, Iterator):
        list(result)
