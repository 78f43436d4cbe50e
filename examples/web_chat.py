"""A backend for web pages: ``pip install "threadkeep[http]" uvicorn openai``, then ``uvicorn web_chat:app``."""

import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi import FastAPI
from fastapi.requests import HTTPConnection
from openai import AsyncOpenAI

from threadkeep import AsyncStore, ToolRegistry
from threadkeep.http import Owner, Upstream, rest_app, tool_context

MODEL: Final = "gpt-5.4"
store = AsyncStore(os.environ.get("CHAT_DATABASE", "sqlite:///chat.db"))
tools = ToolRegistry()


@tools.register
def count_words(text: str) -> str:
    """Count the words of a text."""
    return str(len(text.split()))


@tools.register
async def send_mail(to: str, text: str) -> str:
    """Send an e-mail in the name of the user."""
    return f"Sent {len(text)} characters to {to}, from {tool_context().owner.user_id}."


async def events(payload: dict[str, Any], model: str) -> AsyncGenerator[dict[str, Any]]:
    """The events of the provider's answer."""
    asked: dict[str, Any] = {**payload, "model": model, "stream": True}
    async with AsyncOpenAI() as client, await client.chat.completions.create(**asked) as stream:
        async for event in stream:
            yield event.model_dump(exclude_unset=True)


def instructions(owner: Owner, _chat_id: str | None) -> str:
    """What the model is told; it is stored when a chat begins, and no page can change it."""
    return f"You help {owner.user_id}. Be brief."


def user_of(request: HTTPConnection) -> Owner | None:
    """Here goes your authentication: what the user of a request has is all that this request finds."""
    user = request.headers.get("x-user")
    return Owner(user_id=user) if user else None


rest = rest_app(
    store,
    auth=user_of,
    upstreams={MODEL: Upstream("openai", "chat_completion", events)},
    instructions=instructions,
    tools=tools,
    needs_approval={"send_mail"},  # the user decides whether it may run
    prefix="",
)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with rest.router.lifespan_context(rest):  # which lets answers end that are under way
        yield
    await store.close()


app = FastAPI(title="Chat", lifespan=lifespan)
app.mount("/api", rest)  # chats of `useChat` and AG-UI, lists, search, edits, feedback, pictures, usage, erasure
