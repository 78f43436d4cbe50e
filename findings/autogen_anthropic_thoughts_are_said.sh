#!/usr/bin/env bash
# What an agent of AutoGen (autogen-agentchat) keeps of an answer of Anthropic with thinking, a text and a call of a tool,
# and sends back with the tool's output, also after a resume through save_state() and load_state():
# - the thought is a text that the assistant has said, without its signature. With thinking on, Anthropic refuses a turn
#   with a call that does not begin with its thinking block;
# - the text beside the call is gone, from the state and from all requests; without a thought it is sent;
# - of 1300 tokens of input of each request, of which 1000 are read from the cache and 200 written to it, its usage has 100.
# Plainly and streamed alike; nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
  autogen-agentchat==0.7.5 "autogen-ext[anthropic,openai]==0.7.5" anthropic==0.125.0 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PYTHON' | tee "$folder/seen"
import asyncio
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.anthropic import AnthropicChatCompletionClient

USAGE = {"input_tokens": 100, "output_tokens": 50, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 200}
THOUGHT = {"type": "thinking", "thinking": "I need the weather.", "signature": "sig"}
TEXT = {"type": "text", "text": "Let me look."}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"city": "Lyon"}}
DONE = {"type": "text", "text": "It rains."}
asked, answers = [], []


def events(answer):
    yield {"type": "message_start", "message": {**answer, "content": [], "stop_reason": None}}
    for index, block in enumerate(answer["content"]):
        if block["type"] == "thinking":
            start = {**block, "thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        elif block["type"] == "text":
            start, deltas = {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        else:
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
        asked.append(body["messages"])
        content = answers.pop(0)
        answer = {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": content,
            "stop_reason": "tool_use" if CALL in content else "end_turn", "stop_sequence": None, "usage": USAGE,
        }
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if body.get("stream") else "application/json")
        self.end_headers()
        if body.get("stream"):
            for event in events(answer):
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        else:
            self.wfile.write(json.dumps(answer).encode())


def look(city: str) -> str:
    """Say what the weather is."""
    return "Rain."


def agent(url, stream):
    client = AnthropicChatCompletionClient(
        model="claude-sonnet-4-5", api_key="none", base_url=url, max_tokens=4000,
        thinking={"type": "enabled", "budget_tokens": 1024},
        model_info={
            "vision": True, "function_calling": True, "json_output": True, "structured_output": False,
            "family": "claude-4-sonnet",
        },
    )
    return AssistantAgent("clerk", client, tools=[look], reflect_on_tool_use=True, model_client_stream=stream), client


def told(message):
    content = message["content"]
    return content if isinstance(content, str) else [block.get("text", block["type"]) for block in content]


async def main(url):
    for name, content in (("with a thought", [THOUGHT, TEXT, CALL]), ("without", [TEXT, CALL])):
        for stream in (False, True):
            answers[:] = [content, [DONE], [DONE]]
            clerk, client = agent(url, stream)
            await clerk.run(task="Weather?")
            print(f"{name}, {'streamed' if stream else 'plainly'}:", told(asked[-1][1]), client.total_usage().prompt_tokens)
            other, _ = agent(url, stream)
            await other.load_state(json.loads(json.dumps(await clerk.save_state())))
            await other.run(task="And then?")
            print("  resumed:", told(asked[-1][1]))


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
asyncio.run(main(f"http://127.0.0.1:{server.server_port}"))
PYTHON
diff - "$folder/seen" <<'SEEN'
with a thought, plainly: ['I need the weather.', 'tool_use'] 200
  resumed: ['I need the weather.', 'tool_use']
with a thought, streamed: ['I need the weather.', 'tool_use'] 200
  resumed: ['I need the weather.', 'tool_use']
without, plainly: ['Let me look.', 'tool_use'] 200
  resumed: ['Let me look.', 'tool_use']
without, streamed: ['Let me look.', 'tool_use'] 200
  resumed: ['Let me look.', 'tool_use']
SEEN
