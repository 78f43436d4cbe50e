"""Responses of models, whatever way they came in."""

from __future__ import annotations

from starlette.responses import Response

from threadkeep.http.openai import responses
from threadkeep.http.service import Call


async def retrieve(call: Call) -> Response:
    """Retrieve a response, also one that is in progress."""
    return await responses.retrieve(call)


async def delete(call: Call) -> Response:
    """Delete a response; its items stay in the conversation."""
    return await responses.delete(call)


async def cancel(call: Call) -> Response:
    """Ask for the end of a response in progress; one that has ended is left as it is."""
    return await responses.cancel(call)
