#!/usr/bin/env bash
# A chat of google-genai whose answer is streamed, and whose last chunk has a finish reason and a content without parts
# (`parts` is optional there): the whole turn, the user's message with it, is left out of every later request. The answer
# was complete and shown, nothing is raised or logged, and get_history() has the turn, also for a chat resumed from it.
# - One text that is empty, in place of no parts, and the turn stays.
# - With automatic function calling, the question and the call go, and the function's response stays: the next request
#   begins with a response to no call, which the API refuses.
# Code that stores get_history() therefore has another conversation than the one that the model was told.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check google-genai==3.6.1 2>/dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from threading import Thread

from google import genai
from google.genai import types

asked, answers = [], []


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write("".join(f"data: {json.dumps(one)}\n\n" for one in answers.pop(0)).encode())


def answer(end, *parts):
    contents = [{"role": "model", "parts": [part]} for part in parts] + [{"role": "model", **end}]
    chunks = [{"candidates": [{"index": 0, "content": content}]} for content in contents]
    chunks[-1]["candidates"][0]["finishReason"] = "STOP"
    return chunks


def rate(currency: str) -> str:
    """The rate of a currency."""
    return "1.10"


def asked_with(end, question, *parts, tools=None):
    """What the request after an answer contains, from the chat itself and from one that is resumed."""
    chat = client.chats.create(model="gemini-3.8-flash", config=types.GenerateContentConfig(tools=tools))
    done = [{"text": "Thanks."}]
    answers[:] = [answer(end, *parts), *([answer({"parts": done})] if tools else []), answer({"parts": done})]
    list(chat.send_message_stream(question))
    resumed = client.chats.create(model="gemini-3.8-flash", history=chat.get_history())
    list(chat.send_message_stream("Next."))
    answers[:] = [answer({"parts": done})]
    list(resumed.send_message_stream("Next."))
    return [
        [part.get("text") if "text" in part else next(iter(part)) for content in body["contents"] for part in content["parts"]]
        for body in asked[-2:]
    ]


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
client = genai.Client(api_key="none", http_options={"base_url": f"http://127.0.0.1:{server.server_port}"})
print("google-genai", version("google-genai"))
NUTS, WHOLE = "I am allergic to nuts.", ["I am allergic to nuts.", "Noted.", "", "Next."]
call = {"functionCall": {"name": "rate", "args": {"currency": "EUR"}}}
for name, seen, expected in (
    ("no parts", asked_with({}, NUTS, {"text": "Noted."}), [["Next."]] * 2),
    ("an empty text", asked_with({"parts": [{"text": ""}]}, NUTS, {"text": "Noted."}), [WHOLE] * 2),
    ("a call, no parts", asked_with({}, "How much?", call, tools=[rate]), [["functionResponse", "Thanks.", "Next."]] * 2),
):
    print(f"{name}: {seen[0]}; resumed: {seen[1]}")
    if seen != expected:
        sys.exit("This is not what google-genai did.")
PYTHON
