"""Mistakes that look plausible: none of them passes in silence on the command line."""

from __future__ import annotations

from typing import Final

from tests.cli.runs import Cli

# arguments, with ID for a conversation -> what the error says
MISTAKES: Final = {
    ("usage", "--by", "modle"): "modle",
    ("usage", "--since", "2026-02-01", "--until", "2026-01-01"): "until",
    ("tools", "--since", "2026-02-01", "--until", "2026-01-01"): "until",
    ("usage", "--status", "complted"): "Did you mean 'completed'",
    ("usage", "--format", "mesages"): "Did you mean 'messages'",
    ("usage", "--modle", "m"): "No such option: --modle",
    ("render", "ID", "--format", "mesages"): "messages",
    ("render", "ID", "--format", "messages", "--upto", "99"): "lies behind the last item",
    ("ls", "--status", "archive"): "archived",
    ("label", "ID", "team"): "team",
    ("append", "ID", "no-such-file.json", "--format", "messages"): "no-such-file.json",
    ("export", "--usr", "u1"): "--user",
}


def test_plausible_mistakes_are_refused(cli: Cli, stored: str) -> None:
    failures = {}
    for mistake, problem in MISTAKES.items():
        result = cli(*(stored if word == "ID" else word for word in mistake), code=2)
        if problem not in result.err:
            failures[mistake] = result.err
    assert failures == {}
