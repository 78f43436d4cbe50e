#!/usr/bin/env bash
# What agent-framework makes of an answer of Anthropic with a web search, which the service runs within the answer, and
# sends back with the next question after a resume from its FileHistoryProvider:
# - the search is a call of a tool of the client's, with the id srvtoolu_1, and its results are an output of the client in a
#   user message, whose text is how Python prints the SDK's objects: [BetaWebSearchResultBlock(encrypted_content=...)];
# - so one answer becomes three turns, and what Anthropic asks to get back unchanged is a text of the client's;
# - streamed, the call has no query any more;
# - redacted thinking and the citation are in no request.
# agno, with its SqliteDb, sends each block back as it came, in one turn, plainly and streamed. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for name in framework agno; do
    python3 -m venv "$folder/$name"
done
"$folder/framework/bin/pip" install --quiet --disable-pip-version-check agent-framework-core==1.23.0 \
    agent-framework-anthropic==1.0.0b261022 anthropic==1.17.0 2>/dev/null
"$folder/agno/bin/pip" install --quiet --disable-pip-version-check agno==3.1.10 anthropic==2.14.0 sqlalchemy==2.0.51 2>/dev/null
cat > "$folder/service.py" <<'PYTHON'
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

USAGE = {"input_tokens": 9, "output_tokens": 9}
HEAD = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "stop_sequence": None}
SOURCE = {"url": "https://example.com", "title": "Weather"}
CITATION = {"type": "web_search_result_location", **SOURCE, "encrypted_index": "index", "cited_text": "It rains."}
HIT = {"type": "web_search_result", **SOURCE, "encrypted_content": "encrypted", "page_age": None}
BLOCKS = [
    {"type": "thinking", "thinking": "Hm.", "signature": "signature"},
    {"type": "redacted_thinking", "data": "redacted"},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "weather"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [HIT]},
    {"type": "text", "text": "Rain, says ", "citations": None},
    {"type": "text", "text": "the report.", "citations": [CITATION]},
]
STARTED = {
    "thinking": {"thinking": "", "signature": ""}, "server_tool_use": {"input": {}}, "text": {"text": "", "citations": None},
}
asked = []


def deltas(block):
    if block["type"] == "server_tool_use":
        yield {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    for key in ("thinking", "signature", "text"):
        if key in block:
            yield {"type": f"{key}_delta", key: block[key]}
    for citation in block.get("citations") or ():
        yield {"type": "citations_delta", "citation": citation}


def events():
    yield {"type": "message_start", "message": {**HEAD, "content": [], "stop_reason": None, "usage": USAGE}}
    for index, block in enumerate(BLOCKS):
        begun = {**block, **STARTED.get(block["type"], {})}
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        for delta in deltas(block):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": USAGE}
    yield {"type": "message_stop"}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        streamed = asked[-1].get("stream")
        body = json.dumps({**HEAD, "content": BLOCKS, "stop_reason": "end_turn", "usage": USAGE})
        if streamed:
            body = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events())
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.end_headers()
        self.wfile.write(body.encode())


def report(name):
    print(f"{name}:")
    for message in asked[-1]["messages"][1:-1]:
        for block in message["content"]:
            shown = {key: value for key, value in block.items() if key not in ("is_error", "encrypted_index", "url")}
            print(" ", message["role"], json.dumps(shown, sort_keys=True))


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
PYTHON
cat > "$folder/framework_agent.py" <<'PYTHON'
import asyncio

import anthropic
from agent_framework import Agent, FileHistoryProvider
from agent_framework.anthropic import AnthropicClient
from service import report, url


def agent(history):
    client = anthropic.AsyncAnthropic(api_key="none", base_url=url)
    return Agent(
        client=AnthropicClient(model="claude-sonnet-4-5", anthropic_client=client),
        tools=[AnthropicClient.get_web_search_tool()], context_providers=[FileHistoryProvider(history)],
    )


