#!/usr/bin/env bash
# What langchain-google-genai sends to Gemini of a tool's output that is a text (the content of a ToolMessage): it reads
# any text as JSON that can be read so, not objects alone, which is what Gemini asks for. So the model is told another value
# than the tool gave, and than the history has:
# - the version "3.10" becomes the number 3.1, the article "1e3" the number 1000.0, and the name "null" no value;
# - a quoted word loses its quotes;
# - a text that only looks a little like this, "3.10.1" or "v3.10", is sent as it is, so the model sees both kinds.
# langchain-openai sends each of these as the tool gave it. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check langchain-google-genai==4.4.3 langchain-openai==1.7.4 \
    langchain-core==1.8.3 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from threading import Thread

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI

GEMINI = {"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": "ok"}]}, "finishReason": "STOP"}]}
OPENAI = {"id": "c", "object": "chat.completion", "created": 1, "model": "m",
          "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]}
asked = []


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(OPENAI if "messages" in asked[-1] else GEMINI).encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
gemini = ChatGoogleGenerativeAI(model="gemini-3.8-flash", api_key="none", base_url=url)
openai = ChatOpenAI(model="m", api_key="none", base_url=url)
print("langchain-google-genai", version("langchain-google-genai"), "langchain-openai", version("langchain-openai"))
for output, expected in {
    "3.10": '{"output": 3.1}',
    "1e3": '{"output": 1000.0}',
    '"Oslo"': '{"output": "Oslo"}',
    "null": '{"output": null}',
    "3.10.1": '{"output": "3.10.1"}',
    "v3.10": '{"output": "v3.10"}',
}.items():
    call = AIMessage("", tool_calls=[{"id": "c1", "name": "look_up", "args": {}}])
    history = [HumanMessage("Which one?"), call, ToolMessage(output, tool_call_id="c1", name="look_up")]
    gemini.invoke(history)
    seen = json.dumps(asked[-1]["contents"][-1]["parts"][0]["functionResponse"]["response"])
    openai.invoke(history)
    print(f"output {output}: Gemini is sent {seen}, OpenAI {asked[-1]['messages'][-1]['content']}")
    if seen != expected or asked[-1]["messages"][-1]["content"] != output:
        sys.exit("This is not what they did.")
PYTHON
