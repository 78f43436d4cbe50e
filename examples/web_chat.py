"""A backend for web pages: ``pip install "threadkeep[http]" uvicorn openai``, then ``uvicorn web_chat:app``."""

import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final

from fastapi import Body, Depends, FastAPI, HTTPException
from fastapi.requests import HTTPConnection
from openai import AsyncOpenAI

from threadkeep import AsyncStore, NotFound, ToolRegistry, run_tools_async
from threadkeep.http import Owner, Upstream, rest_app

FORMAT: Final = "chat_completion"
MODEL: Final = "gpt-5.4"
store = AsyncStore(os.environ.get("CHAT_DATABASE", "sqlite:///chat.db"))
tools = ToolRegistry()


@tools.register
def count_words(text: str) -> str:
    """Count the words of a text."""
    return str(len(text.split()))


@tools.register
def send_mail(to: str, text: str) -> str:
    """Send an e-mail in the name of the user."""
    return f"Sent {len(text)} characters to {to}."


ASK_FIRST: Final = {"send_mail"}  # the user decides whether these may run


async def answer(payload: dict[str, Any]) -> dict[str, Any]:
    """The provider's answer to the outputs of tools."""
    async with AsyncOpenAI() as client:
        said = await client.chat.completions.create(**payload)
    body: dict[str, Any] = said.model_dump(exclude_unset=True)
    return body


async def events(payload: dict[str, Any], model: str) -> AsyncGenerator[dict[str, Any]]:
    """The events of the provider's answer to a message."""
    asked: dict[str, Any] = {**payload, "model": model, "stream": True}
    async with AsyncOpenAI() as client, await client.chat.completions.create(**asked) as stream:
        async for event in stream:
            yield event.model_dump(exclude_unset=True)


def user_of(request: HTTPConnection) -> Owner | None:
    """Here goes your authentication: what the user of a request has is all that this request finds."""
    user = request.headers.get("x-user")
    return Owner(user_id=user) if user else None


rest = rest_app(store, auth=user_of, upstreams={MODEL: Upstream("openai", FORMAT, events)}, prefix="")


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with rest.router.lifespan_context(rest):  # which lets answers end that are under way
        yield
    await store.close()


app = FastAPI(title="Chat", lifespan=lifespan)
app.mount("/api", rest)  # chats of `useChat` and AG-UI, lists, search, edits, feedback, pictures, usage, erasure


def of_user(request: HTTPConnection) -> AsyncStore:
    """The store of the user."""
    owner = user_of(request)
    if owner is None or owner.user_id is None:
        raise HTTPException(401)
    return store.for_user(owner.user_id)


Mine = Annotated[AsyncStore, Depends(of_user)]


@app.post("/chats")
async def begin(mine: Mine, title: Annotated[str | None, Body(embed=True)] = None) -> dict[str, str]:
    """A chat whose model knows the tools; its id is that of `useChat`."""
    chat = await mine.create_conversation(model=MODEL, instructions="Be kind.", title=title)
    await chat.register_tools(tools)
    return {"id": chat.id}


@app.post("/chats/{id}/run")
async def run(id: str, mine: Mine) -> dict[str, str]:
    """Run what the model has called, and ask it again, until it has answered or the user has to decide about a call.

    A page calls this where an answer ends with calls, and once a call was decided about; then it loads the chat again.
    """
    try:
        chat = await mine.get_conversation(id)
    except NotFound as error:
        raise HTTPException(404, str(error)) from error
    turn = await run_tools_async(chat, answer, FORMAT, tools=tools, needs_approval=ASK_FIRST)
    return {"next_step": turn}