async def main():
    for name in ("plainly", "streamed"):
        first, second = agent(name), agent(name)
        session = first.create_session(session_id="s")
        if name == "plainly":
            await first.run("What is the weather?", session=session)
        else:
            async for _ in first.run("What is the weather?", session=session, stream=True):
                pass
        await second.run("And tomorrow?", session=second.create_session(session_id="s"))
        report(f"agent-framework, {name}")


asyncio.run(main())
PYTHON
cat > "$folder/agno_agent.py" <<'PYTHON'
from agno.agent import Agent
from agno.db.sqlite import SqliteDb
from agno.models.anthropic import Claude
from service import report, url


def agent(history):
    return Agent(
        model=Claude(id="claude-sonnet-4-5", api_key="none", client_params={"base_url": url}),
        tools=[{"type": "web_search_20250305", "name": "web_search"}], db=SqliteDb(db_file=f"{history}.db"),
        session_id="s", add_history_to_context=True, telemetry=False,
    )


for name in ("plainly", "streamed"):
    for _ in agent(name).run("What is the weather?", stream=True) if name == "streamed" else ():
        pass
    if name == "plainly":
        agent(name).run("What is the weather?")
    agent(name).run("And tomorrow?")
    report(f"agno, {name}")
PYTHON
cd "$folder"
for name in framework agno; do
    "$name/bin/python" -W ignore "${name}_agent.py"
done | tee seen
diff - seen <<'SEEN'
agent-framework, plainly:
  assistant {"signature": "signature", "thinking": "Hm.", "type": "thinking"}
  assistant {"id": "srvtoolu_1", "input": {"query": "weather"}, "name": "web_search", "type": "tool_use"}
  user {"content": [{"text": "[BetaWebSearchResultBlock(encrypted_content='encrypted', page_age=None, title='Weather', type='web_search_result', url='https://example.com')]", "type": "text"}], "tool_use_id": "srvtoolu_1", "type": "tool_result"}
  assistant {"text": "Rain, says ", "type": "text"}
  assistant {"text": "the report.", "type": "text"}
agent-framework, streamed:
  assistant {"signature": "signature", "thinking": "Hm.", "type": "thinking"}
  assistant {"id": "srvtoolu_1", "input": {}, "name": "web_search", "type": "tool_use"}
  user {"content": [{"text": "[BetaWebSearchResultBlock(encrypted_content='encrypted', page_age=None, title='Weather', type='web_search_result', url='https://example.com')]", "type": "text"}], "tool_use_id": "srvtoolu_1", "type": "tool_result"}
  assistant {"text": "Rain, says the report.", "type": "text"}
agno, plainly:
  assistant {"signature": "signature", "thinking": "Hm.", "type": "thinking"}
  assistant {"data": "redacted", "type": "redacted_thinking"}
  assistant {"id": "srvtoolu_1", "input": {"query": "weather"}, "name": "web_search", "type": "server_tool_use"}
  assistant {"content": [{"encrypted_content": "encrypted", "title": "Weather", "type": "web_search_result", "url": "https://example.com"}], "tool_use_id": "srvtoolu_1", "type": "web_search_tool_result"}
  assistant {"text": "Rain, says ", "type": "text"}
  assistant {"citations": [{"cited_text": "It rains.", "encrypted_index": "index", "title": "Weather", "type": "web_search_result_location", "url": "https://example.com"}], "text": "the report.", "type": "text"}
agno, streamed:
  assistant {"signature": "signature", "thinking": "Hm.", "type": "thinking"}
  assistant {"data": "redacted", "type": "redacted_thinking"}
  assistant {"id": "srvtoolu_1", "input": {"query": "weather"}, "name": "web_search", "type": "server_tool_use"}
  assistant {"content": [{"encrypted_content": "encrypted", "title": "Weather", "type": "web_search_result", "url": "https://example.com"}], "tool_use_id": "srvtoolu_1", "type": "web_search_tool_result"}
  assistant {"text": "Rain, says ", "type": "text"}
  assistant {"citations": [{"cited_text": "It rains.", "encrypted_index": "index", "title": "Weather", "type": "web_search_result_location", "url": "https://example.com"}], "text": "the report.", "type": "text"}
SEEN
