#!/usr/bin/env bash
# Where Codex puts the tools of a request, which depends on the model's name alone:
# - a model that it does not know: functions, and a namespace whose tools are functions, in `tools`;
# - gpt-5.5: also custom tools with a grammar, a tool_search that the client runs, and web_search;
# - gpt-6.2-sol: there is no key `tools` at all. All tools are in the first item of the input (additional_tools, role
#   developer), each in a namespace, and the main one is a custom tool there, whose input is JavaScript.
# So a proxy that reads `tools` alone sees none of the newest models' tools. In none of them is there `instructions`.
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


class Handler(BaseHTTPRequestHandler):
    protocol_version, bodies = "HTTP/1.1", []

    def log_message(self, *_):
        pass

    def answer(self, status):
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self):  # for a WebSocket, or the list of models
        self.answer(426)

    def do_POST(self):
        self.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.answer(400)


def kinds(tools):
    return sorted({tool["type"] for tool in tools})


def shape(body):
    first = body["input"][0]
    inner = [tool for one in first.get("tools", ()) for tool in one["tools"]]
    return {
        "tools": kinds(body["tools"]) if "tools" in body else None, "first item": first["type"],
        "its tools": kinds(first.get("tools", ())), "in their namespaces": kinds(inner),
        "instructions": "instructions" in body,
    }


def run(model):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Handler.bodies = []
    Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as home:
        url = f'openai_base_url="http://127.0.0.1:{server.server_address[1]}/v1"'
        command = [CODEX, "exec", "--skip-git-repo-check", "-m", model, "-c", url, "Say hi."]
        environment = {**os.environ, "HOME": home, "CODEX_API_KEY": "none"}
        subprocess.run(command, cwd=home, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    server.shutdown()
    return shape(Handler.bodies[0])


PLAIN = {"first item": "message", "its tools": [], "in their namespaces": [], "instructions": False}
EXPECTED = {
    "a-model-of-ours": {"tools": ["function", "namespace", "web_search"], **PLAIN},
    "gpt-5.5": {"tools": ["custom", "function", "tool_search", "web_search"], **PLAIN},
    "gpt-6.2-sol": {
        "tools": None, "first item": "additional_tools", "its tools": ["namespace"],
        "in their namespaces": ["custom", "function"], "instructions": False,
    },
}
seen = {model: run(model) for model in EXPECTED}
for model, found in seen.items():
    print(model, json.dumps(found))
sys.exit(seen != EXPECTED)
PYTHON
