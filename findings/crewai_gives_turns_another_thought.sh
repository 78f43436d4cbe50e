#!/usr/bin/env bash
# What CrewAI's LLM sends to Anthropic of answers with thinking. It keeps no thought with its answer, but those of its newest
# answer with the LLM object, which agents and conversations share:
# - a conversation of three answers is sent with the thought and signature of the newest before the text of each of them; the
#   thoughts of the others are in no request;
# - a conversation that is resumed has the thought of whatever the object has answered last, also that of another
#   conversation. Anthropic signs a thought, and says to send it back unchanged;
# - redacted thinking is sent back without its data, which is all that it has;
# - an agent with tools sends its calls alone, without the thought and the text before them, though thinking is on: Anthropic
#   then wants a turn with a call to begin with its thinking block.
# The same plainly and streamed. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check crewai==1.15.30 anthropic==2.14.0 2>/dev/null
export HOME="$folder" CREWAI_STORAGE_DIR="$folder/storage" CREWAI_DISABLE_TELEMETRY=true CREWAI_TRACING_ENABLED=false \
    OTEL_SDK_DISABLED=true CREWAI_DISABLE_VERSION_CHECK=true
"$folder/venv/bin/python" -W ignore - "$folder/seen" <<'PYTHON' >"$folder/log" 2>&1
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from crewai import LLM, Agent
from crewai.tools import tool

USAGE = {"input_tokens": 100, "output_tokens": 50}
REDACTED = {"type": "redacted_thinking", "data": "UkVEQUNURUQ="}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"city": "Lyon"}}
asked, answers, seen = [], [], []


def thought(name):
    return {"type": "thinking", "thinking": f"thought {name}", "signature": f"c2lnbmF0dXJl{name}w=="}


def text(said):
    return {"type": "text", "text": said}


def events(message):
    head = {**message, "content": [], "stop_reason": None}
    yield {"type": "message_start", "message": head}
    for index, block in enumerate(message["content"]):
        empty = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}, "tool_use": {"input": {}}}
        yield {"type": "content_block_start", "index": index, "content_block": {**block, **empty.get(block["type"], {})}}
        deltas = {
            "text": [{"type": "text_delta", "text": block.get("text")}],
            "thinking": [
                {"type": "thinking_delta", "thinking": block.get("thinking")},
                {"type": "signature_delta", "signature": block.get("signature")},
            ],
            "tool_use": [{"type": "input_json_delta", "partial_json": json.dumps(block.get("input"))}],
        }
        for delta in deltas.get(block["type"], []):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": 50}}
    yield {"type": "message_stop"}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        streamed = body.get("stream")
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.end_headers()
        if self.path.endswith("/count_tokens"):
            self.wfile.write(b'{"input_tokens": 100}')
            return
        asked.append(body)
        content = answers.pop(0)
        message = {
            "id": f"msg_{len(asked)}", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
            "content": content, "stop_reason": "tool_use" if content[-1] is CALL else "end_turn", "stop_sequence": None,
            "usage": USAGE,
        }
        if streamed:
            for event in events(message):
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        else:
            self.wfile.write(json.dumps(message).encode())


@tool("look")
def look(city: str) -> str:
    """Say what the weather is."""
    return "Rain."


def told():
    """The turns of the assistant in the last request."""
    for message in asked[-1]["messages"]:
        if message["role"] == "assistant":
            yield [
                block["type"] if block["type"] == "tool_use" else block.get("text") or block.get("thinking") or block
                for block in message["content"]
            ]


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
for streamed in (False, True):
    llm = LLM(
        model="anthropic/claude-sonnet-4-5", api_key="none", base_url=f"http://127.0.0.1:{server.server_port}",
        thinking={"type": "enabled", "budget_tokens": 2000}, max_tokens=4000, stream=streamed,
    )
    history = []
    for number in (1, 2, 3, 4):
        answers.append([thought(number), text(f"answer {number}")])
        history.append({"role": "user", "content": f"question {number}"})
        history.append({"role": "assistant", "content": llm.call(history)})
    seen += ["one conversation:", *told()]
    answers.append([thought(5), REDACTED, text("other answer")])
    llm.call([{"role": "user", "content": "other question"}])
    answers.append([text("answer 5")])
    llm.call([*history[:2], {"role": "user", "content": "question 5"}])
    seen += ["resumed after another:", *told()]
    answers += [[thought(6), text("Let me look."), CALL], [text("Rain.")]]
    Agent(role="r", goal="g", backstory="b", llm=llm, tools=[look]).kickoff("Weather?")
    seen += ["agent with a tool, thinking " + asked[-1]["thinking"]["type"] + ":", *told()]
with open(sys.argv[1], "w") as file:
    print(*seen, sep="\n", file=file)
PYTHON
cat "$folder/seen"
diff - "$folder/seen" <<'SEEN'
one conversation:
['thought 3', 'answer 1']
['thought 3', 'answer 2']
['thought 3', 'answer 3']
resumed after another:
['thought 5', {'type': 'redacted_thinking'}, 'answer 1']
agent with a tool, thinking enabled:
['tool_use']
one conversation:
['thought 3', 'answer 1']
['thought 3', 'answer 2']
['thought 3', 'answer 3']
resumed after another:
['thought 5', {'type': 'redacted_thinking'}, 'answer 1']
agent with a tool, thinking enabled:
['tool_use']
SEEN
