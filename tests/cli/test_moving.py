"""export, restore, copy and backup; title, label, fork, archive and delete."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from tests.cli.bodies import ANSWER, SESSION
from tests.cli.runs import PROGRAM, Cli
from tests.factories import a_message
from threadkeep import Session


def test_an_export_is_restored(cli: Cli, stored: str, tmp_path: Path) -> None:
    cli("append", stored, "-", "-f", "open_responses", input=json.dumps(ANSWER))
    file, other = str(tmp_path / "chat.jsonl"), Cli(f"sqlite:///{tmp_path / 'other.db'}")
    assert cli("export", "--output", file, "--json").json == {"file": file, "bytes": Path(file).stat().st_size}
    assert Path(file).read_text() != ""
    assert "1 conversation and 1 row of the ledger imported" in other("restore", file).out
    assert other("restore", "-", "--json", input=Path(file).read_bytes()).json == {
        "conversations": 0, "skipped": 1, "attempts": 0,
    }  # fmt: skip
    assert other("show", stored, "--json").json == cli("show", stored, "--json").json
    other("restore", file, "--refuse", code=4)
    assert other("restore", file, "--user", "bob", code=5).err.startswith(
        "threadkeep: The export cannot be read: line "
    )
    assert "it exists already" in cli("export", "--output", file, code=2).err
    assert "This is an export. `threadkeep restore FILE` reads it back." in cli("import", file, code=2).err


def test_an_export_says_what_it_wrote(cli: Cli, stored: str, tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    written = cli("export", "--output", str(file)).out
    assert re.fullmatch(rf"The tenant 'default' exported to {file} \(\d\.\d KiB\)\.\n", written)
    for option, name in {"user": "bob", "tenant": "default"}.items():
        done = cli("export", f"--{option}", name, "--output", str(tmp_path / f"{name}.jsonl"))
        assert done.out.startswith(f"The {option} {name!r} exported to ")
    one = cli("export", stored, "--markdown", "--output", str(tmp_path / "chat.md"))
    assert one.out.startswith(f"1 conversation exported to {tmp_path}/chat.md (")


def test_an_export_that_fails_leaves_no_file(cli: Cli, stored: str, tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    cli("export", "conv_" + "0" * 32, "--output", str(file), code=3)
    assert not file.exists()


def test_markdown_has_thoughts_as_texts(cli: Cli, stored: str) -> None:
    thought = {"type": "thinking", "thinking": "t" * 99, "signature": "c2ln"}
    sealed = {"type": "redacted_thinking", "data": "xyz"}
    item = {"type": "reasoning", "origin": "messages", "content": [thought, sealed]}
    with cli.store() as store:
        store.get_conversation(stored).add_items([item])
    text = cli("export", stored, "--markdown").out
    assert "> " + "t" * 99 in text
    assert "signature" not in text


def test_an_export_of_some_as_markdown(cli: Cli, stored: str) -> None:
    with cli.store() as store:
        store.save(Session.from_dict(SESSION), user_id="bob", title="Another")
    text = cli("export", stored, "--markdown").out
    assert text.startswith("# Capitals\n")
    assert "> What is the capital of France?" in text
    assert cli("export", "--markdown").out.count("\n---\n") == 1
    assert "Capitals" not in cli("export", "--markdown", "--user", "bob").out


def test_a_copy_is_compared(cli: Cli, stored: str, tmp_path: Path) -> None:
    to = f"sqlite:///{tmp_path / 'copy.db'}"
    assert "1 compared and equal" in cli("copy", "--to", to).out
    cli("title", stored, "Changed")
    done = cli("copy", "--to", to, "--json", code=4)
    assert done.json["differences"] == [{"conversation_id": stored, "tables": "conversations", "reason": None}]
    assert done.json["is_equal"] is False
    assert f"different: {stored}: conversations" in cli("copy", "--to", to, code=4).err
    assert "1 conversation and" in cli("copy", "--to", to, "--to-tenant", "acme").out
    assert Cli(to)("ls", "--tenant", "acme").rows[0]["title"] == "Changed"
    assert cli("copy", "--to", to, "--to-tenant", "ben", "--user", "bob", "--json").json["compared"] == 0


def test_a_copy_tells_what_only_the_other_database_has(cli: Cli, stored: str, tmp_path: Path) -> None:
    to = f"sqlite:///{tmp_path / 'copy.db'}"
    cli("copy", "--to", to)
    cli("delete", stored, "--yes")
    again = cli("copy", "--to", to)
    assert "0 compared and equal; 1 only there." in again.out
    assert f"threadkeep: only in {to}: {stored}" in again.err
    assert cli("copy", "--to", to, "--json").json["extras"] == [stored]
    Cli(to)("delete", stored, "--yes")
    assert "0 compared and equal.\n" in cli("copy", "--to", to).out


def test_a_file_is_not_copied_to_itself(cli: Cli, stored: str, tmp_path: Path) -> None:
    """… by whatever name, and not in place of a backup of it."""
    (tmp_path / "link").symlink_to(Path(cli.url.removeprefix("sqlite:///")).parent)
    other_name = f"sqlite:///{tmp_path}/link/{Path(cli.url).name}"
    for to in (cli.url, other_name):
        assert "--to is a store of the same tenant in the same database" in cli("copy", "--to", to, code=2).err
    cli("backup", str(tmp_path / "backup.db"))
    assert cli("copy", "--to", f"sqlite:///{tmp_path}/backup.db", "--json").json["skipped"] == 1
    assert cli("ls").rows[0]["id"] == stored


def test_a_backup_is_a_database(cli: Cli, stored: str, tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    assert cli("backup", str(file), "--json").json == {"file": str(file), "bytes": file.stat().st_size}
    assert Cli(f"sqlite:///{file}")("ls").rows[0]["id"] == stored
    cli("backup", str(file), code=2)


def test_what_is_no_export_creates_no_database(cli: Cli, stored: str, tmp_path: Path) -> None:
    """… and a backup is told from it, also by `import`."""
    backup, text = tmp_path / "backup.db", tmp_path / "text"
    cli("backup", str(backup))
    text.write_text("{}")
    other = Cli(f"sqlite:///{tmp_path / 'other.db'}")
    for file, problem in {
        backup: "Open a backup with --url sqlite:///",
        text: "it is not the beginning of an export",
    }.items():
        refused = [other("restore", str(file), code=5), other("restore", "-", input=file.read_bytes(), code=5)]
        assert all(problem in one.err and "created" not in one.err for one in refused)
    assert "Open a backup with --url sqlite:///" in other("import", str(backup), code=5).err
    assert not (tmp_path / "other.db").exists()


def test_titles_and_labels(cli: Cli, stored: str) -> None:
    assert cli("title", stored).out == "Capitals\n"
    assert cli("title", stored, "New").out == "New\n"
    assert cli("title", stored, "--remove", "--json").json == {"id": stored, "title": None}
    cli("title", stored, "x", "--remove", code=2)
    assert cli("label", stored, "a=b c", "d=").out == "a=b c\napp=quiz\nd=\n"
    assert cli("label", stored, "--remove", "a", "--remove", "d", "--json").json["labels"] == {"app": "quiz"}
    assert cli("label", stored).out == "app=quiz\n"
    cli("label", stored, "nothing", code=2)
    cli("title", stored, "Theirs", "--user", "bob", code=3)


def test_a_fork(cli: Cli, stored: str) -> None:
    assert cli("fork", stored).out == "1\n"
    assert cli("fork", stored, "--at", "-1", "--activate", "--json").json == {"id": stored, "branch": 2, "active": True}
    assert [row["active"] for row in cli("branches", stored).rows] == ["no", "no", "yes"]
    assert cli("fork", stored, "--branch", "1").out == "3\n"
    cli("fork", stored, "--at", "9", code=3)


def test_archiving(cli: Cli, stored: str) -> None:
    assert cli("archive", stored, stored).out == "1 conversation archived.\n"
    assert cli("ls").rows == []
    assert cli("unarchive", stored, "--json").json == {"unarchived": [stored]}
    assert len(cli("ls").rows) == 1
    cli("archive", stored, "--user", "bob", code=3)


def test_a_deletion_is_confirmed(cli: Cli, stored: str) -> None:
    with cli.store() as store:
        second = store.save(Session.from_dict(SESSION)).id
    assert "--yes" in cli("delete", stored, second, code=2).err
    cli("delete", stored, "conv_" + "0" * 32, "--yes", code=3)
    cli("delete", stored, "--yes", "--user", "bob", code=3)
    assert len(cli("ls").rows) == 2
    assert cli("delete", stored, second, "--yes").out == "2 conversations deleted.\n"
    assert cli("ls").rows == []


def test_beginnings_of_ids(cli: Cli, stored: str) -> None:
    with cli.store() as store:
        others = [store.save(Session.from_dict(SESSION), user_id="bob").id for _ in range(7)]
        store.get_conversation(stored).record_attempt("open_responses", error="timeout")
    for beginning in (stored, stored[:-1], stored.removeprefix("conv_")[:-1], stored[5:].upper()):
        assert cli("title", beginning).out == "Capitals\n"
        assert cli("show", beginning, "--json").json["id"] == stored
        assert cli("usage", "--conversation", beginning).rows[0]["attempts"] == "1"
        assert len(cli("search", "Capitals", "--conversation", beginning, "--by", "conversation").rows) == 1
    error = cli("show", "conv_0", code=2).err
    assert "'conv_0' is the beginning of more than one id: " in error
    assert error.count("conv_01") == 5
    assert "and more" in error
    assert cli("show", "0", "--user", "ada", "--json").json["id"] == stored  # the only one of this user
    assert "There is no conversation" in cli("show", "conv_f", code=3).err
    assert others[0] not in cli("show", "not-an-id", code=3).err


def test_the_last_items(cli: Cli, stored: str) -> None:
    with cli.store() as store:
        store.get_conversation(stored).add_items([a_message(f"no. {number}") for number in range(1200)])
    shown = cli("show", stored, "--last", "700", "--json").json["items"]
    assert [item["position"] for item in shown] == list(range(501, 1201))
    lines = cli("show", stored, "--last", "2").out
    assert "no. 1198" in lines
    assert "no. 1197" not in lines
    assert cli("show", stored, "--last", "0", "--json").json["items"] == []


@pytest.mark.usefixtures("with_interrupts")
@pytest.mark.parametrize("last", [pytest.param([], marks=pytest.mark.slow), ["--last", "1"]])
def test_following(cli: Cli, stored: str, last: list[str]) -> None:
    arguments = [*PROGRAM, "show", stored, "--follow", "--interval", "0.1", *last]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, env=cli.environment(), text=True) as process:
        assert process.stdout is not None
        read = iter(process.stdout.readline, "")
        next(line for line in read if "capital of France" in line)
        with cli.store() as store:
            store.get_conversation(stored).user("and of Italy?")
        next(line for line in read if "and of Italy?" in line)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


def test_a_doctor(cli: Cli, stored: str) -> None:
    healthy = cli("doctor")
    assert healthy.out == ""
    assert "1 conversation checked, no problems found, 0 repaired" in healthy.err
    engine = create_engine(cli.url)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE threadkeep_conversations SET head_position = 7")
    engine.dispose()
    sick = cli("doctor", "--tenant", "default", code=1)
    assert [(row["code"], row["repair"], row["repaired"]) for row in sick.rows] == [("head", "set it to 0", "no")]
    assert sick.rows[0]["conversation"] == stored
    mended = cli("doctor", "--repair", "--json").json
    assert (mended["found"], mended["repaired"], mended["is_healthy"]) == (1, 1, True)
    assert mended["findings"][0]["problem"] == "head_position is 7, and the last item is at 0"
    assert cli("doctor", "--json").json["findings"] == []
