"""qwen-code: a file of JSON Lines for each session, and one for each agent that a session started.

Source: files in ``~/.qwen/projects`` of qwen-code 0.24, which are not documented.

* Every line has a `uuid`, and follows its `parentUuid`. What was said is in parts, as Gemini has them, also where
  another API was spoken; `usageMetadata` has the usage, in which the output includes thoughts. The answer of an agent
  may be spread over several lines, of which the first has the usage.
* Lines of telemetry are in the file of the session. `qwen-code.api_response` has the id, the usage and the duration of
  each call: of the answer that comes next, of agents, and of calls beside the conversation, which are nowhere else.
* `agent-TYPE-ID.jsonl`, in a folder with the id of the session, has what an agent said, without ids of responses.
* After a compression, a line of the type `system` has the summary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, Final

from threadkeep.contrib.importers import agent_turns, inputs, json_files
from threadkeep.contrib.importers import items as make
from threadkeep.contrib.importers.agent_turns import AnswerBlock, TokenCounts
from threadkeep.contrib.importers.items import list_of, object_of, text_of, time_of
from threadkeep.contrib.importers.records import Answer, Draft, Entry, SideCall, Skipped, Transcript, converted
from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.domain.usage import figure

# how the user has signed in -> the format that is spoken; of others it is Chat Completions
FORMATS: Final = {"anthropic": "messages", "gemini": "gemini", "gemini-api-key": "gemini", "vertex-ai": "gemini"}
RESPONSE: Final = "qwen-code.api_response"
FAILURE: Final = "qwen-code.api_error"
KINDS: Final = frozenset({"user", "assistant", "tool_result", "system"})
# keys of counts in `usageMetadata`, and in lines of telemetry
COUNTS: Final = ("promptTokenCount", "candidatesTokenCount", "cachedContentTokenCount", "thoughtsTokenCount")
EVENT_COUNTS: Final = (
    "input_token_count", "output_token_count", "cached_content_token_count", "thoughts_token_count",
)  # fmt: skip


class QwenCode:
    """Sessions of qwen-code."""

    name: Final = "qwen-code"

    def recognizes(self, input: inputs.Input, /) -> bool:
        """Return whether the first lines are of a session: Claude Code's have `content` in their messages."""
        for line in input.first_lines:
            if text_of(line, "type") in KINDS and {"uuid", "parentUuid", "sessionId"} <= line.keys():
                message = object_of(line, "message")
                if "parts" in message or "systemPayload" in line:
                    return True
                if "content" in message:
                    return False
        return False

    def read(self, input: inputs.Input, /) -> Iterator[Transcript | Skipped]:
        """Return the session of a file, or the one of an agent."""
        session = _QwenSession(input.name, input.path)
        session.events |= _agent_events(input)
        yield from json_files.skipped_lines(input, session.add)
        if session.entries:
            yield converted(input.name, session.transcript)


