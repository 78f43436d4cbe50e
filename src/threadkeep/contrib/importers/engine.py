"""The engine: reads sources, and writes each conversation in one transaction."""

from __future__ import annotations

import gc
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import Any, Final

from sqlalchemy.exc import DataError

from threadkeep.contrib.importers import (
    agents_sdk,
    chatgpt,
    claude_ai,
    claude_code,
    cline,
    codex,
    databases,
    gemini_cli,
    langchain,
    llm,
    meeting,
    opencode,
    pi,
    qwen_code,
    records,
)
from threadkeep.contrib.importers.inputs import Input, Paths, inputs_of
from threadkeep.contrib.importers.librechat import LibreChat
from threadkeep.contrib.importers.open_webui import OpenWebUI
from threadkeep.contrib.importers.records import Skipped, Source, SourceReport, Transcript
from threadkeep.contrib.importers.trees import Planned, file_of, moment_of
from threadkeep.domain.formats import get_format
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse, Conflict, InvalidOption, MissingExtra, SchemaError, ThreadkeepError
from threadkeep.store.conversation import Conversation
from threadkeep.store.history_sync.client_history import with_leading_instructions
from threadkeep.store.history_sync.sync import BEGINNING, beginning_of
from threadkeep.store.store import Store
from threadkeep.store.usage.ledger import CallInfo
from threadkeep.store.work import item_rows, validation
from threadkeep.store.writing.conversations import ConversationInfo
from threadkeep.store.writing.grafting import Graft, Grafting, Known, NewAnswer, NewCall, Written

# by name; a file is of the first one that recognizes it
SOURCES: Final[Mapping[str, Source]] = {
    source.name: source
    for source in (
        codex.Codex(),
        qwen_code.QwenCode(),  # before Claude Code, whose lines have the same keys
        claude_code.ClaudeCode(),
        gemini_cli.GeminiCli(),
        pi.Pi(),
        cline.Cline(),
        opencode.Opencode(),
        chatgpt.ChatGPT(),
        claude_ai.ClaudeAI(),
        agents_sdk.AgentsSdk(),
        langchain.LangChain(),
        llm.Llm(),
        OpenWebUI(),
        LibreChat(),
    )
}
LABEL: Final = "source"  # of conversations that were imported
UNRECOGNIZED: Final = "no source recognizes it"
OBJECTS: Final = 50_000  # new ones, from one collection of garbage to the next
STEP: Final = 1 << 20  # bytes from one call of `progress` to the next

Progress = Callable[[str, int], None]


