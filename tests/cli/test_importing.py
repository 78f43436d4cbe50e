"""import: conversations of other software."""

from __future__ import annotations

from pathlib import Path

from tests.cli.runs import Cli
from tests.contrib.importers.claude_code_files import Session, a_session
from tests.contrib.importers.export_files import chatgpt, large_export


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
        (["import", "--from", "icq", str(path)], "--from must be one of claude-code"),
        (["import", str(path), "--key", "k"], "--key is not for files of other software."),
        (["import", str(session), "--dry-run"], "--dry-run is for files of other software."),
    ):
        assert message in cli(*args, code=2).err
    assert cli("ls").rows == []
