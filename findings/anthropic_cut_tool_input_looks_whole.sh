#!/usr/bin/env bash
# A tool call that max_tokens cuts inside a number looks whole in anthropic's stream helper: the amount 1250, of which
# "12" has come, is 12 in `get_final_message()`, and nothing but the stop reason tells it from a call that is whole.
#
# Expected: the raw text, an error, or a mark on the block. Exits 1 if the behaviour changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q anthropic==2.14.0
"$folder/venv/bin/python" - <<'PYTHON'
import json
import sys

import anthropic

try:
    import httpx2 as httpx
except ImportError:
    import httpx

USAGE = {"input_tokens": 9, "output_tokens": 1}
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5", "content": [],
           "stop_reason": None, "stop_sequence": None, "usage": USAGE}
EVENTS = [
    {"type": "message_start", "message": MESSAGE},
    {"type": "content_block_start", "index": 0,
     "content_block": {"type": "tool_use", "id": "toolu_1", "name": "pay", "input": {}}},
    {"type": "content_block_delta", "index": 0,
     "delta": {"type": "input_json_delta", "partial_json": '{"to": "Ann", "amount": 12'}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "max_tokens", "stop_sequence": None}, "usage": {"output_tokens": 20}},
    {"type": "message_stop"},
]
BODY = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in EVENTS)


def answer(request):
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, text=BODY)


http = httpx.Client(transport=httpx.MockTransport(answer))
client = anthropic.Anthropic(api_key="x", base_url="http://localhost", http_client=http)
tool = {"name": "pay", "input_schema": {"type": "object"}}
asked = {"role": "user", "content": "Pay Ann 1250."}
with client.messages.stream(model="claude-sonnet-5", max_tokens=20, messages=[asked], tools=[tool]) as stream:
    [block] = stream.get_final_message().content
print("anthropic", anthropic.__version__)
print("expected: the input is not shown as whole; seen:", block.input)
sys.exit(block.input != {"to": "Ann", "amount": 12})
PYTHON
