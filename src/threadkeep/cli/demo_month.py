"""A month of conversations as an example: users, models, tools, branches, pictures, errors and costs.

What is said is in ``data/month.json``; when, by whom and with which model is drawn from a fixed seed, so that it is the
same each time, apart from ids and the month's last day. Nothing is sent anywhere.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from importlib.resources import files
from random import Random
from typing import Any, Final, NamedTuple

from threadkeep import Conversation, Price, Store, formats

DAYS: Final = 30
USERS: Final = ("ann", "ben", "chiara", "dmitri", "elif", "femi", "grace", "hugo")
PRICES: Final = (
    Price("gpt-5.4", input=1.25, cached=0.125, output=10),
    Price("claude-sonnet-4-5", input=3, cached=0.3, cache_write=3.75, output=15),
    Price("gemini-3-pro-preview", input=2, cached=0.2, output=12),
    Price("llama-4-maverick", input=0.27, output=0.85),
)
ERRORS: Final = (
    {"error": {"type": "overloaded_error", "message": "The model is overloaded. Try again later."}},
    {"error": {"type": "rate_limit_error", "message": "Rate limit reached for requests per minute: 500."}},
    {"error": {"type": "server_error", "message": "The server had an error while processing your request."}},
)
SHORTER: Final = (
    "In short: it works, and nothing else has to be done.",
    "The short version: yes. I can go into detail on any of these points.",
    "Briefly: start with the first point, and see whether you still need the others.",
)
ASKED_FOR: Final = ("create_return", "edit_file")  # calls that a person decides about
DENIED: Final = "All right, I have left everything as it is. Tell me if you want me to go on in another way."
_SEED: Final = 20_261_122
_BRANCHED: Final = 6  # the newest conversations, which get another branch
_NAMED: Final = 12  # the first conversations: each scenario once, with its title and all turns
_NO_TOKENS: Final = 300  # of a request's settings and tools


class Model(NamedTuple):
    """A model: where it is, how it is asked, how often, and how fast it is (milliseconds to start, and per token)."""

    name: str
    provider: str
    format: formats.FormatName
    weight: int
    start_ms: int
    token_ms: float


MODELS: Final = (
    Model("gpt-5.4", "openai", "open_responses", 5, 620, 11),
    Model("claude-sonnet-4-5", "anthropic", "messages", 4, 840, 14),
    Model("gemini-3-pro-preview", "google", "gemini", 2, 1_100, 9),
    Model("llama-4-maverick", "groq", "chat_completion", 2, 210, 3),
)


@dataclass(frozen=True, slots=True)
class DemoStep:
    """What a model answers at once: text, or calls with their outputs."""

    text: str | None
    calls: Sequence[Mapping[str, Any]]
    reasoning: str | None
    number: int

    def call_id(self, index: int) -> str:
        """The id of one of its calls."""
        return f"call_{self.number}_{index}"


class Tokens(NamedTuple):
    """The tokens of a response."""

    input: int
    cached: int
    output: int
    reasoning: int


def fill(store: Store, last: datetime, progress: Callable[[int], None]) -> int:
    """Store a month of conversations that ends at a time; return how many there are."""
    chance = Random(_SEED)  # noqa: S311 - the same each time
    scenarios = json.loads(files("threadkeep.cli").joinpath("data/month.json").read_bytes())["scenarios"]
    begins = sorted(_times(chance, last))
    for number, begin in enumerate(begins):
        writer = Writer(store, chance, begin, number)
        writer.hold(scenarios[number] if number < len(scenarios) else chance.choice(scenarios), begins[-1])
        if number >= len(begins) - _BRANCHED:
            writer.branch()
        progress(1)
    store.fill_usage_days()
    return len(begins)


def _times(chance: Random, last: datetime) -> Iterator[datetime]:
    """When conversations begin: more of them each week, few at weekends, all in working hours."""
    for back in range(DAYS):
        day = last - timedelta(back)
        count = chance.randint(3, 6) if day.weekday() < 5 else chance.randint(0, 2)  # noqa: PLR2004 - Saturday
        for _ in range(count + (DAYS - back) // 10):
            at = datetime.combine(day.date(), time(chance.randint(7, 18), chance.randint(0, 59)), UTC)
            yield min(at, last - timedelta(minutes=chance.randint(20, 90)))


class Writer:
    """Writes a conversation as it goes on."""

    def __init__(self, store: Store, chance: Random, begin: datetime, number: int) -> None:
        self._store, self._chance, self._at, self._number = store, chance, begin, number
        self._model = chance.choices(MODELS, [model.weight for model in MODELS])[0]
        self._user = chance.choices(USERS, range(len(USERS), 0, -1))[0]
        self._steps = 0

    def hold(self, scenario: Mapping[str, Any], newest: datetime) -> None:
        """Store a conversation."""
        first, *others = scenario["turns"]
        options: dict[str, Any] = {} if scenario["instructions"] is None else {"instructions": scenario["instructions"]}
        is_named = self._number < _NAMED or self._chance.random() < 0.6  # noqa: PLR2004 - a share
        self.conversation = self._store.create_conversation(
            model=self._model.name, user_id=self._user, title=scenario["title"] if is_named else None,
            labels=scenario["labels"], tools=[{"type": "function", **tool} for tool in scenario["tools"]],
            input=[_question(first)], created_at=self._at, **options,
        )  # fmt: skip
        self._answer(self.conversation, first, None)
        for turn in others[: self._chance.randint(0, len(others)) if self._number >= _NAMED else None]:
            self._at += timedelta(seconds=self._chance.randint(20, 400))
            self._answer(self.conversation, turn, [_question(turn)])
        if self._at < newest - timedelta(DAYS // 2) and self._chance.random() < 0.3:  # noqa: PLR2004 - a share
            self.conversation.archive()
        elif self._chance.random() < 0.25:  # noqa: PLR2004 - a share
            rating = self._chance.choice((1, 1, -1))
            comment = "Exactly what I needed." if rating > 0 else "Too long."
            self.conversation.set_feedback(self.conversation.head, rating=rating, comment=comment)

    def branch(self) -> None:
        """Let the last answer be given in another way, on a branch that becomes the active one."""
        question = max(item.position for item in self.conversation.items() if getattr(item.item, "role", "") == "user")
        other = self.conversation.fork(question)
        self._at += timedelta(seconds=30)
        self._answer(other, {"answer": self._chance.choice(SHORTER)}, None)
        other.set_active_branch(other.branch)

    def _answer(self, conversation: Conversation, turn: Mapping[str, Any], asked: list[Any] | None) -> None:
        """Store an answer: calls first, if there are any, and then the text."""
        if self._chance.random() < 0.07:  # noqa: PLR2004 - a share
            model = self._model
            error = self._chance.choice(ERRORS)
            latency = self._chance.randint(90, 4_000)
            conversation.record_attempt(
                model.format, error=error, provider=model.provider, latency_ms=latency, occurred_at=self._at
            )
            self._at += timedelta(seconds=2)
        calls = turn.get("calls", ())
        if calls:
            self._respond(conversation, DemoStep(None, calls, turn.get("reasoning"), self._next()), asked)
            if self._is_denied(conversation):
                self._respond(conversation, DemoStep(DENIED, (), None, self._next()), None)
                return
            # The outputs of the calls that were made last
            number = self._number * 100 + self._steps
            self._at += timedelta(milliseconds=self._chance.randint(80, 2_400))
            asked = [
                {
                    "type": "function_call_output",
                    "call_id": f"call_{number}_{index}",
                    "output": call["output"] if isinstance(call["output"], str) else json.dumps(call["output"]),
                }
                for index, call in enumerate(calls)
            ]
        reasoning = None if calls else turn.get("reasoning")
        self._respond(conversation, DemoStep(turn["answer"], (), reasoning, self._next()), asked)

    def _is_denied(self, conversation: Conversation) -> bool:
        """Let a person decide about calls that change something; return whether one is denied, as few are."""
        calls = conversation.pending_calls()
        if not any(call.name in ASKED_FOR for call in calls):
            return False
        is_denied = self._number >= _NAMED and self._chance.random() < 0.25  # noqa: PLR2004 - a share
        for call in calls:
            if is_denied:
                conversation.deny(call.position, reason="Not now, please.", decided_by=self._user)
            else:
                conversation.approve(call.position, decided_by=self._user)
        return is_denied

    def _next(self) -> int:
        self._steps += 1
        return self._number * 100 + self._steps

    def _respond(self, conversation: Conversation, step: DemoStep, asked: list[Any] | None) -> None:
        """Store a response to what is stored, and to what is asked now."""
        model, tokens = self._model, self._tokens(conversation, step)
        start = model.start_ms * self._chance.lognormvariate(0, 0.35)
        latency = start + tokens.output * model.token_ms * self._chance.uniform(0.8, 1.5)
        self._at += timedelta(milliseconds=latency)
        call: dict[str, Any] = {
            "rendered": conversation.render(model.format), "provider": model.provider, "latency_ms": latency,
            "first_token_ms": start, "occurred_at": self._at,
        }  # fmt: skip
        body = BODIES[model.format](model.name, step, tokens)
        if asked is None:
            conversation.add_response(body, model.format, **call)
        else:
            conversation.add_turn(asked, body, model.format, **call)

    def _tokens(self, conversation: Conversation, step: DemoStep) -> Tokens:
        """The tokens of a request and its answer, by their length; most of a longer history comes from the cache."""
        said = len(step.text or json.dumps([call["arguments"] for call in step.calls]))
        given = len(conversation.request_body(self._model.format)) // 4 + _NO_TOKENS
        is_cached = self._steps > 1 and self._model.provider != "groq"
        cached = int(given * self._chance.uniform(0.45, 0.9)) if is_cached else 0
        reasoning = len(step.reasoning or "") // 2
        return Tokens(given, cached, said // 4 + 12 + reasoning, reasoning)


def _question(turn: Mapping[str, Any]) -> dict[str, Any]:
    """The message of a user, with a picture if there is one."""
    content: list[dict[str, Any]] = [{"type": "input_text", "text": turn["user"]}]
    if turn.get("image"):
        content.append({"type": "input_image", "image_url": f"data:image/png;base64,{picture()}"})
    return {"type": "message", "role": "user", "content": content}


def picture() -> str:
    """A chart with one odd bar, as PNG in base64."""
    width, height, heights = 360, 200, [40, 52, 61, 74, 80, 47, 104, 118, 131, 150]
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            bar, inside = divmod(x - 20, 33)
            is_bar = 0 <= bar < len(heights) and inside < 22 and height - 20 - heights[bar] <= y < height - 20  # noqa: PLR2004
            shade = (x * x * y + 7 * y) % 11
            rows += bytes((79 + shade, 86 + shade, 200) if is_bar else (250 - shade % 3, 250 - shade % 2, 247))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows), 1)), (b"IEND", b""))
    chunks = [
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in parts
    ]
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode()


# The bodies of providers


def _open_responses(model: str, step: DemoStep, tokens: Tokens) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if step.reasoning:
        summary = [{"type": "summary_text", "text": step.reasoning}]
        output.append({"type": "reasoning", "id": f"rs_{step.number}", "summary": summary})
    if step.text is not None:
        part = {"type": "output_text", "text": step.text, "annotations": []}
        message = {"type": "message", "id": f"msg_{step.number}", "role": "assistant", "status": "completed"}
        output.append({**message, "content": [part]})
    output += [
        {
            "type": "function_call", "id": f"fc_{step.number}_{index}", "call_id": step.call_id(index),
            "name": call["name"], "arguments": json.dumps(call["arguments"]), "status": "completed",
        }
        for index, call in enumerate(step.calls)
    ]  # fmt: skip
    usage = {
        "input_tokens": tokens.input, "input_tokens_details": {"cached_tokens": tokens.cached},
        "output_tokens": tokens.output, "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }  # fmt: skip
    body = {"id": f"resp_{step.number:032x}", "object": "response", "model": model, "status": "completed"}
    return {**body, "output": output, "usage": usage}


def _chat_completion(model: str, step: DemoStep, tokens: Tokens) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": step.text}
    if step.calls:
        message["tool_calls"] = [
            {
                "id": step.call_id(index), "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
            }
            for index, call in enumerate(step.calls)
        ]  # fmt: skip
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if step.calls else "stop"}
    usage = {
        "prompt_tokens": tokens.input, "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
    }  # fmt: skip
    return {"id": f"chatcmpl-{step.number}", "model": model, "choices": [choice], "usage": usage}


def _messages(model: str, step: DemoStep, tokens: Tokens) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if step.reasoning:
        content.append({"type": "thinking", "thinking": step.reasoning, "signature": f"sig{step.number}"})
    if step.text is not None:
        content.append({"type": "text", "text": step.text})
    content += [
        {"type": "tool_use", "id": step.call_id(index), "name": call["name"], "input": call["arguments"]}
        for index, call in enumerate(step.calls)
    ]
    usage = {
        "input_tokens": tokens.input - tokens.cached, "cache_read_input_tokens": tokens.cached,
        "cache_creation_input_tokens": 0, "output_tokens": tokens.output,
    }  # fmt: skip
    reason = "tool_use" if step.calls else "end_turn"
    body = {"id": f"msg_{step.number}", "type": "message", "role": "assistant", "model": model, "stop_reason": reason}
    return {**body, "content": content, "usage": usage}


def _gemini(model: str, step: DemoStep, tokens: Tokens) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": step.reasoning, "thought": True}] if step.reasoning else []
    if step.text is not None:
        parts.append({"text": step.text})
    parts += [
        {"functionCall": {"id": step.call_id(index), "name": call["name"], "args": call["arguments"]}}
        for index, call in enumerate(step.calls)
    ]
    usage = {
        "promptTokenCount": tokens.input, "cachedContentTokenCount": tokens.cached,
        "candidatesTokenCount": tokens.output - tokens.reasoning, "thoughtsTokenCount": tokens.reasoning,
        "totalTokenCount": tokens.input + tokens.output,
    }  # fmt: skip
    candidate = {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
    return {"responseId": f"g{step.number}", "modelVersion": model, "candidates": [candidate], "usageMetadata": usage}


BODIES: Final[Mapping[formats.FormatName, Callable[[str, DemoStep, Tokens], dict[str, Any]]]] = {
    "open_responses": _open_responses,
    "chat_completion": _chat_completion,
    "messages": _messages,
    "gemini": _gemini,
}
