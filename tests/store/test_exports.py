"""Exports come back exactly, into any database; what is damaged is refused, and nothing is half written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import is_set, upgraded
from tests.corpus import recorded
from tests.databases import Database
from tests.factories import a_call, a_message, a_picture, a_stream, an_answer, an_output, noise
from tests.store.replaying import answer, begun
from tests.store.watching import Tables, statements_of
from tests.wires import SPOKEN
from threadkeep import CannotParse, Conflict, InvalidOption, NotFound, Store, ThreadkeepError
from threadkeep.db import models as schema
from threadkeep.formats import NAMES, FormatName
from threadkeep.store.moving import blocks
from threadkeep.store.moving.contents import BY_NAME, LEFT_BEHIND, PARTS, SHARED, Digest, add_to, short_name

# Tables that are carried in ways of their own, or made again
OTHERS = {"tenants", "usage_days", "usage_daily", "usage_daily_models", "usage_daily_sketches", "conversations"}
MODELS = {"messages": "claude-sonnet-4-5", "gemini": "gemini-2.5-flash", "converse": "amazon.nova-pro-v1:0"}


def full(store: Any, user: str = "ann", external_id: str | None = "x") -> Any:
    """A conversation with everything."""
    conversation = store.create_conversation(
        model="m", input="Hi", labels={"a": "b"}, external_id=external_id, user_id=user, title="Title",
        tools=[{"type": "function", "name": "t"}], instructions="Be brief.", idempotency_key=f"made for {user}",
        properties={"p": "q"},
    )  # fmt: skip
    conversation.user([a_picture(noise(20_000))], idempotency_key="key")
    conversation.add_response(an_answer("Hello", calls=("c1",)), "open_responses", idempotency_key="answer")
    conversation.add_item(an_output("c1"), author_id="tool", known=False)
    conversation.fork(at=1).user("more \ud800 \x00 ☃")
    conversation.update(title="Another title", temperature=0.5)
    conversation.compact(upto=0, summary="So far")
    conversation.set_state("agent", {"step": 1})
    conversation.label_item(0, {"kind": "question"})
    conversation.set_feedback(2, rating=1, comment="Fine", user_id=user)
    recorder = conversation.on_branch(1).stream_response("open_responses")
    recorder.__enter__()
    for event in a_stream("Half of it")[:3]:
        recorder.feed(event)
    return conversation


def bodies(conversation: Any) -> dict[str, Any]:
    """The next request in every format, or why there is none."""
    found: dict[str, Any] = {}
    for wire in NAMES:
        try:
            found[wire] = conversation.request_body(wire)
        except ThreadkeepError as error:
            found[wire] = str(error)
    return found


def rows(lines: list[str]) -> list[str]:
    return sorted(line for line in lines if line.startswith('{"table"'))


def a_target(stores: Any, face: str, name: str) -> Any:
    """A store of a new tenant."""
    return stores.get(face, "elsewhere").create_tenant(name)


def test_every_table_is_carried_or_left_behind_for_a_reason() -> None:
    """A new table decides it here."""
    carried = {short_name(table) for table in (*SHARED, *PARTS)}
    assert {short_name(table) for table in schema.METADATA.sorted_tables} == carried | OTHERS | set(LEFT_BEHIND)
    assert carried.isdisjoint({*OTHERS, *LEFT_BEHIND})


def test_an_export_comes_back_exactly(stores: Any, store: Any, face: str, tenant: str) -> None:
    conversation = full(store)
    lines = list(store.export())
    target = a_target(stores, face, f"{tenant} 2")
    report = target.import_export(lines)
    assert (report.conversations, report.skipped, report.attempts) == (1, 0, 1)
    assert rows(list(target.export())) == rows(lines)
    for branch in (0, 1):
        ours, theirs = (one.get_conversation(conversation.id, branch=branch) for one in (store, target))
        assert bodies(theirs) == bodies(ours)
        assert [one.item.to_dict() for one in theirs.transcript()] == [one.item.to_dict() for one in ours.transcript()]
        assert theirs.transcript()[0].created_at == ours.transcript()[0].created_at
    found = target.get_conversation(conversation.id)
    assert (found.state("agent").value, found.properties) == ({"step": 1}, {"p": "q"})
    assert [one.rating for one in found.feedback()] == [1]
    assert target.get_conversation(conversation.id).response_body(0) == conversation.response_body(0)
    assert target.usage()[0].input_tokens == store.usage()[0].input_tokens == 10


def test_what_was_imported_goes_on(stores: Any, store: Any, face: str, tenant: str) -> None:
    """Keys hold, a response in progress is ended with what there was, and searches find the text."""
    conversation = full(store)
    target = a_target(stores, face, f"{tenant} 2")
    target.import_export(list(store.export()))
    found = target.get_conversation(conversation.id)
    assert found.user([a_picture(noise(20_000))], idempotency_key="key").replayed
    assert found.add_response(an_answer("Hello", calls=("c1",)), "open_responses", idempotency_key="answer").replayed
    again = target.create_conversation(
        model="m", input="Hi", labels={"a": "b"}, external_id="x", user_id="ann", title="Title",
        tools=[{"type": "function", "name": "t"}], instructions="Be brief.", idempotency_key="made for ann",
        properties={"p": "q"},
    )  # fmt: skip
    assert (again.id, again.replayed) == (conversation.id, True)
    assert [one.position for one in target.search('"Hello"', role="assistant")] == [2]
    branch = found.on_branch(1)
    branch.user("on and on", on_conflict="append")
    assert branch.transcript()[-1].position > conversation.transcript()[-1].position
    assert found.user("next").position == branch.transcript()[-1].position + 1


def test_what_is_known_of_a_conversation_ends_with_it(store: Any, elsewhere: Any, conversation: Any) -> None:
    """It is deleted, and imported as it was before: no process goes on from what it had read of it."""
    conversation.user("kept")
    lines = list(store.export())
    conversation.user("gone")
    assert [sent(one, conversation.id) for one in (store, elsewhere)] == [["kept", "gone"]] * 2
    store.delete_conversation(conversation.id)
    store.import_export(lines)
    assert [sent(one, conversation.id) for one in (store, elsewhere)] == [["kept"]] * 2
    store.get_conversation(conversation.id).user("new")
    assert [sent(one, conversation.id) for one in (store, elsewhere)] == [["kept", "new"]] * 2


def sent(store: Any, id: str) -> list[str]:
    messages = json.loads(store.get_conversation(id).request_body("chat_completion"))["messages"]
    return [part["text"] for message in messages for part in message["content"]]


def test_a_repeated_import_skips_what_is_there(stores: Any, store: Any, face: str, tenant: str) -> None:
    full(store)
    store.create_conversation(model="m", input="second")
    lines = list(store.export())
    target = a_target(stores, face, f"{tenant} 2")
    with pytest.raises(CannotParse, match="cut off"):
        target.import_export(lines[: next(n for n, line in enumerate(lines) if line.startswith('{"end"')) + 1])
    assert len(list(target.list_conversations())) == 1
    assert [target.import_export(lines) for _ in range(2)][-1].skipped == 2
    assert rows(list(target.export())) == rows(lines)
    with pytest.raises(Conflict, match="there already"):
        target.import_export(lines, existing="refuse")


@pytest.mark.slow
def test_the_formats_of_recorded_traffic_are_the_same_bytes(empty_database: Database, tmp_path: Path) -> None:
    """Copied to a database, exported from there and imported again: a few interactions; `make test-long` takes all."""
    upgraded(empty_database.engine())
    with (
        Store(f"sqlite:///{tmp_path / 'a.db'}") as source,
        Store(empty_database.url) as between,
        Store(f"sqlite:///{tmp_path / 'b.db'}") as target,
    ):
        for wire in SPOKEN:
            for one in sample(wire):
                conversation = begun(source, one)
                if one["status"] == 200:
                    answer(conversation, one)
        assert source.copy_to(between).differences == []
        target.import_export(between.export())
        assert rows(list(target.export())) == rows(list(source.export()))
        conversations = list(source.list_conversations(limit=1000))
        assert len(conversations) > 40
        for conversation in conversations:
            assert bodies(target.get_conversation(conversation.id)) == bodies(conversation)
            assert bodies(between.get_conversation(conversation.id)) == bodies(conversation)


def sample(wire: FormatName) -> list[Any]:
    found = [one for one in recorded(wire).values() if one.get("request")]
    return found if is_set("THREADKEEP_LONG") else found[:: max(1, len(found) // 10)]


def test_only_some_conversations(stores: Any, store: Any, face: str, tenant: str) -> None:
    one, two = full(store), full(store, "bob", "y")
    lines = list(store.export(conversation_ids=[two.id, two.id]))
    target = a_target(stores, face, f"{tenant} 2")
    report = target.import_export(lines)
    assert (report.conversations, report.attempts) == (1, 1)
    with pytest.raises(NotFound):
        target.get_conversation(one.id)
    with pytest.raises(NotFound):
        list(store.export(conversation_ids=[one.id, "conv_" + "0" * 32]))


def test_a_user_takes_and_brings_only_what_is_theirs(stores: Any, store: Any, face: str, tenant: str) -> None:
    ann, bob = full(store), full(store, "bob", "y")
    lines = list(store.for_user("bob").export())
    assert ann.id not in "".join(lines)
    assert '"ann"' not in "".join(lines)
    everything = list(store.export())
    with pytest.raises(NotFound):
        list(store.for_user("bob").export(conversation_ids=[ann.id]))
    target = a_target(stores, face, f"{tenant} 2")
    with pytest.raises(CannotParse, match=r"line .*bob"):
        target.for_user("bob").import_export(everything)
    assert target.for_user("bob").import_export(lines).conversations == 1
    assert target.for_user("bob").get_conversation(bob.id).user_id == "bob"
    with pytest.raises(Conflict, match="taken"):  # an id of somebody else is not theirs to import
        store.for_user("eve").import_export(changed(lines, '"user_id":"bob"', '"user_id":"eve"'))
    ledger = [lines[0], *changed(block(lines, "ledger"), '"bob"', '"eve"', id_offset=1), lines[-1]]
    with pytest.raises(Conflict, match="another user"):
        store.for_user("eve").import_export(ledger)


def test_a_user_sees_and_forges_no_feedback_of_others(stores: Any, store: Any, face: str, tenant: str) -> None:
    conversation = full(store)
    conversation.set_feedback(2, rating=-1, comment="Rude", user_id="rater")
    conversation.set_feedback(2, rating=-1, comment="Rude")
    lines, everything = list(store.for_user("ann").export()), list(store.export())
    assert '"Fine"' in "".join(lines)
    assert '"Rude"' not in "".join(lines)
    target = a_target(stores, face, f"{tenant} 2")
    target.for_user("ann").import_export(everything)
    assert [one.user_id for one in target.get_conversation(conversation.id).feedback()] == ["ann"]
    target.delete_conversation(conversation.id)
    target.purge_deleted()
    target.import_export(everything)
    assert [one.user_id for one in target.get_conversation(conversation.id).feedback()] == [None, "ann", "rater"]


def block(lines: list[str], kind: str) -> list[str]:
    start = next(n for n, line in enumerate(lines) if line.startswith(f'{{"begin":"{kind}"'))
    end = next(n for n, line in enumerate(lines) if n > start and line.startswith(f'{{"end":"{kind}"'))
    return lines[start : end + 1]


def changed(lines: list[str], old: str, new: str, *, id_offset: int = 0) -> list[str]:
    """An export that somebody made by hand: changed, and with checksums that fit."""
    found, digest = [], Digest()
    for text in lines:
        line = json.loads(text.replace(old, new))
        if "begin" in line:
            digest = Digest()
        elif "row" in line:
            if id_offset and "id" in line["row"]:
                line["row"]["id"] += id_offset
            add_to(digest, BY_NAME.get(line["table"], schema.usage_records), line["row"])
        elif "end" in line:
            line |= {"rows": digest.count, "checksum": digest.hex()}
        found.append(json.dumps(line))
    return found


Damage = Callable[[list[str]], list[str]]
# What is wrong -> what does it to the lines, and what the error says
DAMAGES: dict[str, tuple[Damage, str]] = {
    "empty": (lambda _: [], "empty"),
    "no header": (lambda lines: lines[1:], "line 1: .*not the beginning"),
    "a future version": (lambda lines: [lines[0].replace(":1", ":2", 1), *lines[1:]], "line 1: .*version 2"),
    "cut in a line": (lambda lines: [*lines[:6], lines[6][:-20]], "line 7: .*not JSON"),
    "cut between lines": (lambda lines: lines[:7], "cut off after line 7"),
    "a line is missing": (lambda lines: [*lines[:5], *lines[6:]], "line .*not complete"),
    "a line twice": (lambda lines: [*lines[:6], *lines[5:]], "line .*not complete|not the one row"),
    "a changed text": (lambda lines: [line.replace("Hello", "Hullo") for line in lines], "line .*(changed|hash)"),
    "an array": (lambda lines: [*lines[:3], "[]", *lines[3:]], "line 4: .*not an object"),
    "an unknown table": (lambda lines: changed(lines, '"table":"items"', '"table":"things"'), "no table 'things'"),
    "an unknown column": (lambda lines: changed(lines, '"position":', '"place":'), "no column 'place'"),
    "a bad value": (lambda lines: changed(lines, '"position":0', '"position":"0"'), "position cannot be '0'"),
    "a bad time": (lambda lines: changed(lines, '"created_at":"2', '"created_at":"x2'), "created_at cannot be"),
    "another config": (lambda lines: changed(lines, "Be brief.", "Be long."), "hash does not match"),
    "a missing config": (lambda lines: without(lines, "configs"), "no row of configs with the hash"),
    "missing media": (lambda lines: without(lines, "blobs"), "no row of blobs with the hash"),
    "missing tools": (lambda lines: without(lines, "tool_definitions"), "no row of tool_definitions"),
    "missing items": (lambda lines: without(lines, "items"), "do not fit together"),
    "no conversation": (lambda lines: without(lines, "conversations"), "no row of the conversation"),
    "a counter": (lambda lines: changed_number(lines, "next_position"), "next_position is not above"),
    "deleted": (lambda lines: changed(lines, '"status":"active"', '"status":"deleted"'), "not the one row"),
    "labels": (lambda lines: changed(lines, r'{\"a\":\"b\"}', r'{\"a\":1}'), "labels is not what"),
    "properties": (lambda lines: changed(lines, r'{\"p\":\"q\"}', "[]"), "properties is not what"),
    "a lineage": (lambda lines: replaced(lines, '"lineage":"[^"]*"', '"lineage":"nope"'), "lineage is not JSON"),
    "no parts": (lambda lines: replaced(lines, '"lineage":"[^"]*"', '"lineage":"[[0]]"'), "lineage is not what"),
    "no options": (lambda lines: configured(lines, "nope"), "config is not JSON"),
    "other options": (lambda lines: configured(lines, "[1]"), "config is not what"),
    "an origin": (lambda lines: configured(lines, '{"imported":1}'), "config is not what"),
    "no lease": (lambda lines: replaced(lines, '"lease_until":"[^"]*"', '"lease_until":null'), "without a lease"),
    "no stream": (lambda lines: without(lines, "stream_parts"), "its first part is missing"),
}  # fmt: skip


def without(lines: list[str], table: str) -> list[str]:
    return changed([line for line in lines if not line.startswith(f'{{"table":"{table}"')], "\x00", "\x00")


def changed_number(lines: list[str], name: str) -> list[str]:
    return replaced(lines, rf'"{name}":\d+', f'"{name}":1')


def replaced(lines: list[str], pattern: str, new: str) -> list[str]:
    return changed([re.sub(pattern, lambda _: new, line) for line in lines], "\x00", "\x00")


def configured(lines: list[str], config: str) -> list[str]:
    """With other options, under their own hash."""
    for row in [line["row"] for line in map(json.loads, lines) if line.get("table") == "configs"]:
        lines = changed(lines, json.dumps(row["config"])[1:-1], json.dumps(config)[1:-1])
        lines = changed(lines, row["hash"], sha256(config.encode()).hexdigest())
    return lines


def test_damage_is_refused_and_leaves_nothing(stores: Any, store: Any, face: str, tenant: str, tables: Tables) -> None:
    full(store)
    lines, target = list(store.export()), a_target(stores, face, f"{tenant} 2")
    counted = Tables(tables._connection, target.handle.scope.tenant)
    before = counted.counts()
    for name, (change, message) in DAMAGES.items():
        with pytest.raises(CannotParse, match=message):
            target.import_export(change(lines))
        assert counted.counts() == before, name


def test_what_was_complete_is_kept(stores: Any, store: Any, face: str, tenant: str) -> None:
    full(store)
    lines, target = list(store.export()), a_target(stores, face, f"{tenant} 2")
    for damaged in (lines[:-1], [*lines[:-1], lines[-1].replace(":1,", ":9,")]):
        with pytest.raises(CannotParse, match=r"cut off|missing before"):
            target.import_export(damaged)
        assert len(list(target.list_conversations())) == 1


def test_ids_that_are_taken_are_refused(stores: Any, store: Any, face: str, tenant: str) -> None:
    conversation = full(store)
    lines = list(store.export(conversation_ids=[conversation.id]))
    target = a_target(stores, face, f"{tenant} 2")
    other = target.create_conversation(external_id="x")
    with pytest.raises(Conflict, match="external_id"):
        target.import_export(lines)
    target.delete_conversation(other.id)
    assert target.import_export(lines).conversations == 1
    moved = [line.replace(conversation.id, "conv_" + "0" * 32).replace(conversation.id[5:], "0" * 32) for line in lines]
    with pytest.raises(Conflict, match="internal key"):
        target.import_export(changed(moved, '"external_id":"x",', ""))


@pytest.mark.parametrize("given", [None, 1, "text", b"bytes", {}, [1], [None], object()])
def test_what_is_no_export_is_refused(store: Any, given: Any) -> None:
    with pytest.raises((InvalidOption, CannotParse)):
        store.import_export(given)
    if given is not None:
        with pytest.raises((InvalidOption, NotFound)):
            list(store.export(conversation_ids=given))


def test_an_export_within_a_transaction(database: Database, store: Any, face: str) -> None:
    """It shows what the transaction has written."""
    if face == "async":
        pytest.skip("the host of this test is a blocking one")
    with database.engine().connect() as host:
        conversation = store.within(host).create_conversation(model="m", input="not committed")
        assert conversation.id in "".join(store.within(host).export())
        host.rollback()
    assert conversation.id not in "".join(store.export())


def test_an_export_and_an_import_take_statements_by_the_batch(stores: Any, store: Any, face: str, tenant: str) -> None:
    """… not by the item."""
    counts = {}
    for size in (10, 1_000):
        conversation = store.create_conversation(model="m", input=[a_message(str(number)) for number in range(size)])
        with statements_of(store) as seen:
            lines = list(store.export(conversation_ids=[conversation.id]))
        target = a_target(stores, face, f"{tenant} {size}")
        with statements_of(target) as written:
            target.import_export(lines)
        counts[size] = len(seen), len(written)
    assert counts[1_000][0] - counts[10][0] == 5
    assert counts[1_000][1] - counts[10][1] <= 3  # a second batch, and PostgreSQL counts a table that has doubled


def test_short_conversations_are_written_together(
    stores: Any, store: Any, face: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction for some thousand rows, each table by one statement: 40 take what 4 do."""
    counts = {}
    for size in (4, 40):
        made = [store.create_conversation(model="m", input=str(number), labels={"a": "b"}) for number in range(size)]
        lines = list(store.export(conversation_ids=[conversation.id for conversation in made]))
        target = a_target(stores, face, f"{tenant} {size}")
        with statements_of(target) as seen:
            assert target.import_export(lines).conversations == size
        counts[size] = len(seen)
        assert target.import_export(lines).skipped == size
    assert counts[40] <= counts[4] + 1  # PostgreSQL counts a table that has grown
    monkeypatch.setattr(blocks, "BATCH_ROWS", 12)
    target = a_target(stores, face, f"{tenant} in small batches")
    assert target.import_export(lines).conversations == 40
    assert rows(list(target.export())) == rows(lines)


