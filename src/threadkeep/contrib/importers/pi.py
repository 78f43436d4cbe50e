"""pi: a file of JSON Lines for each session, which is a tree.

Source: the documentation of pi's session files (docs/session-format.md of its package), and files of pi 0.73 and 1.6.

* Every line but the first has an `id`, and follows its `parentId`. A session that was forked begins with copies of
  lines of the other one, with the same ids; its first line names that file.
* Answers name the API that was spoken; signatures are what that API needs to get them back: of the Responses API, a
  whole reasoning item, and the ids of messages and calls.
* `usage.input` excludes what was cached, `usage.output` includes reasoning. A call that failed has counts of zero.
* An answer that failed or was stopped is not sent again, nor what a `context_edit` takes out: what follows it follows
  what comes before it, so it is a variant.
* A compaction stands for what is before the entry that it names.
* Calls that are no answers have their usage where they led to something: summaries, tools that ask models, and entries
  of their own.
* System messages, since 0.84, change named sections of the prompt, and which tools there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import PurePath
from typing import Any, Final

from threadkeep.contrib.importers import agent_turns, inputs, json_files
from threadkeep.contrib.importers import items as make
from threadkeep.contrib.importers.agent_turns import AnswerBlock, TokenCounts
from threadkeep.contrib.importers.items import list_of, object_of, text_of, time_of
from threadkeep.contrib.importers.records import Answer, Draft, Entry, SideCall, Skipped, Transcript, converted
from threadkeep.domain import formats
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.domain.usage import figure

# API of pi -> wire format
FORMATS: Final = {
    "openai-responses": "open_responses", "azure-openai-responses": "open_responses",
    "openai-codex-responses": "open_responses", "openai-completions": "chat_completion",
    "mistral-conversations": "chat_completion", "anthropic-messages": "messages", "google-generative-ai": "gemini",
    "google-gemini-cli": "gemini", "google-vertex": "gemini", "bedrock-converse-stream": "converse",
}  # fmt: skip
# how an answer ended -> its status; of others it is completed
STATUSES: Final = {"length": "incomplete", "error": "failed", "aborted": "cancelled"}
NOT_SENT: Final = ("error", "aborted")
# entries that say something about the session or the program
NOTES: Final = frozenset({"model_change", "thinking_level_change", "label", "custom", "usage"})
EDIT: Final = "context_edit"
TOOL: Final = ("name", "description", "parameters")


class Pi:
    """Sessions of pi."""

    name: Final = "pi"

    def recognizes(self, input: inputs.Input, /) -> bool:
        """Return whether the first line begins a session."""
        first = next(input.first_lines, {})
        return first.get("type") == "session" and {"id", "timestamp", "cwd"} <= first.keys()

    def read(self, input: inputs.Input, /) -> Iterator[Transcript | Skipped]:
        """Return the session of a file."""
        session = _PiSession(input.name)
        yield from json_files.skipped_lines(input, session.add)
        if session.head or session.entries:
            yield converted(input.name, session.transcript)


@dataclass(slots=True)
class _PiSession(Draft):
    """The lines of a file."""

    head: JsonObject = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    parents: dict[str, str | None] = field(default_factory=dict)  # of entries, and of answers that are not sent again
    unsent: set[str] = field(default_factory=set)
    systems: dict[str, JsonObject] = field(default_factory=dict)  # system messages, by the ids of their entries
    calls: list[SideCall] = field(default_factory=list)
    newest: Answer = field(default_factory=lambda: Answer("open_responses"))
    title: str | None = None
    last: str | None = None

    def add(self, found: json_files.FileObject) -> None:
        """Take in a line."""
        line, kind = found.value, found.value.get("type")
        if kind == "session":
            self.head = self.head or line
            return
        id_ = text_of(line, "id") or found.where  # the first releases had none, nor a tree
        if kind == EDIT and line.get("replacement") is None:
            self.unsent |= {id_, text_of(line, "targetId") or id_}
        parent = self._sent(text_of(line, "parentId") if "parentId" in line else self.last)
        self.parents[id_], self.last = parent, id_
        items, answer, covers = self._content(line, found.where)
        message = object_of(line, "message")
        if message.get("stopReason") in NOT_SENT:
            self.unsent.add(id_)
        at = agent_turns.moment(message.get("timestamp")) or time_of(line, "timestamp")
        self.entries.append(Entry(id_, parent, items, at, answer, covers=covers))
        if answer is not None:
            self.newest = answer
        else:
            self._count(line, id_, at)

    def _sent(self, parent: str | None) -> str | None:
        """The nearest entry from this one on that is sent again."""
        passed: set[str | None] = set()  # ids may go in a circle
        while parent in self.unsent and parent not in passed:
            passed.add(parent)
            parent = self.parents.get(parent or "")
        return parent

    def _count(self, line: JsonObject, id_: str, at: datetime | None) -> None:
        """Note the call that led to a line which is no answer; the model of a tool's own calls is not known."""
        usage = object_of(line, "usage") or object_of(object_of(line, "message"), "usage")
        is_summary = "summary" in line and not line.get("fromHook")
        asked = self.newest if is_summary else Answer(self.newest.format)
        model, provider = text_of(line, "model") or asked.model, text_of(line, "provider") or asked.provider
        made = agent_turns.answer(asked.format, _token_counts(usage), model=model, provider=provider)
        if made.usage is not None:
            self.calls.append(SideCall(id_, made, at, entry=id_))

    def _content(self, line: JsonObject, where: str) -> tuple[Any, Answer | None, str | None]:
        """The items of a line, the response that they came in, and what they cover."""
        summary = text_of(line, "summary") or ""
        match kind := line.get("type"):
            case "message":
                return *self._message(object_of(line, "message"), line, where), None
            case "custom_message":
                return make.message("user", self._parts(line.get("content"), where)), None, None
            case "branch_summary":
                return make.message("user", [make.text_part(summary, "user")]), None, None
            case "compaction":
                kept = text_of(line, "firstKeptEntryId") or ""
                item = {"type": "compaction", "summary": summary}
                return [item], None, self.parents[kept] or "" if kept in self.parents else None
            case "session_info":
                self.title = text_of(line, "name")
                return [], None, None
        if text_of(line, "type") not in NOTES and text_of(line, "id") not in self.unsent:
            self.skipped.append(Skipped(where, f"entries of the type {kind!r} are not part of the conversation"))
        return [], None, None

    def _message(self, message: JsonObject, line: JsonObject, where: str) -> tuple[Any, Answer | None]:
        """The items of a message, and the response that they came in."""
        match role := message.get("role"):
            case "user":
                return make.message("user", self._parts(message.get("content"), where)), None
            case "assistant":
                return self._answer(message, line)
            case "toolResult":
                parts = self._parts(message.get("content"), where)
                texts = [part["text"] for part in parts if part["type"] == "input_text"]
                value = "\n".join(texts) if len(texts) == len(parts) else parts
                return [make.output(_call_id(message.get("toolCallId"))[0], value)], None
            case "system":
                self.systems[text_of(line, "id") or where] = message
                return [], None
            case "bashExecution" if not message.get("excludeFromContext"):
                text = f"Ran `{text_of(message, 'command') or ''}`\n```\n{text_of(message, 'output') or ''}\n```"
                return make.message("user", [make.text_part(text, "user")]), None
        self.skipped.append(Skipped(where, f"messages of the role {role!r} are not imported"))
        return [], None

    def _parts(self, content: Any, where: str) -> list[JsonObject]:
        """The parts of what a user said, or a tool returned."""
        parts = []
        for block in self.blocks(content, where):
            if text_of(block, "type") == "image":
                parts.append(agent_turns.inline_part(text_of(block, "mimeType"), text_of(block, "data")))
            elif isinstance(text := block.get("text"), str):
                parts.append(make.text_part(text, "user"))
            else:
                self.skipped.append(Skipped(where, "a block of a message is neither text nor image"))
        return parts

    def _answer(self, message: JsonObject, line: JsonObject) -> tuple[Any, Answer]:
        """What a model said, and its response."""
        format_ = FORMATS.get(text_of(message, "api") or "", "open_responses")
        reason, ended = text_of(message, "stopReason") or "stop", time_of(line, "timestamp")
        answer = agent_turns.answer(
            format_, _token_counts(object_of(message, "usage")),
            id=text_of(message, "responseId"), model=text_of(message, "model"), provider=text_of(message, "provider"),
            status=STATUSES.get(reason, "completed"), reason=reason,
            times=(message.get("timestamp"), None if ended is None else ended.timestamp() * 1000),
        )  # fmt: skip
        blocks = self.blocks(message.get("content"), text_of(line, "id"))
        if format_ != "open_responses":
            return agent_turns.answer_items(format_, [_block(block) for block in blocks]), answer
        items: list[Any] = []
        for block in blocks:  # a signature is the whole item
            reasoning = _json_object(text_of(block, "thinkingSignature"))
            parsed = formats.get_format(format_).parse_turns([reasoning]) if reasoning else []
            items += [item for turn in parsed for item in turn] or agent_turns.answer_items(format_, [_block(block)])
        return items, answer

    def _prompt(self) -> tuple[str, list[JsonObject]]:
        """The prompt and the tools, as the system messages before the last line have made them."""
        texts: list[str] = []
        sections: dict[str, Any] = {}
        tools: dict[str | None, Any] = {}
        path: dict[str, None] = {}
        at = self.last
        while at is not None and at not in path:
            path[at] = None
            at = self.parents.get(at)
        for message in (self.systems[id_] for id_ in reversed(path) if id_ in self.systems):
            texts += [text for block in self.blocks(message.get("content"), None) if (text := text_of(block, "text"))]
            sections = {name: said for name, said in {**sections, **object_of(message, "sections")}.items() if said}
            removed = {text_of(tool, "name") for tool in list_of(message, "toolsRemoved")}
            added = {text_of(tool, "name"): tool for tool in list_of(message, "toolsAdded")}
            tools = {name: tool for name, tool in tools.items() if name not in removed} | added
        texts += [said for said in sections.values() if isinstance(said, str)]
        declared = [{key: tool[key] for key in TOOL if key in tool} for name, tool in tools.items() if name]
        return "\n\n".join(texts), [{"type": "function", **tool} for tool in declared]

    def transcript(self) -> Transcript:
        """The conversation."""
        parent = text_of(self.head, "parentSession")
        instructions, tools = self._prompt()
        return Transcript(
            id=text_of(self.head, "id") or PurePath(self.where).stem,
            where=self.where,
            entries=self.entries,
            title=self.title,
            model=make.last_model(entry.answer for entry in self.entries),
            instructions=instructions or None,
            created_at=time_of(self.head, "timestamp"),
            labels={"forked-from": f"pi:{PurePath(parent).stem.rpartition('_')[2]}"} if parent else {},
            properties=agent_turns.properties(self.head, {"cwd": "cwd"}),
            calls=self.calls,
            request={"input": [], "tools": tools} if tools else None,
            is_nameless=True,
            skipped=self.skipped,
        )


