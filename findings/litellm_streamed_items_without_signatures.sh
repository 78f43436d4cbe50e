#!/usr/bin/env bash
# What litellm's responses() streams of an answer of Anthropic with signed and redacted thinking before its calls:
# - response.completed has the reasoning item with both, in encrypted_content, as the answer to a plain request has;
# - response.output_item.done, the event that says that the item is whole, has its summary and no encrypted_content;
# - the message, which is the second item, is done last, after the calls.
# Codex, for one, takes its items from these events alone. Sent back to litellm, they are a turn of Anthropic with calls and
# without thinking, in a request that has thinking enabled; the items of response.completed are the whole turn.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check litellm==1.110.2 openai==3.57.0 2>/dev/null
LITELLM_LOCAL_MODEL_COST_MAP=True "$folder/venv/bin/python" -W ignore - <<'PYTHON' | tee "$folder/seen"
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import litellm

USAGE = {"input_tokens": 9, "output_tokens": 9}
HEAD = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "stop_sequence": None}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "find"}
BLOCKS = (
    ({"type": "thinking", "thinking": "", "signature": ""},
     {"type": "thinking_delta", "thinking": "Hm."}, {"type": "signature_delta", "signature": "c2ln"}),
    ({"type": "redacted_thinking", "data": "cmVk"},),
    ({"type": "text", "text": ""}, {"type": "text_delta", "text": "I look it up."}),
    ({**CALL, "input": {}}, {"type": "input_json_delta", "partial_json": '{"q": "a"}'}),
)
TOOL = {"type": "function", "name": "find", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}
asked = []


def events():
    yield {"type": "message_start", "message": {**HEAD, "content": [], "stop_reason": None, "usage": USAGE}}
    for index, (block, *deltas) in enumerate(BLOCKS):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": USAGE}
    yield {"type": "message_stop"}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write("".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events()).encode())


def respond(items):
    stream = litellm.responses(
        model="anthropic/claude-sonnet-4-5", api_base=url, api_key="none", tools=[TOOL], stream=True,
        reasoning={"effort": "low", "summary": "auto"}, include=["reasoning.encrypted_content"], input=items,
    )
    return [json.loads(event.model_dump_json(exclude_none=True)) for event in stream]


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
question = {"role": "user", "content": "Find a."}
streamed = respond([question])
for name, items in (
    ("response.output_item.done", [event["item"] for event in streamed if event["type"] == "response.output_item.done"]),
    ("response.completed", streamed[-1]["response"]["output"]),
):
    print(f"{name}:", *(f"{item['type']} {item.get('encrypted_content', '')}".strip() for item in items), sep="\n  ")
    respond([question, *items, {"type": "function_call_output", "call_id": "toolu_1", "output": "none"}])
    blocks = [block["type"] for block in asked[-1]["messages"][1]["content"]]
    print(f"  sent back with thinking {asked[-1]['thinking']['type']}:", *blocks)
PYTHON
diff - "$folder/seen" <<'SEEN'
response.output_item.done:
  reasoning
  function_call
  message
  sent back with thinking enabled: text tool_use
response.completed:
  reasoning [{"type":"thinking","thinking":"Hm.","signature":"c2ln"},{"type":"redacted_thinking","data":"cmVk"}]
  message
  function_call
  sent back with thinking enabled: thinking redacted_thinking text tool_use
SEEN
