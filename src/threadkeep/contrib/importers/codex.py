"""Codex: a file of JSON Lines for each session, called a rollout.

Source: the files in ``~/.codex/sessions``, which are not documented.

* The first line, `session_meta`, says what the session is; `turn_context` names the model from there on.
* The payload of a `response_item` is an item of the Responses API; the first releases wrote items without `payload`.
* What a model made in a row is a response. The `token_count` that comes next has its usage as `last_token_usage`, or
  as the difference to the `total_token_usage` before; one with the same total again is a repetition.
* A `token_usage_record` has the usage of a response as `usage`, or as the difference between running totals of the
  thread or of the turn. The `token_count` behind it counts the same once more.
* `thread_rolled_back` takes back turns: what comes next is a branch.
* A session that was forked, or belongs to an agent, may begin with a copy of the other one, written at once. The
  usage in it belongs to the other session.
* Lines have no ids: they are called by their numbers, because a rollout only grows. A rollout that is imported while
  its last answer is being written has no usage of that answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from threadkeep.contrib.importers.inputs import Input
from threadkeep.contrib.importers.items import object_of, text_of, time_of
from threadkeep.contrib.importers.json_files import FileObject, json_lines
from threadkeep.contrib.importers.records import Answer, Entry, Skipped, Transcript
from threadkeep.domain import formats, ids
from threadkeep.domain.items import Item, Message
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.usage import figure
from threadkeep.errors import CannotParse

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
    "cwd": "cwd",
    "cli_version": "version",
    "originator": "originator",
    "forked_from_id": "forked_from",
}
COPYING: Final = timedelta(seconds=1)  # there is less between two lines of a copy, and more before an answer
COPIED: Final = "the usage of what was copied from another session counts there"
THREAD_TOTAL: Final = "thread_token_usage"
TURN_TOTAL: Final = "turn_token_usage"
_OUTPUTS: Final = ("_output", "_approval_response")  # how types of items end that no model makes


class Codex:
    """Sessions of Codex."""

    name: Final = "codex"

    def recognizes(self, input: Input, /) -> bool:
        """Return whether the first line begins a rollout."""
        first = next(iter(input.first_lines), {})
        is_new = text_of(first, "type") in KINDS and isinstance(first.get("payload"), dict)
        return is_new or {"id", "timestamp", "instructions"} <= first.keys()

    def read(self, input: Input, /) -> Iterator[Transcript | Skipped]:
        """Return the session of a rollout."""
        session = _CodexSession(input)
        for number, found in enumerate(json_lines(input)):
            if isinstance(found, Skipped):
                yield found
            else:
                session.add(found, str(number))
        if session.copies:
            yield Skipped(input.name, COPIED, session.copies)
        for kind, count in session.others.items():
            yield Skipped(input.name, f"lines of the type {kind!r} are not part of the conversation", count)
        yield session.transcript()


@dataclass(slots=True)
class _CodexSession:
    """The lines of a rollout, as they are read."""

    input: Input
    meta: JsonObject = field(default_factory=dict)
    model: str | None = None
    entries: list[Entry] = field(default_factory=list)
    starts: list[str | None] = field(default_factory=list)  # the entries before what the user said
    skipped: list[Skipped] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)
    last: str | None = None
    answering: list[int] = field(default_factory=list)  # the entries of the newest response
    is_open: bool = False  # whether more of it may come
    total: JsonObject = field(default_factory=dict)
    totals: dict[str, JsonObject] = field(default_factory=dict)  # of usage records, by their keys
    recorded: set[str] = field(default_factory=set)  # ids of responses whose usage records have come
    is_recorded: bool = False  # whether the next `token_count` says what a record has said
    copied_at: datetime | None = None  # the time of the newest line that may be a copy
    copies: int = 0  # of responses, whose usage counts elsewhere

    def add(self, found: FileObject, id_: str) -> None:
        """Take in a line."""
        line = found.value
        kind, payload, at = text_of(line, "type") or "", object_of(line, "payload"), time_of(line, "timestamp")
        self._note_time(at)
        if payload and kind == "event_msg":
            kind = f"event_msg {text_of(payload, 'type')}"
        reader = _READERS.get(kind)
        if reader is not None:
            reader(self, found._replace(value=payload), id_, at)
        elif not payload and {"id", "timestamp"} <= line.keys() and "type" not in line:
            self.meta = self.meta or line
        elif not payload and kind in ids.PREFIXES:
            self.item(found, id_, at)
        else:
            self.others[kind] += 1

    def _note_time(self, at: datetime | None) -> None:
        """Find out whether a line is still one of a copy."""
        if self.copied_at is not None and at is not None:
            self.copied_at = at if abs(at - self.copied_at) < COPYING else None

    def begin(self, found: FileObject, _id: str, at: datetime | None) -> None:
        """The session; behind it, what it is a copy of, which has such a line, too."""
        meta = found.value
        if not self.meta:
            spawned = object_of(object_of(object_of(meta, "source"), "subagent"), "thread_spawn")
            origin = text_of(meta, "forked_from_id") or text_of(spawned, "parent_thread_id")
            self.meta, self.copied_at = meta, at if origin else None
        elif text_of(meta, "id") == text_of(self.meta, "id"):
            self.copied_at = None

    def turn(self, found: FileObject, _id: str, at: datetime | None) -> None:
        """A turn begins."""
        del at
        self.model = text_of(found.value, "model") or self.model

    def item(self, found: FileObject, id_: str, at: datetime | None) -> None:
        """An item."""
        try:
            items = [item for turn in formats.get_format(FORMAT).parse_turns([found.value]) for item in turn]
        except CannotParse as error:
            self.skipped.append(Skipped(found.where, f"the item cannot be read: {error.message}"))
            return
        kind, role = str(found.value.get("type")), found.value.get("role")
        is_answer = role == "assistant" if kind == "message" else not kind.endswith(_OUTPUTS)
        if not is_answer:
            self.is_open = False
        elif not self.is_open:
            self.answering, self.is_open = [], True
        if role == "user":
            self.starts.append(self.last)
            self.totals.pop(TURN_TOTAL, None)
        self._append(id_, items, at, Answer(FORMAT, model=self.model, provider=PROVIDER) if is_answer else None)

    def compacted(self, found: FileObject, id_: str, at: datetime | None) -> None:
        """What came before was summed up."""
        self.is_open = False
        if (text := text_of(found.value, "message")) is not None:
            self._append(id_, [Message("developer", text)], at, None)

    def _append(self, id_: str, items: list[Item], at: datetime | None, answer: Answer | None) -> None:
        if answer is not None:
            if self.answering:  # one object for all of a response
                answer = self.entries[self.answering[0]].answer
            self.answering.append(len(self.entries))
        self.entries.append(Entry(id_, self.last, items, at, answer))
        self.last = id_

    def counted(self, found: FileObject, _id: str, at: datetime | None) -> None:
        """The usage of the newest response."""
        del at
        info = object_of(found.value, "info")
        total, before = object_of(info, "total_token_usage"), self.total
        if not total or total == before:
            return
        self.total, self.is_open = total, False
        is_recorded, self.is_recorded = self.is_recorded and not self.answering, False
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
        self._count(found, _usage(counts), response_id)

    def _count(self, found: FileObject, usage: JsonObject, response_id: str | None = None) -> None:
        """Give the newest response its usage."""
        if not self.answering:
            self.skipped.append(Skipped(found.where, "there is no response to which this usage belongs"))
            return
        if self.copied_at is not None:
            self.copies, self.answering = self.copies + 1, []
            return
        answer = self.entries[self.answering[0]].answer
        answer = None if answer is None else replace(answer, usage=usage, id=response_id or answer.id)
        for index in self.answering:
            self.entries[index] = replace(self.entries[index], answer=answer)
        self.answering = []

    def roll_back(self, found: FileObject, _id: str, at: datetime | None) -> None:
        """Turns are taken back."""
        del at
        count = figure(found.value.get("num_turns")) or 0
        self.is_open, self.answering = False, []
        if 0 < count <= len(self.starts):
            self.last = self.starts[-count]
            del self.starts[-count:]

    def transcript(self) -> Transcript:
        """The conversation."""
        meta = self.meta
        git = object_of(meta, "git")
        known = {name: text for key, name in PROPERTIES.items() if (text := text_of(meta, key))}
        known |= {name: text for name in ("branch", "commit_hash") if (text := text_of(git, name))}
        stem = "" if self.input.path is None else self.input.path.stem
        return Transcript(
            id=text_of(meta, "id") or stem,
            where=self.input.name,
            entries=self.entries,
            model=self.model,
            instructions=text_of(meta, "instructions") or text_of(object_of(meta, "base_instructions"), "text"),
            created_at=time_of(meta, "timestamp"),
            properties=known,
            active=self.last,
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
}


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
