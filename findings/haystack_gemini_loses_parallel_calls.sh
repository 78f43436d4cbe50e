#!/usr/bin/env bash
# What Haystack's GoogleGenAIChatGenerator makes of two calls of one tool in one answer of Gemini, of which the first has a
# thought signature, as Gemini signs calls that it makes at once:
# - plainly, both calls are in the reply, but the next request has only the signed one, with the responses to both; Gemini
#   wants as many responses as there are calls;
# - streamed, each call in a chunk of its own, the reply has no call: both have the index 0, so they become one call of
#   "findfind" with the arguments {"q": "a"}{"q": "b"}, which is left out. The only warning is that the model wrote no JSON.
#   The same without a signature. Nothing shows an agent that anything was to be done.
# Plainly and without a signature, both calls are sent back.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check haystack-ai==3.4.1 google-genai-haystack==7.0.0 \
    google-genai==3.6.1 2>/dev/null
HAYSTACK_TELEMETRY_ENABLED=False "$folder/venv/bin/python" -W ignore - 2> "$folder/logged" <<'PYTHON' | tee "$folder/seen"
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from haystack.dataclasses import ChatMessage
from haystack.tools import Tool
from haystack.utils import Secret
from haystack_integrations.components.generators.google_genai import GoogleGenAIChatGenerator

USAGE = {"promptTokenCount": 9, "candidatesTokenCount": 9, "totalTokenCount": 18}
CALLS = [{"functionCall": {"id": f"call_{q}", "name": "find", "args": {"q": q}}} for q in "ab"]
SIGNED = [{**CALLS[0], "thoughtSignature": "c2lnbmF0dXJl"}, CALLS[1]]
asked, parts = [], []


def response(some, **ended):
    candidate = {"content": {"role": "model", "parts": some}, "index": 0, **ended}
    return json.dumps({"candidates": [candidate], "usageMetadata": USAGE, "modelVersion": "gemini-3-pro"})


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        asked.append(json.loads(self.rfile.read(int(self.headers["content-length"])))["contents"])
        streamed = "streamGenerateContent" in self.path
        first, second = parts
        chunks = (response([first]), response([second], finishReason="STOP"))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.end_headers()
        whole = response(parts, finishReason="STOP")
        self.wfile.write(("".join(f"data: {chunk}\n\n" for chunk in chunks) if streamed else whole).encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
os.environ["GOOGLE_GEMINI_BASE_URL"] = f"http://127.0.0.1:{server.server_port}"
schema = {"type": "object", "properties": {"q": {"type": "string"}}}
tool = Tool(name="find", description="Finds.", parameters=schema, function=lambda q: "none")
generator = GoogleGenAIChatGenerator(model="gemini-3-pro", api_key=Secret.from_token("none"), tools=[tool])
generator.warm_up()
question = ChatMessage.from_user("Find a and b.")
for signed, calls in (("signed", SIGNED), ("not signed", CALLS)):
    parts[:] = calls
    for name, callback in (("plainly", None), ("streamed", lambda chunk: None)):
        (reply,) = generator.run(messages=[question], streaming_callback=callback)["replies"]
        print(f"{signed}, {name}, calls in the reply:", *(call.id for call in reply.tool_calls))
        stored = ChatMessage.from_dict(json.loads(json.dumps(reply.to_dict())))
        results = [ChatMessage.from_tool(tool_result="none", origin=call) for call in stored.tool_calls]
        if not results:
            continue
        generator.run(messages=[question, stored, *results])
        sent = [part for content in asked[-1][1:] for part in content["parts"]]
        print("  sent back:", *(f"{key} {one['id']}" for part in sent for key, one in part.items() if key != "thoughtSignature"))
PYTHON
grep -o 'malformed JSON\|Tool name: .*' "$folder/logged" | tee -a "$folder/seen"
diff - "$folder/seen" <<'SEEN'
signed, plainly, calls in the reply: call_a call_b
  sent back: functionCall call_a functionResponse call_a functionResponse call_b
signed, streamed, calls in the reply:
not signed, plainly, calls in the reply: call_a call_b
  sent back: functionCall call_a functionCall call_b functionResponse call_a functionResponse call_b
not signed, streamed, calls in the reply:
malformed JSON
Tool name: findfind, Arguments: {"q": "a"}{"q": "b"}
malformed JSON
Tool name: findfind, Arguments: {"q": "a"}{"q": "b"}
SEEN
