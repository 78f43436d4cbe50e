#!/usr/bin/env bash
# Codex asks OpenAI's own provider over a WebSocket first, also at another base URL. What it does when that is refused
# depends on the status: after 426 it goes on over HTTP at once; after 401, 403, 404, 405, 501 and 503 it asks seven
# times, for six seconds or more, and then goes on over HTTP; after 400 and 429 the turn fails, and HTTP is never tried.
# A gateway without WebSockets must answer 426, before it counts the request against a rate.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --prefix "$folder" @openai/codex@0.171.0
"$folder/node_modules/.bin/codex" --version
python3 - "$folder" <<'PYTHON'
import json
import os
import subprocess
import sys
import tempfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

CODEX = Path(sys.argv[1]) / "node_modules/.bin/codex"
TEXT = {"type": "output_text", "text": "Done.", "annotations": []}
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [TEXT]}
USAGE = {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6}
RESPONSE = {"id": "resp_1", "object": "response", "model": "gpt-5", "status": "completed", "output": [MESSAGE], "usage": USAGE}
EVENTS = [
    {"type": "response.created", "response": {**RESPONSE, "status": "in_progress", "output": [], "usage": None}},
    {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE},
    {"type": "response.completed", "response": RESPONSE},
]


class Handler(BaseHTTPRequestHandler):
    protocol_version, status, seen = "HTTP/1.1", 426, []

    def log_message(self, *_):
        pass

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        is_websocket = self.headers.get("upgrade") == "websocket"
        self.seen.append("websocket" if is_websocket else "other")
        self.answer(self.status if is_websocket else 404, "application/json", b'{"error":{"message":"no"}}')

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.seen.append("http")
        lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in EVENTS)
        self.answer(200, "text/event-stream", "".join(lines).encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
url = f'openai_base_url="http://127.0.0.1:{server.server_port}/v1"'
expected = {426: (0, 1, 1), 404: (0, 7, 1), 405: (0, 7, 1), 503: (0, 7, 1), 400: (1, 2, 0), 429: (1, 2, 0)}
is_as_known = True
for status, known in expected.items():
    Handler.status = status
    Handler.seen.clear()
    with tempfile.TemporaryDirectory() as home:
        environment = {"HOME": home, "PATH": os.environ["PATH"], "CODEX_API_KEY": "sk-none"}
        command = [CODEX, "exec", "--skip-git-repo-check", "-m", "gpt-5", "-c", url, "Say done"]
        run = subprocess.run(
            command, cwd=home, env=environment, capture_output=True, timeout=120, stdin=subprocess.DEVNULL
        )
    seen = (run.returncode, Handler.seen.count("websocket"), Handler.seen.count("http"))
    print(f"{status}: exit code {seen[0]}, {seen[1]} requests for a WebSocket, {seen[2]} over HTTP")
    is_as_known &= seen == known
print("as expected" if is_as_known else "the behaviour has changed")
sys.exit(not is_as_known)
PYTHON
