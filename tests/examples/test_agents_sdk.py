"""The example of a support desk: a refund that is decided in another process, and what it cost."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="openai-agents is not installed; make test-peers has it")

from agents.testing import ScriptedModel, assistant_message, function_call

from threadkeep import Store
from threadkeep.contrib.openai_agents import ThreadkeepSession


@pytest.fixture(scope="module")
def desk() -> Any:
    return importlib.import_module("examples.agents_sdk")


def scripted(*steps: Any) -> Any:
    model: Any = ScriptedModel([{"output": [step], "response_id": f"resp_{id(step)}"} for step in steps])
    model.model = "gpt-5.4"
    return model


@pytest.mark.parametrize("is_approved", [True, False], ids=["approved", "denied"])
def test_a_refund_waits_for_a_decision(desk: Any, tmp_path: Path, *, is_approved: bool) -> None:
    url = f"sqlite:///{tmp_path}/support.db"
    asking = scripted(
        function_call("find_order", {"number": 17}, call_id="c1"),
        function_call("refund", {"number": 17, "euros": 30}, call_id="c2"),
    )
    with Store(url) as store:
        session = ThreadkeepSession("main", store, user_id="ann")
        told = asyncio.run(desk.answer(session, desk.support_agent(asking), "Order 17 arrived broken."))
    assert told == 'To be decided: refund({"number":17,"euros":30})'
    with Store(url) as store:  # another process, after a while
        session = ThreadkeepSession("main", store, user_id="ann")
        agent = desk.support_agent(scripted(assistant_message("I have told them.")))
        assert asyncio.run(desk.decide(session, agent, is_approved=is_approved)) == "I have told them."
        assert asyncio.run(desk.decide(session, agent, is_approved=is_approved)) == "Nothing waits for a decision."
        items: Any = asyncio.run(session.get_items())
        outputs = [item["output"] for item in items if item.get("type") == "function_call_output"]
        assert ("were given back" in outputs[1]) == is_approved
        assert desk.usage_lines(store, "ann")[0].startswith("gpt-5.4: 3 calls")
        assert desk.usage_lines(store, "ben") == []
