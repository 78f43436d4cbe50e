"""cline: for each session a JSON file with its messages, and one about it.

Source: ``~/.cline/data/sessions/ID/ID.messages.json`` and ``ID.json`` of cline 3.0, which are not documented.

* Messages have blocks as Anthropic's API has them, whatever API was spoken; outputs of tools are JSON. Their `id` is
  cline's: there are no ids of responses.
* `metrics` of an answer has its usage, in which the input includes what was cached. `ts` is when it had ended.
* The prompt of the user is between tags, which are not sent; the program says more in the user's place.
* What is only displayed was said by no model: the error with which a run ends. An answer right before one broke off.
* The files of agents name the session that started them in the file about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from threadkeep.contrib.importers import agent_turns, inputs
from threadkeep.contrib.importers import items as make
from threadkeep.contrib.importers.agent_turns import AnswerBlock, TokenCounts
from threadkeep.contrib.importers.items import list_of, object_of, text_of, time_of
from threadkeep.contrib.importers.records import Answer, Draft, Entry, Skipped, Transcript, converted
from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.domain.usage import figure
from threadkeep.errors import CannotParse

MESSAGES: Final = ".messages.json"
PROMPT: Final = re.compile(r"<user_input[^>]*>(.*)</user_input>", re.DOTALL)
MAX_BYTES: Final = 512 * 1024 * 1024  # of a file of messages, which is one document
# name of a provider -> the format that it speaks; of others it is Chat Completions
FORMATS: Final = {
    "anthropic": "messages", "gemini": "gemini", "vertex": "gemini", "bedrock": "converse",
    "openai-native": "open_responses", "openai-codex": "open_responses",
}  # fmt: skip
KEYS: Final = frozenset({"version", "updated_at", "agent", "sessionId", "messages"})


class Cline:
    """Sessions of cline."""

    name: Final = "cline"

    def recognizes(self, input: inputs.Input, /) -> bool:
        """Return whether it is a file with the messages of a session."""
        is_named = input.path is not None and input.path.name.endswith(MESSAGES)
        keys = input.first_keys() if is_named else frozenset()
        return {"sessionId", "messages"} <= keys or {"sessionId", "origin"} <= keys

    def read(self, input: inputs.Input, /) -> Iterator[Transcript | Skipped]:
        """Return the session of a file.

        Raises:
            CannotParse: it is no JSON, or too large.
        """
        if input.size > MAX_BYTES:
            raise CannotParse(f"{input.name} is larger than {MAX_BYTES >> 20} MiB.")
        with input.open() as file:
            try:
                value = loads(file.read())
            except ValueError as error:
                raise CannotParse(f"{input.name} is not JSON: {error}.") from error
        about = _about(input)
        yield converted(input.name, _ClineSession(input.name, about).transcript, value)


def _about(input: inputs.Input) -> JsonObject:
    """What the file beside the messages says about the session; empty where there is none."""
    if input.path is None:
        return {}
    try:
        value: Any = loads(input.path.with_name(input.path.name.replace(MESSAGES, ".json")).read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


@dataclass(slots=True)
class _ClineSession(Draft):
    """A session while it is read."""

    about: JsonObject
    entries: list[Entry] = field(default_factory=list)
    is_answered: bool = False  # whether the last message is an answer

    def transcript(self, value: JsonObject) -> Transcript:
        """The conversation."""
        before, about = None, self.about
        for number, message in enumerate(list_of(value, "messages")):
            before = self._add(str(number), message, before)
        parent = text_of(about, "parent_session_id")
        agent = text_of(about, "agent_id") or text_of(value, "agent") or "agent"
        return Transcript(
            id=text_of(value, "sessionId") or text_of(about, "session_id") or self.where,
            where=self.where,
            entries=self.entries,
            title=text_of(object_of(about, "metadata"), "title"),
            model=make.last_model(entry.answer for entry in self.entries) or text_of(about, "model"),
            instructions=text_of(value, "system_prompt"),
            created_at=time_of(about, "started_at"),
            labels={"agent": agent, "parent": f"cline:{parent}"} if parent else {},
            properties=agent_turns.properties(about, {"cwd": "cwd"}),
            is_nameless=True,
            skipped=self.skipped,
        )

    def _add(self, number: str, message: Any, before: Any) -> Any:
        """Add a message, before which another one was said at that time; return when it was."""
        if not isinstance(message, dict):
            self.skip("a message is not an object", number)
            return before
        about = object_of(message, "metadata")
        if about.get("displayOnly") is True:
            if about.get("displayRole") == "error" and self.is_answered and (last := self.entries[-1]).answer:
                self.entries[-1] = replace(last, answer=replace(last.answer, status="incomplete", finish_reason=None))
            self.is_answered = False
            return before
        at, content, id_ = message.get("ts"), message.get("content"), text_of(message, "id") or number
        blocks = self.blocks(content, id_)
        self.is_answered, answer = message.get("role") == "assistant", None
        if self.is_answered:
            items, answer = self._answered(message, blocks, id_, (before, at))
        else:
            items = self._asked(blocks, id_)
        parent = self.entries[-1].id if self.entries else None
        self.entries.append(Entry(id_, parent, items, agent_turns.moment(at), answer))
        return at

    def _answered(self, message: JsonObject, blocks: list[Any], id_: str, times: tuple[Any, Any]) -> tuple[Any, Answer]:
        """What a model said, and its response."""
        model, metrics = object_of(message, "modelInfo"), object_of(message, "metrics")
        provider = text_of(model, "provider")
        format_ = FORMATS.get(provider or "", "chat_completion")
        names = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")
        counts = TokenCounts(*(figure(metrics.get(name)) for name in names))
        answer = agent_turns.answer(format_, counts, model=text_of(model, "id"), provider=provider, times=times)
        said = [made for block in blocks if (made := self._block(block, id_)) is not None]
        return agent_turns.answer_items(format_, said), answer

    def _asked(self, blocks: list[Any], id_: str) -> list[Any]:
        """What the user said, or the program in the user's place, and outputs of tools."""
        items: list[JsonObject] = []
        for block in blocks:
            match text_of(block, "type"):
                case "text":
                    text = text_of(block, "text") or ""
                    typed = PROMPT.fullmatch(text)
                    make.extend(items, "user", make.text_part(typed[1] if typed else text, "user"))
                case "image":
                    source = object_of(block, "source") or block
                    media = text_of(source, "media_type") or text_of(source, "mediaType")
                    make.extend(items, "user", agent_turns.inline_part(media, text_of(source, "data")))
                case "tool_result":
                    value = block.get("content")
                    text = value if isinstance(value, str) else dumps(value).decode()
                    items.append(make.output(text_of(block, "tool_use_id") or "", text))
                case kind:
                    self.skip(f"a block of the type {kind!r} is not imported", id_)
        return items

    def _block(self, block: Any, id_: str) -> AnswerBlock | None:
        """A block of an answer."""
        match text_of(block, "type"):
            case "text":
                return AnswerBlock("text", text_of(block, "text") or "")
            case "thinking":
                return AnswerBlock("thinking", text_of(block, "thinking") or "", signature=text_of(block, "signature"))
            case "tool_use":
                name = text_of(block, "name") or ""
                return AnswerBlock(
                    "call", call_id=text_of(block, "id") or name, name=name, arguments=block.get("input"),
                    signature=text_of(block, "signature"),
                )  # fmt: skip
            case kind:
                self.skip(f"a block of the type {kind!r} is not imported", id_)
                return None
