#!/usr/bin/env bash
# What an agent of LlamaIndex (Python) makes of answers of Anthropic, and sends back with the next request, also from its Memory
# in SQLite:
# - an answer in several texts, as citations cut a sentence, is said to the application with a line break between them:
#   "Hamburg is wet." is three lines. Streamed, the deltas make one line, and the result of the same run has three;
# - redacted thinking is in no message, though Anthropic wants it back unchanged. Signed thinking is sent as it came;
# - a citation is in no message;
# - the usage in the message that Memory keeps of a streamed answer has 100 tokens of input, of 1300, of which 1000 were read
#   from the cache and 200 written to it. Plainly, the message has none.
# Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check llama-index-core==0.14.25 llama-index-llms-anthropic==0.12.3 \
    anthropic==0.125.0 2>/dev/null
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON' 2>"$folder/log" | tee "$folder/seen"
import asyncio
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from llama_index.core.agent.workflow import AgentStream, FunctionAgent
from llama_index.core.memory import Memory
from llama_index.llms.anthropic import Anthropic

USAGE = {"input_tokens": 100, "output_tokens": 50, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 200}
THOUGHT = {"type": "thinking", "thinking": "I think.", "signature": "c2lnbmF0dXJl"}
REDACTED = {"type": "redacted_thinking", "data": "UkVEQUNURUQ="}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"city": "Lyon"}}
CITED = {
    "type": "char_location", "cited_text": "burg", "document_index": 0, "document_title": "Towns",
    "start_char_index": 0, "end_char_index": 4,
}
asked, answers = [], []


def text(said, **more):
    return {"type": "text", "text": said, **more}


def events(message):
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(message["content"]):
        kind, start, deltas = block["type"], block, []
        if kind == "text":
            start = text("")
            deltas = [{"type": "citations_delta", "citation": one} for one in block.get("citations", [])]
            deltas += [{"type": "text_delta", "text": block["text"]}]
        elif kind == "thinking":
            start = {**block, "thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        elif kind == "tool_use":
            start = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
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
        asked.append(body["messages"])
        content = answers.pop(0)
        message = {
            "id": f"msg_{len(asked)}", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
            "content": content, "stop_reason": "tool_use" if content[-1] is CALL else "end_turn", "stop_sequence": None,
            "usage": USAGE,
        }
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if body.get("stream") else "application/json")
        self.end_headers()
        if body.get("stream"):
            for event in events(message):
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        else:
            self.wfile.write(json.dumps(message).encode())


def look(city: str) -> str:
    """Say what the weather is."""
    return "Rain."


async def main():
    cited = [text("Ham"), text("burg", citations=[CITED]), text(" is wet.")]
    for streamed in (False, True):
        llm = Anthropic(
            model="claude-sonnet-4-5", api_key="none", base_url=f"http://127.0.0.1:{server.server_port}", max_tokens=4000,
            temperature=1, thinking_dict={"type": "enabled", "budget_tokens": 2000},
        )
        agent = FunctionAgent(tools=[look], llm=llm, streaming=streamed)
        answers[:] = [[THOUGHT, REDACTED, text("Let me look."), CALL], cited, [text("Yes.")]]
        for question in ("Where does it rain?", "Sure?"):
            kept = Memory.from_defaults(session_id=str(streamed), async_database_uri="sqlite+aiosqlite:///memory.db")
            handler = agent.run(question, memory=kept)
            deltas = [one.delta async for one in handler.stream_events() if isinstance(one, AgentStream)]
            print("streamed" if streamed else "plainly", [str(await handler), *(["".join(deltas)] if streamed else [])])
        for message in asked[-1]:
            if message["role"] == "assistant":
                blocks = message["content"]
                print("  sent:", [one.get("text", one["type"]) for one in blocks], any("citations" in one for one in blocks))
        print("  usage:", [message.additional_kwargs.get("usage") for message in await kept.aget_all()][-1])


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
asyncio.run(main())
PYTHON
diff - "$folder/seen" <<'SEEN'
plainly ['Ham\nburg\n is wet.']
plainly ['Yes.']
  sent: ['thinking', 'Let me look.', 'tool_use'] False
  sent: ['Ham', 'burg', ' is wet.'] False
  usage: None
streamed ['Ham\nburg\n is wet.', 'Let me look.Hamburg is wet.']
streamed ['Yes.', 'Yes.']
  sent: ['thinking', 'Let me look.', 'tool_use'] False
  sent: ['Ham', 'burg', ' is wet.'] False
  usage: {'input_tokens': 100, 'output_tokens': 50}
SEEN
