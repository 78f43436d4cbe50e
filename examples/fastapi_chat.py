"""A chat backend: ``pip install fastapi uvicorn openai threadkeep``, then ``uvicorn fastapi_chat:app``."""

import asyncio
import os
from collections.abc import AsyncIterator
from html import escape
from itertools import count
from math import ceil
from typing import Annotated, Any, Final
from uuid import uuid4

from fastapi import Body, Depends, FastAPI, Header, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from openai import AsyncOpenAI

from threadkeep import (
    AsyncConversation,
    AsyncStore,
    Conflict,
    InvalidItem,
    InvalidOption,
    NotFound,
    Rendered,
    ResponseInProgress,
    ToolRegistry,
    run_tools_async,
)

FORMAT: Final = "chat_completion"
OPTIONS: dict[str, Any] = {"model": "gpt-5.4", "stream": True, "stream_options": {"include_usage": True}}
STATUSES: Final = {NotFound: 404, Conflict: 409, InvalidOption: 400, InvalidItem: 400}
store, app = AsyncStore(os.environ.get("CHAT_DATABASE", "sqlite:///chat.db")), FastAPI(title="Chat")
answering: set[asyncio.Task[None]] = set()
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


async def ask(rendered: Rendered) -> AsyncIterator[dict[str, Any]]:
    """The events of a provider's streamed answer: the one function to replace for another provider."""
    create = AsyncOpenAI().chat.completions.create
    async for event in await create(**rendered.arguments(create)):
        yield event.model_dump(exclude_unset=True)


async def ask_model(
    conversation: AsyncConversation, position: int, key: str, pieces: asyncio.Queue[Any]
) -> AsyncConversation:
    """Answer an item, on a branch of its own unless it is the last one; under a used key, nobody is asked again."""
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
            async for event in ask(rendered):
                await recorder.feed(event)
                pieces.put_nowait("".join(choice["delta"].get("content") or "" for choice in event["choices"]))
                if recorder.cancel_requested:
                    break
    return conversation if recorder.branch is None else await conversation.on_branch(recorder.branch)


async def run(conversation: AsyncConversation, position: int | None, key: str, pieces: asyncio.Queue[Any]) -> None:
    """Answer an item, if one is given, and run tools, until it is the turn of the user, or theirs to decide."""
    for step in count():
        if position is not None:
            conversation = await ask_model(conversation, position, f"{key}-{step}", pieces)
        if await run_tools_async(conversation, None, FORMAT, tools=tools, needs_approval=ASK_FIRST) != "model":
            return
        position = conversation.head


async def stream(conversation: AsyncConversation, position: int | None, key: str) -> StreamingResponse:
    """The answer as it comes. A task of its own stores it, so it is whole even if the browser leaves halfway."""
    pieces: asyncio.Queue[Any] = asyncio.Queue()
    task = asyncio.create_task(run(conversation, position, f"{key}-answer", pieces))
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
        await conversation.mark_seen()  # a browser that has left finds it unread

    return StreamingResponse(texts(), media_type="text/plain")


def of_user(user: Annotated[str, Header(alias="X-User")]) -> AsyncStore:
    return store.for_user(user)  # here goes your authentication: this store finds nothing of other users


Mine = Annotated[AsyncStore, Depends(of_user)]
Key = Annotated[str, Header(alias="Idempotency-Key", default_factory=lambda: uuid4().hex)]
TEXT = Body(embed=True)


@app.post("/conversations")
async def create(mine: Mine) -> dict[str, str]:
    conversation = await mine.create_conversation(instructions="Be kind.", **OPTIONS)
    await conversation.register_tools(tools)
    return {"id": conversation.id}


@app.get("/conversations")
async def conversations(mine: Mine, after: str | None = None) -> dict[str, Any]:
    """For a list beside the chat: the newest activity first, with a preview and whether there is something to read."""
    page = await mine.list_summaries(after=after, limit=20)
    shown = ("id", "title", "preview", "item_count", "last_activity_at", "is_unread")
    return {"conversations": [{name: getattr(one, name) for name in shown} for one in page], "next": page.next}


@app.post("/conversations/{id}/messages")
async def say(
    id: str, text: Annotated[str, TEXT], mine: Mine, key: Key, images: Annotated[tuple[str, ...], Body()] = ()
) -> StreamingResponse:
    """Answer a message with images, which are data URLs."""
    conversation = await mine.get_conversation(id)
    pictures = [{"type": "input_image", "image_url": url} for url in images if url.startswith("data:image/")]
    said = await conversation.user([{"type": "input_text", "text": text}, *pictures], idempotency_key=key)
    return await stream(conversation, said.position, key)


