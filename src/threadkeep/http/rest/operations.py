"""The table of operations, which makes the routes and the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from threadkeep.http.rest import answering, calls, conversations, media, messages, models, reports, responses
from threadkeep.http.service import Handler
from threadkeep.web.owners import Scope


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query, or a header.

    Attributes:
        name: its name.
        schema: what it can be, as JSON Schema.
        description: what it means.
        place: "query" or "header".
        is_object: whether it is written as ``name[key]=value``.
    """

    name: str
    schema: dict[str, Any]
    description: str
    place: str = "query"
    is_object: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that can be asked of the server.

    Attributes:
        method, path: of its route.
        scope: what a key must allow.
        handler: answers it; its docstring describes it.
        status: of its answer.
        answer: the model of its answer; None for what is not JSON.
        body: the model of its body; None if it has none.
        parameters: of the query, and headers.
        media_type: of an answer that is not JSON, or can be a stream.
        others: further statuses with the same body as `answer` (or none, for 204).
        takes_bytes: its body is an image or file.
    """

    method: str
    path: str
    scope: Scope
    handler: Handler
    status: int
    answer: Any
    body: type[BaseModel] | None = None
    parameters: tuple[Parameter, ...] = ()
    media_type: str | None = None
    others: tuple[int, ...] = ()
    takes_bytes: bool = False


_TEXT: Final = {"type": "string"}
_AFTER: Final = Parameter("after", _TEXT, "The `last_id` of the page before.")
_LIMIT: Final = Parameter(
    "limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}, "How many objects a page has at most."
)
_STATES_AFTER: Final = Parameter("after", {"type": "string", "minLength": 1, "maxLength": 60}, _AFTER.description)
_STATES_LIMIT: Final = Parameter(
    "limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 100}, _LIMIT.description
)
_ORDER: Final = Parameter("order", {"enum": ["asc", "desc"], "default": "desc"}, "Oldest or newest first.")
_PAGE: Final = (_AFTER, _LIMIT, _ORDER)
_STATUS: Final = Parameter("status", {"enum": ["active", "archived", "any"], "default": "active"}, "Which of them.")
_USER: Final = Parameter("user_id", {"type": "string", "minLength": 1, "maxLength": 60}, "Only those of a user.")
_LABELS: Final = Parameter(
    "labels", {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 16},
    "Only those with these labels: `labels[name]=value`.", is_object=True,
)  # fmt: skip
_BRANCH: Final = Parameter(
    "branch", {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}, "A branch; default: the active one."
)
_KEY: Final = Parameter(
    "Idempotency-Key", {"type": "string", "minLength": 1, "maxLength": 60, "pattern": "^[!-~]+$"},
    "A repeated request with the same key writes nothing, and gets the same answer.", "header",
)  # fmt: skip
_MATCH: Final = Parameter(
    "If-Match", {"type": "string", "pattern": '^"-?[0-9]{1,9}"$'},
    "The position in quotes where the conversation is to end; otherwise the answer is 409.", "header",
)  # fmt: skip
_PURGE: Final = Parameter("purge", {"type": "boolean", "default": False}, "Whether its content is deleted for good.")
_DAY: Final = {"type": "string", "description": "A date, or a time with its zone."}
_PERIOD: Final = (Parameter("since", _DAY, "From then on."), Parameter("until", _DAY, "Up to then, exclusive."))
_LAST: Final = Parameter(
    "Last-Event-ID", {"type": "string", "pattern": "^([0-9]{1,9}|end)$"}, "The id of the last event that came.",
    "header",
)  # fmt: skip
_AFTER_EVENT: Final = Parameter("after", {"type": "string", "pattern": "^([0-9]{1,9}|end)$"}, "The same, as a query.")

_ONE: Final = "/conversations/{conversation_id}"
_ITEM: Final = f"{_ONE}/messages/{{item_id}}"
_STREAM: Final = "text/event-stream"

OPERATIONS: Final = (
    Operation("GET", "/conversations", "read", conversations.list_all, 200,
              models.Listed[models.ConversationSummary], parameters=(*_PAGE, _STATUS, _USER, _LABELS)),
    Operation("POST", "/conversations", "write", conversations.create, 201, models.Conversation,
              models.NewConversation, (_KEY,)),
    Operation("GET", _ONE, "read", conversations.retrieve, 200, models.Conversation),
    Operation("PATCH", _ONE, "write", conversations.update, 200, models.Conversation, models.ConversationChange,
              (_KEY,)),
    Operation("DELETE", _ONE, "write", conversations.delete, 200, models.Deleted),
    Operation("GET", f"{_ONE}/messages", "read", messages.list_all, 200, models.Listed[models.Message],
              parameters=(*_PAGE, _BRANCH)),
    Operation("POST", f"{_ONE}/messages", "write", messages.create, 201, models.Answered, models.NewMessage,
              (_BRANCH, _KEY, _MATCH), _STREAM, (202,)),
    Operation("GET", _ITEM, "read", messages.retrieve, 200, models.Message, parameters=(_BRANCH,)),
    Operation("DELETE", _ITEM, "write", messages.delete, 200, models.Deleted, parameters=(_BRANCH, _KEY, _PURGE)),
    Operation("POST", f"{_ITEM}/edit", "write", messages.edit, 201, models.Answered, models.EditedMessage,
              (_BRANCH, _KEY), _STREAM, (202,)),
    Operation("GET", f"{_ITEM}/siblings", "read", messages.siblings, 200, models.Siblings, parameters=(_BRANCH,)),
    Operation("PUT", f"{_ITEM}/feedback", "write", messages.set_feedback, 200, models.Message,
              models.FeedbackValue, (_BRANCH, _KEY)),
    Operation("PUT", f"{_ITEM}/labels", "write", messages.set_labels, 200, models.Message, models.Labels,
              (_BRANCH, _KEY)),
    Operation("POST", f"{_ONE}/regenerate", "write", messages.regenerate, 201, models.Answered,
              models.Regeneration, (_BRANCH, _KEY), _STREAM, (202,)),
    Operation("GET", f"{_ONE}/tool_calls", "read", calls.list_all, 200, models.ToolCalls, parameters=(_BRANCH,)),
    Operation("POST", f"{_ONE}/tool_calls/{{call_id}}/approve", "write", calls.approve, 200, models.ToolCall,
              parameters=(_BRANCH, _KEY)),
    Operation("POST", f"{_ONE}/tool_calls/{{call_id}}/deny", "write", calls.deny, 200, models.Message, models.Denial,
              (_BRANCH, _KEY)),
    Operation("POST", f"{_ONE}/tool_outputs", "write", calls.create_outputs, 201, models.AnsweredOutputs,
              models.ToolOutputs, (_BRANCH, _KEY, _MATCH), _STREAM, (202,)),
    Operation("GET", f"{_ONE}/branches", "read", messages.list_branches, 200, models.Listed[models.Branch],
              parameters=(_AFTER, _LIMIT)),
    Operation("POST", f"{_ONE}/branches", "write", messages.fork, 201, models.Conversation, models.NewBranch,
              (_BRANCH, _KEY)),
    Operation("PUT", f"{_ONE}/active_branch", "write", messages.set_active_branch, 200, models.Conversation,
              models.ActiveBranch, (_KEY,)),
    Operation("PUT", f"{_ONE}/seen", "write", conversations.mark_seen, 200, models.Seen, models.SeenPosition),
    Operation("GET", f"{_ONE}/states", "read", conversations.list_states, 200, models.Listed[models.State],
              parameters=(_STATES_AFTER, _STATES_LIMIT)),
    Operation("PUT", f"{_ONE}/states/{{name}}", "write", conversations.set_state, 200, models.State,
              models.StateValue, (_KEY,)),
    Operation("DELETE", f"{_ONE}/states/{{name}}", "write", conversations.delete_state, 200, models.Deleted),
    Operation("GET", "/responses/{response_id}", "read", responses.retrieve, 200, models.Response),
    Operation("DELETE", "/responses/{response_id}", "write", responses.delete, 200, models.Deleted),
    Operation("POST", "/responses/{response_id}/cancel", "write", responses.cancel, 200, models.Response),
    Operation("GET", "/responses/{response_id}/events", "read", answering.events, 200, None,
              parameters=(_LAST, _AFTER_EVENT), media_type=_STREAM, others=(204,)),
    Operation("GET", "/search", "read", reports.search, 200, models.Listed[models.SearchHit],
              parameters=(Parameter("q", {"type": "string"}, 'Words, "phrases", -excluded words, and prefixes*.'),
                          _AFTER, _LIMIT, _STATUS, _USER, *_PERIOD)),
    Operation("GET", "/usage", "usage", reports.usage, 200, models.Usage,
              parameters=(Parameter("by", _TEXT, "Columns with commas: hour, day, week, month, model, provider, "
                                    "format, user_id, conversation_id, status, tool_set, response; they make at most "
                                    "10,000 rows."),
                          *_PERIOD, Parameter("tz", {"type": "string", "default": "UTC"}, "Time zone of days."))),
    Operation("POST", "/media", "write", media.upload, 201, models.UploadedMedia, takes_bytes=True),
    Operation("GET", "/media/{hash}", "read", media.download, 200, None, media_type="application/octet-stream"),
)  # fmt: skip
