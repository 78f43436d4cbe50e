#!/usr/bin/env bash
# What three tracers say of the same answers of OpenAI's client, with their default settings: langfuse.openai, OpenLLMetry
# (opentelemetry-instrumentation-openai) and OpenInference:
# - two choices (n=2), streamed: langfuse has one text, of both choices in the order of the chunks, "GoodBon dayjour", and of
#   a call in each, one call with the id of the second, the name of the first and the arguments of both. Plainly, it has two
#   answers. The others have two answers each time;
# - a refusal: langfuse has no answer, plainly and streamed, and OpenLLMetry an empty text where it was streamed;
# - reasoning beside the text (reasoning_content): langfuse has none;
# - Responses: OpenLLMetry gives a call the id of its item (fc_1), and the output in the next request the id of the call
#   (call_1), so no output has a call; and the text, which came after the reasoning, stands before it.
# The tokens are the same in all. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check langfuse==5.0.4 openai==3.3.0 opentelemetry-sdk==1.45.2 \
    opentelemetry-instrumentation-openai==0.62.4 openinference-instrumentation-openai==0.1.66 2>/dev/null
cat >"$folder/run.py" <<'PYTHON'
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

HEAD = {"id": "c", "created": 1, "model": "gpt-4o"}
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


def call(name, arguments):
    return [{"index": 0, "id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": arguments}}]


ANSWERS = {  # of each choice, its deltas
    "two texts": [[{"content": "Good"}, {"content": " day"}], [{"content": "Bon"}, {"content": "jour"}]],
    "two calls": [[{"tool_calls": call("look", '{"a":1}')}], [{"tool_calls": call("find", '{"b":2}')}]],
    "refusal": [[{"refusal": "I can"}, {"refusal": "not."}]],
    "reasoning": [[{"reasoning_content": "I think."}, {"content": "Yes."}]],
}
ITEMS = [
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I think."}]},
    {
        "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "Let me look.", "annotations": []}],
    },
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{}", "status": "completed"},
]
RESPONSE = {
    "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "gpt-5", "output": ITEMS,
    "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "metadata": {}, "error": None,
    "incomplete_details": None, "instructions": None, "temperature": 1, "top_p": 1,
}


def chunks(choices):
    for number in range(max(map(len, choices))):
        for index, deltas in enumerate(choices):
            if number < len(deltas):
                yield {"choices": [{"index": index, "delta": deltas[number], "finish_reason": None}]}
    for index in range(len(choices)):
        yield {"choices": [{"index": index, "delta": {}, "finish_reason": "stop"}]}
    yield {"choices": [], "usage": USAGE}


