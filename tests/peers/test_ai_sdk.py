"""UIMessages and streams by the AI SDK itself, fetched from npm: its validator, its conversion and its reader."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.formats import ui_samples as samples
from tests.formats.sdk_streams import events_of, has_events
from tests.formats.test_ui_messages import ANSWERS, ASKED, CHATS, NAME, WIRE
from tests.server.scripts import Scripted
from tests.server.servers import running
from tests.server.test_sdk_answers import SOURCES, answers
from tests.wires import SPOKEN
from threadkeep import AsyncStore, Session
from threadkeep.formats.ui_messages.chunks import part_chunks
from threadkeep.http import rest_app

Json = dict[str, Any]
SDK = "ai@7.0.173"
FORMER = "ai@6.0.326"
SCRIPT = """
import { readFileSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import { convertToModelMessages, readUIMessageStream, safeValidateUIMessages } from 'ai';
globalThis.AI_SDK_LOG_WARNINGS = false;
const given = JSON.parse(readFileSync(0, 'utf8')), found = { valid: {}, converted: {}, read: {} };
for (const [name, messages] of Object.entries(given.valid))
  found.valid[name] = (await safeValidateUIMessages({ messages })).success;
for (const [name, [before, after]] of Object.entries(given.converted)) {
  const [one, other] = await Promise.all([before, after].map(messages => convertToModelMessages(messages)));
  found.converted[name] = isDeepStrictEqual(one, other);
}
for (const [name, chunks] of Object.entries(given.read)) {
  let last;
  const stream = new ReadableStream({ start(to) { chunks.forEach(one => to.enqueue(one)); to.close(); } });
  for await (const message of readUIMessageStream({ stream })) last = message;
  found.read[name] = last;
}
process.stdout.write(JSON.stringify(found));
"""
REFUSED = """
import { readFileSync } from 'node:fs';
import { uiMessageChunkSchema } from 'ai';
const refused = new Set();
for (const chunk of JSON.parse(readFileSync(0, 'utf8')))
  if (!(await uiMessageChunkSchema().validate(chunk)).success) refused.add(chunk.type);
process.stdout.write(JSON.stringify([...refused]));
"""


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package is."""
    return installed(tmp_path_factory.mktemp("ai"), SDK, SCRIPT)


def installed(folder: Path, package: str, script: str) -> Path:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    npm = ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(folder), package]
    subprocess.run(npm, check=True, timeout=300)
    (folder / "check.mjs").write_text(script)
    return folder


def ask(sdk: Path, **given: Json) -> Json:
    """What the package says of them."""
    asked = json.dumps({"valid": {}, "converted": {}, "read": {}, **given})
    node = ["node", "--no-warnings", str(sdk / "check.mjs")]
    found: Json = json.loads(subprocess.run(node, input=asked, capture_output=True, text=True, check=True).stdout)
    return found


def rendered(messages: list[Json]) -> Any:
    return WIRE.parse_request(messages).request_payload(NAME)["messages"]


def test_the_sdk_validates_what_it_validated_before_and_converts_it_to_the_same(sdk: Path) -> None:
    known = {name: messages for name, messages in CHATS.items() if not name.startswith("strange")}
    before = ask(sdk, valid=known)["valid"]
    assert [name for name, is_valid in before.items() if not is_valid] == ["empty", "part 56", "part 57", "all parts"]
    after = ask(sdk, valid={name: rendered(messages) for name, messages in known.items()})["valid"]
    assert after == before
    pairs = {name: [messages, rendered(messages)] for name, messages in known.items() if before[name]}
    assert all(ask(sdk, converted=pairs)["converted"].values())


def test_the_sdk_validates_conversations_of_other_origin(sdk: Path) -> None:
    chats: Json = {}
    for origin, (body, _) in ANSWERS.items():
        session = Session(model="m", input="Weather?")
        session.add_response(body, origin)
        session.add_function_call_output("c1", '{"degrees": 4}')
        session.user([{"type": "input_image", "image_url": samples.PNG}, "And this?"])
        chats[origin] = session.request_payload(NAME)["messages"]
    assert ask(sdk, valid=chats)["valid"] == dict.fromkeys(chats, True)


@pytest.mark.parametrize("format_name", SPOKEN)
def test_the_reader_of_the_sdk_makes_what_is_stored_of_every_answer_that_the_sdks_have(
    sdk: Path, tmp_path: Path, format_name: Any
) -> None:
    found = [one for source in SOURCES for one in answers(source) if one[1].format_name == format_name]
    bodies = [(label, body) for label, _, body in found if has_events(body, format_name)]
    model, store = Scripted(format_name), AsyncStore(f"sqlite:///{tmp_path}/chats.db")
    chunks: Json = {}
    stored: Json = {}
    with running(rest_app(store, upstreams={"m": model.upstream}), store) as address:
        for number, (label, body) in enumerate(bodies):
            name, url = f"{number} {label}"[:200], f"{address}/api/chat"
            model.scripts = [events_of(body, format_name)]
            sent = httpx2.post(url, json={"id": f"chat-{number}", "messages": [ASKED]}).raise_for_status()
            *lines, _ = sent.text.strip().split("\n\n")
            chunks[name] = [json.loads(line.removeprefix("data: ")) for line in lines]
            stored[name] = httpx2.get(f"{url}/chat-{number}").raise_for_status().json()["messages"]
    read = ask(sdk, read=chunks, valid=stored)
    assert chunks != {}
    assert [name for name, is_valid in read["valid"].items() if not is_valid] == []
    for message in read["read"].values():
        message["parts"] = message["parts"] or [samples.STEP]  # which it tells with the first part behind it
    assert [(name, read["read"][name], one[1]) for name, one in stored.items() if read["read"][name] != one[1]] == []


