"""Each client through the recorder: what is stored is what the provider was asked and has answered, call by call.

What the client has written is imported: alone, it is the same; where it was recorded, it adds nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.clients.clients import CLIENTS, SECONDS, Client, DidNotEndError, Home
from tests.clients.conftest import noting, program
from tests.clients.provider import AGENTS, Call, Provider
from tests.server.servers import running
from tests.waiting import wait_until
from threadkeep import AsyncStore, Conversation, Price, Store
from threadkeep.contrib.importers import import_from
from threadkeep.contrib.importers.engine import UNRECOGNIZED
from threadkeep.http import RecordedUpstream, recorder_app

INPUT, OUTPUT = 2, 5  # dollars for a million tokens
# Each situation as turns, of which each has a prompt and what it goes on with; those in one turn run at the same time
Turn = Sequence[tuple[str, str]]
FIRST: Turn = [("[[tool:one]] Say hi.", "")]
SITUATIONS: dict[str, list[Turn]] = {
    "plain": [FIRST],
    "resumed": [FIRST, [("[[tool:two]] And again.", "resume")]],
    "forked": [FIRST, [("[[tool:other]] Another way.", "fork")]],
    "compacted": [FIRST, [("[[full:big]] Much.", "resume")], [("", "compact")], [("[[tool:after]] Go on.", "resume")]],
    "agents": [[("[[agents:kids]] Start two.", "agents")]],
    "twins": [[("[[tool:zero]] Begin.", "")], [*FIRST, *FIRST]],
    "pair": [[("[[pair:both]] Say it twice.", "")]],
    "error": [[("[[error:bad]] Say hi.", "")]],
    "broken": [[("[[break:cut]] Say hi.", "")]],
}
# how many conversations there are then that are no agents' and no side calls'
SESSIONS = {"forked": 2, "twins": 3}
CASES = [
    (name, format_, situation)
    for name, client in CLIENTS.items()
    for format_ in client.formats
    for situation in SITUATIONS
    if client.has(situation) and (situation in client.in_all_formats or format_ == client.formats[0])
]


@dataclass
class Run:
    """A client in its home, between which and the provider there is a recorder."""

    client: Client
    home: Home
    provider: Provider
    store: Store | None
    connections: list[str]  # those that came, and the lifespan
    printed: list[str] = field(default_factory=list)

    def take(self, turn: Turn, *, may_fail: bool = False) -> None:
        commands = []
        for prompt, how in turn:
            if how == "compact" and not self.client.compact:
                continue
            more = {"resume": self.client.resume, "fork": self.client.fork, "compact": self.client.resume}.get(how)
            words = more(self.home) if more is not None else self.client.agents_by if how == "agents" else ()
            commands.append([self.client.path, *self.client.turn(prompt or self.client.compact, words)])
        before = len(self.connections)
        try:
            self.printed.append(self.home.run(*commands, may_fail=may_fail))
        except DidNotEndError as error:
            if len(self.connections) == before:
                pytest.skip(f"{self.client.path.name} asked nothing within {SECONDS} seconds: {error}")
            raise

    def conversations(self) -> list[Conversation]:
        """What is stored, once all is."""
        assert self.store is not None
        store = self.store
        wait_until(lambda: store.usage()[0].attempts == len(self.provider.calls), lambda: self.provider.calls)
        return list(store.list_conversations(status=None, order_by="created", order="asc"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Starts a provider, and a recorder before it, for a client in a new home."""
    with ExitStack() as stack:

        def start(name: str, format_: str, *, directly: bool = False) -> Run:
            client = CLIENTS[name]
            program(client.path)
            home, provider = Home(tmp_path / f"home-{directly:d}"), Provider(client.shell, client.agent, client.wait)
            connections = list[str]()
            behind = provider.application if not directly else noting(provider.application, connections)
            url, store = stack.enter_context(running(behind)), None
            if not directly:
                database = f"sqlite:///{tmp_path}/recorded.db"
                mine = AsyncStore(database, prices=[Price("*", INPUT, OUTPUT)])
                recorder = recorder_app(mine, [RecordedUpstream.named(f"here={format_}@{url}")])
                url = f"{stack.enter_context(running(noting(recorder, connections), mine))}/here"
                store = stack.enter_context(Store(database))
            client.setup(home, url, format_)
            return Run(client, home, provider, store, connections)

        yield start


@pytest.mark.parametrize(("name", "format_", "situation"), CASES)
def test_what_is_recorded_and_written(
    start: Callable[..., Run], tmp_path: Path, name: str, format_: str, situation: str
) -> None:
    run = start(name, format_)
    for turn in SITUATIONS[situation]:
        run.take(turn, may_fail=situation == "broken")
    conversations = run.conversations()
    calls = {call.id: call for call in run.provider.calls if not call.fault}
    places = {}  # of each answer: in which conversation it is
    for conversation in conversations:
        for response in conversation.responses():
            if response.provider_response_id in calls and response.status == "completed":
                call = calls[response.provider_response_id]
                assert call.id not in places, "an answer is stored once"
                places[call.id] = conversation
                items = conversation.on_branch(response.branch).items(limit=1000)
                at = range(response.from_position, response.to_position + 1)
                assert said([one.item.to_object() for one in items if one.position in at]) == scripted(call)
    assert sorted(places) == sorted(calls)
    check_bill(run, calls)
    aside = {one.id for one in conversations if "request-class" in one.labels}
    agents = {one.id for one in conversations if "agent" in one.labels}
    sessions = [one for one in conversations if one.id not in aside | agents]
    unknown = AGENTS if situation == "agents" and not agents else 0  # of clients that do not say so
    is_lost = situation == "forked" and format_ in run.client.nameless
    known = 1 if is_lost else SESSIONS.get(situation, 1) + unknown
    assert len(sessions) == known, [(one.external_id, one.labels) for one in conversations]
    for call in calls.values():
        is_aside = places[call.id].id in aside
        assert is_aside == (not call.script), call
    of_agents = {places[call.id].id for call in calls.values() if "kids-" in call.script}
    assert of_agents <= agents or len(of_agents) == unknown
    for conversation in sessions:
        check_order(conversation, [call for call in calls.values() if places[call.id].id == conversation.id])
    if run.client.files:
        check_imported_alone(run, calls, Store(f"sqlite:///{tmp_path}/imported.db", prices=[Price("*", INPUT, OUTPUT)]))
        check_imported_too(run, forks=int(is_lost))