@dataclass(slots=True)
class _QwenSession(Draft):
    """The lines of a file."""

    path: Path | None
    entries: list[Entry] = field(default_factory=list)
    id: str = ""
    agent: str = ""
    agent_kind: str = ""
    about: dict[str, str] = field(default_factory=dict)
    events: dict[str, JsonObject] = field(default_factory=dict)  # of calls whose answers have not come, by their lines
    title: str | None = None
    format: str = "chat_completion"
    answer: Answer | None = None  # of the line before, of an agent
    asked: set[str] = field(default_factory=set)  # what the user said

    def add(self, found: json_files.FileObject) -> None:
        """Take in a line."""
        line, uuid = found.value, text_of(found.value, "uuid")
        if uuid is None:
            self.skipped.append(Skipped(found.where, "a line is not part of the conversation"))
            return
        self.id = text_of(line, "sessionId") or self.id
        self.agent = text_of(line, "agentId") or self.agent
        self.agent_kind = text_of(line, "agentName") or self.agent_kind
        self.about |= agent_turns.properties(line, {"cwd": "cwd", "version": "version", "gitBranch": "git_branch"})
        event = object_of(object_of(line, "systemPayload"), "uiEvent")
        if event.get("event.name") in (RESPONSE, FAILURE):
            self.events[uuid] = event
        items, answer = self._content(line, found.where)
        self.entries.append(Entry(uuid, text_of(line, "parentUuid"), items, time_of(line, "timestamp"), answer))

    def _content(self, line: JsonObject, where: str) -> tuple[Any, Answer | None]:
        """The items of a line, and the response that they came in."""
        parts, kind = list_of(object_of(line, "message"), "parts"), line.get("type")
        before, self.answer = self.answer, None
        match kind:
            case "user":
                texts = [make.text_part(text, "user") for part in parts if (text := text_of(part, "text"))]
                self.asked.update(part["text"] for part in texts)
                return make.message("user", [*texts, *self._media(parts, where)]), None
            case "tool_result":
                results = (object_of(part, "functionResponse") for part in parts)
                return [_output(result) for result in results if result], None
            case "assistant":
                answer = self._answer(line)
                self.answer = before if self.agent and before and "usageMetadata" not in line else answer
                blocks = [block for part in parts if (block := _block(part)) is not None]
                return agent_turns.answer_items(self.format, blocks), self.answer
            case "system":
                self.title = text_of(object_of(line, "systemPayload"), "customTitle") or self.title
                return _compaction(line, self.asked), None
        self.skipped.append(Skipped(where, f"lines of the type {kind!r} are not part of the conversation"))
        return [], None

    def _media(self, parts: list[Any], where: str) -> Iterator[JsonObject]:
        for part in parts:
            data = object_of(part, "inlineData")
            kind, text = text_of(data, "mimeType") or "", text_of(data, "data")
            if text:
                yield agent_turns.inline_part(kind, text)
            elif not isinstance(part, dict) or "text" not in part:
                self.skipped.append(Skipped(where, "a part of a message is neither text nor a file"))

    def _answer(self, line: JsonObject) -> Answer:
        """The response of an answer, with what the line of telemetry before it says."""
        counts = _counts(object_of(line, "usageMetadata"), COUNTS)
        mine = (
            (uuid, event)
            for uuid, event in reversed(self.events.items())
            if (text_of(event, "subagent_id") or "") == self.agent and _counts(event, EVENT_COUNTS) == counts
        )
        uuid, event = next(mine, ("", {}))
        self.events.pop(uuid, None)
        if event:
            self.format = _format(event)
        model = text_of(line, "model") or text_of(event, "model") or self.about.get("model")
        return _answer_of(self.format, counts, event, model)

    def transcript(self) -> Transcript:
        """The conversation."""
        id_ = self.id or PurePath(self.where).stem
        labels = {"agent": self.agent_kind or self.agent, "parent": f"qwen-code:{id_}"} if self.agent else {}
        return Transcript(
            id=f"{id_}/{self.agent}" if self.agent else id_,
            where=self.where,
            entries=self.entries,
            title=self.title,
            model=make.last_model(entry.answer for entry in self.entries),
            created_at=self.entries[0].created_at,
            labels=labels,
            properties=self.about,
            is_nameless=True,
            skipped=self.skipped,
            calls=[] if self.agent else list(self._calls()),
        )

    def _calls(self) -> Iterator[SideCall]:
        """Calls outside of the conversation; an agent with a file has its own there."""
        folder = None if self.path is None else self.path.parent.parent / "subagents" / self.id
        for uuid, event in self.events.items():
            agent = text_of(event, "subagent_id")
            if agent and folder is not None and (folder / f"agent-{agent}.jsonl").is_file():
                continue
            counts, at = _counts(event, EVENT_COUNTS), time_of(event, "event.timestamp")
            answer, error = _answer_of(_format(event), counts, event, text_of(event, "model")), None
            if event.get("event.name") == FAILURE:
                error = {"type": text_of(event, "error_type"), "message": text_of(event, "error_message")}
                answer = replace(answer, status="failed")
            yield SideCall(uuid, answer, at, error)


def _agent_events(input: inputs.Input) -> dict[str, JsonObject]:
    """What the file of a session says of the calls of an agent, whose file this is; empty where there is none."""
    path, first = input.path, next(input.first_lines, {})
    if path is None or not text_of(first, "agentId"):
        return {}
    try:
        with (path.parent.parent.parent / "chats" / f"{path.parent.name}.jsonl").open("rb") as file:
            found = [loads(line) for line in file if RESPONSE.encode() in line and first["agentId"].encode() in line]
    except (OSError, ValueError):
        return {}
    return {str(line.get("uuid")): object_of(object_of(line, "systemPayload"), "uiEvent") for line in found}


def _answer_of(format: str, counts: TokenCounts, event: JsonObject, model: str | None) -> Answer:
    answer = agent_turns.answer(format, counts, id=text_of(event, "response_id"), model=model)
    times = [event.get(key) for key in ("duration_ms", "ttft_ms")]
    latency, first = (one if isinstance(one, int | float) and one >= 0 else None for one in times)
    return replace(answer, latency_ms=latency, first_token_ms=first)


def _format(event: JsonObject) -> str:
    return FORMATS.get(text_of(event, "auth_type") or "", "chat_completion")


def _counts(usage: JsonObject, keys: tuple[str, ...]) -> TokenCounts:
    given, made, cached, thought = (figure(usage.get(key)) for key in keys)
    return TokenCounts(given, made, cached, None, thought)


def _block(part: Any) -> AnswerBlock | None:
    """A block of an answer; None of a part of another kind."""
    call, text = object_of(part, "functionCall"), text_of(part, "text")
    signature = text_of(part, "thoughtSignature")
    if call:
        name = text_of(call, "name") or ""
        return AnswerBlock("call", "", None, signature, text_of(call, "id") or name, name, call.get("args"))
    if text is None:
        return None
    return AnswerBlock("thinking" if part.get("thought") else "text", text, signature=signature)


def _output(result: JsonObject) -> JsonObject:
    """What a tool returned."""
    response = object_of(result, "response")
    text = next((found for key in ("output", "error") if isinstance(found := response.get(key), str)), None)
    return make.output(str(result.get("id") or result.get("name")), text or dumps(response).decode())


def _compaction(line: JsonObject, asked: set[str]) -> list[JsonObject]:
    """The summary that a history was replaced with; none where only outputs were cut, and it begins as it did."""
    if line.get("subtype") != "chat_compression":
        return []
    texts = (
        text_of(part, "text")
        for one in list_of(object_of(line, "systemPayload"), "compressedHistory")
        for part in list_of(one, "parts")
    )
    summary = next((text for text in texts if text), None)
    return [] if summary is None or summary in asked else [{"type": "compaction", "summary": summary}]
