"""The history that a client keeps, compared with stored ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain import items, jsontext
from threadkeep.domain.session import Session
from threadkeep.formats.canonical.entries import ItemEntry, entry_of
from threadkeep.formats.chat_completion.parts import audio_id_of
from threadkeep.formats.shared.pairing import CALLS, OUTPUTS
from threadkeep.store.history_sync import alignment as alignments
from threadkeep.store.reading.rendering import opened_config
from threadkeep.store.writing.appending import NewItems
from threadkeep.store.writing.importing import new_items

if TYPE_CHECKING:
    from threadkeep.store.conversation import Conversation

SUMMARY_TAGS: Final = ("summary", "state_snapshot")  # of the blocks that models are asked to write a summary in
_TOKENS: Final = frozenset({"continuationToken", "continuation_token"})  # with which Gemini goes on with an answer
_REQUEST: Final = 1_000  # characters of a request for a summary: people seldom type so many about one


@dataclass(frozen=True, slots=True)
class HistoryDelta:
    """How a client's history continues a stored one."""

    kept: int  # how many of the stored items it has
    matched: int  # how many of its own items are stored
    is_all: bool  # whether it has all of the stored ones
    new: NewItems  # what it has beyond these


class ClientHistory:
    """The history in a client's request.

    `previous_response_id` and `has_conversation` say that it only has what follows what the provider holds. One with a
    continuation token goes on behind the paused answer, which it does not have.
    """

    def __init__(self, session: Session) -> None:
        self.previous_response_id: str | None = session.previous_response_id
        self.has_conversation = session.conversation is not None
        self._follows_pause = lasting_settings(session) != session.settings
        self._items, self._turns, self._makers = session.items, session.turns, session.makers
        self._objects = [item.to_object() for item in session.items]
        self._calls = _calls_of_outputs(self._objects, self._turns)
        self.call_ids = {one["call_id"] for one in self._objects if isinstance(one.get("call_id"), str)}
        self._references = [_reference(item) for item in self._objects]
        self._has_references = any(self._references)
        spoken = alignments.without_leading_system(alignments.utterances_of(self._objects))
        self._utterances = alignments.without_repeated_outputs(spoken, self._objects)
        self._keys = {said.key for said in self._utterances}
        texts: dict[str, list[str]] = {}
        for said in self._utterances:
            if said.kind == alignments.TEXT:
                texts.setdefault(said.speaker, []).append(said.value)
        self._texts = {speaker: "".join(some) for speaker, some in texts.items()}

    def compare(
        self, entries: Sequence[ItemEntry], cut_off: Collection[int], *, may_begin_later: bool = True
    ) -> HistoryDelta:
        """What is new in it; `cut_off` are the positions where stored responses broke off.

        `may_begin_later`: it may have only the end of the stored history.
        """
        stored = [entry.item() for entry in entries]
        indexes = {index for index, entry in enumerate(entries) if entry.position in cut_off}
        client = self._utterances
        if self._has_references:
            by_id = {name: item for item in stored for name in (item.get("id"), audio_id_of(item)) if name}
            objects = [by_id.get(name, one) for name, one in zip(self._references, self._objects, strict=True)]
            client = alignments.without_leading_system(alignments.utterances_of(objects))
            client = alignments.without_repeated_outputs(client, objects)
        stored_utterances = alignments.without_repeated_outputs(alignments.utterances_of(stored, indexes), stored)
        stored_utterances = [*self._with_optional_comments(stored_utterances, stored)]
        alignment = (
            alignments.align(stored_utterances, client)
            if may_begin_later
            else alignments.align_from(stored_utterances, client, 0)
        )
        rest = self._without_echoes(alignment.rest, client)
        if not alignment.is_all and all(said.is_optional for said in rest):  # it is only behind
            rest = []
        matched = {said.item for said in client} - {said.item for said in alignment.rest}
        call_ids = {index: stored[call].get("call_id") for index, call in alignment.calls.items()}
        kept, is_all = alignment.kept, alignment.is_all
        if self._follows_pause and not rest and _is_paused(entries[kept:], cut_off):
            kept, is_all = len(entries), True
        return HistoryDelta(kept, len(matched), is_all, self._new_items(rest, call_ids))

    def _with_optional_comments(
        self, stored: Sequence[alignments.Utterance], items: Sequence[jsontext.JsonObject]
    ) -> Iterator[alignments.Utterance]:
        """What is stored, where texts beside calls may be missing: some clients send the calls of an answer alone.

        It has the ids of these calls, or what a provider's own tool has found, and does not say the text.
        """
        for speaker, said in groupby(stored, key=attrgetter("speaker")):
            turn = [*said]
            calls = {items[one.item].get("call_id") for one in turn if one.kind == alignments.CALL}
            blocks = {one.key for one in turn if one.kind == alignments.OPAQUE and one.value != alignments.REASONING}
            is_same = not self.call_ids.isdisjoint(calls) or not self._keys.isdisjoint(blocks)
            is_known = speaker == alignments.ASSISTANT and is_same
            for one in turn:
                is_missing = is_known and one.kind == alignments.TEXT and not self._says(one)
                yield replace(one, is_optional=True) if is_missing else one

    def _says(self, said: alignments.Utterance) -> bool:
        return said.key in self._keys or (
            said.kind == alignments.TEXT and said.value in self._texts.get(said.speaker, "")
        )

    def may_say(self, item: jsontext.JsonObject) -> bool:
        """Whether it may have a stored item; False where it cannot."""
        return self._has_references or all(
            said.is_optional or self._says(said) for said in alignments.utterances_of([item])
        )

    @property
    def has_answer(self) -> bool:
        """Whether the assistant says something in it."""
        return any(said.speaker == alignments.ASSISTANT for said in self._utterances)

    def goes_on(self, items: Sequence[jsontext.JsonObject], answer: Sequence[jsontext.JsonObject]) -> bool:
        """Whether it has all of some items, and then an answer."""
        entries = [entry_of(value, position=at) for at, value in enumerate((*items, *answer))]
        says_something = any(not said.is_optional for said in alignments.utterances_of(answer))
        return says_something and self.compare(entries, (), may_begin_later=False).is_all

    def begins_with(self, item: jsontext.JsonObject) -> bool:
        """Whether a stored item says the first thing in it."""
        first = next((said.key for said in self._utterances if not said.is_optional), None)
        return any(said.key == first for said in alignments.utterances_of([item]))

    def _without_echoes(
        self, rest: Sequence[alignments.Utterance], client: Sequence[alignments.Utterance]
    ) -> list[alignments.Utterance]:
        """The rest without marks and opaque blocks of turns that are stored: they are other spellings of these."""
        new = {(said.item, said.part) for said in rest}
        stored = {
            self._turns[said.item] for said in client if not said.is_optional and (said.item, said.part) not in new
        }
        return [said for said in rest if not said.is_optional or self._turns[said.item] not in stored]

    def _new_items(self, rest: Sequence[alignments.Utterance], call_ids: Mapping[int, Any]) -> NewItems:
        """The items that say the rest; of those that say more, the parts that do. `call_ids` are the stored ones."""
        first_parts: dict[int, int] = {}
        for said in rest:
            first_parts.setdefault(said.item, said.part)
        items = [self._new_item(index, part, call_ids) for index, part in first_parts.items()]
        places = list(first_parts)
        return new_items(items, [self._turns[index] for index in places], [self._makers[index] for index in places])

    def _new_item(self, index: int, part: int, call_ids: Mapping[int, Any]) -> items.Item:
        """An item as it is to be stored: from one of its parts on, an output with the id of the stored call."""
        item = self._objects[index]
        if item["type"] in OUTPUTS:
            own_id = item.get("call_id")
            call = self._calls.get(index, -1)
            call_id = call_ids.get(call, own_id)
            return self._items[index] if call_id == own_id else items.item_from_object({**item, "call_id": call_id})
        if not part or not isinstance(item.get("content"), list):
            return self._items[index]
        return items.item_from_object({**item, "content": item["content"][part:]})


