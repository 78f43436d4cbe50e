#!/usr/bin/env bash
# What Haystack's AnthropicChatGenerator makes of one answer of Anthropic that thinks, searches the web, thinks again and
# answers in two texts, as citations cut a word or a sentence, asked plainly and streamed:
# - plainly, the next request has all blocks as they came, but the text of the reply has a blank that the model did not
#   write wherever a text ends: "Ham burg";
# - streamed, the text is right, but the search and its results are in no message: the next request has two thoughts in a
#   row, which were before and after the search, and no citation.
# So a store has another text, or another history, by how the answer was asked for. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check haystack-ai==3.4.1 anthropic-haystack==8.0.1 \
    anthropic==2.14.0 2>/dev/null
HAYSTACK_TELEMETRY_ENABLED=False "$folder/venv/bin/python" -W ignore - <<'PYTHON' | tee "$folder/seen"
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import anthropic
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret
from haystack_integrations.components.generators.anthropic import AnthropicChatGenerator

USAGE = {"input_tokens": 9, "output_tokens": 9}
HEAD = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "stop_sequence": None}
SOURCE = {"url": "https://example.com", "title": "Trains"}
CITATION = {"type": "web_search_result_location", **SOURCE, "encrypted_index": "index", "cited_text": "To Hamburg."}
HIT = {"type": "web_search_result", **SOURCE, "encrypted_content": "encrypted", "page_age": None}
BLOCKS = [
    {"type": "thinking", "thinking": "Before.", "signature": "first"},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "trains"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [HIT]},
    {"type": "thinking", "thinking": "After.", "signature": "second"},
    {"type": "text", "text": "Ham", "citations": None},
    {"type": "text", "text": "burg", "citations": [CITATION]},
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


def told(block):
    return " ".join((block["type"], *(block[key] for key in ("thinking", "signature", "text") if key in block)))


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
generator = AnthropicChatGenerator(model="claude-sonnet-4-5", api_key=Secret.from_token("none"))
generator.warm_up()
generator.client = anthropic.Anthropic(api_key="none", base_url=f"http://127.0.0.1:{server.server_port}")
question = ChatMessage.from_user("Where does the train go?")
for name, callback in (("plainly", None), ("streamed", lambda chunk: None)):
    (reply,) = generator.run(messages=[question], streaming_callback=callback)["replies"]
    stored = ChatMessage.from_dict(json.loads(json.dumps(reply.to_dict())))
    generator.run(messages=[question, stored, ChatMessage.from_user("When?")])
    print(f"{name}, {stored.text!r}, sent back:", *map(told, asked[-1]["messages"][1]["content"]), sep="\n  ")
PYTHON
diff - "$folder/seen" <<'SEEN'
plainly, 'Ham burg', sent back:
  thinking Before. first
  server_tool_use
  web_search_tool_result
  thinking After. second
  text Ham
  text burg
streamed, 'Hamburg', sent back:
  thinking Before. first
  thinking After. second
  text Hamburg
SEEN
