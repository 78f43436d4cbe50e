"""import: conversations of other software."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.runs import Cli
from tests.contrib.importers.claude_code_files import Session, a_session
from tests.contrib.importers.export_files import chatgpt, large_export
from threadkeep import Store


def a_file(folder: Path) -> tuple[Path, Session]:
    session = a_session(1)
    path = folder / f"{session.id}.jsonl"
    path.write_text(session.text())
    return path, session


def test_a_file_is_told_by_its_contents(cli: Cli, tmp_path: Path) -> None:
    path, session = a_file(tmp_path)
    first, second = cli("import", str(path), "--user", "ada"), cli("import", str(path), "--user", "ada")
    assert first.out.startswith(f"1 conversation imported (1 new), with {session.items} items and ")
    assert second.out.startswith("0 conversations imported (0 new), with 0 items and 0 responses; 1 unchanged")
    assert [row["user"] for row in cli("ls").rows] == ["ada"]


def test_what_is_skipped_is_listed_on_stderr(cli: Cli, tmp_path: Path) -> None:
    export = chatgpt(2)
    done = cli("import", "--from", "chatgpt", str(export.write(tmp_path)))
    assert f"{len(export.items)} conversations imported" in done.out
    assert sum(int(line.split()[2].rstrip(":")) for line in done.err.splitlines()) == export.broken


def test_what_is_skipped_for_one_reason_is_named_with_some_of_its_places(cli: Cli, tmp_path: Path) -> None:
    a_file(tmp_path)
    names = [tmp_path / f"{number}.txt" for number in range(4)]
    for count, path in enumerate(names, 1):
        path.write_text("text")
        places = "; ".join([*map(str, names[: min(count, 3)]), *(["…"] if count > 3 else [])])
        assert f"skipped {count}: no source recognizes it ({places})\n" in cli("import", str(tmp_path)).err


def test_the_report_is_json_for_programs(cli: Cli, tmp_path: Path) -> None:
    export = chatgpt(2)
    report = cli("import", str(export.write(tmp_path)), "--json").json
    assert report["conversations"] == {"read": 3, "stored": 3, "unchanged": 0, "skipped": 0}
    assert report["sources"] == {"chatgpt": 1}
    assert len(report["skipped"]) == export.broken


def test_a_folder_is_imported_with_everything_in_it(cli: Cli, tmp_path: Path) -> None:
    a_file(tmp_path)
    chatgpt(2).write(tmp_path)
    assert "4 conversations imported" in cli("import", str(tmp_path)).out


def test_a_dry_run_reports_and_writes_nothing(cli: Cli, tmp_path: Path) -> None:
    path, _ = a_file(tmp_path)
    assert "1 conversation would be imported" in cli("import", str(path), "--dry-run").out
    assert cli("ls").rows == []


def test_a_dry_run_comes_before_there_is_a_database(cli: Cli, tmp_path: Path) -> None:
    path, _ = a_file(tmp_path)
    database = tmp_path / "new.db"
    done = cli("--url", f"sqlite:///{database}", "import", str(path), "--dry-run")
    assert "1 conversation would be imported (1 new)" in done.out
    assert "there is no database" in done.err
    assert not database.exists()


def test_a_large_import_shows_its_progress_on_a_terminal(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    with path.open("wb") as file:
        file.writelines(large_export("chatgpt", 3 << 20))
    assert "MiB read" in cli.on_terminal("import", str(path))
    assert cli.spawn("import", str(path)).err == ""


def test_what_does_not_fit_together_is_refused(cli: Cli, tmp_path: Path) -> None:
    path, _ = a_file(tmp_path)
    session = tmp_path / "session.json"
    session.write_text('{"input": "Hello"}')
    for args, message in (
        (["import", str(path), str(session)], "Import them one after the other."),
        (["import", "--from", "chatgpt", "-"], "cannot be read from stdin"),
        (["import", "--from", "icq", str(path)], "--from must be one of auto, codex, qwen-code"),
        (["import", str(path), "--key", "k"], "--key is not for files of other software."),
        (["import", str(tmp_path / "none.json"), "--dry-run"], "none.json': No such file or directory."),
        (["import", ".aider.chat.history.md"], "Run aider through threadkeep record"),
        (["import", "--from", "auto", str(path)], "--from auto takes one folder"),
        (["import"], "FILE is missing: name a file, or - for stdin."),
        (["import", str(tmp_path), "--follow"], "--follow is not for files of other software without --from auto."),
    ):
        assert message in cli(*args, code=2).err
    assert cli("ls").rows == []


def test_a_dry_run_checks_sessions_and_requests_and_writes_nothing(cli: Cli, tmp_path: Path) -> None:
    session, request = tmp_path / "session.json", tmp_path / "request.json"
    session.write_text('{"input": "Hello"}\n{"input": "Goodbye"}')
    request.write_text('{"model": "claude-sonnet-5", "messages": [{"role": "user", "content": "Hello"}]}')
    assert cli("import", str(session), "--dry-run").out == "2 conversations would be imported.\n"
    assert cli("import", str(request), "-f", "messages", "--dry-run").out == "1 conversation would be imported.\n"
    assert "Give its wire format" in cli("import", str(request), "--dry-run", code=2).err
    assert cli("ls").rows == []


PI = (
    {"type": "session", "version": 3, "id": "s1", "timestamp": "2026-03-01T09:30:00Z", "cwd": "/w"},
    {"type": "message", "id": "1", "parentId": None, "message": {"role": "user", "content": "Hi."}},
)


def a_home(folder: Path) -> Path:
    """A home with sessions of two clients, one of which has a damaged file."""
    session = a_session(1)
    texts = {
        f".claude/projects/w/{session.id}.jsonl": session.text(),
        ".claude/projects/w/damaged.jsonl": "{",
        ".pi/agent/sessions/w/1_s1.jsonl": "".join(json.dumps(line) + "\n" for line in PI),
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def found_in(cli: Cli, *arguments: str) -> dict[str, tuple[int, int, int, int]]:
    clients = cli("import", "--from", "auto", *arguments, "--json").json["clients"]
    return {one["client"]: (one["files"], one["unchanged"], one["sessions"], one["new"]) for one in clients}


def test_what_clients_have_stored_is_found_and_gone_on_with(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    home = a_home(tmp_path / "home")
    expected = {"claude-code": (2, 0, 1, 1), "pi": (1, 0, 1, 1)}
    assert found_in(cli, str(home), "--dry-run") == expected
    assert cli("ls").rows == []
    assert found_in(cli, str(home)) == expected
    assert found_in(cli, str(home)) == {"claude-code": (2, 1, 0, 0), "pi": (1, 1, 0, 0)}  # a damaged file is read again
    with (home / ".pi/agent/sessions/w/1_s1.jsonl").open("a") as file:
        file.write(json.dumps({**PI[1], "id": "2", "parentId": "1"}) + "\n")
    assert found_in(cli, str(home))["pi"] == (1, 0, 1, 0)
    monkeypatch.setenv("HOME", str(home))
    done = cli("import", "--from", "auto")
    assert "damaged.jsonl" in done.err
    nothing = cli("import", "--from", "auto", str(tmp_path / "state"), "--dry-run")
    assert (nothing.out, nothing.err.count("\n")) == ("", 1)
    shutil.rmtree(tmp_path / "state")
    assert found_in(cli, str(home))["pi"] == (1, 0, 1, 0)  # is read again, and stored once
    assert len(cli("ls").rows) == 2


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_clients_are_followed_until_a_signal(tmp_path: Path, end: signal.Signals) -> None:
    home, url = a_home(tmp_path / "home"), f"sqlite:///{tmp_path}/followed.db"
    path = home / ".pi/agent/sessions/w/1_s1.jsonl"
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    command = [sys.executable, "-m", "threadkeep", "--url", url, "import", "--from", "auto", str(home), "--follow"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "following" in line:
                break
        line = json.dumps({**PI[1], "id": "2", "parentId": "1"}) + "\n"
        with path.open("a") as file:  # a line that is not whole yet is left
            file.write(line[:30])
            file.flush()
            for said in process.stderr:
                if "1 unchanged" in said or "imported" in said:
                    break
            file.write(line[30:])
        for said in process.stderr:
            if "with 1 item" in said or "items" in said:
                break
        process.send_signal(end)
        process.communicate(timeout=60)
    assert process.returncode == 0
    with Store(url) as store:
        session = store.find_conversation(external_id="pi:s1")
        assert session is not None
        assert [item.given()["content"][0]["text"] for item in session.items()] == ["Hi.", "Hi."]
