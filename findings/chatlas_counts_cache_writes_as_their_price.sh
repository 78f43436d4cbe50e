#!/usr/bin/env bash
# What chatlas reports of the tokens of a loop with a tool that Anthropic answers. The service counts 100 tokens, 200 that were
# written to its cache and 1000 that were read from it, in each of two requests: 1300 tokens of input a request.
# - the input of a turn is 350: what was written counts 1.25 times, as it costs. No count of the service is 350;
# - get_tokens() takes the cached tokens of the turn before off the next one: the outputs of the tools are -1050 tokens;
# - redacted thinking is in no turn, and in no later request, neither plainly nor streamed, though Anthropic wants it back
#   unchanged. Signed thinking is sent back as it came.
# Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check chatlas==0.23.0 anthropic==1.17.0 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PYTHON' | tee "$folder/seen"
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import chatlas

USAGE = {"input_tokens": 100, "output_tokens": 50, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 200}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"city": "Lyon"}}
THOUGHT = {"type": "thinking", "thinking": "One.", "signature": "sig"}
CALLING = [THOUGHT, {"type": "redacted_thinking", "data": "sealed"}, {"type": "text", "text": "Let me look."}, CALL]
ANSWERS = [CALLING, [{"type": "text", "text": "It rains."}]] * 2
asked = []


def events(content, answer):
    yield {"type": "message_start", "message": {**answer, "content": [], "stop_reason": None}}
    for index, block in enumerate(content):
        start, deltas = block, []
        if block["type"] == "thinking":
            start = {**block, "thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        elif block["type"] == "text":
            start, deltas = {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        elif block["type"] == "tool_use":
            start = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": 50}}
    yield {"type": "message_stop"}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        content = ANSWERS[len(asked)]
        asked.append(body["messages"])
        answer = {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": content,
            "stop_reason": "tool_use" if content is CALLING else "end_turn", "stop_sequence": None, "usage": USAGE,
        }
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if body.get("stream") else "application/json")
        self.end_headers()
        if body.get("stream"):
            for event in events(content, answer):
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        else:
            self.wfile.write(json.dumps(answer).encode())


def look(city: str) -> str:
    """Say what the weather is."""
    return "Rain."


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
for how in ("plainly", "streamed"):
    chat = chatlas.ChatAnthropic(
        model="claude-sonnet-4-5", api_key="none", kwargs={"base_url": f"http://127.0.0.1:{server.server_port}"}
    )
    chat.register_tool(look)
    if how == "plainly":
        chat.chat("Weather?", echo="none", stream=False)
    else:
        assert [*chat.stream("Weather?")]
    print(how, "sent back:", *(block["type"] for block in asked[-1][1]["content"]))
    print(how, "turns:", *(turn.tokens for turn in chat.get_turns() if turn.role == "assistant"))
    print(how, "get_tokens():", *((each["role"], each["tokens"]) for each in chat.get_tokens()))
PYTHON
diff - "$folder/seen" <<'SEEN'
plainly sent back: thinking text tool_use
plainly turns: (350, 50, 1000) (350, 50, 1000)
plainly get_tokens(): ('user', 350) ('assistant', 50) ('user', -1050) ('assistant', 50)
streamed sent back: thinking text tool_use
streamed turns: (350, 50, 1000) (350, 50, 1000)
streamed get_tokens(): ('user', 350) ('assistant', 50) ('user', -1050) ('assistant', 50)
SEEN
