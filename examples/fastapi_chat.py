"""A chat backend: ``pip install fastapi uvicorn openai threadkeep``, then ``uvicorn fastapi_chat:app``."""

import asyncio
import os
from collections.abc import AsyncIterator
from math import ceil
from typing import Annotated, Any, Final
from uuid import uuid4

from fastapi import Body, Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse, StreamingResponse
from openai import AsyncOpenAI

from threadkeep import AsyncConversation, AsyncStore, Conflict, NotFound, ResponseInProgress

FORMAT: Final = "chat_completion"
OPTIONS: dict[str, Any] = {"model": "gpt-5.4", "stream": True, "stream_options": {"include_usage": True}}
store, app = AsyncStore(os.environ.get("CHAT_DATABASE", "sqlite:///chat.db")), FastAPI(title="Chat")
answering: set[asyncio.Task[None]] = set()


async def ask(payload: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """The events of a provider's streamed answer: the one function to replace for another provider."""
    async for event in await AsyncOpenAI().chat.completions.create(**payload):
        yield event.model_dump(exclude_unset=True)


async def answer(conversation: AsyncConversation, position: int, key: str, pieces: asyncio.Queue[Any]) -> None:
    """Answer a message, on a branch of its own unless it is the last one; under a used key, nobody is asked again."""
    rendered = await conversation.render(FORMAT, upto=position)
    async with conversation.stream_response(
        FORMAT,
        rendered=rendered,
        provider="openai",
        idempotency_key=key,
        expected_head=position,
        on_conflict="branch",
    ) as recorder:
        if recorder.branch is not None:
            await conversation.set_active_branch(recorder.branch)
        stored = recorder.response
        pieces.put_nowait((stored.text or "") if stored else "")
        if not stored:
            async for event in ask(rendered.payload):
                await recorder.feed(event)
                pieces.put_nowait("".join(choice["delta"].get("content") or "" for choice in event["choices"]))


async def stream(conversation: AsyncConversation, position: int, key: str) -> StreamingResponse:
    """The answer as it comes. A task of its own stores it, so it is whole even if the browser leaves halfway."""
    pieces: asyncio.Queue[Any] = asyncio.Queue()
    task = asyncio.create_task(answer(conversation, position, f"{key}-answer", pieces))
    answering.add(task)
    task.add_done_callback(answering.discard)
    task.add_done_callback(pieces.put_nowait)  # the last piece, whatever happened
    first = await pieces.get()
    if first is task:
        await task  # raises what went wrong

    async def texts() -> AsyncIterator[str]:
        piece = first
        while piece is not task:
            yield piece
            piece = await pieces.get()
        await task

    return StreamingResponse(texts(), media_type="text/plain")


def of_user(user: Annotated[str, Header(alias="X-User")]) -> AsyncStore:
    return store.for_user(user)  # here goes your authentication: this store finds nothing of other users


Mine = Annotated[AsyncStore, Depends(of_user)]
Key = Annotated[str, Header(alias="Idempotency-Key", default_factory=lambda: uuid4().hex)]
TEXT = Body(embed=True)


@app.post("/conversations")
async def create(mine: Mine) -> dict[str, str]:
    return {"id": (await mine.create_conversation(instructions="Be kind.", **OPTIONS)).id}


@app.post("/conversations/{id}/messages")
async def say(id: str, text: Annotated[str, TEXT], mine: Mine, key: Key) -> StreamingResponse:
    conversation = await mine.get_conversation(id)
    said = await conversation.user(text, idempotency_key=key)
    return await stream(conversation, said.position, key)


@app.post("/conversations/{id}/messages/{position}")
async def again(
    id: str, position: int, mine: Mine, key: Key, text: Annotated[str | None, TEXT] = None
) -> StreamingResponse:
    """Answer a user's message again (regenerate), or another one in its place (edit), on a branch of its own."""
    conversation = await mine.get_conversation(id)
    if text is not None:
        conversation = await conversation.fork(before=position, idempotency_key=f"{key}-fork")
        position = (await conversation.user(text, idempotency_key=key)).position
    return await stream(conversation, position, key)


@app.get("/conversations/{id}")
async def history(id: str, mine: Mine, before: int | None = None) -> list[dict[str, Any]]:
    page = await (await mine.get_conversation(id)).items(before=before, limit=50, order="desc")
    return [{"position": stored.position, **stored.item.to_dict()} for stored in reversed(page.items)]


@app.get("/usage")
async def usage(mine: Mine) -> list[dict[str, Any]]:
    return [row.to_dict() for row in await mine.usage(by=("day", "model"))]


@app.exception_handler(NotFound)
@app.exception_handler(Conflict)
async def refused(_: Request, error: Exception) -> JSONResponse:
    headers = {"Retry-After": str(ceil(error.retry_after))} if isinstance(error, ResponseInProgress) else None
    return JSONResponse({"detail": str(error)}, 404 if isinstance(error, NotFound) else 409, headers)