@app.post("/conversations/{id}/messages/{position}")
async def again(
    id: str, position: int, mine: Mine, key: Key, text: Annotated[str | None, TEXT] = None
) -> StreamingResponse:
    """Answer a user's message again (regenerate), or another one in its place (edit), on a branch of its own."""
    conversation = await mine.get_conversation(id)
    if text is not None:
        conversation = await conversation.edit(position, text, idempotency_key=f"{key}-edit")
        position = conversation.head
    return await stream(conversation, position, key)


@app.get("/conversations/{id}/messages/{position}/variants")
async def variants(id: str, position: int, mine: Mine) -> dict[str, Any]:
    """For "2 of 3": which variant of a message or answer this is, and where the others are."""
    found = await (await mine.get_conversation(id)).siblings(position)
    others = [{"branch": one.branch, "position": one.position} for one in found.variants]
    return {"number": found.index + 1, "count": found.count, "variants": others}


@app.put("/conversations/{id}/branch")
async def show_branch(id: str, number: Annotated[int, TEXT], mine: Mine) -> None:
    await (await mine.get_conversation(id)).set_active_branch(number)


@app.post("/conversations/{id}/stop")
async def stop(id: str, mine: Mine) -> bool:
    return await (await mine.get_conversation(id)).cancel_response()


@app.get("/conversations/{id}/calls")
async def calls(id: str, mine: Mine) -> list[dict[str, Any]]:
    """The calls that wait for a decision of the user."""
    pending = await (await mine.get_conversation(id)).pending_calls()
    return [{"call_id": call.call_id, "name": call.name, "arguments": call.arguments} for call in pending]


@app.post("/conversations/{id}/calls/{call_id}")
async def decide(id: str, call_id: str, approved: Annotated[bool, TEXT], mine: Mine, key: Key) -> StreamingResponse:
    """Approve or deny a call; once nothing waits any more, the answer goes on."""
    conversation = await mine.get_conversation(id)
    if approved:
        await conversation.approve(call_id, idempotency_key=key)
    else:
        await conversation.deny(call_id, reason="The user does not want this.", idempotency_key=key)
    goes_on = await conversation.next_step() == "model"
    return await stream(conversation, conversation.head if goes_on else None, key)


@app.put("/conversations/{id}/messages/{position}/feedback")
async def rate(id: str, position: int, rating: Annotated[int | None, TEXT], mine: Mine) -> None:
    await (await mine.get_conversation(id)).set_feedback(position, rating=rating)


@app.get("/conversations/{id}")
async def history(id: str, mine: Mine, before: int | None = None) -> list[dict[str, Any]]:
    conversation = await mine.get_conversation(id)
    if before is None:
        await conversation.mark_seen()  # before it is read: what comes in between stays unread
    page = await conversation.items(before=before, limit=50, order="desc", annotations=True, media="reference")
    return [
        {
            "position": stored.position,
            "ratings": [one.rating for one in stored.feedback or ()],
            **stored.item.to_dict(),
        }
        for stored in reversed(page.items)
    ]


@app.get("/media/{reference}")
async def media(reference: str, mine: Mine) -> Response:
    """An image of a message, which names it instead of containing it."""
    found = await mine.media(reference)
    headers = {"Content-Security-Policy": "sandbox", "X-Content-Type-Options": "nosniff"}
    return Response(found.content, media_type=found.media_type, headers=headers)


@app.get("/usage")
async def usage(mine: Mine) -> list[dict[str, Any]]:
    return [row.to_dict() for row in await mine.usage(by=("day", "model"))]


@app.get("/usage.html")
async def usage_page(mine: Mine) -> HTMLResponse:
    columns = ("day", "model", "attempts", "input_tokens", "output_tokens", "cost_usd")
    rows = [columns, *([row.get(name) for name in columns] for row in await usage(mine))]
    cells = ("".join(f"<td>{escape(str(value))}</td>" for value in row) for row in rows)
    return HTMLResponse(f"<title>Usage</title><table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>")


@app.exception_handler(NotFound)
@app.exception_handler(Conflict)
@app.exception_handler(InvalidOption)
@app.exception_handler(InvalidItem)
async def refused(_: Request, error: Exception) -> JSONResponse:
    status = next(code for kind, code in STATUSES.items() if isinstance(error, kind))
    headers = {"Retry-After": str(ceil(error.retry_after))} if isinstance(error, ResponseInProgress) else None
    return JSONResponse({"detail": str(error)}, status, headers)
