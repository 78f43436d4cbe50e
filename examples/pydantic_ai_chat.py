"""A chat for React front ends with Pydantic AI: the history is held here, and each user only reaches their own.

    pip install "threadkeep[pydantic-ai,http]" "pydantic-ai-slim[openai,ui]"
    export OPENAI_API_KEY=…
    uvicorn pydantic_ai_chat:app

`useChat` of the AI SDK posts to /chat. `X-User` is a placeholder for your authentication.
"""

from __future__ import annotations

import os

from pydantic_ai import Agent
from pydantic_ai.ui.vercel_ai import VercelAIAdapter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from threadkeep import AsyncStore
from threadkeep.contrib.pydantic_ai import ThreadkeepConversationStore

store = AsyncStore(os.environ.get("CHAT_DATABASE", "sqlite:///chat.db"))
conversations = ThreadkeepConversationStore(store)
agent = Agent(os.environ.get("CHAT_MODEL"), instructions="Answer briefly.", defer_model_check=True)


@agent.tool_plain
def count_words(text: str) -> int:
    """How many words a text has."""
    return len(text.split())


def user_of(request: Request) -> str:
    """Who asks."""
    user = request.headers.get("X-User")
    if not user:
        raise HTTPException(401, "Who are you?")
    return user


async def chat(request: Request) -> Response:
    """Answer a message, or answer an earlier one again; what was answered before stays on a branch."""
    return await VercelAIAdapter.dispatch_request(
        request, agent=agent, conversation_store=conversations, conversation_scope=user_of(request)
    )


async def listed(request: Request) -> Response:
    """The user's conversations, with a preview of each."""
    page = await store.list_summaries(user_id=user_of(request), after=request.query_params.get("after"))
    found = [{"id": one.external_id, "preview": one.preview, "at": one.last_activity_at.isoformat()} for one in page]
    return JSONResponse({"conversations": found, "next": page.next})


async def search(request: Request) -> Response:
    """What the user's conversations have about some words."""
    page = await store.for_user(user_of(request)).search(request.query_params["q"])
    return JSONResponse([one.snippet for one in page])


async def usage(request: Request) -> Response:
    """What the user's answers cost, by model."""
    rows = await store.usage(by="model", user_id=user_of(request))
    return JSONResponse([row.to_dict() for row in rows])


app = Starlette(
    routes=[
        Route("/chat", chat, methods=["POST"]),
        Route("/conversations", listed),
        Route("/search", search),
        Route("/usage", usage),
    ]
)
