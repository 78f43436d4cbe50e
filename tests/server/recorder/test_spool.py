"""Calls wait in a spool until they are stored: in order, once, and through the end of a process."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tracemalloc
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.databases import Database
from tests.server.recorder.conftest import recorder, said
from tests.server.recorder.provider import stream, whole
from tests.waiting import wait_until
from threadkeep import InvalidOption, Store
from threadkeep.http import Owner
from threadkeep.server.recorder.spool import Damaged, Spool, SpooledCall, SpoolFull
from threadkeep.server.recorder.spooling import SpooledExchange

SECRET = "sk-secret-0123456789"
HEADERS = {"x-api-key": SECRET, "cookie": f"session={SECRET}"}


def a_question(text: str, **more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": text}
    return {"model": "claude-sonnet-5", "max_tokens": 9, "messages": [message], **more}


def post(url: str, text: str, **more: Any) -> httpx2.Response:
    return httpx2.post(f"{url}/v1/messages", json=a_question(text, **more), headers=HEADERS, timeout=20)


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*/*.spool"))


def test_calls_are_stored_from_the_spool(database: Database, tmp_path: Path) -> None:
    """Plain and streamed, as without a spool; then, nothing of them is left in it."""
    with recorder(database, spool=tmp_path) as recorded:
        recorded.provider.says(whole("messages", "Fine."), stream("messages", ["One, ", "two."]))
        post(recorded.url, "How are you?")
        post(recorded.url, "Count!", stream=True)
        recorded.wait_for(2)
        assert [said(one) for one in recorded.conversations()] == [
            ["user: How are you?", "assistant: Fine."],
            ["user: Count!", "assistant: One, two."],
        ]
        wait_until(lambda: recorded.application.state.health()["spooled"] == 0)  # just after they can be seen
        health = recorded.application.state.health()
        assert (health["spooled_bytes"], health["behind_seconds"]) == (0, 0)
        [file] = files(tmp_path)
        assert file.stat().st_size == 0
        assert {one.stat().st_mode & 0o777 for one in tmp_path.rglob("*") if one.is_file()} == {0o600}
    assert [one.name for one in tmp_path.iterdir()] == ["lock"]


@pytest.mark.parametrize("streams", [False, True])
def test_of_a_user_who_is_erased_meanwhile_it_keeps_figures_alone(
    database: Database, tmp_path: Path, *, streams: bool
) -> None:
    """Of a call that waits to be stored; what the user says afterwards is stored."""
    tenant = uuid4().hex
    with Store(database.url, tenants=True) as stores:
        store = stores.create_tenant(tenant)
        options: Any = {"auth": lambda _: Owner(user_id="ann", tenant=tenant), "spool": tmp_path}
        with ExitStack() as stack:
            recorded = stack.enter_context(recorder(database, stop_seconds=0, **options))
            with recorded.gone_database():
                recorded.provider.says(stream("messages", ["Fine."]) if streams else whole("messages", "Fine."))
                post(recorded.url, "How are you?", stream=streams)
                stack.close()
        store.erase_user("ann", vacuum=False)
        with recorder(database, **options) as other:
            other.wait_for(1)
            assert [*store.list_conversations(status=None)] == []
            assert [(row.user_id, row.attempts) for row in store.usage(by=("user_id",))] == [(None, 1)]
            other.provider.says(whole("messages", "Fine."))
            post(other.url, "Me again.")
            other.wait_for(2)
        assert [one.user_id for one in store.list_conversations()] == ["ann"]


def test_the_next_process_stores_what_is_left_in_order(database: Database, tmp_path: Path) -> None:
    """Each call goes on with the conversation of the one before, so that their order is seen."""
    texts = [f"Question {number}" for number in range(5)]
    with ExitStack() as stack:
        recorded = stack.enter_context(recorder(database, spool=tmp_path, stop_seconds=0))
        with recorded.gone_database():
            history: list[dict[str, str]] = []
            for text in texts:
                recorded.provider.says(whole("messages", f"Answer to {text}"))
                history.append({"role": "user", "content": text})
                httpx2.post(f"{recorded.url}/v1/messages", json={**a_question(""), "messages": history})
                history.append({"role": "assistant", "content": f"Answer to {text}"})
            assert recorded.application.state.health()["spooled"] == len(texts)
            figures = {one.name: one.samples[0].value for one in recorded.application.state.collector.collect()}
            assert figures["threadkeep_recorder_spooled"] == len(texts)
            assert figures["threadkeep_recorder_spooled_bytes"] > 0
            assert set(recorded.counts.values()) == {0}
            stack.close()
    assert files(tmp_path)
    with recorder(database, spool=tmp_path) as other:
        while (told := other.application.state.health())["recorded"] < len(texts):
            assert told["spooled"] > 0
        other.wait_for(len(texts))
        wait_until(lambda: not other.application.state.health()["spooled"])
    with Store(database.url, tenants=True) as store:
        [conversation] = store.for_tenant(recorded.tenant).list_conversations()
        assert said(conversation) == [
            line for text in texts for line in (f"user: {text}", f"assistant: Answer to {text}")
        ]
        assert len(conversation.responses()) == len(texts)
    assert not files(tmp_path)


def test_no_key_is_in_the_spool(tmp_path: Path, database: Database) -> None:
    """Neither of headers, nor of tools, nor where an answer repeats one, even in two pieces."""
    answer = whole("messages", f"Your key is {SECRET}.")
    [body] = answer.chunks
    middle = body.index(SECRET.encode()) + 5
    answer.chunks = [body[:middle], body[middle:]]
    with recorder(database, spool=tmp_path, stop_seconds=0) as recorded, recorded.gone_database():
        recorded.provider.says(answer)
        server = {"type": "url", "name": "mcp", "url": "http://127.0.0.1", "authorization_token": SECRET}
        assert SECRET in post(recorded.url, "Hi", mcp_servers=[server]).text
        content = b"".join(file.read_bytes() for file in files(tmp_path))
        assert b"Your key is ***" in content
        assert SECRET.encode() not in content


def test_a_call_that_has_no_room_passes_and_is_counted(database: Database, tmp_path: Path) -> None:
    with recorder(database, spool=tmp_path, spool_limit=100) as recorded:
        recorded.provider.says(whole("messages", "Fine."))
        assert post(recorded.url, "Hi").json()["content"][0]["text"] == "Fine."
        recorded.wait_for(0, dropped=1)
        assert recorded.application.state.health()["spooled_bytes"] == 0


# The files


def written(spool: Spool, *payloads: bytes, is_whole: bool = True) -> SpooledCall:
    call = spool.begin()
    for number, payload in enumerate(payloads, 1):
        spool.append(call, payload, is_last=is_whole and number == len(payloads))
    return call


def recovered(directory: Path) -> list[bytes]:
    """What another process reads, in order; "?" for what is damaged."""
    spool, found = Spool(directory), []
    for call in spool.recover():
        try:
            found.append(b"+".join(call.read()))
        except Damaged:
            found.append(b"?")
        spool.finish(call)
    spool.close()
    return found


def test_calls_come_in_the_order_of_their_ends_and_last_what_broke_off(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    first = spool.begin()
    spool.append(first, b"one", is_last=False)
    broken = written(spool, b"three", is_whole=False)
    written(spool, b"two")
    spool.append(first, b"more", is_last=True)
    assert broken.frames
    spool.close()
    assert recovered(tmp_path) == [b"two", b"one+more", b"three"]
    assert recovered(tmp_path) == []


def test_what_is_stored_is_not_read_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    written(spool, b"one")
    spool.finish(written(spool, b"two"))
    written(spool, b"three")
    spool.close()
    assert recovered(tmp_path) == [b"one", b"three"]


@pytest.mark.parametrize("at", [0, 20, 40, 60], ids=["folder", "call", "length", "content"])
def test_damage_is_reported_and_the_rest_is_kept(tmp_path: Path, at: int, caplog: pytest.LogCaptureFixture) -> None:
    spool = Spool(tmp_path)
    for text in (b"one" * 20, b"two" * 20, b"three" * 20):
        written(spool, text)
    spool.close()
    [file] = files(tmp_path)
    content = bytearray(file.read_bytes())
    position = content.index(b"two") - 47
    content[position + at] ^= 1
    file.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert [one for one in recovered(tmp_path) if one != b"?"] == [b"one" * 20, b"three" * 20]
    assert file.with_suffix(".damaged").read_bytes() == content
    assert at == 60 or "is damaged from byte" in caplog.text
    assert recovered(tmp_path) == []


def test_a_frame_that_was_not_written_whole_is_passed_over(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    written(spool, b"one")
    written(spool, b"two" * 100)
    spool.close()
    [file] = files(tmp_path)
    file.write_bytes(file.read_bytes()[:-50])
    assert recovered(tmp_path) == [b"one"]


def test_what_clients_send_is_never_taken_for_a_frame(tmp_path: Path) -> None:
    """A copy of a frame in a call counts as little as anything else in it, also after damage."""
    other = Spool(tmp_path / "other")
    written(other, b"forged")
    [forged] = files(tmp_path / "other")
    spool = Spool(tmp_path / "own")
    written(spool, forged.read_bytes())
    written(spool, b"after")
    spool.close()
    [file] = files(tmp_path / "own")
    content = bytearray(file.read_bytes())
    content[40] ^= 1
    file.write_bytes(content)
    assert recovered(tmp_path / "own") == [b"after"]
    other.close()


def test_the_limit_counts_what_other_processes_left(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    written(spool, b"x" * 1000)
    spool.close()
    other = Spool(tmp_path, limit=1500)
    with pytest.raises(SpoolFull):
        written(other, b"y" * 1000)
    for call in other.recover():
        other.finish(call)
    assert written(other, b"y" * 1000).size == 1000
    other.close()


def test_a_process_takes_nothing_from_one_that_lives(tmp_path: Path) -> None:
    first = Spool(tmp_path)
    written(first, b"one")
    second = Spool(tmp_path)
    assert list(second.recover()) == []
    written(second, b"two")
    first.close()
    assert recovered(tmp_path) == [b"one"]
    second.close()
    assert recovered(tmp_path) == [b"two"]


# What is wrong with files, and with directories


def left(directory: Path, *payloads: bytes) -> Path:
    """The file of a process that has ended with calls that are not stored."""
    spool = Spool(directory)
    for payload in payloads:
        written(spool, payload)
    [file] = [path for path in files(directory) if path.stat().st_size and path.parent == spool._folder]
    spool.close()
    return file


@pytest.mark.parametrize("damage", ["head", "foreign frames", "foreign text"])
def test_a_file_whose_end_is_no_frame_is_kept(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    file = left(tmp_path, b"one" * 20, b"two" * 20)
    content, size = file.read_bytes(), file.stat().st_size // 2
    if damage == "head":
        content = content[: size + 30] + b"?" + content[size + 31 :]
    elif damage == "foreign frames":
        content = content[:size] + left(tmp_path / "another", b"three").read_bytes()
    else:
        content = content[:size] + b"Notes of somebody, who has found a directory for them.\n"
    file.write_bytes(content)
    assert recovered(tmp_path) == [b"one" * 20]
    assert file.with_suffix(".damaged").read_bytes() == content
    assert f"{file} is damaged from byte {size} on: {len(content) - size} bytes." in caplog.text


@pytest.mark.parametrize("unreadable", ["000001.spool", "000001.stored"])
def test_what_cannot_be_read_hides_nothing_else(
    tmp_path: Path, unreadable: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = left(tmp_path, b"one")
    if unreadable == first.name:
        first.rename(first.with_name("000002.spool"))
    (first.parent / unreadable).mkdir()
    left(tmp_path / "later", b"two")
    for folder in (tmp_path / "later").iterdir():
        folder.rename(tmp_path / folder.name)
    assert sorted(recovered(tmp_path)) == [b"one", b"two"]
    assert f"{unreadable} cannot be read: Is a directory." in caplog.text
    kept = unreadable.replace(".spool", ".damaged")
    assert {path.name for path in first.parent.iterdir()} - {"lock"} == {kept}


def test_a_file_that_is_damaged_while_it_is_written_is_kept(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    call = written(spool, b"one" * 20)
    [file] = files(tmp_path)
    content = file.read_bytes().replace(b"one", b"two", 1)
    file.write_bytes(content)
    with pytest.raises(Damaged, match="is damaged at byte 0"):
        list(call.read())
    spool.finish(call)
    assert file.with_suffix(".damaged").read_bytes() == content
    other = written(spool, b"three")
    assert list(other.read()) == [b"three"]
    spool.finish(other)
    spool.close()


def test_what_is_foreign_in_the_directory_stays(tmp_path: Path) -> None:
    """Also in folders with names like those of processes."""
    names = [tmp_path / "notes.txt", tmp_path / ("0" * 32) / "notes.txt", tmp_path / ("1" * 32) / "more" / "notes.txt"]
    for name in names:
        name.parent.mkdir(parents=True, exist_ok=True)
        name.write_text("Notes")
    (tmp_path / ("2" * 32)).mkdir()
    (tmp_path / ("2" * 32) / "lock").symlink_to("gone/lock")  # as if it were just being removed
    left(tmp_path, b"one")
    assert recovered(tmp_path) == [b"one"]
    assert [name.read_text() for name in names] == ["Notes"] * 3


def test_a_large_foreign_file_is_searched_in_pieces(tmp_path: Path) -> None:
    file = left(tmp_path, b"one")
    content = file.read_bytes()
    with file.open("wb") as sparse:
        sparse.seek(100 * 1024 * 1024)
        sparse.write(content)
    tracemalloc.start()
    assert recovered(tmp_path) == [b"one"]
    assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024
    tracemalloc.stop()


@pytest.mark.parametrize("what", ["", "lock", "0123456789abcdef0123456789abcdef/lock"])
def test_a_directory_that_cannot_be_used_is_refused(tmp_path: Path, what: str) -> None:
    """A file in its place, or something in it that is not as a process has left it."""
    path = tmp_path / "spool" / what
    path.parent.mkdir(parents=True, exist_ok=True)
    if what:
        path.mkdir()
    else:
        path.write_text("Notes")
    with pytest.raises(InvalidOption, match=r"spool' cannot be used: .+\. Name a directory that can be written\."):
        Spool(tmp_path / "spool")


def test_a_directory_that_is_gone_is_named_as_the_cause(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls pass."""
    with recorder(database, spool=tmp_path / "spool") as recorded:
        (tmp_path / "spool").rename(tmp_path / "elsewhere")
        recorded.provider.says(whole("messages", "Fine."))
        assert post(recorded.url, "Hi").is_success
        recorded.wait_for(0, dropped=1)
        assert "the spool has no room: No such file or directory (1 so far)" in caplog.text


