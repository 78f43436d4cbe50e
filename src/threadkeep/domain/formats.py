"""What a wire format is, and the table of registered formats.

The registry in `threadkeep.formats` fills the table: this layer knows no format. Every import of `threadkeep` imports
this module, so it imports nothing slow.

Each format is a package with the same rooms (`_ROOMS`); it may lack ``stream``, or functions. A room is loaded when its
function is first asked for, and from then on the function is an attribute of the format.

Formats that are easily taken for others are refused by name (`OtherFormat`), most of which threadkeep does not read.
Their keys overlap with keys of other formats, so that a body of theirs would pass for an answer that says nothing,
their messages for blocks of a provider, and their events would be passed over.

Source: Google's google-genai (`interactions`); AI SDK, "UIMessage", "Stream protocols", "ModelMessage"; AG-UI, `core`;
Cohere's API reference, "Chat"; Ollama's API reference; OpenAI's API reference, "Realtime", "Assistants", "Batch";
Amazon Bedrock's user guide, "InvokeModel"; Vertex AI's API reference, "predict"; LangChain's `load`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from threadkeep.errors import CannotParse, InvalidOption, UnknownFormat

if TYPE_CHECKING:
    from threadkeep.domain import context_caches, items, jsontext, response
    from threadkeep.domain.rendering import Rendered, RenderOptions
    from threadkeep.domain.session import Session
    from threadkeep.domain.usage import Usage
    from threadkeep.formats import FormatName as FormatName  # noqa: PLC0414 - for this layer
    from threadkeep.formats.canonical.entries import Snapshot
    from threadkeep.formats.shared.streams import StreamAssembler


class OpenCall(NamedTuple):
    """A function call in the history that has no output yet."""

    call_id: str
    name: str


class Signs(NamedTuple):
    """How a format's JSON looks, so that an error about a body of another format can name that format."""

    turns: str  # the key of a request that holds its history
    body: Mapping[str, type]  # keys that only its response bodies have -> the type of their values
    events: Mapping[str, type] = {}  # the same for the events of its streams
    event_types: tuple[str, ...] = ()  # how the types of its events begin


class ErrorKeys(NamedTuple):
    """Where a provider's error bodies say what happened, beyond the shapes that all formats know."""

    holders: tuple[str, ...]  # keys of objects that may hold the others; these may also stand in the body itself
    type: str  # the key of the kind of error
    code: str
    messages: tuple[str, ...]  # keys of the sentence for people; the first one with a value counts


class MediaUrls(NamedTuple):
    """Which media a format takes by URL, so that they need not be sent, or even read."""

    parts: Mapping[str, str]  # type of a part -> a regular expression for the media types
    url: str = ".+"  # how the URL must look
    in_outputs: bool = True  # whether outputs of tools take them, too
    needs_type: bool = False  # whether the media type must be stated with the URL
    inline_key: str = ""  # of inline media, where URLs have another: what came with more under it is sent as it came


class ProviderApi(NamedTuple):
    """How a provider is asked in a format for a stream, and which calls ask for an answer in it."""

    path: str  # of the request, behind the base URL; {model} is the model, percent-encoded
    route: str = ""  # how the path of a call ends, as a regular expression; "": its calls are not recorded
    changes: Mapping[str, Any] = {"stream": True}  # keys that are laid over the request
    key_header: str = "authorization"  # the header with the API key; this one has it as a bearer token
    headers: Mapping[str, str] = {}
    version: str = "/v1"  # what base URLs end with that their users may leave out
    # keys of limits of tokens that requests must have -> how many a model gives at most; None for one that is not known
    limits: Mapping[str, Callable[[str], int | None]] = {}


# formats whose providers can keep a conversation, so that a request names their newest answer and has only what is new
STATEFUL: Final = ("open_responses", "interactions")

# function of a format -> the room it is in
_ROOMS: Final = {
    "render": "request",
    "prefixes": "request",
    "parse_response": "response",
    "usage_of": "response",
    "parse_request": "request",
    "parse_turns": "request",
    "assembler": "stream",
}


