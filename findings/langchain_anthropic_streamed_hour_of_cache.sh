#!/usr/bin/env bash
# What langchain-anthropic says of a cache write that lasts for an hour (twice the input's price; five minutes: 1.25 times),
# of one answer that is asked plainly and streamed. Anthropic tells the duration in the usage of both; in a stream, it
# stands in message_start, and message_delta repeats only the sum:
# - plainly, input_token_details has cache_creation 0 and ephemeral_1h_input_tokens 10000;
# - streamed, it has cache_creation 10000, and nothing of the hour.
# So who prices cache_creation at the rate of five minutes, as it is for most, bills streamed writes too low, and who reads
# cache_creation alone does not see those of plain answers. The totals are the same. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check langchain-anthropic==1.7.10 langchain-core==1.8.3 \
    anthropic==2.14.0 2>/dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from threading import Thread

from langchain_anthropic import ChatAnthropic

SUM = {"input_tokens": 100, "cache_creation_input_tokens": 10000, "cache_read_input_tokens": 0, "output_tokens": 300}
WRITTEN = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 10000}
FIRST = {**SUM, "cache_creation": WRITTEN, "output_tokens": 1}
HEAD = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5", "stop_sequence": None}
PLAIN = {**HEAD, "content": [{"type": "text", "text": "Yes."}], "stop_reason": "end_turn", "usage": {**FIRST, "output_tokens": 300}}
EVENTS = [
    {"type": "message_start", "message": {**HEAD, "content": [], "stop_reason": None, "usage": FIRST}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Yes."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": SUM},
    {"type": "message_stop"},
]
STREAM = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in EVENTS)


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        streamed = json.loads(self.rfile.read(int(self.headers["content-length"]))).get("stream")
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.end_headers()
        self.wfile.write((STREAM if streamed else json.dumps(PLAIN)).encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
model = ChatAnthropic(model="claude-sonnet-5", api_key="none", base_url=f"http://127.0.0.1:{server.server_port}")
streamed = None
for chunk in model.stream("Is it open?"):
    streamed = chunk if streamed is None else streamed + chunk
print("langchain-anthropic", version("langchain-anthropic"))
for name, answer in (("plain", model.invoke("Is it open?")), ("streamed", streamed)):
    usage = answer.usage_metadata
    print(f"{name}: {usage}")
    details = usage["input_token_details"]
    seen = usage["input_tokens"], details["cache_creation"], details.get("ephemeral_1h_input_tokens")
    if seen != ((10100, 0, 10000) if name == "plain" else (10100, 10000, None)):
        sys.exit("This is not what langchain-anthropic did.")
PYTHON
