"""Codex: a file of JSON Lines for each session, called a rollout.

Source: the files in ``~/.codex/sessions``, which are not documented.

* The first line, `session_meta`, says what the session is, also the base prompt, the session that it was forked from,
  and for an agent the session of its parent; `turn_context` names the model from there on.
* The payload of a `response_item` is an item of the Responses API; the first releases wrote items without `payload`.
  Developer messages that nothing precedes belong to the instructions, as in its requests.
* What a model made in a row is a response. A `token_usage_record` has its id and its usage as `usage`, or as the
  difference between running totals of the thread or of the turn. The `token_count` behind it counts the same once more;
  in older releases it is alone, with `last_token_usage`, or a `total_token_usage` from which the one before is taken;
  one with the same total again is a repetition.
* `compacted` says what the history is from there on: it ends with a compaction item, whose response has no line, or
  with a message that contains the summary. The answer with the summary, `compaction_output`, is not part of it.
* `thread_rolled_back` takes back turns: what comes next is a branch. `turn_aborted` cuts off the response before it.
* A session that was forked has a `history_base`: its beginning is the other rollout, up to a number of a line. In older
  releases, and for agents, it may begin with a copy, written at once. The usage in it belongs to the other session. In
  newer ones the `session_meta` of the other session stands before the copy, and settings that name this one behind it;
  the turn that started an agent ends there as one that was aborted.
* Lines are called by their `ordinal`, or else by their numbers, because a rollout only grows. A rollout that is
  imported while its last answer is being written has no usage of that answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from threadkeep.contrib.importers import agent_turns, inputs, records
from threadkeep.contrib.importers.items import list_of, object_of, text_of, time_of
from threadkeep.contrib.importers.json_files import FileObject, json_lines
from threadkeep.contrib.importers.records import Answer, Entry, Skipped, Transcript
from threadkeep.domain import ids
from threadkeep.domain.items import ItemInput
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.usage import figure
from threadkeep.errors import CannotParse
from threadkeep.formats.open_responses.request import input_object
from threadkeep.formats.shared.views import KEEPS_USERS

FORMAT: Final = "open_responses"
PROVIDER: Final = "openai"
KINDS: Final = frozenset({"session_meta", "turn_context", "response_item", "event_msg", "compacted"})
# key of a count of tokens -> where a usage object of the Responses API has it
COUNTS: Final = {
    "input_tokens": ("input_tokens",),
    "cached_input_tokens": ("input_tokens_details", "cached_tokens"),
    "output_tokens": ("output_tokens",),
    "reasoning_output_tokens": ("output_tokens_details", "reasoning_tokens"),
    "total_tokens": ("total_tokens",),
}
# key of the meta data -> property of the conversation
PROPERTIES: Final = {
    "cwd": "cwd", "cli_version": "version", "originator": "originator", "forked_from_id": "forked_from",
    "agent_nickname": "agent_name",
}  # fmt: skip
# types of lines that say nothing which the conversation has not, as events do, too
SILENT: Final = frozenset({"world_state", "inter_agent_communication_metadata"})
EVENT: Final = "event_msg"
COPYING: Final = timedelta(seconds=1)  # there is less between two lines of a copy, and more before an answer
COPIED: Final = "the usage of what was copied from another session counts there"
MISSING: Final = "the session with which it begins is not there"
THREAD_TOTAL: Final = "thread_token_usage"
TURN_TOTAL: Final = "turn_token_usage"
PAGINATED: Final = "paginated"
MOST_BASES: Final = 1000  # forks of forks
NAME: Final = "codex"
_NAME: Final = re.compile(r"rollout-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-(?P<id>[0-9A-Za-z-]+)\.jsonl")
_THREAD: Final = re.compile(r"[0-9A-Za-z-]+")
_INPUTS: Final = ("_output", "_approval_response", "agent_message")  # how types of items end that no model makes


class Codex:
    """Sessions of Codex."""

    name: Final = NAME

    def recognizes(self, input: inputs.Input, /) -> bool:
        """Return whether the first line begins a rollout."""
        first = next(input.first_lines, {})
        is_new = text_of(first, "type") in KINDS and isinstance(first.get("payload"), dict)
        return is_new or {"id", "timestamp", "instructions"} <= first.keys()

    def id_of(self, input: inputs.Input, /) -> str | None:
        """Return the id of the session of a rollout, which is the end of its name."""
        found = None if input.path is None else _NAME.fullmatch(input.path.name)
        return None if found is None else found["id"]

    def read(self, input: inputs.Input, /) -> Iterator[Transcript | Skipped]:
        """Return the session of a rollout."""
        session, fingerprint = _CodexSession(input), input.fingerprint()
        for number, found in enumerate(json_lines(input)):
            if isinstance(found, Skipped):
                yield found
            else:
                session.add(found, number)
        if session.copies:
            yield Skipped(input.name, COPIED, session.copies)
        for kind, count in session.others.items():
            yield Skipped(input.name, f"lines of the type {kind!r} are not part of the conversation", count)
        is_whole = not session.copies and not session.others
        yield session.transcript(fingerprint if is_whole else None)


class _Draft(NamedTuple):
    """An entry whose response, of that number, may not be over."""

    id: str
    parent: str | None
    items: Sequence[ItemInput]
    at: datetime | None
    answer: int | None

    def entry(self, answers: Sequence[Answer]) -> Entry:
        """The entry, once all is read."""
        return Entry(self.id, self.parent, self.items, self.at, None if self.answer is None else answers[self.answer])


@dataclass(slots=True)
class _CodexSession:
    """The lines of a rollout, as they are read."""

    input: inputs.Input
    meta: JsonObject = field(default_factory=dict)
    model: str | None = None
    drafts: list[_Draft] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)  # what is known of each
    starts: list[str | None] = field(default_factory=list)  # the entries before what the user said
    skipped: list[Skipped] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)
    last: str | None = None
    answering: int | None = None  # the number of the newest response
    is_open: bool = False  # whether more of it may come
    total: JsonObject = field(default_factory=dict)
    totals: dict[str, JsonObject] = field(default_factory=dict)  # of usage records, by their keys
    recorded: set[str] = field(default_factory=set)  # ids of responses whose usage records have come
    is_recorded: bool = False  # whether the next `token_count` says what a record has said
    at: datetime | None = None
    copied_at: datetime | None = None  # the time of the newest line that may be a copy
    copies: int = 0  # of responses, whose usage counts elsewhere
    is_base: bool = False  # whether the lines are those of the session with which it begins
    is_copy: bool = False  # whether they are copies of those
    leading: list[str] = field(default_factory=list)  # instructions besides the base prompt
    tier: str | None = None
    summary: tuple[str, datetime | None] | None = None  # the line of an answer that is a summary, and its time
    calls: list[records.SideCall] = field(default_factory=list)

    def add(self, found: FileObject, number: int) -> None:
        """Take in a line."""
        line = found.value
        id_, kind = str(line.get("ordinal", number)), text_of(line, "type") or ""
        payload, at = object_of(line, "payload"), time_of(line, "timestamp")
        self._note_time(at)
        if object_of(line, "metadata").get("compaction_output") is True:
            self.summary, self.is_open, self.answering = (id_, at), False, None
        elif payload:
            kind = f"{EVENT} {text_of(payload, 'type')}" if kind == EVENT else kind
            if (reader := _READERS.get(kind)) is not None:
                reader(self, FileObject(found.place, payload, found.line), id_, at)
            elif not kind.startswith(EVENT) and kind not in SILENT:
                self.others[kind] += 1
        elif kind in ids.PREFIXES:
            self.item(found, id_, at)
        elif not kind and {"id", "timestamp"} <= line.keys():
            self.meta = self.meta or line
        else:
            self.others[kind] += 1

    def _note_time(self, at: datetime | None) -> None:
        """Note when a line was written, and find out whether it is still one of a copy."""
        self.at = at or self.at
        if self.copied_at is not None and at is not None:
            self.copied_at = at if abs(at - self.copied_at) < COPYING else None

    def begin(self, found: FileObject, _id: str, at: datetime | None) -> None:
        """The session; behind it, what it is a copy of, which has such a line, too."""
        meta = found.value
        if not self.meta:
            spawned = object_of(object_of(object_of(meta, "source"), "subagent"), "thread_spawn")
            origin = text_of(meta, "forked_from_id") or text_of(spawned, "parent_thread_id")
            is_paginated = text_of(meta, "history_mode") == PAGINATED  # then the lines say what is copied
            self.meta, self.copied_at = meta, at if origin and not is_paginated else None
            if base := object_of(meta, "history_base"):
                self.is_base, self.copied_at = True, None
                for number, line in enumerate(_beginning(self.input, base, MOST_BASES)):
                    if isinstance(line, Skipped):
                        self.skipped.append(line)
                    else:
                        self.add(line, number)
                self.is_base, self.is_open, self.answering, self.total, self.totals = False, False, None, {}, {}
        elif text_of(meta, "id") == text_of(self.meta, "id"):
            self.copied_at = None
        elif text_of(self.meta, "history_mode") == PAGINATED:
            self.is_copy = True

    def turn(self, found: FileObject, _id: str, at: datetime | None) -> None:
        """A turn begins."""
        del at
        self.model = text_of(found.value, "model") or self.model

    def settings(self, found: FileObject, _id: str, at: datetime | None) -> None:
        """The settings of the turns from here on."""
        del at
        self.tier = text_of(object_of(found.value, "thread_settings"), "service_tier")
        if self.is_copy and text_of(found.value, "thread_id") == text_of(self.meta, "id"):
            self.is_copy, self.is_open, self.answering = False, False, None

    def item(self, found: FileObject, id_: str, at: datetime | None) -> None:
        """An item."""
        try:
            items = [agent_turns.item_of(input_object(found.value))]
        except CannotParse as error:
            self.skipped.append(Skipped(found.where, f"the item cannot be read: {error.message}"))
            return
        kind, role = str(found.value.get("type")), found.value.get("role")
        if role in ("system", "developer") and not self.drafts and (text := _instructions(found.value)):
            self.leading.append(text)
            return
        is_answer = role == "assistant" if kind == "message" else not kind.endswith(_INPUTS)
        if not is_answer:
            self.is_open = False
        elif not self.is_open:
            self.answering, self.is_open = None, True
        if role == "user":
            self.starts.append(self.last)
            self.totals.pop(TURN_TOTAL, None)
        self._append(id_, items, at, is_answer=is_answer)

    def _new_answer(self, id_: str | None = None, usage: JsonObject | None = None) -> Answer:
        return Answer(FORMAT, id_, self.model, PROVIDER, usage, service_tier=self.tier)

    def compacted(self, found: FileObject, id_: str, at: datetime | None) -> None:
        """What came before was compacted, by the provider, or into a summary that the model was asked for."""
        self.is_open, self.answering, self.summary = False, None, None
        history = [one for one in list_of(found.value, "replacement_history") if isinstance(one, dict)]
        made = next((one for one in reversed(history) if one.get("type") == "compaction"), None)
        item: JsonObject
        if made is not None:
            record = object_of(object_of(found.value, "latest_token_usage_record"), "usage")
            response_id = text_of(found.value, "compaction_response_id")
            item = {**made, "origin": FORMAT, KEEPS_USERS: True}
            if response_id and record and not self.is_base and response_id not in self.recorded:
                self.calls.append(records.SideCall(id_, self._new_answer(response_id, _usage(record)), at, entry=id_))
            self.recorded.add(response_id or "")
        else:
            item = _summary(found.value, history)
            if not item["summary"]:
                return
        self._append(id_, [item], at, is_answer=made is not None)
        self.answering = None

    def _append(self, id_: str, items: Sequence[ItemInput], at: datetime | None, *, is_answer: bool) -> None:
        if is_answer and self.answering is None:
            self.answering = len(self.answers)
            about = {"format": FORMAT, "model": self.model, "provider": PROVIDER, "service_tier": self.tier}
            self.answers.append(about)
        self.drafts.append(_Draft(id_, self.last, items, at, self.answering if is_answer else None))
        self.last = id_

    def counted(self, found: FileObject, _id: str, at: datetime | None) -> None:
        """The usage of the newest response."""
        del at
        info = object_of(found.value, "info")
        total, before = object_of(info, "total_token_usage"), self.total
        if not total or total == before:
            return
        self.total, self.is_open = total, False
        is_recorded, self.is_recorded = self.is_recorded and self.answering is None, False
        if is_recorded:
            return
        last = object_of(info, "last_token_usage") or _difference(total, before)
        self._count(found, _usage(last))

    def record(self, found: FileObject, _id: str, at: datetime | None) -> None:
        """The usage of the newest response, in newer releases."""
        del at
        record = found.value
        totals = {key: total for key in (THREAD_TOTAL, TURN_TOTAL) if (total := object_of(record, key))}
        counts = object_of(record, "usage") or next(
            (_difference(total, self.totals.get(key, {})) for key, total in totals.items()), {}
        )
        response_id = text_of(record, "response_id")
        is_new = response_id not in self.recorded if response_id else any(counts.values())
        if not is_new or not counts:
            return
        self.totals |= totals
        self.recorded.add(response_id or "")
        self.is_open, self.is_recorded = False, True
        if self.summary is None:
            self._count(found, _usage(counts), response_id)
        elif not self.is_base:
            line, at = self.summary
            self.calls.append(records.SideCall(line, self._new_answer(response_id, _usage(counts)), at))

    def _count(self, found: FileObject, usage: JsonObject, response_id: str | None = None) -> None:
        """Give the newest response its usage."""
        if self.is_base:
            self.answering = None
            return
        if self.answering is None and response_id is not None and self.copied_at is None:
            self.calls.append(records.SideCall(response_id, self._new_answer(response_id, usage), self.at))
            return
        if self.answering is None:
            self.skipped.append(Skipped(found.where, "there is no response to which this usage belongs"))
            return
        if self.copied_at is not None:
            self.copies, self.answering = self.copies + 1, None
            return
        self.answers[self.answering] |= {"usage": usage} | ({"id": response_id} if response_id else {})
        self.answering = None

    def abort(self, found: FileObject, _id: str, at: datetime | None) -> None:
        """The turn was interrupted: a response that has no usage was cut off."""
        del found, at
        if self.answering is not None and not self.is_copy:
            self.answers[self.answering]["status"] = "incomplete"
        self.is_open, self.answering = False, None

    def roll_back(self, found: FileObject, _id: str, at: datetime | None) -> None:
        """Turns are taken back."""
        del at
        count = figure(found.value.get("num_turns")) or 0
        self.is_open, self.answering = False, None
        if 0 < count <= len(self.starts):
            self.last = self.starts[-count]
            del self.starts[-count:]

    def transcript(self, fingerprint: str | None) -> Transcript:
        """The conversation."""
        meta = self.meta
        git = object_of(meta, "git")
        known = {name: text for key, name in PROPERTIES.items() if (text := text_of(meta, key))}
        known |= {name: text for name in ("branch", "commit_hash") if (text := text_of(git, name))}
        spawned = object_of(object_of(object_of(meta, "source"), "subagent"), "thread_spawn")
        known |= {name: text for name in ("agent_role", "agent_path") if (text := text_of(spawned, name))}
        parent, id_ = text_of(meta, "parent_thread_id") or text_of(spawned, "parent_thread_id"), text_of(meta, "id")
        labels = {"agent": id_ or "", "parent": f"{NAME}:{parent}"} if parent else {}
        if fork := text_of(meta, "forked_from_id"):
            labels["forked-from"] = f"{NAME}:{fork}"
        base = text_of(meta, "instructions") or text_of(object_of(meta, "base_instructions"), "text")
        answers = [Answer(**one) for one in self.answers]
        stem = "" if self.input.path is None else self.input.path.stem
        return Transcript(
            id=id_ or stem,
            where=self.input.name,
            entries=[one.entry(answers) for one in self.drafts],
            model=self.model,
            instructions="\n\n".join([*([base] if base else []), *self.leading]),
            created_at=time_of(meta, "timestamp"),
            labels=labels,
            properties=known,
            active=self.last,
            calls=self.calls,
            fingerprint=fingerprint,
            skipped=self.skipped,
        )


_READERS: Final[dict[str, Callable[[_CodexSession, FileObject, str, datetime | None], None]]] = {
    "session_meta": _CodexSession.begin,
    "turn_context": _CodexSession.turn,
    "response_item": _CodexSession.item,
    "compacted": _CodexSession.compacted,
    "event_msg token_count": _CodexSession.counted,
    "token_usage_record": _CodexSession.record,
    "event_msg thread_rolled_back": _CodexSession.roll_back,
    "event_msg thread_settings_applied": _CodexSession.settings,
    "event_msg turn_aborted": _CodexSession.abort,
}


def _beginning(input: inputs.Input, base: JsonObject, most: int) -> Iterator[FileObject | Skipped]:
    """The lines of the session with which another one begins, and of the one with which that begins, and so on."""
    thread, end = text_of(base, "thread_id") or "", figure(base.get("end_ordinal_exclusive")) or 0
    path = _rollout(input.path, thread)
    if path is None or not most:
        yield Skipped(input.name, MISSING)
        return
    parent = inputs.Input(str(path), path, is_named=False)
    for number, found in enumerate(json_lines(parent)):
        if isinstance(found, Skipped):
            yield found
            continue
        ordinal = found.value.get("ordinal", number)
        if not isinstance(ordinal, int) or ordinal >= end:
            return
        if found.value.get("type") != "session_meta":
            yield found
        elif inner := object_of(object_of(found.value, "payload"), "history_base"):
            yield from _beginning(parent, inner, most - 1)


def _rollout(beside: Path | None, thread: str) -> Path | None:
    """The rollout of a thread: in the same folder, or where Codex has it, by the day."""
    if beside is None or not _THREAD.fullmatch(thread):
        return None
    name = f"rollout-*-{thread}.jsonl"
    days = beside.absolute().parents[3:4]
    folders = [(beside.parent, name), *((root, f"*/*/*/{name}") for root in days)]
    folders += [(root.parent / "archived_sessions", name) for root in days]
    return next((path for folder, pattern in folders for path in folder.glob(pattern)), None)


def _summary(compacted: JsonObject, history: Sequence[JsonObject]) -> JsonObject:
    """A compaction by a summary, which is the last message of a user; those before it are sent with it."""
    users = [_text_in(one) for one in history if one.get("role") == "user"]
    text = (users[-1] if users else "") or text_of(compacted, "message")
    return {"type": "compaction", "summary": text} | ({KEEPS_USERS: True} if users[1:] else {})


def _text_in(item: JsonObject) -> str:
    """The text of a message."""
    return "".join(text_of(part, "text") or "" for part in list_of(item, "content"))


def _instructions(item: JsonObject) -> str:
    """The texts of a message that has nothing else, each a paragraph; empty for others."""
    content = item.get("content")
    texts = [text_of(part, "text") for part in content] if isinstance(content, list) else [content]
    return "\n\n".join(text for text in texts if isinstance(text, str)) if all(texts) else ""


def _difference(total: JsonObject, before: JsonObject) -> JsonObject:
    """The counts since an earlier total; one that has fallen has begun again."""
    counts = {name: figure(total.get(name)) or 0 for name in COUNTS}
    earlier = {name: figure(before.get(name)) or 0 for name in COUNTS}
    if any(counts[name] < earlier[name] for name in COUNTS):
        return counts
    return {name: count - earlier[name] for name, count in counts.items()}


def _usage(counts: JsonObject) -> JsonObject:
    """Counts of tokens as a usage object of the Responses API."""
    usage: dict[str, Any] = {}
    for key, (*outer, name) in COUNTS.items():
        if (count := figure(counts.get(key))) is not None:
            place = usage
            for step in outer:
                place = place.setdefault(step, {})
            place[name] = count
    return usage