def import_from(
    store: Store,
    paths: Paths,
    source: str | Source | None = None,
    *,
    user: str | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> SourceReport:
    """Import conversations of other software; return what was stored, and what was skipped and why.

    Each conversation is written in one transaction. What was imported before is not stored again; of conversations that
    have grown, what is new is, so an import that was interrupted continues when it is repeated. A conversation that
    cannot be stored is reported, and does not stop the others.

    Args:
        store: a `Store`, of one tenant.
        paths: a file, a folder with files, the URL of a database, or several of these.
        source: the name of their source, or your own; None: their contents tell it, for each file.
        user: whose conversations they become; None: the user that the source names, if any. A conversation that was
            imported before, and belongs to another user than this one, or to none, is reported and stays as it is.
        dry_run: read everything and report what would be done; write nothing.
        progress: called with "bytes" and how many bytes of files were read so far, and with "conversations".

    Raises:
        InvalidOption: a path cannot be read, or no source recognizes a file that was named; nothing was written.
        MissingExtra: the source needs another package.
    """
    validation.optional_identifier("user", user)
    chosen = None if source is None else get_source(source)
    engine = _Engine(store, user, chosen, dry_run=dry_run, progress=progress or (lambda _kind, _count: None))
    inputs = inputs_of(paths)
    for one in inputs:
        if one.url is not None and not isinstance(source, Source):
            databases.check_reachable(one)
        if chosen is None and one.is_named and _recognized(one) is None:
            hint = f"Name its source, one of {', '.join(SOURCES)}."
            raise InvalidOption(f"No source recognizes {one.name!r}.", hint=hint)
    with _few_collections(), engine.grafting.behind.open():
        for one in inputs:
            if not engine.passes_over(one):
                engine.read(one, chosen or _recognized(one))
    return engine.report


@contextmanager
def _few_collections() -> Iterator[None]:
    """Let the garbage collector, which would take a tenth of the time, look at more objects at once."""
    before = gc.get_threshold()
    if not 0 < before[0] < OBJECTS:
        yield
        return
    gc.set_threshold(OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def get_source(name: str | Source) -> Source:
    """The source of a name, or the source itself.

    Raises:
        InvalidOption: there is no such source.
    """
    if not isinstance(name, str):
        if isinstance(name, Source):
            return name
        raise InvalidOption(f"must be a name or a Source, not {type(name).__name__}.", argument="source")
    if name not in SOURCES:
        raise InvalidOption(f"must be one of {', '.join(SOURCES)}, not {name!r}.", argument="source")
    return SOURCES[name]


def find_source(input: Input) -> Source | None:
    """The source whose file this is, recognized by its contents; None if no source recognizes it."""
    return next((source for source in SOURCES.values() if source.recognizes(input)), None)


def _recognized(input: Input) -> Source | None:
    found = find_source(input)
    input.forget()
    return found


class _Engine:
    """Reads files, and writes what is new."""

    def __init__(
        self, store: Store, user: str | None, chosen: Source | None, *, dry_run: bool, progress: Progress
    ) -> None:
        self.report = SourceReport(is_dry_run=dry_run)
        sources = SOURCES.values() if chosen is None else [chosen]
        self._naming = [(one.name, one) for one in sources if isinstance(one, records.NamingSource)]
        self._absent: str | None = None  # the external id of the file that is read, if there is no such conversation
        self._store, self.grafting, self._user, self._progress = store, Grafting(store), user, progress
        self._bytes = self._told = 0

    def passes_over(self, input: Input) -> bool:
        """Whether a file is as it was when it was imported, so that it need not be read; if so, count what it has."""
        for name, source in self._naming:
            id_ = source.id_of(input)
            if id_ is None:
                continue
            external_id = external_id_of(name, id_)
            try:
                known = self.grafting.find(external_id, self._user)
            except Conflict:
                return False
            self._absent = external_id if known is None else None
            file = None if known is None else file_of([part.value for part in known.parts])
            if file is not None and file[0] is not None and file[0] == input.fingerprint():
                report = self.report
                report.sources[name] = report.sources.get(name, 0) + 1
                report.conversations.add(unchanged=1)
                report.items.add(unchanged=file[1])
                report.responses.add(unchanged=file[2])
                return True
        return False

    def read(self, input: Input, source: Source | None) -> None:
        """Import what a file has; what cannot be read of it is reported."""
        report = self.report
        if source is None:
            report.skip(Skipped(input.name, UNRECOGNIZED))
            return
        report.sources[source.name] = report.sources.get(source.name, 0) + 1
        input.on_read = self._note_bytes
        try:
            for found in _found(source, input):
                if isinstance(found, Skipped):
                    report.skip(found)
                else:
                    self._import(source.name, found)
        except (CannotParse, OSError, zlib.error) as error:
            report.skip(Skipped(input.name, f"{records.REST}: {error}"))

    def _note_bytes(self, count: int) -> None:
        self._bytes += count
        if self._bytes - self._told >= STEP:
            self._told = self._bytes
            self._progress("bytes", self._bytes)

    def _import(self, source: str, transcript: Transcript) -> None:
        """Write what is new of a conversation, and count it."""
        report = self.report
        report.skip(*transcript.skipped)
        try:
            planned, written = self._write(source, transcript)
        except (ThreadkeepError, DataError, *records.UNEXPECTED) as error:
            if isinstance(error, SchemaError | MissingExtra):
                raise
            # The message of the database quotes what was said
            refused = f"The database refuses it: {type(error).__name__}." if isinstance(error, DataError) else None
            report.skip(Skipped(transcript.where, refused or records.reason(error)))
            report.conversations.add(skipped=1)
            report.items.add(skipped=sum(len(entry.items) for entry in transcript.entries))
            report.responses.add(skipped=sum(entry.answer is not None for entry in transcript.entries))
        else:
            report.skip(*planned.skipped)
            report.items.add(**planned.items.values())
            report.responses.add(**planned.responses.values())
            is_new = planned.items.stored > 0
            report.conversations.add(stored=is_new, unchanged=not is_new)
            report.created += is_new and not planned.parts and planned.recording is None
            report.attempts += 0 if written is None else written.attempts
        self.grafting.behind.after_commit(partial(self._progress, "conversations", report.conversations.read))

    def _write(self, source: str, transcript: Transcript) -> tuple[Planned, Written | None]:
        """What is new, once it is written; in a dry run, what would be."""
        external_id, user = external_id_of(source, transcript.id), self._user or transcript.user_id
        plans: list[Planned] = []

        def plan(known: Known | None) -> Graft:
            recording = None if known is None else meeting.Recording.of(self._store, known.ref.public_id)
            if known is not None and not known.parts and recording is None:
                problem = f"Another conversation has the external_id {external_id!r}."
                raise Conflict(problem, hint="Change its external id, or delete it.")
            parts = [] if known is None else [part.value for part in known.parts]
            makers = partial(self._answer, external_id), partial(self._call, external_id)
            plans.append(Planned(transcript, *makers, parts, recording))
            graft = plans[-1].graft()
            if known is None and not graft.runs:
                raise CannotParse("It has no messages.")
            return graft

        is_dry_run, known = self.report.is_dry_run, None
        if is_dry_run or transcript.is_nameless:  # else it is found when it is written
            known = self.grafting.find(external_id, user)
        labels = _labels(transcript.labels) | {LABEL: source}
        if known is None and transcript.is_nameless:
            self.grafting.behind.settle()
            history = meeting.history_of(transcript)
            recorded = meeting.find_recorded(self._store, transcript, history)
            if recorded is not None and user in {None, recorded.user_id}:
                known = self._named(recorded, external_id, labels, transcript.title)
            elif (beginning := beginning_of(history)) is not None:
                labels[BEGINNING] = beginning
        if is_dry_run:
            plan(known)
            return plans[-1], None
        info: ConversationInfo = {
            "user_id": user, "external_id": external_id, "title": _title(transcript.title), "labels": labels,
            "properties": _properties(transcript.properties), "created_at": moment_of(transcript.created_at),
        }  # fmt: skip
        is_absent, self._absent = known is None and external_id == self._absent, None
        written = self.grafting.write(_session(transcript), info, plan, is_absent=is_absent)
        return plans[-1], written

    def _named(
        self, recorded: Conversation, external_id: str, labels: Mapping[str, str], title: str | None
    ) -> Known | None:
        """A conversation that was recorded without a name, which is called as its source does from now on."""
        if self.report.is_dry_run:
            return self.grafting.find_by_id(recorded.id)
        title = recorded.title or _title(title)
        recorded.update(external_id=external_id, labels={**recorded.labels, **labels}, title=title)
        return self.grafting.find(external_id)

    def _answer(self, external_id: str, answer: records.Answer, at: datetime, key: str) -> NewAnswer:
        """A response of a conversation as it is stored; `key` is the key of its first entry."""
        return self._made(answer, at, answer.name or f"{external_id} {key}")

    def _call(self, external_id: str, call: records.SideCall, at: datetime) -> NewCall | None:
        """The row of a call that no entry came in; None if nothing is known of what it used."""
        name = call.answer.id or f"{external_id} call {call.id}"
        attempt = self._made(call.answer, at, name, call.error).attempt
        return None if attempt is None else NewCall(attempt, at, name)

    def _made(self, answer: records.Answer, at: datetime, name: str, error: Any = None) -> NewAnswer:
        usage = None if answer.usage is None else get_format(answer.format).usage_of(dict(answer.usage))
        call: CallInfo = {
            "provider": answer.provider, "latency_ms": answer.latency_ms, "first_token_ms": answer.first_token_ms,
            "occurred_at": at, "service_tier": answer.service_tier,
        }  # fmt: skip
        return self.grafting.answer(
            name, call, format=answer.format, id=answer.id, model=answer.model, status=answer.status,
            finish_reason=answer.finish_reason, usage=usage, error=error,
        )  # fmt: skip


def _session(transcript: Transcript) -> Session:
    """The options and tools of a conversation."""
    session = Session()
    if transcript.request is not None:
        request = get_format(transcript.request_format).parse_request(transcript.request)
        session = with_leading_instructions(request).clone_config()
    own: dict[str, Any] = {"model": _text(transcript.model), "instructions": _text(transcript.instructions)}
    session.update(**{name: value for name, value in own.items() if value})
    return session


def external_id_of(source: str, id: str) -> str:
    """The external id of an imported conversation; with a hash in place of an id that is too long.

    >>> external_id_of("chatgpt", "67e0")
    'chatgpt:67e0'
    """
    external_id = f"{source}:{id}"
    if item_rows.fitting(external_id) is not None:
        return external_id
    return f"{source}:{blake2b(id.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


def _found(source: Source, input: Input) -> Iterator[Transcript | Skipped]:
    """What a source reads, up to where it fails unexpectedly."""
    try:
        yield from source.read(input)
    except records.UNEXPECTED as error:
        yield Skipped(input.name, f"{records.REST}: {records.reason(error)}")


def _text(value: str | None) -> str | None:
    """A text that databases can hold: without U+0000 and lone surrogates; None where it is empty."""
    return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode() if value else None


def _title(value: str | None) -> str | None:
    """A title, or its beginning where it is too long."""
    text = _text(value)
    return text if text is None or len(text) <= validation.MAX_TITLE else f"{text[: validation.MAX_TITLE - 1]}…"


def _labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Those labels that can be stored."""
    return {name: value for name, value in labels.items() if item_rows.fitting(name) and item_rows.fitting(value)}


def _properties(properties: Mapping[str, str]) -> dict[str, str]:
    """As much of the properties as can be stored."""
    kept = islice(
        ((name, text) for name, value in properties.items() if (text := _text(value))), validation.MAX_PROPERTIES
    )
    return {name[: validation.MAX_PROPERTY_NAME]: text[: validation.MAX_PROPERTY] for name, text in kept}
