"""The loop of an agent: what runs, what waits for people, and how another process goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from threadkeep import AsyncStore, InvalidOption, Store, ToolRegistry, run_tools, run_tools_async

Json = dict[str, Any]


def calls(*names: str, arguments: str = '{"city": "Hull"}') -> Json:
    output = [
        {
            "type": "function_call",
            "call_id": f"call_{name}",
            "name": name,
            "arguments": arguments,
            "status": "completed",
        }
        for name in names
    ]
    return {"object": "response", "status": "completed", "model": "m", "output": output}


def says(text: str) -> Json:
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"type": "message", "role": "assistant", "status": "completed", "content": [part]}
    return {"object": "response", "status": "completed", "model": "m", "output": [message]}


class Model:
    """A provider that gives the next answer."""

    def __init__(self, *answers: Json) -> None:
        self.answers, self.payloads = [*answers], list[Json]()

    def ask(self, payload: Json) -> Json:
        self.payloads.append(payload)
        return self.answers.pop(0)

    async def ask_async(self, payload: Json) -> Json:
        return self.ask(payload)

    def outputs(self) -> list[str]:
        return [item["output"] for item in self.payloads[-1]["input"] if item["type"] == "function_call_output"]


SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def registry(*, has_coroutines: bool = False) -> ToolRegistry:
    made = ToolRegistry()

    def weather(city: str) -> Json:
        return {"rain": city}

    async def weather_async(city: str) -> Json:
        return weather(city)

    made.register("weather", parameters=SCHEMA, handler=weather_async if has_coroutines else weather)
    made.register("book", parameters=SCHEMA, handler=lambda city: f"Booked {city}.")
    made.register("mail.send", parameters=SCHEMA, handler=lambda city: f"Wrote to {city}.")
    return made


Run = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Opens the conversation as a process does, and runs the loop; returns the step and the conversation."""
    url = f"sqlite:///{tmp_path}/loop.db"
    with Store(url) as store:
        id_ = store.create_conversation(model="m", input="Weather?").id

    def go_on(model: Model | None, act: Callable[[Any], Any] = lambda _: None, **options: Any) -> str:
        with Store(url) as store:
            act(store.get_conversation(id_))
            if request.param == "sync":
                ask = None if model is None else model.ask
                return run_tools(store.get_conversation(id_), ask, "open_responses", tools=registry(), **options)

        async def loop() -> str:
            async with AsyncStore(url) as astore:
                talk = await astore.get_conversation(id_)
                ask = None if model is None else model.ask_async
                tools = registry(has_coroutines=True)
                return await run_tools_async(talk, ask, "open_responses", tools=tools, **options)

        return asyncio.run(loop())

    return go_on


def failures(folder: Path) -> dict[str, int]:
    """How many calls of each tool count as failed."""
    with Store(f"sqlite:///{folder}/loop.db") as store:
        return {str(row.name): row.failed for row in store.tool_usage()}


def test_calls_run_until_the_model_has_answered(run: Run) -> None:
    model = Model(calls("weather", "book"), says("Wet."))
    assert run(model) == "user"
    assert model.outputs() == ['{"rain":"Hull"}', "Booked Hull."]
    assert run(model) == "user"
    assert len(model.payloads) == 2


def test_what_needs_an_approval_waits_for_it_in_any_process(run: Run) -> None:
    model = Model(calls("weather", "book"), says("Booked."))
    assert run(model, needs_approval=["book"]) == "tools"
    assert run(model, needs_approval=lambda call: call.name == "book") == "tools"
    assert len(model.payloads) == 1
    assert run(model, lambda talk: talk.approve("call_book"), needs_approval=["book"]) == "user"
    assert model.outputs() == ['{"rain":"Hull"}', "Booked Hull."]


