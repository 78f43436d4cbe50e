"""Plans of a conversation that append: items, answers, failed attempts, branches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from threadkeep.domain.items import Item, call_output, item_from, items_from, message_of
from threadkeep.domain.response import Response, body_object
from threadkeep.domain.stored import StoredAt, StoredItem, SyncResult
from threadkeep.domain.wire import Rendered, get_format
from threadkeep.errors import HeadConflict, ResponseInProgress
from threadkeep.store.actions.branches import fork_and_open
from threadkeep.store.actions.inputs import Incoming, Input, Known, Put, append_input
from threadkeep.store.actions.items import Appended, append_items, item_id_of
from threadkeep.store.actions.opening import Opened
from threadkeep.store.actions.responses import Stored, record_attempt, store_answer
from threadkeep.store.actions.syncing import Sync, Synced, sync
from threadkeep.store.answers import Call, ParsedBody, answer_of, asked_with, attempt_of, failure_of, parsed_body
from threadkeep.store.handle import Handle
from threadkeep.store.incoming import HeldHistory, input_reader
from threadkeep.store.place import MAX_POSITION, Place, once, whole
from threadkeep.store.plans import Plan
from threadkeep.store.recording import Recording
from threadkeep.store.requests import How, append_of, guard_of
from threadkeep.store.wire_values import wire_text


class Writes(Handle):
    """Appending."""

    def _adding(
        self, method: str, items: Sequence[Item], how: How, author_id: str | None = None
    ) -> Plan[list[StoredItem]]:
        append = append_of(method, items, how, author_id)

        def finish(done: Appended) -> list[StoredItem]:
            if not done.is_replayed and done.branch == self.branch:
                self._state.appended(append.drafts, done.first, done.revision)
            return [
                StoredItem(
                    id=item_id_of(self._place, done.first + offset),
                    position=done.first + offset,
                    branch=done.branch,
                    turn=None,
                    item=item,
                    replayed=done.is_replayed,
                    author_id=author_id,
                )
                for offset, item in enumerate(items)
            ]

        return self._writing(append_items, append, finish=finish, is_keyed=append.once is not None)

    def _adding_first(self, method: str, item: Item, how: How, author_id: str | None = None) -> Plan[StoredItem]:
        plan: Plan[Any] = self._adding(method, [item], how, author_id)
        stored = plan.finish
        plan.finish = lambda done: stored(done)[0]
        return plan

    def _saying(self, role: str, content: Any, how: How, author_id: str | None) -> Plan[StoredItem]:
        return self._adding_first(role, message_of(role, content), how, author_id)

    def _adding_one(self, item: Any, how: How, author_id: str | None) -> Plan[StoredItem]:
        return self._adding_first("add_item", item_from(item), how, author_id)

    def _adding_many(self, items: Iterable[Any], how: How, author_id: str | None) -> Plan[list[StoredItem]]:
        return self._adding("add_items", items_from(items), how, author_id)

    def _outputting(
        self, call_id: str | None, output: Any, result: Any, status: str | None, how: How
    ) -> Plan[StoredItem]:
        item = call_output(call_id, output, result, status)
        return self._adding_first("add_function_call_output", item, how)

    def _answering(self, body: Any, format: str, rendered: Rendered | None, how: How, call: Call) -> Plan[Response]:
        parsed = parsed_body(body, format, call.get("headers"))
        call = {"asked": self._model, "prices": self._contents.prices, **call}
        if parsed.response is None:
            return self._failing(parsed, format, rendered, how, call)
        response, answer = parsed.response, answer_of(parsed, format, self.head, rendered, how, call)

        def finish(done: Stored) -> Response:
            if done.head is not None:
                raise HeadConflict(-1 if answer.guard.expected_head is None else answer.guard.expected_head, done.head)
            if done.in_progress is not None:
                raise ResponseInProgress(done.in_progress, self.branch)
            stored = StoredAt(done.branch, done.number)
            if not done.is_replayed and done.branch == self.branch:
                self._state.appended(answer.drafts, done.first, done.revision, turn=done.first, seen=done.shown)
            return response.model_copy(update={"replayed": done.is_replayed, "stored": stored})

        return self._writing(store_answer, answer, finish=finish, is_keyed=answer.once is not None)

    def _recording(self, format: str, rendered: Rendered | None, how: How, call: Call, lease: object) -> Recording:
        call = {"prices": self._contents.prices, **call}
        return Recording(self._place, self._state, format, rendered=rendered, how=how, call=call, lease=lease)

    def _failing(
        self, parsed: ParsedBody, format: str, rendered: Rendered | None, how: How, call: Call
    ) -> Plan[Response]:
        """An error envelope: its ledger row is written, then the error is raised."""
        asked = asked_with(rendered, self.head)
        attempt, key = failure_of(parsed, format, how, call, self._model)

        def finish(_: bool) -> Response:
            raise parsed.error if parsed.error is not None else AssertionError

        return self._writing(record_attempt, attempt, key, asked.configured, finish=finish, is_keyed=key is not None)

    def _attempting(
        self, format: str, error: Any, model: str | None, status: str, idempotency_key: str | None, call: Call
    ) -> Plan[bool]:
        attempt = attempt_of(format, call, error=error, model=model or self._model, status=status)
        content = {"format": format, "error": attempt.error, "model": attempt.model, "status": status}
        key = once(idempotency_key, "record_attempt", content)
        return self._writing(record_attempt, attempt, key, is_keyed=key is not None)

    def _inputting(self, turns: Any, format: str, how: How) -> Plan[list[StoredItem]]:
        given = body_object(wire_text(turns))
        key = once(how.get("idempotency_key"), "add_input", {"turns": given, "format": format})
        what = Input(input_reader(given, format), self._known(), key, guard_of(how))

        def finish(done: Put) -> list[StoredItem]:
            if done.stored is not None:
                return list(done.stored)
            self._remember(done.new, done.first, done.branch, done.revision)
            return _stored(self._place, done.new, done.first, done.branch)

        return self._writing(append_input, what, self._contents, finish=finish, is_keyed=key is not None)

    def _syncing(self, payload: Any, format: str, how: How) -> Plan[SyncResult]:
        given = body_object(wire_text(payload))
        session = get_format(format).parse_request(given)
        key = once(how.get("idempotency_key"), "sync_request", {"payload": given, "format": format})
        what = Sync(
            HeldHistory(session),
            self._known(),
            previous_response_id=session.previous_response_id,
            is_in_conversation=session.conversation is not None,
            once=key,
            guard=guard_of(how),
        )

        def finish(done: Synced) -> SyncResult:
            if done.stored is None:
                self._remember(done.new, done.first, done.branch, done.revision)
                items = _stored(self._place, done.new, done.first, done.branch)
            else:
                items = list(done.stored)
            is_replayed = done.stored is not None
            return SyncResult(done.matched, len(items), done.branched_at, done.branch, items, is_replayed)

        return self._writing(sync, what, self._contents, finish=finish, is_keyed=key is not None)

    def _known(self) -> Known:
        """What this handle remembers."""
        return Known(*self._state.known())

    def _remember(self, new: Incoming, first: int, branch: int, revision: int) -> None:
        """Take in what this handle appended, turn by turn."""
        if branch != self.branch:
            return
        for offset, group in groupby(range(len(new.drafts)), key=lambda place: new.turns[place]):
            places = list(group)
            drafts = [new.drafts[place] for place in places]
            turn = None if offset is None else first + offset
            self._state.appended(drafts, first + places[0], revision, turn=turn)

    def _forking(self, at: int | None, idempotency_key: str | None) -> Plan[tuple[Opened, bool]]:
        at = None if at is None else whole("at", at, MAX_POSITION)
        key = once(idempotency_key, "fork", [self.branch, at])
        return self._writing(fork_and_open, at, key, self._contents, is_keyed=key is not None)


def _stored(place: Place, new: Incoming, first: int, branch: int) -> list[StoredItem]:
    """What a caller gets of items that were just appended."""
    return [
        StoredItem(
            id=item_id_of(place, first + offset),
            position=first + offset,
            branch=branch,
            turn=None if turn is None else first + turn,
            item=item,
        )
        for offset, (item, turn) in enumerate(zip(new.items, new.turns, strict=True))
    ]
