#!/usr/bin/env bash
# What any-llm makes of an answer of Anthropic that thinks twice before its call, with a text between, and sends back:
# - both thoughts become one, with the signature of the second, which signs the second alone. Anthropic checks the
#   signature of a thought that comes back, and says to send it unchanged;
# - redacted thinking is in no message. litellm sends the three back as they came, but all of them before the text;
# - streamed, the only call has the index 4, its place among Anthropic's blocks, where Chat Completions counts the calls
#   alone.
# Nothing is raised or logged by any-llm.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for name in any-llm-sdk litellm; do
    python3 -m venv "$folder/$name"
done
"$folder/any-llm-sdk/bin/pip" install --quiet --disable-pip-version-check any-llm-sdk==1.40.2 anthropic==0.125.0 2>/dev/null
"$folder/litellm/bin/pip" install --quiet --disable-pip-version-check litellm==1.110.2 2>/dev/null
cat > "$folder/run.py" <<'PYTHON'
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from threading import Thread

USAGE = {"input_tokens": 9, "output_tokens": 9}
HEAD = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "stop_sequence": None}
BLOCKS = [
    {"type": "thinking", "thinking": "First. ", "signature": "signs-first"},
    {"type": "redacted_thinking", "data": "redacted"},
    {"type": "text", "text": "I look it up.", "citations": None},
    {"type": "thinking", "thinking": "Second.", "signature": "signs-second"},
    {"type": "tool_use", "id": "toolu_1", "name": "find", "input": {}},
]
STARTED = {"thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}}
DELTAS = {"thinking": ("thinking", "signature"), "text": ("text",)}
FUNCTION = {"name": "find", "description": "Finds.", "parameters": {"type": "object", "properties": {}}}
asked = []


def events():
    yield {"type": "message_start", "message": {**HEAD, "content": [], "stop_reason": None, "usage": USAGE}}
    for index, block in enumerate(BLOCKS):
        begun = {**block, **STARTED.get(block["type"], {})}
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        for key in DELTAS.get(block["type"], ()):
            delta = {"type": f"{key}_delta", key: block[key]}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": USAGE}
    yield {"type": "message_stop"}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        streamed = asked[-1].get("stream")
        body = json.dumps({**HEAD, "content": BLOCKS, "stop_reason": "tool_use", "usage": USAGE})
        if streamed:
            body = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events())
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.end_headers()
        self.wfile.write(body.encode())


def complete(messages, **options):
    asking = {"api_key": "none", "tools": [{"type": "function", "function": FUNCTION}], "reasoning_effort": "low", **options}
    if name == "litellm":
        from litellm import completion

        return completion(model="anthropic/claude-sonnet-4-5", api_base=url, messages=messages, **asking)
    from any_llm import completion

    return completion(model="anthropic:claude-sonnet-4-5", api_base=url, messages=messages, **asking)


name = sys.argv[1]
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
question = {"role": "user", "content": "Find it."}
answer = complete([question]).choices[0].message
complete([question, answer.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": "toolu_1", "content": "none"}])
print(f"{name} {version(name)} sends back:", *map(json.dumps, asked[-1]["messages"][1]["content"]), sep="\n  ")
if name == "any-llm-sdk":
    deltas = [chunk.choices[0].delta for chunk in complete([question], stream=True) if chunk.choices]
    print("  streamed calls:", *{(call.index, call.id) for delta in deltas for call in delta.tool_calls or () if call.id})
PYTHON
for name in any-llm-sdk litellm; do
    LITELLM_LOCAL_MODEL_COST_MAP=True "$folder/$name/bin/python" -W ignore "$folder/run.py" "$name"
done | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
any-llm-sdk 1.40.2 sends back:
  {"type": "thinking", "thinking": "First. Second.", "signature": "signs-second"}
  {"type": "text", "text": "I look it up."}
  {"type": "tool_use", "id": "toolu_1", "name": "find", "input": {}}
  streamed calls: (4, 'toolu_1')
litellm 1.110.2 sends back:
  {"type": "thinking", "thinking": "First. ", "signature": "signs-first"}
  {"type": "redacted_thinking", "data": "redacted"}
  {"type": "thinking", "thinking": "Second.", "signature": "signs-second"}
  {"type": "text", "text": "I look it up."}
  {"type": "tool_use", "id": "toolu_1", "name": "find", "input": {}}
SEEN