def test_what_comes_before_a_conversation_that_is_refused_is_kept(
    stores: Any, store: Any, face: str, tenant: str
) -> None:
    """The error names its line, as if each had been written alone; what comes behind it is not there."""
    made = [store.create_conversation(model="m", input=f"no {number}", external_id=f"{number}") for number in range(4)]
    lines = list(store.export(conversation_ids=[conversation.id for conversation in made]))
    ends = [number for number, line in enumerate(lines, 1) if '"end":"conversation"' in line]
    taken, unfit, known = (a_target(stores, face, f"{tenant} {name}") for name in ("taken", "unfit", "known"))
    taken.create_conversation(external_id="2")
    with pytest.raises(Conflict, match="external_id '2'"):
        taken.import_export(lines)
    assert len(list(taken.list_conversations())) == 3
    with pytest.raises(CannotParse, match=rf"line {ends[2] + 1}: .*do not fit together"):
        unfit.import_export(changed([one for line in lines for one in [line] * (1 + ("no 2" in line))], "\x00", "\x00"))
    assert len(list(unfit.list_conversations())) == 2
    known.import_export(list(store.export(conversation_ids=[made[1].id])))
    with pytest.raises(Conflict, match=rf"before line {ends[1]}\) is there"):
        known.import_export(lines, existing="refuse")
    assert len(list(known.list_conversations())) == 2


