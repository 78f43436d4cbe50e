#!/usr/bin/env bash
# What OpenAIResponsesChatGenerator of Haystack keeps of an answer with two reasoning items, as models write that think
# between a text and their calls, and what it sends back with the outputs of the calls:
# - plainly, the first reasoning item is gone, and the second one is sent back before everything;
# - streamed, one item is sent back that never was: the summary of the first, the id and the encrypted content of the
#   second, though what is encrypted is not what the summary says;
# - the text that the model wrote before its calls is sent after them, without id and phase.
# ChatMessage.to_dict(), which stores keep, has no more than that. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check haystack-ai==3.4.1 openai==2.54.0 2>/dev/null
HAYSTACK_TELEMETRY_ENABLED=False "$folder/venv/bin/python" -W ignore - <<'PYTHON' | tee "$folder/seen"
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from haystack.components.generators.chat import OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool
from haystack.utils import Secret

SUMMARY = {"type": "summary_text", "text": "Two things are asked."}
TEXT = {"type": "output_text", "text": "I look both up.", "annotations": [], "logprobs": []}
CALL = {"type": "function_call", "name": "find", "status": "completed"}
OUTPUT = [
    {"type": "reasoning", "id": "rs_1", "summary": [SUMMARY], "encrypted_content": "first"},
    {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "commentary", "content": [TEXT]},
    {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "second"},
    {**CALL, "id": "fc_1", "call_id": "call_1", "arguments": '{"q": "a"}'},
    {**CALL, "id": "fc_2", "call_id": "call_2", "arguments": '{"q": "b"}'},
]
RESPONSE = {
    "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "m", "output": OUTPUT,
    "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
}
STARTED = {
    "reasoning": {"summary": []}, "message": {"content": [], "status": "in_progress"},
    "function_call": {"arguments": "", "status": "in_progress"},
}
asked = []


def events():
    yield {"type": "response.created", "response": {**RESPONSE, "status": "in_progress", "output": []}}
    for index, item in enumerate(OUTPUT):
        place = {"item_id": item["id"], "output_index": index}
        part = {**place, "content_index": 0}
        summary = {**place, "summary_index": 0}
        yield {"type": "response.output_item.added", "output_index": index, "item": {**item, **STARTED[item["type"]]}}
        if item["type"] == "message":
            yield {"type": "response.content_part.added", **part, "part": {**TEXT, "text": ""}}
            yield {"type": "response.output_text.delta", **part, "delta": TEXT["text"], "logprobs": []}
            yield {"type": "response.output_text.done", **part, "text": TEXT["text"], "logprobs": []}
            yield {"type": "response.content_part.done", **part, "part": TEXT}
        elif item["type"] == "function_call":
            yield {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]}
            yield {"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"], "name": "find"}
        elif item["summary"]:
            yield {"type": "response.reasoning_summary_part.added", **summary, "part": {**SUMMARY, "text": ""}}
            yield {"type": "response.reasoning_summary_text.delta", **summary, "delta": SUMMARY["text"]}
            yield {"type": "response.reasoning_summary_text.done", **summary, "text": SUMMARY["text"]}
            yield {"type": "response.reasoning_summary_part.done", **summary, "part": SUMMARY}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": RESPONSE}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        streamed = asked[-1].get("stream")
        lines = (f"data: {json.dumps({**one, 'sequence_number': number})}\n\n" for number, one in enumerate(events()))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.end_headers()
        self.wfile.write(("".join(lines) if streamed else json.dumps(RESPONSE)).encode())


def told(item):
    if item.get("type") == "reasoning":
        return f"{item['id']} {item['encrypted_content']} {[one['text'] for one in item['summary']]}"
    return item.get("call_id") or item["content"]


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
schema = {"type": "object", "properties": {"q": {"type": "string"}}}
tool = Tool(name="find", description="Finds.", parameters=schema, function=lambda q: "none")
generator = OpenAIResponsesChatGenerator(model="m", api_key=Secret.from_token("none"), api_base_url=url, tools=[tool])
generator.warm_up()
question = ChatMessage.from_user("Find a and b.")
for name, callback in (("plainly", None), ("streamed", lambda chunk: None)):
    (reply,) = generator.run(messages=[question], streaming_callback=callback)["replies"]
    stored = ChatMessage.from_dict(json.loads(json.dumps(reply.to_dict())))
    results = [ChatMessage.from_tool(tool_result="none", origin=call) for call in stored.tool_calls]
    generator.run(messages=[question, stored, *results])
    print(f"{name}:", *map(told, asked[-1]["input"][1:-2]), sep="\n  ")
PYTHON
diff - "$folder/seen" <<'SEEN'
plainly:
  rs_2 second []
  call_1
  call_2
  I look both up.
streamed:
  rs_2 second ['Two things are asked.']
  call_1
  call_2
  I look both up.
SEEN
