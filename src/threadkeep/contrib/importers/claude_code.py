"""Claude Code: a file of JSON Lines for each session, and one for each agent that a session started.

Source: the files in ``~/.claude/projects``, which are not documented.

* Every line with a `uuid` follows its `parentUuid`, or after a compaction its `logicalParentUuid`.
* An answer is spread over a line for each block, which have the `id` of the message in common, and all report usage:
  the same figures, or in older releases the current ones. The output of an answer is unknown if its lines only have
  the placeholder that a stream starts with: no stop reason and one figure, or one token for more than a word. With a
  stop reason, the stream broke off there: Claude Code writes `end_turn` then.
* Results of tools follow the line of their call, also where an answer has several calls, and stand before its next
  line if they are there by then. So the lines of an answer are put in a row here, and behind it the results of its
  calls; what follows any of these follows the last one.
* A `compact_boundary` follows what was compacted; the summary behind it stands for that, but for the messages that it
  preserves, which are sent again behind the summary. Its call has no line: its usage is what the running totals of a
  `cost-state` have beyond the answers of the session and its agents. Output alone is no call: of an answer that broke
  off, they have an estimate.
* Lines of agents are in a file of their own, with another one that says what they are, or in the file of their
  session (`isSidechain`); they are conversations of their own.
* A session that was forked begins with copies, of which answers have a `requestSessionId`; they count where they came
  from, if that session is there.
* What the program says in the user's place (`isMeta`) or the model's (`<synthetic>`) has it as its author.
* What an API answered in place of a message is a line of the type `system`, or a message with `isApiErrorMessage`.
* `api-request-shape` and `api-request` have system prompt, tools and options of requests, `prompt_snapshot` the prompt.
* Other lines without a `uuid` say something about the session or the program: titles are used, unknown ones counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import PurePath
from typing import Any, Final

from threadkeep.contrib.importers import agent_turns, inputs, json_files, records
from threadkeep.contrib.importers.items import last_model, list_of, object_of, text_of, time_of
from threadkeep.contrib.importers.records import Answer, Entry, Skipped, Transcript
from threadkeep.domain import jsontext, searching
from threadkeep.domain.items import ItemInput
from threadkeep.domain.usage import figure
from threadkeep.errors import CannotParse
from threadkeep.formats.messages.request import message_objects
from threadkeep.formats.shared.usage import cumulative

FORMAT: Final = "messages"
PROVIDER: Final = "anthropic"
AUTHOR: Final = f"{searching.PROGRAM}claude-code"  # of what the program says in the place of a person or a model
SYNTHETIC: Final = "<synthetic>"  # the model of messages that the program made itself
# type of a line about the session -> the key of a title in it; a later type goes before an earlier one
TITLES: Final = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}
NOTES: Final = frozenset({*TITLES, "file-history-snapshot", "queue-operation"})
# types of lines that say nothing of the conversation
SILENT: Final = frozenset(
    {
        "agent-name", "api-request-blob", "atis-latch", "file-history-snapshot", "last-prompt", "mode",
        "permission-mode", "pr-link", "queue-operation", "tag", "tools-used",
    }
)  # fmt: skip
COMPACTING: Final = "compact"  # in the source of a request for a summary
# key of a running total -> of a usage object
TOTALS: Final = {
    "inputTokens": "input_tokens", "outputTokens": "output_tokens", "cacheReadInputTokens": "cache_read_input_tokens",
    "cacheCreationInputTokens": "cache_creation_input_tokens",
}  # fmt: skip
# key of what is known of an agent -> property of its conversation
AGENT: Final = {"agentType": "agent_type", "description": "agent_description", "toolUseId": "call_id"}
# key of a line -> property of the conversation
PROPERTIES: Final = {"cwd": "cwd", "gitBranch": "git_branch", "version": "version", "agentId": "agent_id"}
ONE_TOKEN: Final = 32  # more characters than one token of text has
_NONE: Final = Answer(FORMAT)
_SESSION: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ClaudeCode:
    """Sessions of Claude Code."""

    name: Final = "claude-code"

    def recognizes(self, input: inputs.Input, /) -> bool:
        """Return whether one of the first lines is one of a session."""
        if input.path is not None and input.path.name.endswith(".meta.json"):  # what is known of an agent
            return "agentType" in input.first_keys()
        return any(
            {"parentUuid", "sessionId", "uuid"} <= line.keys()
            or (line.get("type") == "summary" and "leafUuid" in line)
            or (text_of(line, "type") in NOTES and "sessionId" in line)
            for line in input.first_lines
        )

    def id_of(self, input: inputs.Input, /) -> str | None:
        """Return the id of the session of a file, which is its name; of an agent, also the name of its folder."""
        path = input.path
        if path is None or path.suffix != ".jsonl":
            return None
        if _SESSION.fullmatch(path.stem):
            return path.stem
        session = path.parent.parent.name
        is_agent = path.stem.startswith("agent-") and _SESSION.fullmatch(session)
        return f"{session}/{path.stem.removeprefix('agent-')}" if is_agent else None

    def read(self, input: inputs.Input, /) -> Iterator[Transcript | Skipped]:
        """Return the session of a file, and the sessions of its agents."""
        if input.path is not None and input.path.name.endswith(".meta.json"):
            return
        session, fingerprint = _ClaudeCodeSession(input), input.fingerprint()
        yield from json_files.skipped_lines(input, session.add)
        yield from session.skipped()
        chains = [chain for chain in session.chains.values() if chain.lines]
        for chain in chains:
            is_whole = len(chains) == 1 and not session.others
            transcript = replace(chain.transcript(session), fingerprint=fingerprint if is_whole else None)
            chain.lines.clear()  # they have more than it needs
            yield transcript


@dataclass(slots=True)
class _ClaudeCodeSession:
    """The lines of a file."""

    input: inputs.Input
    chains: dict[str, _Chain] = field(default_factory=dict)  # by the agent; "": the session itself
    titles: dict[str, str] = field(default_factory=dict)
    id: str = ""
    others: Counter[str] = field(default_factory=Counter)
    chain_of: dict[str, str] = field(default_factory=dict)  # lines of agents that are not named
    shape: jsontext.JsonObject = field(default_factory=dict)  # of the newest request
    options: jsontext.JsonObject = field(default_factory=dict)
    costs: list[_CostState] = field(default_factory=list)

    def add(self, found: json_files.FileObject) -> None:
        """Take in a line."""
        line = found.value
        kind, uuid = str(line.get("type")), text_of(line, "uuid")
        self.id = text_of(line, "sessionId") or self.id
        if uuid is not None:
            name = self._chain(line, uuid)
            if (chain := self.chains.get(name)) is None:
                chain = self.chains[name] = _Chain(name)
            chain.add(found, uuid)
            if prompt := list_of(object_of(line, "attachment"), "systemPrompt"):
                self.shape = self.shape or {"system": [{"type": "text", "text": text} for text in prompt]}
        elif (title := text_of(line, TITLES.get(kind, ""))) is not None:
            self.titles[kind] = title
        else:
            self._note(line, kind)

    def _note(self, line: jsontext.JsonObject, kind: str) -> None:
        """Take in a line about requests and what they cost."""
        if kind == "api-request-shape":
            self.shape = object_of(line, "shape")
        elif kind == "cost-state":
            self.costs.append(_CostState.of(line, self.chains.values()))
        elif kind == "api-request":
            if COMPACTING not in str(line.get("querySource")):
                self.options = object_of(line, "params")
        elif kind not in SILENT:
            self.others[kind] += 1

    def _chain(self, line: jsontext.JsonObject, uuid: str) -> str:
        """Which agent a line is of; one without a name is called after its first line."""
        if line.get("isSidechain") is not True:
            return ""
        parent = text_of(line, "parentUuid") or ""
        name = text_of(line, "agentId") or self.chain_of.get(parent, uuid)
        self.chain_of[uuid] = name
        return name

    def skipped(self) -> Iterator[Skipped]:
        """The lines that are not of a conversation."""
        for kind, count in self.others.items():
            yield Skipped(self.input.name, f"lines of the type {kind!r} are not part of the conversation", count)

    def title(self) -> str | None:
        """The title that was given last, titles by the user before others."""
        return next((self.titles[kind] for kind in reversed(TITLES) if kind in self.titles), None)

    def session_id(self) -> str:
        """The id of the session: files are named after it; a file of an agent, or another one, says it."""
        stem = "" if self.input.path is None else PurePath(self.input.path).stem
        return stem if _SESSION.fullmatch(stem) else self.id or stem

    def request(self) -> jsontext.JsonObject | None:
        """The newest request, without its messages."""
        options = {name: value for name, value in self.options.items() if name != "betas"}
        return {**options, **self.shape, "messages": []} if self.shape or options else None

    def agent(self) -> jsontext.JsonObject:
        """What is known of the agent whose file this is."""
        path = None if self.input.path is None else self.input.path.with_suffix(".meta.json")
        try:
            value = {} if path is None else jsontext.loads(path.read_bytes())
        except (OSError, ValueError):
            return {}
        return value if isinstance(value, dict) else {}

    def has_session(self, id: str) -> bool:
        """Whether another session is in the same folder."""
        path = self.input.path
        return path is not None and _SESSION.fullmatch(id) is not None and path.with_name(f"{id}.jsonl").exists()

    def unlisted(self, *, is_fork: bool) -> Iterator[records.SideCall]:
        """Calls without a line: what the totals grew by beyond the answers that there are; of a fork, since the first.

        There are none if the totals are not of the models that answered.
        """
        agents = self._agents() if self.costs else []
        before: dict[str, Counter[str]] = {}
        for number, state in enumerate(self.costs):
            if (rest := state.unlisted(agents)) is None:
                return
            for model, counts in rest.items():
                usage = +_less(counts, before.get(model, Counter()))
                if usage.keys() - {"output_tokens"} and (number or not is_fork):
                    answer = Answer(FORMAT, model=model, provider=PROVIDER, usage=dict(usage))
                    yield records.SideCall(f"{number} {model}", answer, state.at, entry=state.entry)
            before = rest

    def _agents(self) -> list[tuple[datetime | None, Answer]]:
        """The answers of the agents of this session which have files of their own, and when they were written."""
        path = self.input.path
        folder = None if path is None else path.with_suffix("") / "subagents"
        answers: list[tuple[datetime | None, Answer]] = []
        for one in sorted(folder.glob("*.jsonl")) if folder is not None and folder.is_dir() else ():
            agent = _ClaudeCodeSession(inputs.Input(str(one), one, is_named=False))
            for found in json_files.json_lines(agent.input):
                if not isinstance(found, Skipped) and found.value.get("type") == "assistant":
                    agent.add(found)
            answers += [(chain.times.get(id_), answer) for chain in agent.chains.values()
                        for id_, answer in chain.answers.items()]  # fmt: skip
        return answers


def _counts(answer: Answer) -> Counter[str]:
    usage = answer.usage or {}
    return Counter({name: figure(usage.get(name)) or 0 for name in TOTALS.values()})


def _less(one: Counter[str], other: Counter[str]) -> Counter[str]:
    """The difference of two counts, which may be below 0."""
    return Counter({name: one[name] - other[name] for name in TOTALS.values()})


@dataclass(slots=True)
class _CostState:
    """Running totals: of each model, and what the lines before them say.

    `entry` is the newest entry before them: the summary, if there is one since the state before.
    """

    totals: dict[str, Counter[str]]
    answered: dict[str, Counter[str]]
    at: datetime | None
    entry: str | None

    @classmethod
    def of(cls, line: jsontext.JsonObject, chains: Iterable[_Chain]) -> _CostState:
        """Read a line that stands behind the lines of the chains."""
        totals = {
            model: Counter({name: figure(usage.get(key)) or 0 for key, name in TOTALS.items()})
            for model, usage in object_of(line, "modelUsage").items()
            if isinstance(usage, dict)
        }
        state = cls(totals, {}, None, None)
        for chain in chains:
            for answer in chain.answers.values():
                state.answered.setdefault(answer.model or "", Counter()).update(_counts(answer))
            if chain.last is not None:
                state.at = time_of(chain.lines[chain.last].value, "timestamp") or state.at
                state.entry, chain.summary = chain.summary or chain.newest, None
        return state

    def unlisted(self, agents: Iterable[tuple[datetime | None, Answer]]) -> dict[str, Counter[str]] | None:
        """What the totals have beyond the answers; None if they are not of the models that answered."""
        for at, answer in agents:
            if self.at is not None and at is not None and at <= self.at:
                self.answered.setdefault(answer.model or "", Counter()).update(_counts(answer))
        if not self.answered.keys() <= self.totals.keys():
            return None
        return {model: _less(total, self.answered.get(model, Counter())) for model, total in self.totals.items()}


@dataclass(slots=True)
class _Chain:
    """The lines of a session, or of an agent of it."""

    agent: str
    lines: dict[str, json_files.FileObject] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)
    bundles: dict[str, str] = field(default_factory=dict)  # line -> message whose lines and results it is among
    tails: dict[str, str] = field(default_factory=dict)  # message -> the last of its lines so far
    results: dict[str, tuple[str, str]] = field(default_factory=dict)  # message -> the first and last of its results
    answers: dict[str, Answer] = field(default_factory=dict)  # by the ids of messages
    times: dict[str, datetime | None] = field(default_factory=dict)  # when they came
    sizes: dict[str, int] = field(default_factory=dict)  # of their content
    grown: set[str] = field(default_factory=set)  # whose output was counted more than once
    origins: dict[str, str] = field(default_factory=dict)  # of messages that are copies: their sessions
    kept: dict[str, list[str]] = field(default_factory=dict)  # summary -> the lines that it preserves
    calls: list[records.SideCall] = field(default_factory=list)
    last: str | None = None
    newest: str | None = None  # the last line with a message
    summary: str | None = None  # the newest one since the last running totals

    def add(self, found: json_files.FileObject, uuid: str) -> None:
        """Put a line in its place."""
        if uuid in self.lines:  # written again by a session that was resumed
            return
        line = found.value
        message = object_of(line, "message")
        parent = text_of(line, "parentUuid") or text_of(line, "logicalParentUuid")
        parent = parent if parent is None or parent in self.lines else self.last  # of one that is gone
        bundle = self.bundles.get(parent or "")
        id_ = text_of(message, "id") if line.get("type") == "assistant" else None
        if (error := _error_of(line, message)) is not None:
            made = Answer(FORMAT, provider=PROVIDER, status="failed")
            self.calls.append(records.SideCall(uuid, made, time_of(line, "timestamp"), error, self.newest))
            message, id_ = {}, None
        elif id_ is not None:
            self._answered(id_, line, message)
        if parent in self.kept:
            parent = _copy_name(parent, self.kept[parent][-1])
        self.parents[uuid] = self._end(id_ if id_ in self.tails else bundle, parent, is_answer=id_ in self.tails)
        self._bundle(uuid, message, id_, bundle)
        self.lines[uuid], self.last = found, uuid
        self._compacted(line, uuid)

    def _compacted(self, line: jsontext.JsonObject, uuid: str) -> None:
        """Note a summary, and what a boundary says that it preserves."""
        preserved = object_of(object_of(line, "compactMetadata"), "preservedMessages")
        lines = [one for one in list_of(preserved, "uuids") if one in self.lines]
        if lines and (anchor := text_of(preserved, "anchorUuid")):
            self.kept[anchor] = lines
        self.summary = uuid if line.get("isCompactSummary") is True else self.summary

    def _bundle(self, uuid: str, message: jsontext.JsonObject, id_: str | None, before: str | None) -> None:
        """Note the answer that a line belongs to, given the answer of the line before it."""
        self.newest = uuid if message else self.newest
        if id_ is None and (before is None or (message and not _has_results(message))):
            return
        bundle = self.bundles[uuid] = id_ or before or ""
        if id_ is not None:
            self.tails[bundle] = uuid
            if bundle in self.results:
                self.parents[self.results[bundle][0]] = uuid
        elif message:
            first, _ = self.results.get(bundle, (uuid, uuid))
            self.results[bundle] = first, uuid

    def _end(self, answer: str | None, parent: str | None, *, is_answer: bool) -> str | None:
        """What follows an answer follows: its last line if that is one, too, or else the last of its results."""
        tail = self.tails.get(answer or "", parent)
        return tail if is_answer else self.results.get(answer or "", (tail, tail))[1]

    def _answered(self, id_: str, line: jsontext.JsonObject, message: jsontext.JsonObject) -> None:
        self.times[id_] = time_of(line, "timestamp")
        if origin := text_of(line, "requestSessionId"):
            self.origins[id_] = origin
        if message.get("model") == SYNTHETIC:
            return
        before = self.answers.get(id_, _NONE)
        known, told = before.usage, object_of(message, "usage") or None
        usage = known if told == known else cumulative(known, told)
        reason = text_of(message, "stop_reason") or before.finish_reason
        if before.usage and _output(usage) > _output(before.usage):
            self.grown.add(id_)
        self.sizes[id_] = self.sizes.get(id_, 0) + sum(map(_size, list_of(message, "content")))
        model = text_of(message, "model")
        if before is _NONE or (before.model, before.usage, before.finish_reason) != (model, usage, reason):
            self.answers[id_] = Answer(FORMAT, id_, model, PROVIDER, usage, finish_reason=reason)

    def _count(self) -> None:
        """Forget counts of output that are placeholders, and ends of streams that had none."""
        for id_, answer in self.answers.items():
            is_start = answer.finish_reason is None and id_ not in self.grown
            if is_start or (_output(answer.usage) <= 1 and self.sizes[id_] > ONE_TOKEN):
                known = {key: value for key, value in (answer.usage or {}).items() if key != "output_tokens"}
                is_cut = answer.finish_reason == "end_turn"
                ending = ("incomplete", None) if is_cut else (answer.status, answer.finish_reason)
                self.answers[id_] = replace(answer, usage=known or None, status=ending[0], finish_reason=ending[1])

    def _forget_copies(self, session: _ClaudeCodeSession) -> None:
        """Leave the usage of answers that are copies to the session from which they are, if it is there."""
        elsewhere = {
            one for one in {*self.origins.values()} if one != session.session_id() and session.has_session(one)
        }
        for id_, origin in self.origins.items():
            if origin in elsewhere and id_ in self.answers:
                self.answers[id_] = replace(self.answers[id_], id=None, usage=None)

    def transcript(self, session: _ClaudeCodeSession) -> Transcript:
        """The conversation."""
        skipped: list[Skipped] = []
        calls = [*self.calls, *(() if self.agent else session.unlisted(is_fork=bool(self.origins)))]
        self._count()
        self._forget_copies(session)
        entries = [entry for uuid in self.lines for entry in self._entries(uuid, skipped)]
        lines = [found.value for found in self.lines.values()]
        told = ((name, (text_of(line, key) for line in reversed(lines))) for key, name in PROPERTIES.items())
        about = {name: text for name, texts in told if (text := next(filter(None, texts), None))}
        id_ = session.session_id()
        labels = {"agent": self.agent, "parent": f"{ClaudeCode.name}:{id_}"} if self.agent else {}
        if forked := [one for one in self.origins.values() if one != id_]:
            labels["forked-from"] = f"{ClaudeCode.name}:{forked[-1]}"
        if self.agent:
            known = session.agent()
            about |= {name: text for key, name in AGENT.items() if (text := text_of(known, key))}
        return Transcript(
            id=f"{id_}/{self.agent}" if self.agent else id_,
            where=session.input.name,
            entries=entries,
            title=None if self.agent else session.title(),
            model=last_model(self.answers.values()),
            created_at=next((at for line in lines if (at := time_of(line, "timestamp"))), None),
            labels=labels,
            properties=about,
            calls=calls,
            request=session.request(),
            request_format=FORMAT,
            skipped=skipped,
        )

    def _entries(self, uuid: str, skipped: list[Skipped]) -> Iterator[Entry]:
        """The entry of a line; of a summary, also the messages that are sent again behind it."""
        entry = self._entry(uuid, skipped)
        if self.lines[uuid].value.get("isCompactSummary") is not True:
            yield entry
            return
        summary = "".join(part["text"] for item in entry.items for part in _texts(item))
        yield replace(entry, items=[{"type": "compaction", "summary": summary}] if summary else [])
        before = uuid
        for kept in self.kept.get(uuid, ()):
            copy = self._entry(kept, [])
            answer = None if copy.answer is None else replace(copy.answer, id=None, usage=None)
            name = _copy_name(uuid, kept)
            yield replace(copy, id=name, parent=before, created_at=entry.created_at, answer=answer)
            before = name

    def _entry(self, uuid: str, skipped: list[Skipped]) -> Entry:
        line = self.lines[uuid].value
        message = object_of(line, "message")
        items: Sequence[ItemInput] = ()
        if message and _error_of(line, message) is None:
            try:
                role, content = message.get("role", line.get("type")), message.get("content")
                items = list(map(agent_turns.item_of, message_objects({"role": role, "content": content})))
            except CannotParse as error:
                skipped.append(Skipped(self.lines[uuid].where, f"the message cannot be read: {error.message}"))
        is_by_program = line.get("isMeta") is True or message.get("model") == SYNTHETIC
        by = {"author_id": AUTHOR} if is_by_program else {}
        answer = self.answers.get(text_of(message, "id") or "") if items and line.get("type") == "assistant" else None
        given = [{**_object_of(one), **by} for one in items] if by else items
        return Entry(uuid, self.parents[uuid], given, time_of(line, "timestamp"), answer)


def _error_of(line: jsontext.JsonObject, message: jsontext.JsonObject) -> jsontext.JsonObject | None:
    """What an API answered in place of a message."""
    if line.get("type") == "system" and line.get("subtype") == "api_error":
        error = object_of(line, "error")
        return {name: error[name] for name in ("message", "status") if error.get(name) is not None}
    if line.get("isApiErrorMessage") is True:
        return {"message": "".join(text_of(part, "text") or "" for part in list_of(message, "content"))}
    return None


def _has_results(message: jsontext.JsonObject) -> bool:
    return any(text_of(block, "type") == "tool_result" for block in list_of(message, "content"))


def _copy_name(summary: str, line: str) -> str:
    return f"{summary}+{line}"


def _texts(item: ItemInput) -> list[Any]:
    """The parts with text of a message."""
    return [part for part in list_of(_object_of(item), "content") if text_of(part, "text")]


def _object_of(item: ItemInput) -> Mapping[str, Any]:
    return item if isinstance(item, Mapping) else item.to_object()


def _output(usage: Mapping[str, Any] | None) -> int:
    return figure((usage or {}).get("output_tokens")) or 0


def _size(block: object) -> int:
    """The size of a block of an answer: of a text its characters, of anything else more than a token."""
    if not isinstance(block, dict):
        return len(block) if isinstance(block, str) else 0
    return len(str(block.get("text") or "")) if block.get("type") == "text" else ONE_TOKEN + 1
