"""What a streamed response is stored as. An ending cannot fail: what cannot be kept as it came is kept as text."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from json import JSONDecodeError
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from sqlalchemy import Connection

from threadkeep.db.backends import check_sizes
from threadkeep.domain import ids, stored
from threadkeep.domain.items import Item, Message, given_of
from threadkeep.domain.jsontext import UNSET, body_object, bytes_as_text, dumps, dumps_any, read_line, shallow
from threadkeep.domain.response import Maker, Response
from threadkeep.errors import CannotParse, InvalidItem, InvalidOption, TooLarge, shown
from threadkeep.formats.shared import parsing, streams
from threadkeep.store.usage.ledger import CallInfo, attempt_of, json_text
from threadkeep.store.usage.prices import PriceBook
from threadkeep.store.work import idempotency, positions
from threadkeep.store.work.item_rows import ItemRecord, encode_item
from threadkeep.store.work.states import NewState
from threadkeep.store.writing.responses import NewResponse, response_columns

LEAVING: Final = (asyncio.CancelledError, GeneratorExit)  # how a task or generator is told to stop: not a failure
REASON: Final = "not_kept"  # why a response is incomplete of which a part is kept as text, and the key of texts
KEPT: Final = 20_000  # characters that are kept of such a text; every server takes these
PROBLEMS: Final = 10  # that are told
LOG: Final = logging.getLogger("threadkeep.streams")
_ROOM: Final = "x" * KEPT
_TEXTS: Final = ("provider_response_id", "model", "finish_reason")  # columns of a response that hold a text …
_OBJECTS: Final = ("provider_data", "error", "incomplete_details")  # … or JSON


class StreamCall(NamedTuple):
    """The call that a stream answers: what is known of it, the model that was asked, and the prices of the store."""

    info: CallInfo
    model: str | None
    prices: PriceBook
    asked: Maker = Maker()  # of whom the answer was asked


@dataclass(slots=True, weakref_slot=True)
class Ending:
    """A response of which nothing more will come."""

    response: Response  # as it is stored, also where that is not as it came
    new: NewResponse  # its rows
    states: Sequence[NewState] = ()  # that are written with it

    @classmethod
    def of(
        cls,
        assembler: streams.StreamAssembler,
        call: StreamCall,
        error: BaseException | None = None,
        key: idempotency.IdempotencyKey | None = None,
        *,
        is_cancelled: bool = False,
        is_left: bool = False,
    ) -> Ending:
        """The end of a stream: where its events say so, by `cancel`, or where its recorder was left by an `error`.

        `is_left`: its recorder was asked to stop, and did unless the response was complete.
        """
        response = parsing.with_cut_items(_left(_assembled(assembler), is_cancelled=is_cancelled, is_left=is_left))
        records: list[ItemRecord] = []
        output: list[Item] = []
        problems = list(assembler.problems)
        maker = call.asked.answering(response.model).text
        for item in response.output:
            try:
                record = encode_item(item.to_object(), model=response.model, maker=maker, given=given_of(item))
            except (InvalidItem, InvalidOption) as problem:
                item = _note(item, problem)  # noqa: PLW2901
                record = encode_item(item.to_object(), model=response.model)
                problems.append(str(problem))
            output.append(item)
            records.append(record)
        reason: Any = response.error
        if reason is None and not isinstance(error, LEAVING):
            reason = error
        attempt = attempt_of(response, str(response.format), call.info, call.prices, call.model, reason)
        body = dumps_any(assembler.body) if assembler.has_events else None
        ending = cls(response, NewResponse(records, body, attempt, response_columns(response, attempt.format), key))
        if problems:
            ending._mark(output, problems)
        return ending

    def break_off(self) -> None:
        """Say that the response broke off before anything came, whatever its status is."""
        self.response = self.response.model_copy(update={"incomplete_details": stored.BROKEN_OFF})
        self.new.columns["incomplete_details"] = json_text(stored.BROKEN_OFF)

    def fit(self, connection: Connection) -> None:
        """Keep as text what is too large for this database."""
        new, output, problems = self.new, list(self.response.output), []
        records = list(new.records)
        for index, record in enumerate(records):
            new_media = [piece.content for piece in record.media if not (piece.location or piece.is_known)]
            rows = [record.columns, *({"payload": media, "rest": None, "given": None} for media in new_media)]
            if (problem := _misfit(connection, rows, "payload", "rest", "given")) is not None:
                output[index] = _note(output[index], problem)
                records[index] = encode_item(output[index].to_object(), model=self.response.model)
                problems.append(str(problem))
        if problems:
            self.new = replace(new, records=records)
            self._mark(output, problems)
        columns, attempt = self.new.columns, self.new.attempt
        if _misfit(connection, [columns], *_TEXTS, *_OBJECTS) is not None:
            texts = {name: columns[name] and columns[name][:KEPT] for name in _TEXTS}
            texts["response_hash"] = ids.short_hash(texts["provider_response_id"] or None)
            columns |= texts | {name: json_text(_shortened(columns[name])) for name in _OBJECTS}
        for name in ("usage", "error"):
            text = json_text(getattr(attempt, name))
            if _misfit(connection, [{name: text}], name) is not None:
                setattr(attempt, name, _shortened(text))

    def _mark(self, output: list[Item], problems: list[str]) -> None:
        """Say that the output is not all of what came."""
        details, problems = self.response.incomplete_details, list(dict.fromkeys(problems))[:PROBLEMS]
        details = {"reason": REASON, **(details if isinstance(details, Mapping) else {}), REASON: problems}
        status = (
            self.response.status if self.response.status in ("failed", positions.CANCELLED) else positions.INCOMPLETE
        )
        LOG.warning("A part of a streamed response is kept as text: %s", "; ".join(problems))
        self.response = self.response.model_copy(
            update={"output": output, "status": status, "incomplete_details": details}
        )
        self.new.columns.update(status=status, incomplete_details=json_text(details))
        self.new.attempt.status = status


# Those that a recorder of this process has and the database did not take yet, by the tokens of their leases
UNSTORED: Final[WeakValueDictionary[bytes, Ending]] = WeakValueDictionary()


def keepable_event(event: Any) -> tuple[Any, bytes]:
    """An event as it is kept, and its JSON text; NOT_KEPT says what is not as it came. CannotParse: it is not JSON."""
    if isinstance(event, bytes) and (value := read_line(event)) is not UNSET:
        return value, event
    try:
        value = bytes_as_text(body_object(event))
        return value, dumps(value)
    except InvalidItem as error:
        problem, value = str(error), shallow(body_object(event))
    except CannotParse as error:  # JSON that Python cannot read is an event
        if error.__cause__ is None or isinstance(error.__cause__, JSONDecodeError):
            raise
        problem, value = f"{error.__cause__}: {shown(event)}", {}
    if isinstance(value, dict):
        value[streams.NOT_KEPT] = problem
    return value, dumps(value)


def _assembled(assembler: streams.StreamAssembler) -> Response:
    """The response as far as it has come; where it cannot be read, its body as a text."""
    try:
        return assembler.response
    except Exception as error:
        LOG.exception("A streamed response could not be read; it is kept as text.")
        text = dumps_any(assembler.body).decode()[:KEPT]
        failure = {"type": type(error).__name__, "message": str(error)}
        output = [Message(role="assistant", content=text)]
        return Response(format=assembler.name, status="failed", error=failure, output=output)


def _left(response: Response, *, is_cancelled: bool, is_left: bool) -> Response:
    """A response that was ended by `cancel`, or whose recorder was left because it was to stop."""
    is_stopped = is_cancelled or (is_left and response.status == positions.INCOMPLETE)
    if not is_stopped or response.status == "failed":
        return response
    details = None if response.incomplete_details == stored.BROKEN_OFF else response.incomplete_details
    return response.model_copy(update={"status": positions.CANCELLED, "incomplete_details": details})


def _note(item: Item, problem: Exception) -> Message:
    """A message that stands for an item which cannot be stored."""
    text = item.text if isinstance(item, Message) else dumps_any(item.to_object()).decode()
    return Message(role="assistant", content=f"[Not kept as it came: {problem}]\n{text[:KEPT]}")


def _misfit(connection: Connection, rows: list[dict[str, Any]], *columns: str) -> TooLarge | None:
    """Why rows with these columns are too large, with some room for the others; None where they fit."""
    try:
        check_sizes(connection, [{**row, "": _ROOM} for row in rows], "a part", (*columns, ""))
    except TooLarge as error:
        return error
    return None


def _shortened(text: str | None) -> dict[str, str] | None:
    return None if text is None else {REASON: text[:KEPT]}