def whole(deltas):
    message = {"role": "assistant", "content": None}
    for delta in deltas:
        for key, value in delta.items():
            message[key] = (message.get(key) or type(value)()) + value
    return message


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        is_asked = self.path.endswith(("/completions", "/responses"))
        asked = json.loads(body) if is_asked else {}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if asked.get("stream") else "application/json")
        self.end_headers()
        if self.path.endswith("/responses"):
            self.wfile.write(json.dumps(RESPONSE | {"id": f"resp_{len(asked['input'])}"}).encode())
        elif is_asked:
            choices = ANSWERS[asked["messages"][0]["content"]]
            if asked.get("stream"):
                for chunk in chunks(choices):
                    said = {**HEAD, "object": "chat.completion.chunk", **chunk}
                    self.wfile.write(f"data: {json.dumps(said)}\n\n".encode())
                self.wfile.write(b"data: [DONE]\n\n")
            else:
                said = [{"index": n, "message": whole(one), "finish_reason": "stop"} for n, one in enumerate(choices)]
                answer = {**HEAD, "object": "chat.completion", "choices": said, "usage": USAGE}
                self.wfile.write(json.dumps(answer).encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
tracer = sys.argv[1]
if tracer == "langfuse":
    from langfuse import Langfuse
    from langfuse.openai import OpenAI

    Langfuse(public_key="none", secret_key="none", base_url=url, tracer_provider=provider)
else:
    if tracer == "OpenLLMetry":
        from opentelemetry.instrumentation.openai import OpenAIInstrumentor
    else:
        from openinference.instrumentation.openai import OpenAIInstrumentor
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    from openai import OpenAI
client = OpenAI(api_key="none", base_url=url)


def traced(name):
    (span,) = exporter.get_finished_spans()
    exporter.clear()
    for key, value in span.attributes.items():
        if key == "langfuse.observation.output" or key == f"gen_ai.{name}.messages":
            return value
        if key == "output.value":
            return json.dumps([one["message"] for one in json.loads(value)["choices"]])
    return None


print(tracer)
for name in ANSWERS:
    for streamed in (False, True):
        options = {"stream_options": {"include_usage": True}} if streamed else {}
        asked = [{"role": "user", "content": name}]
        answer = client.chat.completions.create(
            model="gpt-4o", messages=asked, n=len(ANSWERS[name]), stream=streamed, **options
        )
        if streamed:
            list(answer)
        print(f"  {name}, {'streamed' if streamed else 'plainly'}:", traced("output"))
if tracer == "OpenLLMetry":
    client.responses.create(model="gpt-5", input="q", store=False)
    print("  response:", traced("output"))
    output = {"type": "function_call_output", "call_id": "call_1", "output": "Rain."}
    client.responses.create(model="gpt-5", input=[*ITEMS, output], store=False)
    print("  next request:", traced("input"))
PYTHON
for name in langfuse OpenLLMetry OpenInference; do
    "$folder/venv/bin/python" -W ignore "$folder/run.py" "$name" 2>"$folder/log"
done | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
langfuse
  two texts, plainly: [{"role": "assistant", "content": "Good day"}, {"role": "assistant", "content": "Bonjour"}]
  two texts, streamed: GoodBon dayjour
  two calls, plainly: [{"role": "assistant", "tool_calls": [{"id": "call_look", "function": {"arguments": "{\"a\":1}", "name": "look"}, "type": "function", "index": 0}], "content": null}, {"role": "assistant", "tool_calls": [{"id": "call_find", "function": {"arguments": "{\"b\":2}", "name": "find"}, "type": "function", "index": 0}], "content": null}]
  two calls, streamed: {"role": "assistant", "tool_calls": [{"function": {"name": "look", "arguments": "{\"a\":1}{\"b\":2}"}, "id": "call_find", "type": "function"}]}
  refusal, plainly: {"role": "assistant", "content": null}
  refusal, streamed: None
  reasoning, plainly: {"role": "assistant", "content": "Yes."}
  reasoning, streamed: Yes.
OpenLLMetry
  two texts, plainly: [{"role": "assistant", "parts": [{"content": "Good day", "type": "text"}], "finish_reason": "stop"}, {"role": "assistant", "parts": [{"content": "Bonjour", "type": "text"}], "finish_reason": "stop"}]
  two texts, streamed: [{"role": "assistant", "parts": [{"content": "Good day", "type": "text"}], "finish_reason": "stop"}, {"role": "assistant", "parts": [{"content": "Bonjour", "type": "text"}], "finish_reason": "stop"}]
  two calls, plainly: [{"role": "assistant", "parts": [{"type": "tool_call", "name": "look", "id": "call_look", "arguments": {"a": 1}}], "finish_reason": "stop"}, {"role": "assistant", "parts": [{"type": "tool_call", "name": "find", "id": "call_find", "arguments": {"b": 2}}], "finish_reason": "stop"}]
  two calls, streamed: [{"role": "assistant", "parts": [{"content": "", "type": "text"}, {"type": "tool_call", "name": "look", "id": "call_look", "arguments": {"a": 1}}], "finish_reason": "stop"}, {"role": "assistant", "parts": [{"content": "", "type": "text"}, {"type": "tool_call", "name": "find", "id": "call_find", "arguments": {"b": 2}}], "finish_reason": "stop"}]
  refusal, plainly: [{"role": "assistant", "parts": [{"type": "refusal", "content": "I cannot."}], "finish_reason": "stop"}]
  refusal, streamed: [{"role": "assistant", "parts": [{"content": "", "type": "text"}], "finish_reason": "stop"}]
  reasoning, plainly: [{"role": "assistant", "parts": [{"content": "Yes.", "type": "text"}, {"type": "reasoning", "content": "I think."}], "finish_reason": "stop"}]
  reasoning, streamed: [{"role": "assistant", "parts": [{"content": "Yes.", "type": "text"}, {"type": "reasoning", "content": "I think."}], "finish_reason": "stop"}]
  response: [{"role": "assistant", "parts": [{"type": "text", "content": "Let me look."}, {"type": "reasoning", "content": "[{\"text\": \"I think.\", \"type\": \"summary_text\"}]"}, {"type": "tool_call", "name": "look", "id": "fc_1", "arguments": {}}], "finish_reason": "tool_call"}]
  next request: [{"role": "assistant", "parts": [{"type": "text", "content": "Let me look."}]}, {"role": "assistant", "parts": [{"type": "tool_call", "name": "look", "id": "fc_1", "arguments": {}}]}, {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_1", "response": "Rain."}]}]
OpenInference
  two texts, plainly: [{"content": "Good day", "role": "assistant"}, {"content": "Bonjour", "role": "assistant"}]
  two texts, streamed: [{"content": "Good day"}, {"content": "Bonjour"}]
  two calls, plainly: [{"content": null, "role": "assistant", "tool_calls": [{"id": "call_look", "function": {"arguments": "{\"a\":1}", "name": "look"}, "type": "function", "index": 0}]}, {"content": null, "role": "assistant", "tool_calls": [{"id": "call_find", "function": {"arguments": "{\"b\":2}", "name": "find"}, "type": "function", "index": 0}]}]
  two calls, streamed: [{"tool_calls": [{"id": "call_look", "function": {"arguments": "{\"a\":1}", "name": "look"}, "index": 0, "type": "function"}]}, {"tool_calls": [{"id": "call_find", "function": {"arguments": "{\"b\":2}", "name": "find"}, "index": 0, "type": "function"}]}]
  refusal, plainly: [{"content": null, "refusal": "I cannot.", "role": "assistant"}]
  refusal, streamed: [{"refusal": "I cannot."}]
  reasoning, plainly: [{"content": "Yes.", "role": "assistant", "reasoning_content": "I think."}]
  reasoning, streamed: [{"content": "Yes.", "reasoning_content": "I think."}]
SEEN
