"""A chat backend: ``pip install fastapi uvicorn openai threadkeep``, then ``uvicorn fastapi_chat:app``."""

import os
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from fastapi import Body, Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse, StreamingResponse
from openai import AsyncOpenAI

from threadkeep import AsyncConversation, AsyncStore, Conflict, NotFound

FORMAT: Final = "chat_completion"
OPTIONS: dict[str, Any] = {"model": "gpt-5.4", "stream": True, "stream_options": {"include_usage": True}}
store, app = AsyncStore(os.environ.get("CHAT_DATABASE", "sqlite:///chat.db")), FastAPI(title="Chat")


async def ask(payload: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """The events of a provider's streamed answer: the one function to replace for another provider."""
    async for event in await AsyncOpenAI().chat.completions.create(**payload):
        yield event.model_dump(exclude_unset=True)


async def answer(conversation: AsyncConversation) -> AsyncIterator[str]:
    """The text of the answer as it comes; it is stored meanwhile, also when the browser leaves in the middle."""
    rendered = await conversation.render(FORMAT)
    async with conversation.stream_response(FORMAT, rendered=rendered, provider="openai") as recorder:
        async for event in ask(rendered.payload):
            await recorder.feed(event)
            yield "".join(choice["delta"].get("content") or "" for choice in event["choices"])


def of_user(user: Annotated[str, Header(alias="X-User")]) -> AsyncStore:
    return store.for_user(user)  # here goes your authentication: this store finds nothing of other users


Mine = Annotated[AsyncStore, Depends(of_user)]
TEXT = Body(embed=True)


@app.post("/conversations")
async def create(mine: Mine) -> dict[str, str]:
    return {"id": (await mine.create_conversation(instructions="Be kind.", **OPTIONS)).id}


@app.post("/conversations/{id}/messages")
async def say(id: str, text: Annotated[str, TEXT], mine: Mine, request: Request) -> StreamingResponse:
    conversation = await mine.get_conversation(id)
    await conversation.user(text, idempotency_key=request.headers.get("Idempotency-Key"))  # a retry says it once
    return StreamingResponse(answer(conversation), media_type="text/plain")


@app.post("/conversations/{id}/messages/{position}")
async def again(id: str, position: int, mine: Mine, text: Annotated[str | None, TEXT] = None) -> StreamingResponse:
    """Answer a user's message again (regenerate), or another one in its place (edit), on a branch of its own."""
    conversation = await mine.get_conversation(id)
    before = (await conversation.items(before=position, limit=1, order="desc")).items
    branch = await conversation.fork(position if text is None else before[0].position if before else -1)
    await branch.set_active_branch(branch.branch)
    if text is not None:
        await branch.user(text)
    return StreamingResponse(answer(branch), media_type="text/plain")


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
    return JSONResponse({"detail": str(error)}, status_code=404 if isinstance(error, NotFound) else 409)
