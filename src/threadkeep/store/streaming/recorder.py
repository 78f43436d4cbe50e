"""Recorders, which store a streamed response while it arrives."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from types import TracebackType
from typing import Any, Self

from threadkeep.domain.response import Response
from threadkeep.store.state_writes import new_states
from threadkeep.store.streaming.heartbeat import Heartbeat
from threadkeep.store.streaming.writer import StreamWriter


class RecorderAttributes:
    """The attributes of a response that is being recorded."""

    _writer: StreamWriter

    @property
    def response(self) -> Response | None:
        """The stored response; None before its end."""
        return self._writer.response

    @property
    def partial(self) -> Response:
        """The response as far as it has arrived, with status in_progress until its end."""
        response = self._writer.response
        return self._writer.assembler.partial if response is None else response

    @property
    def replayed(self) -> bool:
        """Whether the response was already stored under the same idempotency key; do not call the provider then."""
        return self.response is not None and self.response.replayed

    @property
    def cancel_requested(self) -> bool:
        """Whether `cancel_response` has asked to stop, as of the latest batch of events or renewal of the lease.

        Stop feeding then: the response ends as `cancelled`, with what has arrived.
        """
        return self._writer.cancel_requested

    @property
    def number(self) -> int | None:
        """The number of the response in the conversation; None before it begins."""
        return self._writer.number

    @property
    def branch(self) -> int | None:
        """The branch that the response is stored on; None before it begins."""
        return self._writer.branch

    @property
    def has_output(self) -> bool:
        """Whether any part of the output has arrived: text, reasoning or a call."""
        return self._writer.assembler.has_output

    def set_times(self, *, latency_ms: float | None = None, first_token_ms: float | None = None) -> None:
        """Say how long the call took, instead of what is measured here: for events that are fed later than they came.

        Does not query the database.

        Raises:
            InvalidOption: a time is not a number of milliseconds.
        """
        self._writer.set_times({"latency_ms": latency_ms, "first_token_ms": first_token_ms})

    def set_states(self, states: Mapping[str, Any]) -> None:
        """Write these states with the response, instead of those given before. Does not query the database.

        Raises:
            InvalidOption, TooLarge: a state cannot be stored.
        """
        self._writer.states = new_states(states)


class Recorder(RecorderAttributes):
    """Stores a streamed response while it arrives: a context manager, from `Conversation.stream_response`.

    The response ends with the `with` statement: with the status its events report, as `cancelled` if its generator was
    closed, or as `incomplete`. `feed` stores the events; the items are written at the end, in one transaction.
    """

    def __init__(self, writer: StreamWriter) -> None:
        self._writer = writer
        self._lock = Lock()
        self._heartbeat: Heartbeat | None = None

    def __enter__(self) -> Self:
        self._writer.start()
        if self._writer.is_renewable:
            self._heartbeat = Heartbeat(self, Recorder._renew, self._writer.renewal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer.is_inherited:  # the process from which it was forked continues recording
            return
        try:
            self._end(error)
        except Exception as failure:
            if error is None:
                raise
            note_failure(error, failure)
        finally:
            self._writer.is_left = True

    def feed(self, event: Any) -> None:
        """Take the provider's next event: a dict, JSON text, a line of server-sent events, or an SDK object.

        Events after the end of the response are ignored.

        Raises:
            CannotParse: it is not an event.
            InvalidOption: the `with` statement was not entered, or has ended.
            LeaseLost: another writer has ended the response.
            NotFound: the conversation was deleted.
        """
        self._writer.check_owner()
        with self._lock:
            if self._writer.take(event):
                self._writer.flush()

    def cancel(self) -> None:
        """End the response as `cancelled`; what has arrived is kept.

        Raises:
            LeaseLost: another writer has ended the response.
        """
        self._writer.check_owner()
        self._end(is_cancelled=True)

    def _end(self, error: BaseException | None = None, *, is_cancelled: bool = False) -> None:
        try:
            with self._lock:
                self._writer.finish(error, is_cancelled=is_cancelled)
        finally:
            if self._heartbeat is not None:
                self._heartbeat.end()

    def _renew(self) -> float | None:
        with self._lock:
            return self._writer.renew()


def note_failure(error: BaseException, failure: Exception) -> None:
    """Add a note to the error that ended the recording, saying why the response could not be stored."""
    error.add_note(f"The streamed response could not be stored: {failure}")