def test_an_unused_call_is_a_fine_export(store: Any) -> None:
    """A store without conversations has an export, too."""
    conversation = store.create_conversation(model="m", input=[a_call()])
    store.delete_conversation(conversation.id)
    first, last = (json.loads(line) for line in store.export())
    assert first["threadkeep_export"] == 1
    assert last == {"complete": True, "conversations": 0, "rows": 0}


def test_any_text_comes_back() -> None:
    """Also surrogates, null characters, line breaks of every kind, and what looks like a line of an export."""
    titles = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
    with Store("sqlite://") as one, Store("sqlite://") as two:

        @settings(max_examples=500 if is_set("THREADKEEP_LONG") else 15)
        @given(st.lists(st.text(max_size=40).map("a{}".format), min_size=1, max_size=5), titles, st.text(max_size=20))
        def comes_back(texts: list[str], title: str, name: str) -> None:
            found = one.create_conversation(model="m", input=[a_message(text) for text in texts], labels={"a": name})
            found.update(title=title)
            lines = list(one.export(conversation_ids=[found.id]))
            assert all(line.count("\n") == 1 for line in lines)
            two.import_export("".join(lines).encode("utf-8", "surrogatepass").splitlines(keepends=True))
            copy = two.get_conversation(found.id)
            assert (copy.title, copy.labels) == (found.title, {"a": name})
            ours, theirs = ([item.item.to_dict() for item in it.transcript()] for it in (found, copy))
            assert theirs == ours
            assert rows(list(two.export(conversation_ids=[found.id]))) == rows(lines)

        comes_back()
