"""Calls as coding agents make them: which conversations there are then, and what they are labelled with."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from sqlalchemy import Engine, event

from tests.databases import Database
from tests.server.recorder.conftest import Recorded, recorder, said
from tests.server.recorder.provider import failure, whole

ROOT, AGENT, FORK = (f"0f8fad5b-d9cb-469f-a165-70867728950{digit}" for digit in "abc")
PATHS = {
    "open_responses": "v1/responses", "messages": "v1/messages", "chat_completion": "v1/chat/completions",
    "gemini": "v1beta/models/gemini-3-pro:generateContent",
}  # fmt: skip


def body(format_: str, history: list[str], system: str = "Be an agent.", tools: bool = True) -> dict[str, Any]:
    """A request with texts of the user and the assistant by turns."""
    roles = [("user", "assistant")[number % 2] for number in range(len(history))]
    messages: list[Any] = [{"role": role, "content": text} for role, text in zip(roles, history, strict=True)]
    schema = {"type": "object", "properties": {}}
    match format_:
        case "open_responses":
            tool: Any = {"type": "function", "name": "look", "parameters": schema}
            items = [{"type": "message", **one} for one in ({"role": "developer", "content": system}, *messages)]
            return {"model": "gpt-5.4", "input": items, "store": False, "tools": [tool] if tools else []}
        case "messages":
            own = {"tools": [{"name": "look", "input_schema": schema}]} if tools else {}
            return {"model": "claude-sonnet-5", "max_tokens": 9, "system": system, "messages": messages, **own}
        case "chat_completion":
            own = {"tools": [{"type": "function", "function": {"name": "look", "parameters": schema}}]} if tools else {}
            return {"model": "gpt-5.4", "messages": [{"role": "system", "content": system}, *messages], **own}
        case _:
            declared = [{"functionDeclarations": [{"name": "look", "parametersJsonSchema": schema}]}]
            contents = [
                {"role": "model" if role == "assistant" else "user", "parts": [{"text": text}]}
                for role, text in zip(roles, history, strict=True)
            ]
            instruction = {"systemInstruction": {"parts": [{"text": system}]}}
            return {"contents": contents, **instruction, **({"tools": declared} if tools else {})}


def call(recorded: Recorded, format_: str, request: dict[str, Any], headers: dict[str, str], answer: str) -> None:
    recorded.provider.says(whole(format_, answer))
    url = f"{recorded.url}/{PATHS[format_]}"
    assert httpx2.post(url, json=request, headers=headers).status_code == 200


def codex(thread: str, session: str = ROOT, parent: str = "", **turn: str) -> dict[str, str]:
    """The headers of Codex 0.171.0 that say where a call belongs."""
    started = {"x-codex-parent-thread-id": parent, "x-openai-subagent": "collab_spawn"} if parent else {}
    metadata = {"session_id": session, "thread_id": thread, "request_kind": "turn", "turn_id": "t", **turn}
    ids = {"session-id": session, "thread-id": thread, "x-client-request-id": thread}
    return {**ids, **started, "x-codex-turn-metadata": json.dumps(metadata)}


def opencode(session: str, parent: str = "") -> dict[str, str]:
    """The headers of opencode 1.18.33."""
    return {"x-session-id": session, "x-session-affinity": session} | (
        {"x-parent-session-id": parent} if parent else {}
    )


CLAUDE = {"x-claude-code-session-id": ROOT}
Step = tuple[dict[str, str], str, dict[str, Any], str]  # headers, format, request, answer
RESPONSES, CHAT = "open_responses", "chat_completion"


def step(headers: dict[str, str], format_: str, *texts: str, **more: Any) -> Step:
    """A call with a history, of which the last text is the answer."""
    return headers, format_, body(format_, list(texts[:-1]), **more), texts[-1]


# what is called -> the calls, and the conversations: id, labels but for `recorded`, and what is said
SESSIONS: dict[str, tuple[list[Step], list[tuple[str, dict[str, str], list[str]]]]] = {
    "codex with an agent": (
        [
            step(codex(ROOT), RESPONSES, "Build it", "One."),
            step(codex(AGENT, parent=ROOT), RESPONSES, "Look around", "Two."),
            step(codex(ROOT), RESPONSES, "Build it", "One.", "Go on", "Three."),
            step(codex(AGENT, parent=ROOT), RESPONSES, "Look around", "Two.", "More", "Four."),
        ],
        [
            (f"codex:{ROOT}", {}, ["Build it", "One.", "Go on", "Three."]),
            (f"codex:{AGENT}", {"agent": AGENT, "parent": f"codex:{ROOT}"}, ["Look around", "Two.", "More", "Four."]),
        ],
    ),
    "codex with a fork": (
        [
            step(codex(ROOT), RESPONSES, "Build it", "One."),
            step(codex(FORK, FORK, forked_from_thread_id=ROOT), RESPONSES, "Build it", "One.", "Differently", "Two."),
            step(codex(ROOT), RESPONSES, "Build it", "One.", "Go on", "Three."),
        ],
        [
            (f"codex:{ROOT}", {}, ["Build it", "One.", "Go on", "Three."]),
            (f"codex:{FORK}", {"forked-from": f"codex:{ROOT}"}, ["Build it", "One.", "Differently", "Two."]),
        ],
    ),
    "codex with a compaction": (
        [
            step(codex(ROOT), RESPONSES, "Build it", "One."),
            step(codex(ROOT, request_kind="compaction"), RESPONSES, "Build it", "One.", "Sum up", "It was built."),
        ],
        [
            (f"codex:{ROOT}", {}, ["Build it", "One."]),
            (
                f"codex:{ROOT}#compaction", {"request-class": "compaction", "parent": f"codex:{ROOT}"},
                ["Build it", "One.", "Sum up", "It was built."],
            ),
        ],
    ),
    "opencode, whose first call is for a title": (
        [
            step(opencode("ses_1"), CHAT, "Build it", "Building", system="Make a title.", tools=False),
            step(opencode("ses_1"), CHAT, "Build it", "One."),
            step(opencode("ses_1"), CHAT, "Build it", "One.", "Go on", "Three."),
            step(opencode("ses_1"), CHAT, "Build it, and go on.", "It was built.", system="Sum up.", tools=False),
            step(opencode("ses_1"), CHAT, "Build it", "One.", "Go on", "Three.", "On", "Four.", tools=False),
        ],
        [
            (
                "opencode:ses_1#auxiliary", {"request-class": "auxiliary", "parent": "opencode:ses_1"},
                ["Build it, and go on.", "It was built."],
            ),
            ("opencode:ses_1", {}, ["Build it", "One.", "Go on", "Three.", "On", "Four."]),
        ],
    ),
    "claude code, which asks for a quota and a title meanwhile": (
        [
            step(CLAUDE, "messages", "quota", "1", system="", tools=False),
            step(CLAUDE, "messages", "Build it", "One."),
            step(CLAUDE, "messages", "Build it", "Building", system="Make a title.", tools=False),
            step(CLAUDE, "messages", "Build it", "One.", "Go on", "Three."),
        ],
        [
            (
                f"claude-code:{ROOT}#auxiliary", {"request-class": "auxiliary", "parent": f"claude-code:{ROOT}"},
                ["Build it", "Building"],
            ),
            (f"claude-code:{ROOT}", {}, ["Build it", "One.", "Go on", "Three."]),
        ],
    ),
    "opencode with an agent, over three formats": (
        [
            step(opencode("ses_1"), "messages", "Build it", "One."),
            step(opencode("ses_2", "ses_1"), CHAT, "Look around", "Two."),
            step(opencode("ses_1"), CHAT, "Build it", "One.", "Go on", "Three."),
            step(opencode("ses_1"), "gemini", "Build it", "One.", "Go on", "Three.", "On", "Four."),
        ],
        [
            ("opencode:ses_1", {}, ["Build it", "One.", "Go on", "Three.", "On", "Four."]),
            ("opencode:ses_2", {"agent": "ses_2", "parent": "opencode:ses_1"}, ["Look around", "Two."]),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SESSIONS)
@pytest.mark.parametrize("spool", [False, True], ids=["passing", "spooled"])
def test_calls_of_agents(database: Database, tmp_path: Any, name: str, *, spool: bool) -> None:
    steps, expected = SESSIONS[name]
    with recorder(database, spool=tmp_path if spool else None) as recorded:
        for number, (headers, format_, request, answer) in enumerate(steps, 1):
            call(recorded, format_, request, headers, answer)
            recorded.wait_for(number)
        for conversation, (external_id, labels, lines) in zip(recorded.conversations(), expected, strict=True):
            assert conversation.external_id == external_id
            assert conversation.labels == {"recorded": "provider", **labels}
            shown = [line for line in said(conversation) if not line.startswith(("system", "developer"))]
            assert [line.partition(": ")[2] for line in shown] == lines
            is_aside = "request-class" in labels
            assert conversation.status == ("archived" if is_aside else "active")
            assert is_aside or [branch.number for branch in conversation.branches()] == [0]
        assert sum(one.usage().attempts for one in recorded.conversations()) == len(steps)


def test_a_router_without_a_header_is_beside_what_it_is_asked_about(recorded: Recorded) -> None:
    """As Gemini CLI has it: before each turn a model is asked which one shall take it, with the history of that."""
    json_of = {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": {"type": "object"}}}
    history: list[str] = []
    for number, question in enumerate(("Build it", "Go on"), 1):
        history.append(question)
        routed = body("gemini", history, system="Choose a model.", tools=False)
        call(recorded, "gemini", {**routed, **json_of}, {}, '{"model": 1}')
        recorded.wait_for(2 * number - 1)
        call(recorded, "gemini", body("gemini", history), {}, f"Done {number}.")
        recorded.wait_for(2 * number)
        history.append(f"Done {number}.")
    router, conversation = recorded.conversations()
    assert said(conversation) == ["user: Build it", "assistant: Done 1.", "user: Go on", "assistant: Done 2."]
    assert [branch.number for branch in conversation.branches()] == [0]
    assert (router.status, router.labels["parent"]) == ("archived", conversation.id)
    assert [one.usage().attempts for one in (router, conversation)] == [2, 2]


def test_an_agent_that_remembers_something_is_beside_the_history_that_it_reads(recorded: Recorded) -> None:
    """As qwen-code has it, without a header: with other instructions and some of the tools, on and on."""
    both = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("look", "write")]
    history = ["Build it"]
    for number, (asked, answer) in enumerate((("", "Done."), ("Remember?", "Yes."), ("What?", "It."), ("", "More."))):
        is_memory = number in (1, 2)
        request = body(CHAT, [*history, *([asked] if asked else [])], "Remember things." if is_memory else "Build.")
        request["tools"] = both[:1] if is_memory else both
        call(recorded, CHAT, request, {}, answer)
        recorded.wait_for(number + 1)
        history = {0: ["Build it", "Done."], 1: ["Build it", "Done.", "Remember?", "Yes."]}.get(
            number, ["Build it", "Done.", "Go on"]
        )
    conversation, memory = recorded.conversations()
    lines = [line.partition(": ")[2] for line in said(conversation)]
    assert lines == ["Build it", "Done.", "Go on", "More."]
    assert [line.partition(": ")[2] for line in said(memory)][-3:] == ["Yes.", "What?", "It."]
    assert (memory.status, memory.labels["parent"]) == ("archived", conversation.id)
    assert [one.usage().attempts for one in (conversation, memory)] == [2, 2]


def test_side_calls_are_looked_for_in_one_statement_where_there_are_none(recorded: Recorded) -> None:
    """At each call, for summaries that they may have been asked for; those of the first call are not counted."""
    history = ["Build it"]
    statements: list[list[str]] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        statements[-1].append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        for number in range(3):
            statements.append([])
            call(recorded, CHAT, body(CHAT, history), opencode("ses_1"), f"Done {number}.")
            recorded.wait_for(number + 1)
            history += [f"Done {number}.", "Go on"]
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    looked_for = [sum("'parent'" in one or "_labels" in one for one in some) for some in statements]
    assert looked_for[1:] == [1, 1]


def test_leading_messages_are_those_of_the_latest_request(recorded: Recorded) -> None:
    """Also in a history that begins anew, on a branch."""
    for number, (texts, system) in enumerate(((["Hi"], "Old."), (["Hi", "Fine.", "On"], "New."), (["Sum"], "Newest."))):
        call(recorded, RESPONSES, body(RESPONSES, texts, system), codex(ROOT), "Fine.")
        recorded.wait_for(number + 1)
        [conversation] = recorded.conversations()
        assert said(conversation) == [
            f"{('user', 'assistant')[at % 2]}: {text}" for at, text in enumerate([*texts, "Fine."])
        ]
        assert conversation.request_payload("open_responses")["instructions"] == system
        assert conversation.request_payload("chat_completion")["messages"][0]["content"] == system


def test_a_compacted_history_goes_on_in_its_conversation(recorded: Recorded) -> None:
    """As Codex sends it: what the user said, the compaction, and what is new; then the same again, with more."""
    asked, compaction = ["One?", "Two?"], {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}
    context = {"type": "message", "role": "developer", "content": "The skills."}
    for number, texts in enumerate((asked[:1], ["One?", "Fine.", "Two?"], ["Three?"], ["Three?", "Fine.", "Four?"])):
        request = body(RESPONSES, texts)
        if number > 1:
            said_before = body(RESPONSES, [])["input"] + [
                {"type": "message", "role": "user", "content": text} for text in asked
            ]
            request["input"] = [*said_before, context, compaction, *request["input"][1:]]
        call(recorded, RESPONSES, request, codex(ROOT), "Fine.")
        recorded.wait_for(number + 1)
    [conversation] = recorded.conversations()
    assert [branch.number for branch in conversation.branches()] == [0]
    assert said(conversation) == [
        "user: One?", "assistant: Fine.", "user: Two?", "assistant: Fine.", "compaction",
        "user: Three?", "assistant: Fine.", "user: Four?", "assistant: Fine.",
    ]  # fmt: skip
    sent = [item.get("content") or item["type"] for item in conversation.request_payload("open_responses")["input"]]
    assert [one if isinstance(one, str) else one[0]["text"] for one in sent] == [
        "One?", "Two?", "compaction", "Three?", "Fine.", "Four?", "Fine.",
    ]  # fmt: skip


def test_a_foreign_compaction_begins_a_branch(recorded: Recorded) -> None:
    compaction = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}
    call(recorded, RESPONSES, body(RESPONSES, ["One?"]), codex(ROOT), "Fine.")
    recorded.wait_for(1)
    request = body(RESPONSES, ["Of another?"])
    request["input"].append(compaction)
    call(recorded, RESPONSES, request, codex(ROOT), "Good.")
    recorded.wait_for(2)
    [conversation] = recorded.conversations()
    assert said(conversation) == ["user: Of another?", "compaction", "assistant: Good."]
    assert [branch.number for branch in conversation.branches()] == [0, 1]


def test_examples_are_no_evidence(recorded: Recorded) -> None:
    """As aider has them: all of its sessions begin with the same turns, of which no provider has answered any."""
    examples = ["Change this", "Changed.", "Now to work.", "Ok."]
    for number, question in enumerate(("One?", "Two?")):
        call(recorded, CHAT, body(CHAT, [*examples, question]), {}, f"On {question}")
        call(recorded, CHAT, body(CHAT, [*examples, question, f"On {question}", "More?"]), {}, "Fine.")
        recorded.wait_for(2 * number + 2)
    lines = [[line.partition(": ")[2] for line in said(one)][-4:] for one in recorded.conversations()]
    assert lines == [["One?", "On One?", "More?", "Fine."], ["Two?", "On Two?", "More?", "Fine."]]


@pytest.mark.parametrize("answer", ["It rains in the north, and the sun shines in the south.", "It rains."])
def test_a_history_whose_turns_stand_elsewhere_goes_on_with_its_answer(recorded: Recorded, answer: str) -> None:
    """As aider restores it: behind its examples, with the thoughts in the answer; short answers are no evidence."""
    steps = [
        ["Change this", "Changed.", "No files.", "Ok.", "Weather? Answer in a code block."],
        ["Change this", "Changed.", "Weather?", f"Thought.\n{answer}", "No files.", "Ok.", "Why?"],
    ]
    for number, history in enumerate(steps):
        call(recorded, CHAT, body(CHAT, history), {}, (answer, "Wind.")[number])
        recorded.wait_for(number + 1)
    conversations = recorded.conversations()
    assert len(conversations) == (1 if len(answer) > 9 else 2)
    shown = [line.partition(": ")[2] for line in said(conversations[-1])]
    assert shown == [*steps[1], "Wind."]


def test_reminders_are_nobodys_words(recorded: Recorded) -> None:
    """A session that goes on without them, or with other ones, is the same; previews are without."""
    answers, history = [failure(500, "No."), *[whole("messages", "Fine.") for _ in range(3)]], ["Weather?"]
    for number, reminders in enumerate((["Be quick.", "It is late."], ["Be quick.", "It is late."], ["Later."], [])):
        request = body("messages", history)
        blocks = [f"<system-reminder>\n{text}\n</system-reminder>\n" for text in reminders]
        request["messages"][0]["content"] = [{"type": "text", "text": text} for text in (*blocks, "Weather?")]
        recorded.provider.says(answers[number])
        httpx2.post(f"{recorded.url}/v1/messages", json=request)
        recorded.wait_for(number + 1)
        assert [one.preview for one in recorded.store.list_summaries()] == ["Fine." if number else "Weather?"]
        history += ["Fine.", f"On {number}"] if number else []
    [conversation] = recorded.conversations()
    assert [branch.number for branch in conversation.branches()] == [0]
    assert [line.partition(": ")[2] for line in said(conversation)][1:] == ["Fine.", "On 1", "Fine.", "On 2", "Fine."]


def test_a_summary_goes_on_in_its_conversation(recorded: Recorded) -> None:
    """As Claude Code sends it: the model sums up, and the next history begins with a message that has this."""
    summary = "The user asked about the weather, and was told of rain."
    first = ["Weather?", "Rain."]
    anew = [f"This goes on from before: {summary}", "Rain.", "And now?"]
    steps = [
        (first[:1], "Rain."),
        ([*first, "Sum up."], f"<analysis>…</analysis><summary>\n{summary}\n</summary>"),
        (anew, "Sun."),
        ([*anew, "Sun.", "Thanks."], "Bye."),
    ]
    for number, (history, answer) in enumerate(steps):
        call(recorded, "messages", body("messages", history), CLAUDE, answer)
        recorded.wait_for(number + 1)
    [conversation] = recorded.conversations()
    assert [branch.number for branch in conversation.branches()] == [0]
    assert said(conversation)[4:] == [
        "compaction", "assistant: Rain.", "user: And now?", "assistant: Sun.", "user: Thanks.", "assistant: Bye.",
    ]  # fmt: skip
    sent = json.dumps(conversation.request_payload("messages")["messages"])
    assert summary in sent
    assert "Sum up." not in sent


SUMMARY = "The user asked about the weather, and was told of rain."
# as Claude Code asks for it, with the tools and instructions of its session: a long text that names a block
ASKED = f"{'Tell everything that was said. ' * 50}Answer with a <summary> block, as <summary>…</summary>."


def test_a_long_message_that_wants_a_summary_is_a_side_call(recorded: Recorded) -> None:
    """Also where nothing else tells it from a turn; what was said before the summary may be kept behind it."""
    anew = [f"This goes on from before: {SUMMARY}", "Rain.", "And now?"]
    for number, (history, answer) in enumerate(
        (
            (["Weather?"], "Rain."),
            (["Weather?", "Rain.", ASKED], f"<analysis>…</analysis><summary>\n{SUMMARY}\n</summary>"),
            (anew, "Sun."),
            ([*anew, "Sun.", "Thanks."], "Bye."),
        )
    ):
        call(recorded, "messages", body("messages", history), CLAUDE, answer)
        recorded.wait_for(number + 1)
    conversation, aside = recorded.conversations()
    assert (aside.status, aside.external_id) == ("archived", f"claude-code:{ROOT}#compaction")
    assert [one.usage().attempts for one in (conversation, aside)] == [3, 1]
    assert [branch.number for branch in conversation.branches()] == [0]
    assert said(conversation) == [
        "user: Weather?", "assistant: Rain.", "compaction", "assistant: Rain.", "user: And now?", "assistant: Sun.",
        "user: Thanks.", "assistant: Bye.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "typed",
    ["What is <summary> for?", f"{'A log. ' * 200}<details><summary>More</summary>…</details>", ASKED],
    ids=["short", "closed", "one that goes on"],
)
def test_what_is_typed_about_summaries_stays_in_its_conversation(recorded: Recorded, typed: str) -> None:
    history = ["Weather?"]
    for number, text in enumerate(("Rain.", "It is a tag of HTML.", "Bye.")):
        call(recorded, "messages", body("messages", history), CLAUDE, text)
        recorded.wait_for(number + 1)
        history += [text, (typed, "Thanks.", "")[number]]
    conversation = recorded.conversations()[0]
    assert [line.partition(": ")[2] for line in said(conversation)] == history[:-1]
    assert sum(one.usage().attempts for one in recorded.conversations()) == 3


@pytest.mark.parametrize(
    ("headers", "aside", "anew"),
    [
        (codex(ROOT), codex(ROOT, request_kind="compaction"), ["Weather?", "Fine.", f"Another model said: {SUMMARY}"]),
        (opencode("ses_1"), opencode("ses_1"), ["What did we do so far?", SUMMARY, "Continue."]),
    ],
    ids=["codex", "opencode"],
)
def test_a_summary_of_a_side_call_goes_on_in_its_conversation(
    recorded: Recorded, headers: dict[str, str], aside: dict[str, str], anew: list[str]
) -> None:
    steps = [
        (headers, body(CHAT, ["Weather?"]), "Rain."),
        (aside, body(CHAT, ["The weather; rain. Sum up."], system="Sum up.", tools=False), SUMMARY),
        (headers, body(CHAT, anew), "Sun."),
        (headers, body(CHAT, [*anew, "Sun.", "Thanks."]), "Bye."),
    ]
    for number, (sent, request, answer) in enumerate(steps):
        call(recorded, CHAT, request, sent, answer)
        recorded.wait_for(number + 1)
    conversation, beside = recorded.conversations()
    assert (beside.status, said(beside)[-1]) == ("archived", f"assistant: {SUMMARY}")
    assert [branch.number for branch in conversation.branches()] == [0]
    assert said(conversation)[1:3] == ["assistant: Rain.", "compaction"]
    assert said(conversation)[-3:] == ["assistant: Sun.", "user: Thanks.", "assistant: Bye."]
    shown = json.dumps(conversation.request_payload("chat_completion")["messages"])
    assert ("Weather?" in shown) is ("thread-id" in headers)  # Codex sends again what the user said, opencode does not


def test_a_summary_of_a_session_without_a_name_goes_on_in_its_conversation(recorded: Recorded) -> None:
    """As qwen-code and Gemini CLI have it: asked for with instructions that show its block, and nothing is kept."""
    asking = "Reason first.\n<state_snapshot>\n  <goal>…</goal>\n</state_snapshot>"
    snapshot = f"<state_snapshot>{SUMMARY}</state_snapshot>"
    anew = [f"{snapshot}\n\nResume the task.", "Got it.", "And now?"]
    first = ["Weather?", "Rain."]
    asked = [*first, "Then, produce the <state_snapshot> XML."]
    steps = [
        (body(CHAT, first[:1]), "Rain."),
        (body(CHAT, asked, system=asking, tools=False), snapshot),
        (body(CHAT, anew), "Sun."),
        (body(CHAT, [*anew, "Sun.", "Thanks."]), "Bye."),
    ]
    last = steps[-1][0]["messages"][1]
    last["content"] = [
        {"type": "text", "text": text} for text in ("<system-reminder>It is late.</system-reminder>", anew[0])
    ]
    for number, (request, answer) in enumerate(steps):
        call(recorded, CHAT, request, {}, answer)
        recorded.wait_for(number + 1)
    conversations = {one.status: one for one in recorded.conversations()}
    conversation, beside = conversations["active"], conversations["archived"]
    assert len(recorded.conversations()) == 2
    assert (beside.labels["request-class"], said(beside)[-1]) == ("compaction", f"assistant: {snapshot}")
    assert [branch.number for branch in conversation.branches()] == [0]
    assert said(conversation) == [
        "user: Weather?", "assistant: Rain.", "compaction", "assistant: Got it.", "user: And now?", "assistant: Sun.",
        "user: Thanks.", "assistant: Bye.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "format_"), [({"session_id": ROOT}, RESPONSES), ({}, "messages"), ({}, CHAT)], ids=["named", "", "chat"]
)
@pytest.mark.parametrize("kept", [2, 4], ids=["the end is kept", "all is kept"])
def test_a_summary_may_come_before_what_is_kept(
    recorded: Recorded, headers: dict[str, str], format_: Any, kept: int
) -> None:
    """As pi has it: the summary is asked for without a header, and begins a history with the end of what is stored."""
    first = ["Weather?", "Rain.", "Wind?", "Calm."]
    anew = [f"What was said before:\n<summary>\n{SUMMARY}\n</summary>", *first[4 - kept :], "And now?"]
    steps = [
        (headers, body(format_, first[:1]), "Rain."),
        (headers, body(format_, first[:3]), "Calm."),
        ({}, body(format_, ["<conversation>Weather</conversation>"], system="Sum up.", tools=False), SUMMARY),
        (headers, together(body(format_, [*anew[1:]]), anew[0]), "Sun."),
        (headers, together(body(format_, [*anew[1:], "Sun.", "Thanks."]), anew[0]), "Bye."),
    ]
    for number, (sent, request, answer) in enumerate(steps):
        call(recorded, format_, request, sent, answer)
        recorded.wait_for(number + 1)
    conversations = {one.status: one for one in recorded.conversations()}
    conversation, beside = conversations["active"], conversations["archived"]
    assert len(recorded.conversations()) == 2
    assert said(beside)[-1] == f"assistant: {SUMMARY}"
    assert beside.labels["parent"] == (f"pi:{ROOT}" if headers else conversation.id)
    assert [branch.number for branch in conversation.branches()] == [0]
    texts = [line.partition(": ")[2] or line for line in said(conversation)]
    assert texts == [*first, "compaction", "And now?", "Sun.", "Thanks.", "Bye."]
    contents = [
        str(one["content"])
        for one in conversation.request_payload("chat_completion")["messages"]
        if one["role"] != "system"
    ]
    shown = [SUMMARY, *first[4 - kept :], "And now?", "Sun.", "Thanks.", "Bye."]
    assert [text in one for text, one in zip(shown, contents[: len(shown)], strict=True)] == [True] * len(shown)


def together(request: dict[str, Any], text: str) -> dict[str, Any]:
    """A request with another message of the user before its history."""
    history = request.get("messages") or request["input"]
    place = 1 if history[0]["role"] in ("system", "developer") else 0
    history.insert(place, {**history[place], "role": "user", "content": text})
    return request


def test_an_answer_that_is_quoted_later_is_no_summary(recorded: Recorded) -> None:
    for number, history in enumerate((["Hi"], ["Hi", "Fine.", "Weather?"], ["Hi", "No.", f"You said: {SUMMARY}"])):
        call(recorded, "messages", body("messages", history), CLAUDE, SUMMARY if number == 1 else "Fine.")
        recorded.wait_for(number + 1)
    [conversation] = recorded.conversations()
    assert "compaction" not in said(conversation)
    assert len([*conversation.branches()]) == 2