def _token_counts(usage: JsonObject) -> TokenCounts:
    """What a call used."""
    counts = TokenCounts.beside(*map(usage.get, ("input", "cacheRead", "cacheWrite", "output")))
    return replace(counts, reasoning=figure(usage.get("reasoning")))


def _block(block: Any) -> AnswerBlock:
    """A block of an answer."""
    match text_of(block, "type"):
        case "thinking":
            return AnswerBlock(
                "thinking", text_of(block, "thinking") or "", signature=text_of(block, "thinkingSignature")
            )
        case "toolCall":
            call_id, item_id = _call_id(block.get("id"))
            return AnswerBlock(
                "call", id=item_id, signature=text_of(block, "thoughtSignature"), call_id=call_id,
                name=text_of(block, "name") or "", arguments=block.get("arguments"),
                namespace=text_of(block, "namespace"),
            )  # fmt: skip
    signature = text_of(block, "textSignature")
    id_ = text_of(_json_object(signature), "id") or signature
    return AnswerBlock("text", text_of(block, "text") or "", id=id_)


def _call_id(value: Any) -> tuple[str, str | None]:
    """The id of a call, and the id of its item, which the Responses API has beside it."""
    call_id, _, item_id = str(value or "").partition("|")
    return call_id, item_id or None


def _json_object(text: str | None) -> JsonObject:
    """The object that a signature is; empty if it is something else."""
    try:
        value = loads(text) if text and text.startswith("{") else None
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
