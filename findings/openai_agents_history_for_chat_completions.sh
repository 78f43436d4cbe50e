#!/usr/bin/env bash
# What the Agents SDK makes of a history that a model of the Responses API has answered, when the next agent has a model of
# Chat Completions (OpenAIChatCompletionsModel, as most other providers are reached), with its default settings:
# - file_search_call becomes a call of a function named file_search_call, without its results and without an output, which
#   services refuse in each later request of the conversation;
# - an image in a tool's output is left out where a text stands beside it (alone, it is a placeholder and a warning);
# - the texts of one message get a line break between them: "Ham" and "burg" become "Ham\nburg";
# - calls of "find" in the namespaces crm and mail become calls of one and the same function.
# In none of these is an error raised or a warning logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check openai-agents==0.24.0 openai==3.57.0 2>/dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import asyncio
import json
import logging
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from threading import Thread

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

ANSWER = {"id": "c", "object": "chat.completion", "created": 1, "model": "m",
          "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]}
FOUND = {"file_id": "file-1", "filename": "ports.md", "score": 0.9, "text": "Hamburg has 43 quays.", "attributes": {}}
SCREEN = [{"type": "input_text", "text": "Screen:"}, {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}]


def call(number, **more):
    return {"type": "function_call", "id": f"fc_{number}", "call_id": f"c{number}", "name": "find", "arguments": "{}", **more}


def output(number, value):
    return {"type": "function_call_output", "call_id": f"c{number}", "output": value}


HISTORY = [
    {"role": "user", "content": "Where is it?"},
    {"type": "file_search_call", "id": "fs_1", "queries": ["port"], "status": "completed", "results": [FOUND]},
    call(1, namespace="crm"), call(2, namespace="mail"), output(1, SCREEN), output(2, "none"),
    {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
     "content": [{"type": "output_text", "text": text, "annotations": []} for text in ("Ham", "burg")]},
    {"role": "user", "content": "Thanks."},
]
asked, logged = [], []


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        asked.append(json.loads(self.rfile.read(int(self.headers["content-length"])))["messages"])
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(ANSWER).encode())


class Logged(logging.Handler):
    def emit(self, record):
        logged.append(record.getMessage())


logging.getLogger("openai.agents").addHandler(Logged(logging.WARNING))
set_tracing_disabled(True)
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
client = AsyncOpenAI(api_key="none", base_url=f"http://127.0.0.1:{server.server_port}/v1")
agent = Agent(name="a", model=OpenAIChatCompletionsModel(model="m", openai_client=client))
asyncio.run(Runner.run(agent, HISTORY))
sent = asked[0]
print("openai-agents", version("openai-agents"))
for message in sent:
    print(json.dumps(message))
calls = [(one["id"], one["function"]["name"]) for message in sent for one in message.get("tool_calls", [])]
outputs = {message["tool_call_id"]: message["content"] for message in sent if message["role"] == "tool"}
texts = [message["content"] for message in sent if message["role"] == "assistant" and message.get("content")]
as_known = (
    calls == [("fs_1", "file_search_call"), ("c1", "find"), ("c2", "find")]
    and outputs == {"c1": [{"type": "text", "text": "Screen:"}], "c2": "none"}
    and texts == ["Ham\nburg"]
    and "43 quays" not in json.dumps(sent)
)
if not as_known or logged:
    sys.exit(f"This is not what the Agents SDK did; logged: {logged}")
PYTHON