HOSTED: list[Json] = [
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "Kiel"}},
    {"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "1", "container_id": "c",
     "outputs": None},
    {"type": "file_search_call", "id": "fs_1", "status": "failed", "queries": ["Kiel"], "results": None},
    {"type": "mcp_call", "id": "mcp_1", "name": "look", "server_label": "sky", "arguments": "{}", "output": "rain"},
    {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": samples.PNG.partition(",")[2]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Rain.", "annotations": [
        {"type": "url_citation", "start_index": 0, "end_index": 4, "url": "https://example.org", "title": "T"},
        {"type": "file_citation", "file_id": "file_1", "filename": "a.txt", "index": 3},
        {"type": "file_path", "file_id": "file_2", "index": 4}]}]},
]  # fmt: skip


def test_the_sdk_validates_and_converts_what_providers_run_find_and_draw(sdk: Path) -> None:
    session = Session(model="m", input="Weather?")
    session.add_response({"object": "response", "status": "completed", "output": HOSTED}, "open_responses")
    messages = session.request_payload(NAME)["messages"]
    assert [part["type"] for part in messages[1]["parts"]] == [
        "step-start", "tool-web_search", "tool-code_interpreter", "tool-file_search", "dynamic-tool", "file", "text",
        "source-url", "source-document", "source-document",
    ]  # fmt: skip
    found = ask(sdk, valid={"one": messages}, converted={"one": [messages, rendered(messages)]})
    assert (found["valid"], found["converted"]) == ({"one": True}, {"one": True})
    chunks = [{"type": "start", "messageId": messages[1]["id"]}, *part_chunks(messages[1]["parts"])]
    read = ask(sdk, read={"one": chunks})["read"]["one"]
    assert read["parts"] == messages[1]["parts"]


def test_the_reader_of_the_sdk_makes_the_message_of_its_chunks_that_the_assembler_makes(sdk: Path) -> None:
    streams: Json = {}
    for number, part in enumerate(samples.ASSISTANT_PARTS):
        if part["type"] != "step-start" and "filename" not in part:  # which the reader drops of files
            streams[str(number)] = [{"type": "start", "messageId": "a1"}, *part_chunks([part])]
    streams["steps"] = [
        {"type": "start", "messageId": "a1", "messageMetadata": {"a": {"b": 1}}}, {"type": "start-step"},
        {"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "Lost."}, {"type": "reset-step"},
        {"type": "tool-input-start", "toolCallId": "c", "toolName": "f"},
        {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": '{"a": "b'},
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "f", "input": {"a": "bc"}},
        {"type": "tool-approval-request", "toolCallId": "c", "approvalId": "ap", "signature": "s"},
        {"type": "finish-step"}, {"type": "start-step"},
        {"type": "tool-approval-response", "approvalId": "ap", "approved": True},
        {"type": "tool-output-available", "toolCallId": "c", "output": 1, "preliminary": True},
        {"type": "data-x", "id": "d", "data": 1}, {"type": "data-x", "id": "d", "data": 2},
        {"type": "data-x", "data": 3, "transient": True},
        {"type": "message-metadata", "messageMetadata": {"a": {"c": 2}}},
        {"type": "finish", "finishReason": "stop"},
    ]  # fmt: skip
    read = ask(sdk, read=streams)["read"]
    for name, chunks in streams.items():
        assembler = WIRE.assembler()
        for chunk in chunks:
            assembler.feed(chunk)
        assert read[name] == assembler.body, name


def test_a_message_of_the_page_is_the_one_that_it_asked_about(sdk: Path) -> None:
    answer = samples.assistant(samples.STEP, samples.TEXTS[2], samples.STEP, samples.WEATHER)
    chunks = [{"type": "start", "messageId": "a1"}, *part_chunks(answer["parts"])]
    assert ask(sdk, read={"one": chunks})["read"]["one"] == answer
    assert ask(sdk, valid={"one": [ASKED, answer]})["valid"]["one"]


def test_the_former_version_takes_the_chunks_of_all_parts_but_of_decided_calls_that_have_not_run(
    tmp_path: Path,
) -> None:
    folder = installed(tmp_path, FORMER, REFUSED)

    def refused(parts: list[Json]) -> Any:
        node = ["node", "--no-warnings", str(folder / "check.mjs")]
        given = json.dumps([*part_chunks(parts)])
        return json.loads(subprocess.run(node, input=given, capture_output=True, text=True, check=True).stdout)

    later = ("approval-responded", "custom", "reasoning-file", "steering-message")
    parts = [part for part in samples.ASSISTANT_PARTS if not {part["type"], part.get("state")} & {*later}]
    assert {part.get("state") for part in parts} > {"output-available", "output-denied", "approval-requested"}
    assert refused(parts) == []
    decided = [part for part in samples.ASSISTANT_PARTS if part.get("state") == "approval-responded"]
    assert refused(decided) == ["tool-approval-response"]
