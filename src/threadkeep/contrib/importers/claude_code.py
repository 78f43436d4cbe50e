"""Claude Code: a file of JSON Lines for each session, and one for each agent that a session started.

Source: the files in ``~/.claude/projects``, which are not documented.

* Every line with a `uuid` follows its `parentUuid`, or after a compaction its `logicalParentUuid`.
* An answer is spread over a line for each block, which have the `id` of the message in common, and all report usage:
  the same figures, or in older releases the current ones. The output of an answer is unknown if its lines only have
  the placeholder that a stream starts with: no stop reason and one figure, or one token for more than a word.
* Results of tools follow the line of their call, also where an answer has several calls. So the lines of an answer and
  the results of its calls are put in a row here; what follows any of these follows the last one.
* Lines of agents that are in the file of their session (`isSidechain`) are conversations of their own.
* A line without a `uuid` says something about the session or the program: titles are used, other lines are counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, Final

from threadkeep.contrib.importers import inputs, json_files
from threadkeep.contrib.importers.items import last_model, list_of, object_of, text_of, time_of
from threadkeep.contrib.importers.records import Answer, Entry, Skipped, Transcript
from threadkeep.domain import formats, jsontext
from threadkeep.domain.items import Item
from threadkeep.domain.usage import figure
from threadkeep.errors import CannotParse
from threadkeep.formats.shared.usage import cumulative

FORMAT: Final = "messages"
PROVIDER: Final = "anthropic"
SYNTHETIC: Final = "<synthetic>"  # the model of messages that the program made itself
# type of a line about the session -> the key of a title in it; a later type goes before an earlier one
TITLES: Final = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}
NOTES: Final = frozenset({*TITLES, "file-history-snapshot", "queue-operation"})
# key of a line -> property of the conversation
PROPERTIES: Final = {"cwd": "cwd", "gitBranch": "git_branch", "version": "version", "agentId": "agent_id"}
ONE_TOKEN: Final = 32  # more characters than one token of text has
_SESSION: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ClaudeCode:
    """Sessions of Claude Code."""

    name: Final = "claude-code"

    def recognizes(self, input: inputs.Input, /) -> bool:
        """Return whether one of the first lines is one of a session."""
        return any(
            {"parentUuid", "sessionId", "uuid"} <= line.keys()
            or (line.get("type") == "summary" and "leafUuid" in line)
            or (text_of(line, "type") in NOTES and "sessionId" in line)
            for line in input.first_lines
        )

    def read(self, input: inputs.Input, /) -> Iterator[Transcript | Skipped]:
        """Return the session of a file, and the sessions of its agents."""
        session = _ClaudeCodeSession(input)
        for found in json_files.json_lines(input):
            if isinstance(found, Skipped):
                yield found
            else:
                session.add(found)
        yield from session.skipped()
        for chain in session.chains.values():
            if chain.lines:
                yield chain.transcript(session)


@dataclass(slots=True)
class _ClaudeCodeSession:
    """The lines of a file."""

    input: inputs.Input
    chains: dict[str, _Chain] = field(default_factory=dict)  # by the agent; "": the session itself
    titles: dict[str, str] = field(default_factory=dict)
    id: str = ""
    others: Counter[str] = field(default_factory=Counter)
    chain_of: dict[str, str] = field(default_factory=dict)  # lines of agents that are not named

    def add(self, found: json_files.FileObject) -> None:
        """Take in a line."""
        line = found.value
        kind, uuid = str(line.get("type")), text_of(line, "uuid")
        self.id = text_of(line, "sessionId") or self.id
        if uuid is not None:
            name = self._chain(line, uuid)
            self.chains.setdefault(name, _Chain(name)).add(found, uuid)
        elif (title := text_of(line, TITLES.get(kind, ""))) is not None:
            self.titles[kind] = title
        else:
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


@dataclass(slots=True)
class _Chain:
    """The lines of a session, or of an agent of it."""

    agent: str
    lines: dict[str, json_files.FileObject] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)
    bundles: dict[str, str] = field(default_factory=dict)  # line -> message whose lines and results it is among
    ends: dict[str, str] = field(default_factory=dict)  # message -> the last of its lines and results so far
    answers: dict[str, Answer] = field(default_factory=dict)  # by the ids of messages
    sizes: dict[str, int] = field(default_factory=dict)  # of their content
    grown: set[str] = field(default_factory=set)  # whose output was counted more than once
    last: str | None = None

    def add(self, found: json_files.FileObject, uuid: str) -> None:
        """Put a line in its place."""
        if uuid in self.lines:  # written again by a session that was resumed
            return
        line = found.value
        message = object_of(line, "message")
        parent = text_of(line, "parentUuid") or text_of(line, "logicalParentUuid")
        if parent is not None and parent not in self.lines:
            parent = self.last  # a line that is gone
        bundle = self.bundles.get(parent or "")
        id_ = text_of(message, "id") if line.get("type") == "assistant" else None
        if id_ is not None:
            self._answered(id_, message)
        self.parents[uuid] = self.ends.get((id_ if id_ in self.ends else bundle) or "", parent)
        self._bundle(uuid, message, id_, bundle)
        self.lines[uuid], self.last = found, uuid

    def _bundle(self, uuid: str, message: jsontext.JsonObject, id_: str | None, before: str | None) -> None:
        """Note the answer that a line belongs to, given the answer of the line before it."""
        has_results = any(text_of(block, "type") == "tool_result" for block in list_of(message, "content"))
        if id_ is None and (before is None or (message and not has_results)):
            return
        bundle = self.bundles[uuid] = id_ or before or ""
        if message:
            self.ends[bundle] = uuid

    def _answered(self, id_: str, message: jsontext.JsonObject) -> None:
        if message.get("model") == SYNTHETIC:
            return
        before = self.answers.get(id_)
        usage = cumulative(None if before is None else before.usage, object_of(message, "usage") or None)
        reason = text_of(message, "stop_reason") or (None if before is None else before.finish_reason)
        if before is not None and before.usage and _output(usage) > _output(before.usage):
            self.grown.add(id_)
        self.sizes[id_] = self.sizes.get(id_, 0) + sum(map(_size, list_of(message, "content")))
        self.answers[id_] = Answer(
            format=FORMAT, id=id_, model=text_of(message, "model"), provider=PROVIDER, usage=usage, finish_reason=reason
        )

    def _count(self) -> None:
        """Forget counts of output that are placeholders."""
        for id_, answer in self.answers.items():
            is_start = answer.finish_reason is None and id_ not in self.grown
            if is_start or (_output(answer.usage) <= 1 and self.sizes[id_] > ONE_TOKEN):
                known = {key: value for key, value in (answer.usage or {}).items() if key != "output_tokens"}
                self.answers[id_] = replace(answer, usage=known or None)

    def transcript(self, session: _ClaudeCodeSession) -> Transcript:
        """The conversation."""
        skipped: list[Skipped] = []
        self._count()
        entries = [self._entry(uuid, skipped) for uuid in self.lines]
        lines = [found.value for found in self.lines.values()]
        about = {name: text for line in lines for key, name in PROPERTIES.items() if (text := text_of(line, key))}
        id_ = session.session_id()
        return Transcript(
            id=f"{id_}/{self.agent}" if self.agent else id_,
            where=session.input.name,
            entries=entries,
            title=None if self.agent else session.title(),
            model=last_model(self.answers.values()),
            created_at=next((at for line in lines if (at := time_of(line, "timestamp"))), None),
            labels={"session": id_} if self.agent else {},
            properties=about,
            skipped=skipped,
        )

    def _entry(self, uuid: str, skipped: list[Skipped]) -> Entry:
        where, line = self.lines[uuid]
        message = object_of(line, "message")
        items: list[Item] = []
        if message:
            try:
                role, content = message.get("role", line.get("type")), message.get("content")
                (items,) = formats.get_format(FORMAT).parse_turns([{"role": role, "content": content}])
            except CannotParse as error:
                skipped.append(Skipped(where, f"the message cannot be read: {error.message}"))
        answer = self.answers.get(text_of(message, "id") or "") if line.get("type") == "assistant" else None
        return Entry(uuid, self.parents[uuid], items, time_of(line, "timestamp"), answer)


def _output(usage: Mapping[str, Any] | None) -> int:
    return figure((usage or {}).get("output_tokens")) or 0


def _size(block: object) -> int:
    """The size of a block of an answer: of a text its characters, of anything else more than a token."""
    if not isinstance(block, dict):
        return len(block) if isinstance(block, str) else 0
    return len(str(block.get("text") or "")) if block.get("type") == "text" else ONE_TOKEN + 1
