#!/usr/bin/env bash
# What an agent of ag2 (the library, 1.x) keeps of answers of Anthropic, and sends back with the next question:
# - of an answer with several texts, as citations cut a sentence, it has the last: "Hamburg is wet." is " is wet.", in what the
#   application gets and in each later request. Streamed, it is the whole text;
# - thinking is in no request, so a turn with a call has none, though thinking is on: Anthropic refuses that. Redacted
#   thinking is sent back, as a turn of its own before the turn that it belongs to;
# - of an answer that pauses (pause_turn), which ag2 continues by itself, the text before the search is in no history, and
#   the tokens are in no sum: for three requests, of 1300 tokens each, usage() counts two.
# All but the first are the same plainly and streamed. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "ag2[anthropic]==1.2.1" anthropic==1.17.0 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PYTHON' 2>"$folder/log" | tee "$folder/seen"
import asyncio
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from ag2 import Agent, tool
from ag2.config import AnthropicConfig

USAGE = {"input_tokens": 100, "output_tokens": 50, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 200}
THOUGHT = {"type": "thinking", "thinking": "I think.", "signature": "c2lnbmF0dXJl"}
REDACTED = {"type": "redacted_thinking", "data": "UkVEQUNURUQ="}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"city": "Lyon"}}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "rain"}}
PAGE = {"type": "web_search_result", "url": "https://example.com", "title": "Rain", "encrypted_content": "UEFHRQ=="}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [PAGE]}
CITED = {
    "type": "char_location", "cited_text": "burg", "document_index": 0, "document_title": "Towns",
    "start_char_index": 0, "end_char_index": 4,
}
asked, answers = [], []


def text(said, **more):
    return {"type": "text", "text": said, **more}


def events(message):
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(message["content"]):
        kind = block["type"]
        deltas = []
        start = block
        if kind == "text":
            start = text("")
            deltas = [{"type": "citations_delta", "citation": one} for one in block.get("citations", [])]
            deltas += [{"type": "text_delta", "text": block["text"]}]
        elif kind == "thinking":
            start = {**block, "thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        elif "input" in block:
            start = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": 50}}
    yield {"type": "message_stop"}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        asked.append(body["messages"])
        content, reason = answers.pop(0)
        message = {
            "id": f"msg_{len(asked)}", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
            "content": content, "stop_reason": reason, "stop_sequence": None, "usage": USAGE,
        }
        streamed = body.get("stream")
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.end_headers()
        if streamed:
            for event in events(message):
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        else:
            self.wfile.write(json.dumps(message).encode())


@tool
def look(city: str) -> str:
    """Say what the weather is."""
    return "Rain."


def told():
    """The assistant's turns in the last request."""
    for message in asked[-1]:
        if message["role"] == "assistant":
            yield [block.get("text", block["type"]) for block in message["content"]]


async def main():
    for streamed in (False, True):
        print("streamed:" if streamed else "plainly:")
        config = AnthropicConfig(
            model="claude-sonnet-4-5", api_key="none", base_url=f"http://127.0.0.1:{server.server_port}", streaming=streamed,
            extra_body={"thinking": {"type": "enabled", "budget_tokens": 2000}},
        )
        cited = [text("Ham"), text("burg", citations=[CITED]), text(" is wet.")]
        answers[:] = [([THOUGHT, REDACTED, text("Let me look."), CALL], "tool_use"), (cited, "end_turn")]
        reply = await Agent("a", config=config, tools=[look]).ask("Where does it rain?")
        print("said:", repr(reply.response.content))
        answers[:] = [([text("Yes.")], "end_turn")]
        await reply.ask("Sure?")
        print(*told(), sep="\n")
        before = len(asked)
        answers[:] = [([text("I search."), SEARCH, FOUND], "pause_turn"), ([text("Rain.")], "end_turn"), ([text("Yes.")], "end_turn")]
        reply = await Agent("a", config=config).ask("Search.")
        reply = await reply.ask("Sure?")
        print(*told(), sep="\n")
        total = (await reply.usage()).total
        read, written = total.cache_read_input_tokens, total.cache_creation_input_tokens
        print("requests:", len(asked) - before, "input:", int(total.prompt_tokens + read + written))


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
asyncio.run(main())
PYTHON
diff - "$folder/seen" <<'SEEN'
plainly:
said: ' is wet.'
['redacted_thinking']
['Let me look.', 'tool_use']
[' is wet.']
['server_tool_use', 'web_search_tool_result']
['Rain.']
requests: 3 input: 2600
streamed:
said: 'Hamburg is wet.'
['redacted_thinking']
['Let me look.', 'tool_use']
['Hamburg is wet.']
['server_tool_use', 'web_search_tool_result']
['Rain.']
requests: 3 input: 2600
SEEN
