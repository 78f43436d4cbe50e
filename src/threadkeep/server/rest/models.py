"""The bodies of requests and answers, from which the OpenAPI document has its schemas."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from threadkeep.server import body_limits
from threadkeep.server.body_limits import MAX_LABELS, MAX_PARTS, MAX_TOOLS

T = TypeVar("T")

Content = str | Annotated[list[dict[str, Any]], Field(fail_fast=True, json_schema_extra={"maxItems": MAX_PARTS})]
Tools = Annotated[list[dict[str, Any]], Field(fail_fast=True, json_schema_extra={"maxItems": MAX_TOOLS})]
GivenLabels = Annotated[dict[str, str], Field(max_length=MAX_LABELS)]
_TEXTS: Final = (dict[str, str], dict[str, str] | None, GivenLabels | None)  # annotations of objects of texts
_MAX_NAME: Final = 100  # characters of a name that are repeated in an error


def _invalid(name: str, type: str | PydanticCustomError, context: dict[str, Any] | None = None) -> ValidationError:
    error: InitErrorDetails = {"type": type, "loc": (name[:_MAX_NAME],), "input": None, "ctx": context or {}}
    return ValidationError.from_exception_data("body", [error])


class Body(BaseModel):
    """What a request brings; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)
    max_bytes: ClassVar[int | None] = None  # and never more than the service allows
    max_values: ClassVar[int] = body_limits.MAX_VALUES

    @model_validator(mode="before")
    @classmethod
    def check_keys(cls, given: Any) -> Any:
        """Refuse the first unknown key, and objects with too many keys: Pydantic makes an error of each of them."""
        for name, value in given.items() if isinstance(given, dict) else ():
            known = cls.model_fields.get(name)
            if known is None:
                text = "Extra inputs are not permitted: the keys are {known}"
                raise _invalid(
                    name, PydanticCustomError("extra_forbidden", text, {"known": ", ".join(cls.model_fields)})
                )
            if isinstance(value, dict) and known.annotation in _TEXTS and (length := len(value)) > MAX_LABELS:
                context = {"field_type": "Dictionary", "max_length": MAX_LABELS, "actual_length": length}
                raise _invalid(name, "too_long", context)
        return given


class Settings(BaseModel):
    """How the model answers in a conversation."""

    model: str | None = Field(None, description="The model that answers.")
    instructions: str | None = Field(None, description="Instructions that come before the conversation.")
    temperature: float | None = Field(None, description="How random answers are; 0 is the least random.")
    top_p: float | None = Field(None, description="The probability mass that tokens are sampled from, 0 to 1.")
    max_output_tokens: int | None = Field(None, description="The most tokens of an answer, with reasoning.")
    reasoning: dict[str, Any] | None = Field(None, description="How much the model reasons, such as its `effort`.")
    text: dict[str, Any] | None = Field(None, description="The form of answers: `format` and `verbosity`.")
    tools: Tools | None = Field(None, description="What it may call, of which functions and custom tools are shown.")


class NewConversation(Body, Settings):
    """A conversation to be created."""

    title: str | None = None
    labels: GivenLabels | None = Field(None, description="Short texts by which conversations can be listed.")
    metadata: dict[str, str] | None = Field(None, description="Up to 16 pairs of at most 64 and 512 characters.")
    external_id: str | None = Field(None, description="The application's own id.")


class ConversationChange(Body, Settings):
    """What changes of a conversation; keys that are absent stay as they are, null removes a value."""

    title: str | None = None
    labels: GivenLabels | None = None
    metadata: dict[str, str] | None = None
    external_id: str | None = None
    status: Literal["active", "archived"] = "active"


class Asking(Body):
    """How the model is asked for an answer."""

    model: str | None = Field(None, description="The model that answers, from now on; default: the conversation's.")
    stream: bool = Field(default=False, description="Answer with server-sent events while the model writes.")
    background: bool = Field(default=False, description="Answer at once; the response is in progress.")


class NewMessage(Asking):
    """A message of the user, and whether the model answers it."""

    content: Content = Field(
        description="Text, or content parts as in the Responses API, where the id of media can stand for a data URL."
    )
    answer: bool = Field(default=True, description="Whether the model answers.")


class EditedMessage(NewMessage):
    """Another message in the place of one, on a branch of its own."""


class Regeneration(Asking):
    """Another answer in the place of one, on a branch of its own."""

    item_id: str | None = Field(None, description="An item of the answer; default: the newest answer.")