def test_a_call_in_progress_is_in_the_spool_as_far_as_it_came(database: Database, tmp_path: Path) -> None:
    """However little that is: a kill finds what the client has seen of it."""
    live, killed = tmp_path / "live", tmp_path / "killed"

    async def read(call: SpooledCall) -> tuple[bytes, bytes, str]:
        exchange = SpooledExchange(call, 1_000_000)
        asked, answer = await exchange.request_body(), await exchange.answer()
        assert answer is not None
        return asked, await answer.aread(), exchange.ending[0]

    with recorder(database, spool=live) as recorded:
        recorded.provider.says(stream("messages", ["One, ", "two."], hold_after=3))
        body = a_question("Count!", stream=True)
        with httpx2.stream("POST", f"{recorded.url}/v1/messages", json=body, timeout=20) as response:
            chunks = response.iter_raw()
            seen = b""
            while b"One, " not in seen:
                seen += next(chunks)
            wait_until(lambda: any(b"One, " in file.read_bytes() for file in files(live)))
            shutil.copytree(live, killed)
            recorded.provider.release.set()
            assert b"message_stop" in b"".join(chunks)
        recorded.wait_for(1)
    spool = Spool(killed)
    [call] = spool.recover()
    asked, answered, how = asyncio.run(read(call))
    spool.close()
    assert (b"Count!" in asked, answered, how) == (True, seen, "stopped")
