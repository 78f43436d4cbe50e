"""Outputs of calls that are not there: they are refused, as by OpenAI, where the server knows the whole history."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.server.scripts import Scripted
from tests.server.test_creation import TOOL, in_front_of

QUESTION: Any = {"role": "user", "content": "Weather in Paris?"}
CALL: Any = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}


def output(call_id: str = "call_1", kind: str = "function_call_output") -> Any:
    return {"type": kind, "call_id": call_id, "output": "Rain."}


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("kind", ["function_call_output", "custom_tool_call_output"])
def test_an_output_without_its_call_is_refused(served: Any, scripted: Scripted, kind: str, *, store: bool) -> None:
    client = in_front_of(served, scripted)
    with pytest.raises(openai.BadRequestError) as refusal:
        client.responses.create(model=scripted.format, input=[QUESTION, CALL, output("call_2", kind)], store=store)
    assert refusal.value.param == "input"
    said = f"No tool call found for {kind.replace('_', ' ')} with call_id call_2. "
    assert said in refusal.value.message
    assert "Put the call in front of it" in refusal.value.message
    assert scripted.payloads == []
    assert list(served.call(served.store.list_conversations)) == []


def test_a_call_may_be_in_the_conversation(served: Any, scripted: Scripted) -> None:
    client = in_front_of(served, scripted)
    scripted.will_say("Let me see.", calls=True)
    found = client.responses.create(model=scripted.format, input="Weather?", tools=[TOOL])
    with pytest.raises(openai.BadRequestError, match="No tool call found"):
        client.responses.create(model=scripted.format, input=[output("c2")], previous_response_id=found.id)
    for store in (False, True):
        scripted.will_say("It rains.")
        asked: Any = {"previous_response_id": found.id, "store": store}
        assert client.responses.create(model=scripted.format, input=[output()], **asked).output_text == "It rains."
    assert found.conversation is not None
    with pytest.raises(openai.BadRequestError, match="No tool call found"):
        client.responses.create(model=scripted.format, input=[output("c2")], conversation=found.conversation.id)
    items = client.conversations.items.list(found.conversation.id)
    assert [item.type for item in items].count("function_call_output") == 1


@pytest.mark.parametrize(
    "given",
    [
        [QUESTION, CALL, output()],
        [QUESTION, {"type": "function_call_output", "name": "weather", "output": "Rain."}],
        [QUESTION, {"type": "compaction", "encrypted_content": "of_the_provider"}, output()],
    ],
    ids=["with its call", "of no call", "behind a compaction"],
)
def test_outputs_that_are_taken(served: Any, scripted: Scripted, given: list[Any]) -> None:
    scripted.will_say("It rains.")
    found = in_front_of(served, scripted).responses.create(model=scripted.format, input=given)
    assert found.output_text == "It rains."