def _reference(item: jsontext.JsonObject) -> str | None:
    """The id of the item that one stands for: it has that id, or its audio has."""
    if item["type"] == "item_reference":
        return str(item.get("id"))
    return audio_id_of(item) if "native" in item or item["type"] == "provider_item" else None


def _is_paused(entries: Sequence[ItemEntry], cut_off: Collection[int]) -> bool:
    """Whether items are an answer that is not whole, and nothing else."""
    said = [entry.item() for entry in entries]
    is_answer = all(one.get("role") in (None, "assistant") and one["type"] not in OUTPUTS for one in said)
    return is_answer and bool(entries) and entries[-1].position in cut_off


def _calls_of_outputs(items: Sequence[jsontext.JsonObject], turns: Sequence[int | None]) -> dict[int, int]:
    """Where the calls are that outputs answer, by the indexes of both: the last ones before them.

    Of those with the same id in one turn, each output answers the next one.
    """
    found: dict[int, int] = {}
    calls: dict[str, list[int]] = {}
    for index, item in enumerate(items):
        call_id = str(item.get("call_id"))
        if item["type"] in OUTPUTS and call_id in calls:
            found[index] = calls[call_id][0]
            if len(calls[call_id]) > 1:
                del calls[call_id][0]
        elif item["type"] in CALLS:
            twins = calls.setdefault(call_id, [])
            if twins and turns[twins[-1]] != turns[index]:
                twins.clear()
            twins.append(index)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# The settings that a client's request brings, which become those of its conversation