def test_a_name_in_the_form_of_a_provider_is_that_of_the_function_it_stands_for(run: Run) -> None:
    model = Model(calls("mail_send"), says("Sent."))
    for name in ("mail.send", "mail_send"):
        assert run(model, needs_approval=[name]) == "tools"
    assert run(model, lambda talk: talk.approve("call_mail_send"), needs_approval=["mail.send"]) == "user"
    assert model.outputs() == ["Wrote to Hull."]


@pytest.mark.parametrize(
    ("needs_approval", "text"),
    [
        ("book", r"collection of names, .* not 'book'. Write \{'book'\}."),
        (b"book", "collection of names"),
        (None, "collection of names"),
        ({"boook"}, "'boook'.* Did you mean 'book'\\? Known names: weather, book, mail.send."),
        (["book", "mail.sent"], "'mail.sent'.* Did you mean 'mail.send'"),
        ([["book"]], "not registered"),
        ([None], "not registered"),
    ],
)
def test_an_approval_that_would_never_be_asked_for_is_refused(run: Run, needs_approval: Any, text: str) -> None:
    with pytest.raises(InvalidOption, match=f"needs_approval .*{text}"):
        run(Model(calls("book")), needs_approval=needs_approval)


def test_what_is_denied_does_not_run(run: Run, tmp_path: Path) -> None:
    model = Model(calls("book"), says("Pity."))
    assert run(model, needs_approval=["book"]) == "tools"
    assert run(model, lambda talk: talk.deny("call_book", reason="Too dear."), needs_approval=["book"]) == "user"
    assert model.outputs() == ["Too dear."]
    assert failures(tmp_path) == {"book": 0}


def offer(*tools: Json) -> Callable[[Any], Any]:
    return lambda talk: talk.register_tools([{"type": "function", "name": "weather"}, *tools])


@pytest.mark.parametrize(
    "act",
    [
        lambda _: None,
        offer({"type": "function", "name": "dance"}),
        offer({"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "x"}]}, {"type": "computer"}),
        offer({"type": "tool_search"}),
    ],
    ids=["offered by the application", "offered", "may be of a computer", "may be found"],
)
def test_calls_of_functions_of_others_wait_for_them(run: Run, act: Callable[[Any], Any]) -> None:
    model = Model(calls("weather", "dance"))
    assert run(model, act) == "tools"


def test_the_model_reads_that_there_is_no_such_function(run: Run, tmp_path: Path) -> None:
    model = Model(calls("weather", "dance"), says("Sorry."))
    assert run(model, offer()) == "user"
    assert model.outputs() == ['{"rain":"Hull"}', "There is no tool named 'dance'."]
    assert failures(tmp_path) == {"weather": 0, "dance": 1}


def test_rounds_are_limited(run: Run) -> None:
    model = Model(*(calls("weather") for _ in range(5)))
    assert run(model, max_rounds=2) == "model"
    assert len(model.payloads) == 2
    with pytest.raises(InvalidOption, match="max_rounds"):
        run(model, max_rounds=0)


def test_calls_run_alone_where_the_caller_asks_the_model(run: Run) -> None:
    model = Model(calls("weather", "book"), says("It rains."))
    assert run(None) == "model"
    assert run(model, max_rounds=1) == "model"
    assert run(None) == "model"
    assert len(model.payloads) == 1
    assert run(model) == "user"
    assert model.outputs() == ['{"rain":"Hull"}', "Booked Hull."]


def test_an_error_of_the_provider_ends_the_loop_and_the_next_one_asks_again(run: Run) -> None:
    model = Model()
    with pytest.raises(IndexError):
        run(model)
    model.answers = [says("Sun.")]
    assert run(model) == "user"


def test_arguments_that_do_not_fit_are_told_to_the_model(run: Run, tmp_path: Path) -> None:
    model = Model(calls("weather", arguments="[1"), says("Sorry."))
    assert run(model) == "user"
    assert "argument" in model.outputs()[0].lower()
    assert failures(tmp_path) == {"weather": 1}