def check_imported_alone(run: Run, calls: dict[str, Call], store: Store) -> None:
    """Each answer to what was typed is there once, with its bill; side calls may be in no file."""
    with store:
        report = import_from(store, run.home.path / run.client.files)
        assert set(report.reasons) <= {UNRECOGNIZED}
        left: dict[tuple[int | None, ...], Call]
        left = {(call.input_tokens, call.output_tokens, cost(call)): call for call in calls.values()}
        for row in store.usage(by=("conversation_id", "response", "status")):
            if row.keys["response"] is None or row.keys["status"] != "completed":
                continue
            call = left.pop((row.input_tokens, row.output_tokens, row.cost_nano))
            conversation = store.get_conversation(str(row.keys["conversation_id"]))
            response = conversation.get_response(int(str(row.keys["response"])))
            items = conversation.on_branch(response.branch).items(limit=1000)
            places = range(response.from_position, response.to_position + 1)
            shown = said([one.item.to_object() for one in items if one.position in places])
            shown, expected = ([one for one in some if one != call.thought] for some in (shown, scripted(call)))
            if call.script.startswith("break:"):  # some write what had come before, too
                shown = [shown[-1][-len(expected[-1]) :]]
            assert shown == expected  # not all clients keep thoughts
        assert [call for call in left.values() if call.script] == []
        [bill] = store.usage()
        assert bill.attempts <= len(run.provider.calls)
        assert (bill.input_tokens or 0) <= sum(call.input_tokens for call in run.provider.calls)


def check_imported_too(run: Run, forks: int) -> None:
    """Nothing is new where all was recorded, but forks that no call had told from the rest; nothing counts again."""
    assert run.store is not None
    before = len(list(run.store.list_conversations(status=None)))
    for created in (forks, 0):
        report = import_from(run.store, run.home.path / run.client.files)
        assert (report.created, report.attempts, bool(report.responses.stored)) == (created, 0, bool(created))
    assert len(list(run.store.list_conversations(status=None))) == before + forks
    assert run.store.usage()[0].attempts == len(run.provider.calls)
    assert not run.store.check().findings


def check_bill(run: Run, calls: dict[str, Call]) -> None:
    """Each call is counted once, at its price, and those without an answer have failed or are incomplete."""
    assert run.store is not None
    rows = run.store.usage(by=("conversation_id", "response", "status"))
    assert sum(row.attempts for row in rows) == len(run.provider.calls)
    counted = Counter(
        (row.input_tokens, row.output_tokens, row.cost_nano) for row in rows if row.keys["status"] == "completed"
    )
    expected = [(call.input_tokens, call.output_tokens, cost(call)) for call in calls.values()]
    assert counted == Counter(expected)
    faults = {"error": "failed", "break": "incomplete"}
    broken = Counter(faults[call.fault] for call in run.provider.calls if call.fault)
    statuses: Counter[str] = Counter()
    for row in rows:
        statuses[str(row.keys["status"])] += row.attempts
    assert {status: statuses[status] for status in broken} == broken


def cost(call: Call) -> int:
    """In billionths of a dollar."""
    return 1000 * (call.input_tokens * INPUT + call.output_tokens * OUTPUT)


def check_order(conversation: Conversation, calls: list[Call]) -> None:
    """The branch that is shown has the answers in their order, each after what was typed."""
    items = [one.item.to_object() for one in conversation.transcript()]
    texts = [str(one["content"]) for one in items if one.get("role") == "assistant"]
    shown = [found for text in texts for found in re.findall(r"Done \S+, as call (\d+)\.", text)]
    numbers = sorted(call.number for call in calls if call.text and call.script)  # not all ask again after a failure
    assert shown[-1:] == [str(number) for number in numbers[-1:]]
    assert [*dict.fromkeys(shown)] == sorted({*shown}, key=int)


def said(items: Sequence[Any]) -> list[Any]:
    """What items say, whatever their format."""
    found: list[Any] = []
    for item in items:
        match item["type"]:
            case "message":
                found.append("".join(part.get("text", "") for part in item["content"]))
            case "function_call":
                found.append((item["call_id"], ".".join(filter(None, (item.get("namespace"), item["name"])))))
            case "compaction":
                found.append(item.get("summary"))
            case "reasoning":
                parts = [*(item.get("summary") or []), *(item.get("content") or [])]
                found.append("".join(part.get("text") or part.get("thinking") or "" for part in parts))
    return [one for one in found if one]


def scripted(call: Call) -> list[Any]:
    return [one for one in (call.thought, call.text, *((id_, name) for id_, name, _ in call.calls)) if one]


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_does_the_same_without_it(start: Callable[..., Run], name: str) -> None:
    runs = [start(name, CLIENTS[name].formats[0], directly=directly) for directly in (True, False)]
    for run in runs:
        run.take(FIRST)
    directly, through = (
        [(call.script, sorted(call.payload), call.text) for call in run.provider.calls] for run in runs
    )
    assert through == directly