class ToolOutput(Body):
    """The output of a call, as the Responses API has it."""

    type: Literal[
        "function_call_output", "custom_tool_call_output", "shell_call_output", "apply_patch_call_output",
        "computer_call_output", "local_shell_call_output",
    ] = "function_call_output"  # fmt: skip
    call_id: str = Field(min_length=1, description="The call that it is the output of.")
    output: Content | dict[str, Any] = Field(description="Text, or what the type of the output demands.")
    status: str | None = Field(None, description="Such as `completed`, or `incomplete` for a call that failed.")


class McpApproval(Body):
    """The answer to a server of MCP that asks whether a tool may run, as the Responses API has it."""

    type: Literal["mcp_approval_response"]
    approval_request_id: str = Field(min_length=1, description="The id of the request that it answers.")
    approve: bool
    reason: str | None = Field(None, description="Why, for the model.")


def _kind_of_output(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return _APPROVAL if kind == "mcp_approval_response" else _OUTPUT


# named as Pydantic names members of a union, which stand in no path of an error
_OUTPUT, _APPROVAL = "dict[output]", "dict[approval]"
_Given = Annotated[
    Annotated[ToolOutput, Tag(_OUTPUT)] | Annotated[McpApproval, Tag(_APPROVAL)], Discriminator(_kind_of_output)
]


class ToolOutputs(Asking):
    """Outputs of calls that wait for them, and whether the model goes on with them."""

    tool_outputs: Annotated[list[_Given], Field(max_length=MAX_TOOLS, fail_fast=True)] = Field(
        description="They may be empty, for a model to go on with what is stored."
    )
    answer: bool = Field(default=True, description="Whether the model goes on, which no other call must wait for.")


class Denial(Body):
    """Why a call is denied."""

    reason: str | None = Field(None, min_length=1, description="What the model reads as the output of the call.")


class NewBranch(Body):
    """A branch to be forked."""

    at: str | None = Field(None, description="The id of its last item; default: all items.")


class ActiveBranch(Body):
    """The branch on which a conversation goes on."""

    branch: int = Field(ge=0, le=2**31 - 1)


class FeedbackValue(Body):
    """What a user thinks of an item; without both, that is removed."""

    rating: int | None = Field(None, ge=-(2**31), le=2**31 - 1, description="In the application's own scale.")
    comment: str | None = None


class Labels(Body):
    """The labels of an item; they replace those that it has."""

    labels: GivenLabels


class SeenPosition(Body):
    """Up to where a user has read."""

    position: int | None = Field(None, ge=-1, le=2**53, description="Default: everything so far.")


class StateValue(Body):
    """The value of a state."""

    max_bytes = body_limits.MAX_STATE_BODY
    max_values = body_limits.MAX_STATE_VALUES
    value: Any
    expected_version: int | None = Field(None, ge=0, le=2**31 - 1, description="Write only if it has this version.")


# Answers. Objects are called so where threadkeep has a class of that name; the document leaves the suffix out.


class ConversationObject(Settings):
    """A conversation."""

    id: str
    object: Literal["conversation"]
    created_at: int = Field(description="Seconds since 1970.")
    metadata: dict[str, str]
    title: str | None
    labels: dict[str, str]
    external_id: str | None
    user_id: str | None
    status: str
    branch: int | None = None
    head: int | None = Field(None, description="The position of its last item; -1 if it is empty.")


class ConversationSummaryObject(ConversationObject):
    """A conversation in a list."""

    last_activity_at: int
    preview: str | None
    item_count: int
    is_unread: bool | None = Field(description="Whether there is something new for the user of the request, if any.")


class FeedbackObject(BaseModel):
    """What a user thinks of an item."""

    user_id: str | None
    rating: int | None
    comment: str | None
    updated_at: int


class VariantObject(BaseModel):
    """One of the items that follow the same item."""

    branch: int
    position: int
    newest: int = Field(description="The branch on which people go on who choose it.")


class SiblingsObject(BaseModel):
    """The variants at the place of an item: this one is number `index` of `count`."""

    object: Literal["siblings"]
    index: int
    count: int
    variants: list[VariantObject]


class MessageObject(BaseModel):
    """An item: a message, a call of a function, its output, reasoning …; `item` is as in the Responses API."""

    id: str
    object: Literal["conversation.item"]
    position: int
    branch: int
    created_at: int | None
    author_id: str | None
    labels: dict[str, str]
    feedback: list[FeedbackObject]
    item: dict[str, Any]
    siblings: SiblingsObject | None = Field(None, description="There with `variants=true`.")


class ResponseObject(BaseModel):
    """An answer of a model, as in the Responses API."""

    model_config = ConfigDict(extra="allow")

    id: str
    object: Literal["response"]
    status: str
    output: list[dict[str, Any]]


class Answered(BaseModel):
    """What was stored: the message, and the model's response to it."""

    object: Literal["turn"]
    conversation_id: str
    branch: int
    message: MessageObject | None
    response: ResponseObject | None


class AnsweredOutputs(Answered):
    """What was stored: the outputs, and the model's response to them."""

    tool_outputs: list[MessageObject]


class ApprovalObject(BaseModel):
    """A decision about a call."""

    decision: Literal["approved", "denied"]
    reason: str | None
    decided_by: str | None = Field(description="The user who decided.")
    decided_at: int


class ToolCall(BaseModel):
    """A call that waits for its output."""

    id: str = Field(description="The id of its item.")
    object: Literal["tool_call"]
    type: str
    call_id: str | None
    position: int
    name: str | None = Field(description="That of the function; of a built-in tool, the type of the call.")
    arguments: Any = Field(
        description="Parsed, or the text itself where it is not JSON; null in the answer to an approval."
    )
    approval: ApprovalObject | None


class StreamEvent(BaseModel):
    """An event of a stream.

    `created` has what was stored, `delta` more of the text, and `done` the response. The id tells how far the text has
    come; a client that lost the connection names the last one in `Last-Event-ID`. `error`, which has none, says why
    there is no response any more.
    """

    id: str | None = None
    event: Literal["created", "delta", "done", "error"]
    data: str = Field(description="JSON.")


class DataEvent(BaseModel):
    """An event of a stream without names and ids."""

    data: str = Field(description="JSON, or `[DONE]`.")


class BranchObject(BaseModel):
    """A branch of a conversation."""

    id: int
    object: Literal["branch"]
    parent: int | None
    fork_position: int | None
    head: int
    is_active: bool
    created_at: int


class SearchHit(BaseModel):
    """A conversation that matches, with its best match."""

    id: str
    object: Literal["search.hit"]
    conversation_id: str
    title: str | None
    hits: int
    snippet: str
    marks: list[tuple[int, int]] = Field(description="The matches in the snippet, in characters.")
    position: int | None
    type: str
    role: str | None
    created_at: int


class UsageRowObject(BaseModel):
    """Sums over calls of models, with the columns by which they are grouped."""

    model_config = ConfigDict(extra="allow")

    attempts: int
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    total_tokens: int | None
    unknown_costs: int = Field(description="How many of the attempts count as nothing in the cost.")
    cost_usd: str | None = Field(description="In decimal digits.")


class UsageObject(BaseModel):
    """A report."""

    object: Literal["list"]
    data: list[UsageRowObject]


class StateObject(BaseModel):
    """A small named JSON value beside a conversation."""

    name: str
    object: Literal["state"]
    value: Any
    version: int
    updated_at: int


class SeenObject(BaseModel):
    """How far a user has read."""

    object: Literal["seen"]
    user_id: str
    position: int


class UploadedMediaObject(BaseModel):
    """An image or file that messages can have: its `id` stands for it, in the place of a data URL."""

    id: str
    object: Literal["media"]
    media_type: str | None = Field(description="As the request said, else a guess; null if unknown.")
    size: int = Field(description="In bytes.")
    url: str = Field(description="The path where it is downloaded.")
    expires_at: int = Field(description="Seconds since 1970. What a message has by then stays.")


class Redacted(BaseModel):
    """An item whose content was removed for good."""

    id: str
    object: Literal["conversation.item.redacted"]
    redacted: bool


class Erased(BaseModel):
    """A user whose content was removed for good."""

    id: str
    object: Literal["user.erased"]
    conversations: int = Field(description="How many were removed.")
    attempts: int = Field(description="How many calls in the ledger no longer name the user; their figures stay.")
    items: int = Field(description="How many items of others no longer name the user as their author.")


class Deleted(BaseModel):
    """What is gone."""

    id: str
    object: str
    deleted: Literal[True]


class Listed(BaseModel, Generic[T]):
    """A page; the next one begins `after` its `last_id`."""

    object: Literal["list"]
    data: list[T]
    first_id: str
    last_id: str
    has_more: bool


class ToolCalls(Listed[ToolCall]):
    """A page of the calls that wait, in the order in which outputs answer them, and whose turn it is."""

    next_step: Literal["model", "tools", "user"]


class ErrorDetail(BaseModel):
    """What is wrong with a request."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(BaseModel):
    """An error."""

    error: ErrorDetail
