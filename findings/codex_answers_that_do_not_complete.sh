#!/usr/bin/env bash
# What Codex makes of streamed Responses whose text is whole, but which do not end with response.completed:
# - without a last event, it asks five times more, and each request has the text of all attempts before as answers;
# - incomplete for a content filter is repeated the same way, with a developer message of Codex's after each attempt;
# - incomplete for max_output_tokens is not repeated: the turn fails.
# And the text counts only by response.output_item.done: one that comes in deltas and in the output of
# response.completed, but without that event, is lost, while the run succeeds and prints nothing.
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
PLACE = {"output_index": 0, "content_index": 0, "item_id": "msg_1"}


def response(status, output=(MESSAGE,), reason=None):
    usage = {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6}
    details = {"reason": reason} if reason else None
    return {
        "id": "resp_1", "object": "response", "model": "gpt-5", "status": status, "output": list(output), "usage": usage,
        "incomplete_details": details,
    }


def incomplete(reason):
    return {"type": "response.incomplete", "response": response("incomplete", reason=reason)}


BEGINNING = [
    {"type": "response.created", "response": response("in_progress", ())},
    {"type": "response.output_item.added", "output_index": 0, "item": {**MESSAGE, "status": "in_progress", "content": []}},
    {"type": "response.output_text.delta", "delta": "Done.", **PLACE},
]
ITEM = {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE}
COMPLETED = {"type": "response.completed", "response": response("completed")}
# name: (events, exit code, what is printed, items of each request beyond those of the first)
CASES = {
    "completed": ([*BEGINNING, ITEM, COMPLETED], 0, "Done.", [0]),
    "no last event": ([*BEGINNING, ITEM], 1, "", [0, 1, 2, 3, 4, 5]),
    "content_filter": ([*BEGINNING, ITEM, incomplete("content_filter")], 1, "", [0, 2, 4, 6, 8, 10]),
    "max_output_tokens": ([*BEGINNING, ITEM, incomplete("max_output_tokens")], 1, "", [0]),
    "no output_item.done": ([*BEGINNING, COMPLETED], 0, "", [0]),
}


class Handler(BaseHTTPRequestHandler):
    protocol_version, events, lengths = "HTTP/1.1", [], []

    def log_message(self, *_):
        pass

    def do_GET(self):  # for a WebSocket, or the list of models
        self.send_response(426)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_POST(self):
        self.lengths.append(len(json.loads(self.rfile.read(int(self.headers["content-length"])))["input"]))
        body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in self.events).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
url = f'openai_base_url="http://127.0.0.1:{server.server_port}/v1"'
is_as_known = True
for name, (Handler.events, *known) in CASES.items():
    Handler.lengths.clear()
    with tempfile.TemporaryDirectory() as home:
        environment = {"HOME": home, "PATH": os.environ["PATH"], "CODEX_API_KEY": "sk-none"}
        command = [CODEX, "exec", "--skip-git-repo-check", "-m", "gpt-5", "-c", url, "Say done"]
        run = subprocess.run(
            command, cwd=home, env=environment, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
        )
    more = [length - Handler.lengths[0] for length in Handler.lengths]
    print(f"{name}: exit code {run.returncode}, printed {run.stdout.strip()!r}, items more in each request: {more}")
    is_as_known &= [run.returncode, run.stdout.strip(), more] == known
print("as expected" if is_as_known else "the behaviour has changed")
sys.exit(not is_as_known)
PYTHON
