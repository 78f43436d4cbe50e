"""The message list of Chat Completions.

* A response is one assistant message: its text, its reasoning keys and all its calls. Calls that the user built go
  onto the assistant message before them, if there is one.
* Tool messages stand directly behind the assistant message whose calls they answer, wherever their items are; in an
  imported request that had them elsewhere they stay there.
* Pictures and files of tool outputs stand in a user message behind the tool messages, which hold texts alone.
* Messages that may stand side by side are not joined.
* Messages that came from this format go back as they came, see `spelling`.

Source: OpenAI's API reference, "Chat Completions", messages.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.tool_names import hashed
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.formats.chat_completion import parts as spellings
from threadkeep.formats.chat_completion.calls import custom_call, missing_message, spelled_call, tool_message
from threadkeep.formats.chat_completion.fields import NAME, ROLES
from threadkeep.formats.chat_completion.parts import CARRIED, OWN_PARTS, PARTS, wire_parts
from threadkeep.formats.chat_completion.vendors import vendor_keys
from threadkeep.formats.shared.arguments import sent_arguments
from threadkeep.formats.shared.cache_marks import MARK
from threadkeep.formats.shared.dialects import STANDARD, Dialect
from threadkeep.formats.shared.pairing import LAYER, Pairing, placeholder_of
from threadkeep.formats.shared.parts import native_keys, own_block, report_foreign
from threadkeep.formats.shared.rendering import WRITERS, Rendering, TurnWriter

_NO_AUDIO: Final = "The audio has expired, and has no transcript."
_CALLERS: Final = frozenset({"namespace", "caller", "async"})


class ChatWriter(TurnWriter):
    """Writes messages item by item, behind those that are there; the last assistant message may still grow."""

    def __init__(self, messages: list[JsonObject], rendering: Rendering, pairing: Pairing, dialect: Dialect) -> None:
        super().__init__(rendering, pairing)
        spelling = rendering.spelling or {}
        self.messages, self._dialect = messages, dialect
        self.imported = 0  # how many messages are of the imported request
        self._results = rendering.options.tool_results or dialect.results
        self._carried = (*CARRIED, MARK) if dialect.marks == "parts" else CARRIED
        self._as_string = spelling.get("content") == spellings.STRING
        # outputs before that have places of their own, as the imported request had them
        self._in_place = rendering.imported if spelling.get("order") == spellings.KEPT else 0
        self._pending |= {position for position in pairing.alone if position > pairing.sent}
        self._rendering = rendering
        self._open: JsonObject | None = None
        self._turn: int | None = None
        self._spelling: JsonObject = {}  # of the open message
        self._is_text = False  # whether its texts are one string
        self._answered = 0  # how many messages there were when calls were answered last
        self._calls: list[tuple[ItemEntry, str]] = []  # of the open message: calls, and their ids on the wire

    def write(self, entries: Sequence[ItemEntry]) -> None:
        """Write all items."""
        context, in_time = self._context, self._pairing.calls
        for entry in entries:
            if self._open is not None and entry.seen is not None and entry.turn != self._turn:
                self._close()
            if entry.position < self._imported:
                self.imported = -1  # counted when the first message of another item is met
            elif self.imported < 0:
                self.imported = len(self.messages)
            context.position = position = entry.position
            if position in in_time:
                self._output_in_time(entry)
                continue
            item = entry.item()
            getattr(self, WRITERS.get(entry.type, "nothing"))(item, entry)
            if "spelling" in item and self._open is not None and self._turn == entry.turn:
                self._spelling = self._spelling | spellings.item_spelling(item, entry)
        self._close()
        self.imported = len(self.messages) if self.imported < 0 else self.imported
        context.position = None

    def stable(self) -> int:
        """How many messages no later append changes: a last assistant message may still get calls."""
        is_last_open = bool(self.messages) and self.messages[-1].get("role") == "assistant"
        return len(self.messages) - is_last_open if self._unsettled is None else self._unsettled

    # The open message

    def _takes_one_text(self, entry: ItemEntry) -> bool:
        """Whether the vendor takes texts as one string; an imported request goes back as it came."""
        return self._dialect.text == "string" and entry.position >= self._imported

    def _say(self, keys: JsonObject, entry: ItemEntry, *, is_text: bool = True) -> None:
        """Put what the vendor takes of some keys onto the open message, or onto a new one."""
        if not self._dialect.keys:
            self._join(keys, entry, is_text=is_text)
            return
        taken = vendor_keys({"role": "assistant", **keys}, self._dialect, self._context)
        if len(taken) > len(keys) or any(value for key, value in taken.items() if key != "role"):
            self._join({key: taken[key] for key in keys if key in taken}, entry, is_text=is_text)

    def _join(self, keys: JsonObject, entry: ItemEntry, *, is_text: bool = True) -> None:
        """Put keys onto the open message where they belong to it, else onto a new one."""
        message = self._open
        if message is None or not self._belongs(message, entry, is_text=is_text):
            if message is not None:
                self._close()
            self._open = {"role": "assistant", "content": None, **keys}
            self._turn, self._is_text = entry.turn, self._takes_one_text(entry)
            self.messages.append(self._open)
            return
        before = message["content"]
        message.update(keys)
        if isinstance(before, list) and "content" in keys:
            message["content"] = [*before, *(keys["content"] or [])]

    def _belongs(self, message: JsonObject, entry: ItemEntry, *, is_text: bool) -> bool:
        """Whether the open message is the one that an item is part of."""
        is_empty = all(map(spellings.is_thinking, message["content"] or ())) and not self._calls
        goes_on = entry.turn is not None and (not is_text or bool(self._calls))
        return self._turn == entry.turn and (is_empty or goes_on)

    def _close(self) -> None:
        """Finish the open assistant message, and answer its calls."""
        message, calls = self._open, self._calls
        if message is None:
            return
        if self._spelling or self._as_string or self._is_text or not message["content"]:
            spellings.spell_assistant(message, self._spelling, as_string=self._as_string, is_joined=self._is_text)
            self._spelling = {}
            for key in message.keys() - self._dialect.keys.get("assistant", message.keys()):  # an empty one
                del message[key]
        self._open = self._turn = None
        if calls:
            self._calls = []
            self._answer(calls)

    # Messages

    def message(self, item: JsonObject, entry: ItemEntry) -> None:
        """A message; the assistant's stays open for calls."""
        role, is_own = item.get("role"), entry.origin == NAME
        if role not in ROLES and not is_own:
            self._context.loss("role", "role", f"The format has no role {role!r}; the message was left out.")
        elif role == "assistant":
            self._assistant(item, entry)
        else:
            mappers = OWN_PARTS if is_own else PARTS[role]  # type: ignore[index]  # one of ROLES
            content = wire_parts(item.get("content") or [], mappers, self._context, "content", self._carried)
            if content:
                self._put({"role": role, "content": content}, item, entry)
            else:
                report_foreign(item, NAME, self._context, "native")

    def _put(self, message: JsonObject, item: JsonObject, entry: ItemEntry) -> None:
        """Add a message that is not the assistant's."""
        self._close()
        if self._unsettled is None and entry.turn == LAYER:
            self._unsettled = len(self.messages)
        is_joined = self._takes_one_text(entry)
        if is_joined or self._as_string or "spelling" in item:
            spelling = spellings.item_spelling(item, entry)
            content = spellings.spelled(message["content"], spelling, as_string=self._as_string, is_joined=is_joined)
            message["content"] = content
        if "native" in item:
            message = spellings.with_native(item, message, entry, self._context)
        self.messages.append(vendor_keys(message, self._dialect, self._context))

    def _assistant(self, item: JsonObject, entry: ItemEntry) -> None:
        is_own = entry.origin == NAME
        parts = item.get("content") or ()
        keys: JsonObject = {"content": None}
        if is_own:
            parts, own = spellings.own_keys(parts)
            keys.update(own)
            if isinstance(audio := native_keys(item, NAME).get("audio"), dict):
                item, parts = self._with_audio(item, parts, audio, entry)
        mappers = OWN_PARTS if is_own else PARTS["assistant"]
        if content := wire_parts(parts, mappers, self._context, "content", self._carried):
            keys["content"] = content
        elif len(keys) == 1 and not native_keys(item, NAME):
            report_foreign(item, NAME, self._context, "native")
            return
        self._say(spellings.with_native(item, keys, entry, self._context) if "native" in item else keys, entry)

    def _with_audio(
        self, item: JsonObject, parts: Sequence[JsonObject], audio: JsonObject, entry: ItemEntry
    ) -> tuple[JsonObject, Sequence[JsonObject]]:
        """An answer and its parts with the audio that the service still has, else with the transcript alone."""
        if "audio" in spellings.item_spelling(item, entry):  # a request that had it whole
            return item, spellings.without_transcript(parts)
        if self._is_there(audio):
            if self._unsettled is None and "expires_at" in audio:
                self._unsettled = len(self.messages) - (self._open is not None)
            return item, spellings.without_transcript(parts)
        if spellings.transcript_of(audio):
            detail = "The audio has expired; its transcript was sent."
            self._context.repair("audio", "native.chat_completion.audio", detail)
        else:
            self._context.loss("media", "native.chat_completion.audio", _NO_AUDIO)
        return spellings.without_audio(item), parts

    def _is_there(self, audio: JsonObject) -> bool:
        """Whether the service still has the audio of an answer, when the request is sent."""
        expires_at, rendering = audio.get("expires_at"), self._rendering
        if isinstance(expires_at, bool) or not isinstance(expires_at, int | float):
            return True
        if rendering.options.now is None:  # recorded with the request, which is rendered the same later on
            rendering.options = replace(rendering.options, now=int(time.time()))
        return rendering.options.now is None or rendering.options.now < expires_at

    def reasoning(self, item: JsonObject, entry: ItemEntry) -> None:
        """Reasoning that came from this format, as the keys and parts that it had; other reasoning stays unseen."""
        if keys := native_keys(item, NAME):
            self._say(keys, entry, is_text=False)
        else:
            self._context.loss("reasoning", "", "Reasoning was left out: the format has no place for it.")

    def block(self, item: JsonObject, entry: ItemEntry) -> None:
        """A call of a kind that only this format knows, or keys of the assistant message of its turn."""
        payload = own_block(item, NAME, self._context, "")
        if not isinstance(payload, dict):
            return
        spelling = spellings.item_spelling(item, entry)
        if "whole" in spelling:
            self._close()
            self.messages.append(vendor_keys(dict(payload), self._dialect, self._context))
        elif entry.call_id is not None or "call" in spelling:
            self._add_call(dict(payload), item, entry)
        elif "role" in payload:
            self._keys(payload, entry, is_whole="audio" in spelling)
        else:
            self._say({"content": [payload]}, entry)

    def _keys(self, payload: JsonObject, entry: ItemEntry, *, is_whole: bool) -> None:
        """Keys of an assistant message that has no content."""
        audio = payload.get("audio")
        if isinstance(audio, dict) and not is_whole and not self._is_there(audio):
            self._context.loss("media", "payload.audio", _NO_AUDIO)
            payload = {key: value for key, value in payload.items() if key != "audio"}
            if payload.keys() == {"role"}:
                return
        self._say(spellings.message_keys(payload, is_whole=is_whole), entry, is_text=False)

    # Calls

    def call(self, item: JsonObject, entry: ItemEntry) -> None:
        """A call, on the assistant message of its turn; one that the user built, on the message before it."""
        call_id = item.get("call_id") or ""
        if entry.type == "custom_tool_call":
            self._add_call(custom_call(item, call_id, self._context, self._dialect), item, entry)
            return
        name, arguments = item.get("name"), item.get("arguments")
        if entry.rest is not None or item.keys() & _CALLERS:
            name = self._context.called(item, is_own=entry.origin == NAME)
            if entry.position >= self._imported:
                arguments = sent_arguments(item, self._context)
        function = {"name": name, "arguments": arguments}
        self._add_call({"id": call_id, "type": "function", "function": function}, item, entry)

    def _add_call(self, call: JsonObject, item: JsonObject, entry: ItemEntry) -> None:
        if self._open is None or (entry.turn is not None and entry.turn != self._turn):
            self._join({}, entry, is_text=False)
        if "native" in item or "spelling" in item:
            report_foreign(item, NAME, self._context, "native")
            call = spelled_call(call, native_keys(item, NAME), spellings.item_spelling(item, entry))
        self.messages[-1].setdefault("tool_calls", []).append(call)
        if entry.call_id is not None or entry.type != "provider_item":  # else no output can name it
            self._expect_output(call, entry)

    def _expect_output(self, call: JsonObject, entry: ItemEntry) -> None:
        """Note a call of the open message; an id that another one has becomes a hash."""
        is_used = bool(self._calls) and any(call["id"] == used for _, used in self._calls)
        if (is_used or not call["id"]) and entry.position >= self._imported:
            call["id"] = f"call_{hashed(call['id'], entry.position)}"
            self._context.repair("duplicate_call_id", "call_id", "A call id that is empty or came twice became a hash.")
        if self._unsettled is None and entry.position in self._pending:
            self._unsettled = len(self.messages) - 1
        self._calls.append((entry, call["id"]))

    # Outputs

    def _answer(self, calls: Sequence[tuple[ItemEntry, str]]) -> None:
        """The tool messages of calls: those in time, and placeholders."""
        pairing, in_place = self._pairing, self._in_place
        answers = [(pairing.answers.get(call.position), key) for call, key in calls]
        outputs = [(output, key) for output, key in answers if output is not None and output.position >= in_place]
        is_by_call = self._dialect is not STANDARD  # others pair results with calls by their order
        media: list[Any] = []
        for output, key in outputs if is_by_call else sorted(outputs):
            media += self._add_output(key, output)
        for call, key in calls if pairing.unanswered else ():
            if call.position in pairing.unanswered:
                text = placeholder_of(call.item())
                self._context.missing_output(call, text)
                self.messages.append(missing_message(key, text, self._results))
        if media:
            self.messages.append({"role": "user", "content": media})
        self._answered = len(self.messages)

    def _add_output(self, call_id: str, output: ItemEntry) -> list[Any]:
        """Add a tool message; return what it does not hold: pictures and files, behind a text that says whose."""
        context, position = self._context, self._context.position
        context.position = output.position
        # a client of this format has its own server, which may take more than OpenAI's
        is_as_came = output.position < self._imported or (output.origin == NAME and self._dialect is STANDARD)
        media: list[Any] = []
        message = tool_message(
            call_id, output, context, "parts" if is_as_came else self._results, None if is_as_came else media
        )
        self.messages.append(vendor_keys(message, self._dialect, context))
        context.position = position
        if not media:
            return []
        call = self._pairing.calls.get(output.position)
        name = "" if call is None else f" of {call.item().get('name')}"
        return [{"type": "text", "text": f"Output{name}:"}, *media]

    def output(self, item: JsonObject, entry: ItemEntry) -> None:
        """An output without a call, or one that came after its placeholder was sent."""
        if (message := self._told(item, entry)) is not None:
            self.message(message, entry)
        elif entry.position in self._pairing.alone:
            self._close()
            self._add_output(entry.call_id or "", entry)
        else:
            self._context.orphan_output(entry)

    def _output_in_time(self, entry: ItemEntry) -> None:
        """It is written behind its call when that message is closed, which an output does."""
        if entry.position < self._in_place:
            self._close()
            self._add_output(entry.call_id or "", entry)
            return
        if self._open is not None:
            is_here = bool(self._calls) and self._pairing.calls[entry.position].position >= self._calls[0][0].position
            self._close()
        else:
            is_here = len(self.messages) == self._answered
        if not is_here:
            self._context.moved_output(entry)
