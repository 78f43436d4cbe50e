#!/usr/bin/env bash
# What langchain-mistralai does with an answer of Mistral that has a text, or thinking and a text, beside a call of a tool:
# - the message has them, and so has a store, but each later request has the call with an empty text: the model does not
#   see what it told the user before the call. langchain-openai sends text and call;
# - an answer without a call is sent back whole.
# The same plainly and streamed. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check langchain-mistralai==1.1.6 langchain-openai==1.7.4 \
    langchain-core==1.8.3 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from threading import Thread

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_mistralai import ChatMistralAI
from langchain_openai import ChatOpenAI

TEXT = "I book seat 12 now, as you asked."
THOUGHT = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": TEXT}]
CALLS = [{"id": "abcdefghi", "index": 0, "type": "function", "function": {"name": "book", "arguments": '{"seat": 12}'}}]
USAGE = {"prompt_tokens": 1000, "completion_tokens": 5, "total_tokens": 1005}
asked, answers = [], []


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        streamed, message = asked[-1].get("stream"), {"role": "assistant", **answers[-1]}
        choice = {"index": 0, "delta" if streamed else "message": message, "finish_reason": "stop"}
        body = json.dumps({"id": "r", "object": "chat.completion" + ".chunk" * bool(streamed), "created": 1, "model": "m",
                           "choices": [choice], "usage": USAGE})
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.end_headers()
        self.wfile.write((f"data: {body}\n\ndata: [DONE]\n\n" if streamed else body).encode())


def added(chunks):
    first, *others = chunks
    for chunk in others:
        first += chunk
    return first


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
mistral = ChatMistralAI(model="m", api_key="none", base_url=url)
openai = ChatOpenAI(model="m", api_key="none", base_url=url)
for name, model, content, calls, expected in (
    ("langchain-mistralai", mistral, TEXT, CALLS, ""),
    ("langchain-mistralai", mistral, THOUGHT, CALLS, ""),
    ("langchain-mistralai", mistral, TEXT, None, TEXT),
    ("langchain-openai", openai, TEXT, CALLS, TEXT),
):
    answers.append({"content": content, **({"tool_calls": calls} if calls else {})})
    for answer in (model.invoke("Book it."), added(model.stream("Book it."))):
        result = [ToolMessage("done", tool_call_id="abcdefghi", name="book")] if calls else []
        model.invoke([HumanMessage("Book it."), answer, *result, HumanMessage("Which seat?")])
        sent = asked[-1]["messages"][1]
        print(name, version(name), f"answered {json.dumps(content)}, call: {bool(calls)}; sent back {json.dumps(sent)}")
        if answer.text != TEXT or sent["content"] != expected:
            sys.exit("This is not what it did.")
PYTHON