class Format:
    """A wire format: pure functions between sessions and a provider's JSON.

    What is not of the format, or cannot be stored, is a CannotParse to all that read, and an error body a ProviderError
    to `parse_response`. `render` raises CannotRender where there is no model, nothing to send, or settings exclude each
    other, and LossError where `options.strict` is set and the request is not exact.
    """

    def __init__(
        self,
        name: str,
        package: str,
        signs: Signs,
        *,
        error_keys: ErrorKeys | None = None,
        media_urls: MediaUrls | None = None,
        has_streams: bool = True,
        has_context_caches: bool = False,
        author: str | None = None,
        reads: Iterable[str] = (),
        api: ProviderApi | None = None,
        sent_by: str | None = "threadkeep.formats.shared.sending",
    ) -> None:
        self.name: Final = name
        self.package: Final = package  # where its rooms are
        self.signs: Final = signs
        self.error_keys: Final = error_keys  # where no other provider spells errors so
        self.media_urls: Final = media_urls  # None: media are sent as they are
        self.has_streams: Final = has_streams
        # whether its provider gives context caches names, which requests refer to
        self.has_context_caches: Final = has_context_caches
        self.author: Final = author  # the provider that has made it, for where nothing else is known
        # formats from which it takes what is signed, if the provider reads that; what others have, it judges by itself
        self.reads: Final = frozenset(reads)
        self.api: Final = api  # None: no provider is asked in it
        self.sent_by: Final = sent_by  # the module that makes arguments for SDKs; None: no SDK sends its requests

    def __repr__(self) -> str:
        return f"Format({self.name!r})"

    if TYPE_CHECKING:

        def render(self, session: Session | Snapshot, options: RenderOptions = ...) -> Rendered:
            """Render a session as a request."""

        def prefixes(self, session: Session | Snapshot, options: RenderOptions = ...) -> context_caches.Prefixes | None:
            """Return what an explicit cache can hold of a request; None if there can be none."""

        def parse_response(self, body: Any, headers: Mapping[str, str] | None = None) -> response.Response:
            """Parse a provider's response body."""

        def usage_of(self, usage: jsontext.JsonObject) -> Usage:
            """Read a provider's usage object."""

        def parse_request(self, payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
            """Parse a provider request."""

        def parse_turns(self, turns: Any, calls: Sequence[OpenCall] = ()) -> list[list[items.Item]]:
            """Parse the contents of a request's turn list; return the items of each turn."""

        def assembler(self, headers: Mapping[str, str] | None = None) -> StreamAssembler:
            """Return an assembler, which combines the events of a stream into a response."""

        def arguments(self, rendered: Rendered, method: Callable[..., Any], stream: bool | None) -> jsontext.JsonObject:
            """Return the arguments with which a method of an SDK sends a request."""

    else:

        def __getattr__(self, name: str) -> Any:
            if name not in _ROOMS and name != "arguments":
                raise AttributeError(f"A format has no attribute {name!r}.")
            function = self.__dict__[name] = self._function(name)
            return function

    def _function(self, name: str) -> Callable[..., Any]:
        if name == "arguments":
            if self.sent_by is None:
                raise InvalidOption(f"No method of an SDK sends requests of the format {self.name}.", argument="method")
            arguments: Callable[..., Any] = import_module(self.sent_by).arguments
            return arguments
        if name == "assembler" and not self.has_streams:
            hint = "Parse the whole body with parse_response()."
            raise CannotParse(f"The format {self.name} has no streams.", hint=hint)
        if name == "prefixes" and not self.has_context_caches:
            return lambda _session, _options=None: None
        function: Callable[..., Any] = getattr(import_module(f"{self.package}.{_ROOMS[name]}"), name)
        return function


_loaders: Final[dict[str, Callable[[], Format]]] = {}
_formats: Final[dict[str, Format]] = {}


def set_format_name(names: Any) -> None:
    """Let annotations find `FormatName` here: the type of the names of the formats, which stand above this layer."""
    globals()["FormatName"] = names


def register_format(name: str, load: Callable[[], Format]) -> None:
    """Register a format by name; `load` provides it when it is first requested."""
    _loaders[name] = load
    _formats.pop(name, None)


def format_names() -> tuple[str, ...]:
    """Return the names of the registered formats, in order of registration."""
    return tuple(_loaders)


def get_format(name: str) -> Format:
    """Return the wire format with that name; raise UnknownFormat if there is none."""
    key: object = name
    if not isinstance(key, str) or key not in _loaders:
        raise UnknownFormat(name, sorted(_loaders))
    if key not in _formats:
        _formats[key] = _loaders[key]()
    return _formats[key]


Json = Mapping[str, Any]
Test = Callable[[Json], bool]


def _never(_: Json) -> bool:
    return False


class OtherFormat(NamedTuple):
    """A format that others are taken for: its name, what to do instead, and the signs of what it has."""

    name: str
    advice: str
    format: str = ""  # the name under which it is read, and not refused; "": it is not read
    is_body: Test = _never
    is_event: Test = _never
    is_message: Test = _never  # of a history, or one of its items


def _kind(value: Json, key: str = "type") -> str:
    kind = value.get(key)
    return kind if isinstance(kind, str) else ""


def _objects(value: Json, key: str) -> list[Json]:
    """The objects in the list under a key."""
    inner = value.get(key)
    return [one for one in inner if isinstance(one, Mapping)] if isinstance(inner, list | tuple) else []


# Gemini's Interactions API

# types of steps that no item of Responses has; with each call and result of a tool of the service
_STEPS: Final = frozenset({"user_input", "model_output", "thought", "function_result"}) | {
    f"{tool}_{end}"
    for tool in ("code_execution", "google_search", "google_maps", "url_context", "mcp_server_tool", "retrieval",
                 "processing", "file_search", "tool_search")
    for end in ("call", "result")
} - {"file_search_call", "tool_search_call"}  # fmt: skip


def _is_interaction(body: Json) -> bool:
    if body.get("object") == "interaction":
        return True
    steps = _objects(body, "steps")
    is_alone = not body.keys() & {"output", "candidates", "choices", "content"}
    has_steps = bool(steps) and all(_kind(one) in _STEPS | {"function_call"} for one in steps)
    return is_alone and (has_steps or (isinstance(body.get("steps"), list) and not steps and "status" in body))


# AI SDK

_CHUNKS: Final = frozenset(
    {
        "start", "start-step", "finish-step", "reset-step", "finish", "abort", "message-metadata", "text-start",
        "text-delta", "text-end", "reasoning-start", "reasoning-delta", "reasoning-end", "source-url",
        "source-document", "reasoning-file", "steering-message",
    }
)  # fmt: skip
_MODEL_PARTS: Final = frozenset({"tool-call", "tool-result", "tool-error", "tool-approval-request"})


def _is_chunk(event: Json) -> bool:
    kind = _kind(event)
    is_known = kind in _CHUNKS or kind.startswith(("tool-input-", "tool-output-", "tool-approval-", "data-"))
    return is_known or (kind == "error" and isinstance(event.get("errorText"), str))


def _is_ui_message(value: Json) -> bool:
    """Whether the parts of a message have types: Gemini's have none, and Pydantic AI's have them under another key."""
    parts = _objects(value, "parts")
    is_typed = bool(parts) and all(isinstance(part.get("type"), str) and "part_kind" not in part for part in parts)
    return is_typed and isinstance(value.get("role"), str) and "kind" not in value


def _is_model_message(value: Json) -> bool:
    return isinstance(value.get("role"), str) and _has_model_parts(value)


def _has_model_parts(value: Json) -> bool:
    return any(_kind(part) in _MODEL_PARTS for part in _objects(value, "content"))


# AG-UI

AGUI_EVENTS: Final = (
    "TEXT_MESSAGE_", "TOOL_CALL_", "STATE_", "MESSAGES_SNAPSHOT", "ACTIVITY_", "RUN_", "STEP_", "REASONING_",
    "SUBAGENT_", "THINKING_",
)  # fmt: skip
_AGUI_KEYS: Final = frozenset({"toolCalls", "toolCallId", "activityType", "subagentRunId", "encryptedValue"})
OTHER_ROLES: Final = frozenset({"reasoning", "activity"})  # of AG-UI
_AGUI_OTHERS: Final = {"RAW": "event", "CUSTOM": "name"}  # type of an event -> a key that it has


def _is_agui_message(value: Json) -> bool:
    role = value.get("role")
    if not isinstance(role, str) or "origin" in value:
        return False
    is_own = role in OTHER_ROLES and isinstance(value.get("content"), str | Mapping)
    return is_own or not _AGUI_KEYS.isdisjoint(value)


# Others

_COHERE_EVENTS: Final = frozenset(
    {
        "message-start", "content-start", "content-delta", "content-end", "tool-plan-delta", "tool-call-start",
        "tool-call-delta", "tool-call-end", "citation-start", "citation-end", "message-end",
    }
)  # fmt: skip
_ITSELF: Final = "Ask it by its endpoint for OpenAI's Chat Completions, and pass what that answers."
_REALTIME: Final = ("session.", "conversation.item.", "input_audio_buffer.", "output_audio_buffer.", "rate_limits.")


def _is_cohere(body: Json) -> bool:
    message = body.get("message")
    is_v2 = isinstance(message, Mapping) and "role" in message and isinstance(body.get("finish_reason"), str)
    return (is_v2 and "choices" not in body) or ("generation_id" in body and isinstance(body.get("text"), str))


def _is_ollama(body: Json) -> bool:
    has_text = isinstance(body.get("message"), Mapping) or isinstance(body.get("response"), str)
    return isinstance(body.get("done"), bool) and has_text


def _is_langchain(value: Json) -> bool:
    return value.get("lc") == 1 and _kind(value) == "constructor" and isinstance(value.get("id"), list)


OTHER_FORMATS: Final[tuple[OtherFormat, ...]] = (
    OtherFormat(
        "Gemini's Interactions API",
        'Name its format: "interactions".',
        "interactions",
        is_body=_is_interaction,
        is_event=lambda event: bool(_kind(event, "event_type")) and "type" not in event,
        is_message=lambda value: "origin" not in value and _kind(value) in _STEPS,
    ),
    OtherFormat(
        "the AI SDK",
        'Name its format, "ui_messages"; messages are appended with conversation.add_input([…], "ui_messages").',
        format="ui_messages",
        is_body=_is_ui_message,
        is_event=_is_chunk,
        is_message=_is_ui_message,
    ),
    OtherFormat(
        "the AI SDK",
        'Pass its UIMessages, whose format is "ui_messages".',
        is_body=_is_model_message,
        is_event=lambda event: _kind(event) in _MODEL_PARTS,
        is_message=_is_model_message,
    ),
    OtherFormat(
        "AG-UI",
        'Name its format, "ag_ui"; messages are appended with conversation.add_input([…], "ag_ui").',
        format="ag_ui",
        is_body=lambda body: _is_agui_message(body) or ("threadId" in body and "runId" in body),
        is_event=lambda event: _kind(event).startswith(AGUI_EVENTS) or _AGUI_OTHERS.get(_kind(event)) in event,
        is_message=_is_agui_message,
    ),
    OtherFormat("Cohere's Chat API", _ITSELF, is_body=_is_cohere, is_event=lambda one: _kind(one) in _COHERE_EVENTS),
    OtherFormat("Ollama's own API", _ITSELF, is_body=_is_ollama, is_event=_is_ollama),
    OtherFormat(
        "OpenAI's Realtime API",
        "Store what was said as messages.",
        is_body=lambda body: body.get("object") == "realtime.response",
        is_event=lambda event: _kind(event).startswith(_REALTIME),
    ),
    OtherFormat(
        "OpenAI's Assistants API",
        "Store its messages as items, or ask with the Responses API.",
        is_body=lambda body: _kind(body, "object").startswith("thread."),
        is_event=lambda event: _kind(event, "event").startswith("thread."),
    ),
    OtherFormat(
        "OpenAI's Completions API",
        "Store the text of its choice as a message.",
        is_body=lambda body: body.get("object") == "text_completion",
        is_event=lambda event: event.get("object") == "text_completion",
    ),
    OtherFormat(
        "a batch's results",
        "Pass the answer that is in the line.",
        is_body=lambda body: (
            "custom_id" in body and any(isinstance(body.get(key), Mapping) for key in ("response", "result"))
        ),
    ),
    OtherFormat(
        "Bedrock's InvokeModel",
        'Ask with Converse, whose format is "converse".',
        is_body=lambda body: (
            (isinstance(body.get("generation"), str) and "prompt_token_count" in body)
            or any("outputText" in one for one in _objects(body, "results"))
        ),
    ),
    OtherFormat(
        "Vertex AI's predict",
        "Pass the prediction that is an answer of a model.",
        is_body=lambda body: isinstance(body.get("predictions"), list),
    ),
    OtherFormat(
        "Gemini's Live API",
        "Store what was said as messages.",
        is_event=lambda event: any(isinstance(event.get(key), Mapping) for key in ("serverContent", "setupComplete")),
    ),
    OtherFormat(
        "LangChain's serialization",
        'Convert its messages with convert_to_openai_messages, whose format is "chat_completion".',
        is_body=_is_langchain,
        is_event=_is_langchain,
        is_message=_is_langchain,
    ),
)

_HAVE_MESSAGES: Final = tuple(other for other in OTHER_FORMATS if other.is_message is not _never)
_SIGNS: Final = _AGUI_KEYS | {"parts", "lc"}  # keys of messages of which any of these formats has one


def other_body(body: Json, reader: str | None = None) -> OtherFormat | None:
    """The format that a response, or the body of a request, is plainly of, if the format `reader` does not read it."""
    return next((other for other in OTHER_FORMATS if other.format != reader and other.is_body(body)), None)


def other_event(event: Json, reader: str | None = None) -> OtherFormat | None:
    """The same of an event of a stream."""
    return next((other for other in OTHER_FORMATS if other.format != reader and other.is_event(event)), None)


def other_message(value: Json, reader: str | None = None) -> OtherFormat | None:
    """The same of a message or item of a history."""
    has_no_sign = _SIGNS.isdisjoint(value) and _kind(value) not in _STEPS and _kind(value, "role") not in OTHER_ROLES
    if has_no_sign and not _has_model_parts(value):
        return None  # nearly always
    return next((other for other in _HAVE_MESSAGES if other.format != reader and other.is_message(value)), None)
