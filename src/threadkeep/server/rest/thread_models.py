"""The bodies of requests and answers of web clients, which keep messages of their own."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from threadkeep.server.body_limits import MAX_TOOLS
from threadkeep.server.rest.models import Body, Tools

_Messages = Annotated[list[dict[str, Any]], Field(fail_fast=True)]


class ChatTurn(Body):
    """What `useChat` sends: the messages that its page shows, and what is to be done with the last one."""

    id: str = Field(min_length=1, description="The id of the chat: the page's own, or that of a conversation.")
    messages: Annotated[_Messages, Field(min_length=1)]
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    messageId: str | None = Field(None, description="The message that another one, or another answer, is for.")  # noqa: N815
    model: str | None = Field(None, description="The model that answers, from now on; default: the conversation's.")
    tools: Tools | None = Field(None, description="Functions that the page runs: `name`, `inputSchema`.")


class ResumeEntry(BaseModel):
    """The answer to an interrupt."""

    model_config = ConfigDict(strict=True)

    interruptId: str = Field(min_length=1, description="The id of the interrupt.")  # noqa: N815
    status: Literal["resolved", "cancelled"] = Field(description="A decision that is cancelled is a denial.")
    payload: Any = Field(None, description="`approved`, and a `reason` for the model.")
    metadata: dict[str, Any] | None = None


class AgentRun(Body):
    """What `HttpAgent` sends: the input of a run of AG-UI."""

    threadId: str = Field(min_length=1, description="The client's own id of a thread, or that of a conversation.")  # noqa: N815
    runId: str = Field(min_length=1, description="The id of the run.")  # noqa: N815
    parentRunId: str | None = Field(None, description="The run that this one goes on from.")  # noqa: N815
    protocolVersion: str | None = Field(None, description="The version of AG-UI.")  # noqa: N815
    messages: _Messages = Field(description="All messages that the client shows; those that are not stored are said.")
    state: Any = Field(None, description="The state; an empty one is that which is stored.")
    tools: Tools = Field(default_factory=list, description="Functions that the client runs.")
    context: list[dict[str, Any]] = Field(default_factory=list, description="Current facts for the model.")
    forwardedProps: Any = Field(None, description="`model`, and `trigger` and `messageId` as chats have them.")  # noqa: N815
    resume: Annotated[list[ResumeEntry], Field(max_length=MAX_TOOLS, fail_fast=True)] = Field(
        default_factory=list, description="Decisions that the thread waits for."
    )


class ChatVariants(BaseModel):
    """The variants of a message: this one is number `index`, counted from 0."""

    index: int
    branches: list[int] = Field(description="For each variant, the branch that `active_branch` is set to.")


class ChatObject(BaseModel):
    """A chat as a page begins with it."""

    id: str
    object: Literal["chat"]
    conversation_id: str | None = Field(description="null as long as nothing was said.")
    title: str | None
    messages: list[dict[str, Any]]
    variants: dict[str, ChatVariants] = Field(description="By the ids of the messages that there are several of.")
    response_id: str | None = Field(description="The answer that is in progress.")


class ThreadObject(BaseModel):
    """A thread as a client of AG-UI begins with it."""

    id: str
    object: Literal["thread"]
    conversation_id: str | None = Field(description="null as long as nothing was said.")
    title: str | None
    messages: list[dict[str, Any]]
    state: Any = Field(description="null where there is none.")
    interrupts: list[dict[str, Any]] = Field(description="The decisions that it waits for.")
    pending_tool_call_ids: list[str] = Field(description="The calls that wait for outputs of the client.")
    response_id: str | None = Field(description="The answer that is in progress.")


class StopObject(BaseModel):
    """Whether an answer was in progress, which was asked to stop."""

    id: str
    object: Literal["chat.stop", "thread.stop"]
    stopped: bool
