"""What other processes do in the tests of concurrency: run as functions, or as ``python -m tests.store.writers``."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from threading import Lock
from typing import Any

from tests.factories import a_message, a_stream, an_answer
from tests.store.faces import blocking_store
from threadkeep import ResponseInProgress, Store


def opened(url: str, tenant: str, face: str = "sync") -> Any:
    if face == "sync":
        return Store(url, tenants=True).for_tenant(tenant)
    return blocking_store(url, asyncio.Runner(), tenants=True).for_tenant(tenant)


def append_turns(url: str, tenant: str, face: str, shared: str, name: str, turns: int) -> None:
    """Append turns to the conversation that all share and to one of its own; every turn names its writer and number."""
    store = opened(url, tenant, face)
    own = store.create_conversation(model="m", external_id=name)
    for number in range(turns):
        for conversation in (store.get_conversation(shared), own):
            conversation.add_items([a_message(f"{name} {number} said {part}") for part in range(3)])
            answer = an_answer(*(f"{name} {number} heard {part}" for part in range(3)), id=f"{name} {number}")
            conversation.add_response(answer, "open_responses", idempotency_key=f"{name} {number}")
    os._exit(0)  # the loop of an async store has nothing to clean up that matters here


def answer_for_ever(url: str, tenant: str, id: str, first: int, ready: Connection) -> None:
    """Append answers until killed, and say before each one which it will be."""
    conversation = opened(url, tenant).get_conversation(id)
    for number in itertools.count(first):
        ready.send(number)
        turn(conversation, number)


def answer_together_for_ever(url: str, tenant: str, ids: list[str], first: int, acknowledged: Connection) -> None:
    """Append answers to several conversations at once until killed, and say which have been stored."""
    store, lock = opened(url, tenant), Lock()

    def answer(key: str) -> None:
        conversation = store.get_conversation(key)
        for number in itertools.count(first):
            turn(conversation, number)
            with lock:
                acknowledged.send((key, number))

    with ThreadPoolExecutor(len(ids)) as pool:
        list(pool.map(answer, ids))


def stream_for_ever(url: str, tenant: str, id: str, lease: float, ready: Connection, key: str | None = None) -> None:
    """Record a stream until killed, and say after each event how many there were."""
    conversation = opened(url, tenant).get_conversation(id)
    start, item, *_ = a_stream("word")
    with conversation.stream_response("open_responses", lease=lease, idempotency_key=key) as recorder:
        for event in (start, item):
            recorder.feed(event)
        for number in itertools.count():
            delta = {"output_index": 0, "content_index": 0, "delta": f"{number} "}
            recorder.feed({"type": "response.output_text.delta", **delta})
            ready.send(number)
            time.sleep(0.002)


def say_when_free(url: str, tenant: str, id: str, text: str) -> None:
    """Append a message as soon as the response in progress has ended."""
    conversation = opened(url, tenant).get_conversation(id)
    while True:
        try:
            conversation.user(text)
        except ResponseInProgress:
            time.sleep(0.02)
        else:
            return


def turn(conversation: Any, number: int) -> Any:
    """An answer with rows in every table that an answer has rows in; the same number gives the same content."""
    body = an_answer(*(f"{number} part {part}" for part in range(4)), id=f"resp_{number}", padding="x" * 5_000)
    return conversation.add_response(body, "open_responses", idempotency_key=f"turn {number}")


def open_and_say(url: str, text: str) -> None:
    """Open the store of an application that has just been started, and use it."""
    with Store(url) as store:
        store.create_conversation(model="m", input=text)


def plan_cache(url: str, tenant: str, face: str, id: str, go: Connection, said: Connection) -> None:
    """Say what is to be done about the context cache of a conversation, when told to go."""
    conversation = opened(url, tenant, face).get_conversation(id)
    said.send("ready")
    go.recv()
    said.send(conversation.plan_context_cache("gemini").action)
    os._exit(0)


def main(url: str, tenant: str, id: str) -> None:
    """Write the requests of all branches of a conversation to stdout."""
    store = opened(url, tenant)
    for branch in store.get_conversation(id).branches():
        for wire in ("open_responses", "chat_completion"):
            sys.stdout.buffer.write(store.get_conversation(id, branch=branch.number).request_body(wire) + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