def configure(conversation: Conversation, session: Session, *, is_locked: bool = False) -> Session:
    """Give a conversation the settings and tools of a request: nothing of earlier ones is carried over.

    Returns those it had before. `is_locked`: it was opened in this transaction, for writing.
    """
    settings = lasting_settings(session)
    known = opened_config(conversation.handle) if is_locked else conversation.clone_config()
    if known.settings != settings:
        removed = dict.fromkeys(known.settings.keys() - settings.keys())
        conversation.update(**{**removed, **settings})
    if known.tools != session.tools:
        conversation.clear_tools()
        if session.tools:
            conversation.register_tools(session.tools)
    return known


def lasting_settings(session: Session) -> jsontext.JsonObject:
    """Return the settings of a request without a continuation token, which is for that request alone."""
    extra = session.settings.get("extra") or {}
    lasting = {name: {key: keys[key] for key in keys if key not in _TOKENS} for name, keys in extra.items()}
    return session.settings if lasting == extra else {**session.settings, "extra": lasting}


def with_leading_instructions(session: Session) -> Session:
    """Return a session whose leading system and developer texts are its instructions, in whatever format they came."""
    leading: list[str] = []
    for item in session.items:
        value = item.to_object()
        content = value.get("content") if value.get("role") in ("system", "developer") else None
        texts = [part.get("text") for part in content] if isinstance(content, list) else [content]
        known = [text for text in texts if isinstance(text, str)]
        if len(known) < len(texts):
            break
        leading.append("\n\n".join(known))
    if not leading or len(leading) == len(session.items):
        return session
    own = session.settings.get("instructions")
    led = items_from(session, len(leading))
    led.update(instructions="\n\n".join([*([] if own is None else [own]), *leading]))
    return led


def items_from(session: Session, start: int) -> Session:
    """Return a session with its items from an index on."""
    rest = session.clone_config()
    for item, turn, maker in zip(session.items[start:], session.turns[start:], session.makers[start:], strict=True):
        rest.add_item(item, turn=turn, maker=maker, known=False)
    return rest


def is_about(known: Session, session: Session) -> bool:
    """Return whether a request asks something about a conversation in place of going on with it, as routers do.

    It wants JSON, and has none of its tools, and other instructions.
    """
    formats = ((one.settings.get("text") or {}).get("format") or {} for one in (known, session))
    wants_json, asks_json = (str(format_.get("type")).startswith("json") for format_ in formats)
    is_without_tools = bool(known.tools) and not session.tools
    return asks_json and not wants_json and is_without_tools and has_other_instructions(known, session)


def has_fewer_tools(known: Session, session: Session) -> bool:
    """Return whether a request has some of the tools of a conversation, and no others."""
    names, others = ({tool.to_dict().get("name") for tool in one.tool_definitions} for one in (session, known))
    return bool(names) and names < others


def has_other_instructions(known: Session, session: Session) -> bool:
    """Return whether less than half of the lines of the instructions are those of a conversation."""
    lines, others = ({*str(one.settings.get("instructions") or "").split("\n")} for one in (known, session))
    return 2 * len(lines & others) < max(len(lines), len(others))


def asks_for_summary(session: Session) -> bool:
    """Return whether the last message of a user wants a block such as `<summary>`, as clients ask for it.

    It is a long one, or the instructions say what is in the block. Texts with such blocks close as many as they open.
    """
    said = (one for one in reversed(session.items) if isinstance(one, items.Message) and one.role == "user")
    last, instructions = next((one.text for one in said), ""), str(session.settings.get("instructions"))
    tags = [tag for tag in SUMMARY_TAGS if last.count(f"<{tag}>") > last.count(f"</{tag}>")]
    return any(len(last) >= _REQUEST or f"<{tag}>" in instructions for tag in tags)
