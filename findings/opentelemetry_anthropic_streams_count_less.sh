#!/usr/bin/env bash
# The tokens of one answer of Anthropic with a web search, asked plainly and streamed, in the spans of two
# instrumentations for OpenTelemetry. The counts in message_delta are totals, and greater than those in message_start, since
# the results of a search are read within the answer:
# - opentelemetry-instrumentation-anthropic (OpenLLMetry): 17000 in, 300 out plainly, but 2000 in, 301 out streamed. It
#   takes the input from message_start alone, without what was written to the cache and read from it later, and adds up
#   the output of both events. The same for create(stream=True) and messages.stream();
# - openinference-instrumentation-anthropic: 17000 and 300 each time.
# Costs from such spans are a fraction of the bill where answers are streamed. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check anthropic==2.14.0 opentelemetry-sdk==1.45.2 \
    opentelemetry-instrumentation-anthropic==0.62.4 openinference-instrumentation-anthropic==3.1.0 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from threading import Thread

import anthropic
from openinference.instrumentation.anthropic import AnthropicInstrumentor as OpenInference
from opentelemetry.instrumentation.anthropic import AnthropicInstrumentor as OpenLLMetry
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

FIRST = {"input_tokens": 2000, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
TOTAL = {"input_tokens": 3000, "cache_creation_input_tokens": 10000, "cache_read_input_tokens": 4000, "output_tokens": 300,
         "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 0}}
HEAD = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5", "stop_sequence": None}
PLAIN = {**HEAD, "content": [{"type": "text", "text": "Rain."}], "stop_reason": "end_turn", "usage": TOTAL}
EVENTS = [
    {"type": "message_start", "message": {**HEAD, "content": [], "stop_reason": None, "usage": FIRST}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Rain."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": TOTAL},
    {"type": "message_stop"},
]
STREAM = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in EVENTS)


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        streamed = json.loads(self.rfile.read(int(self.headers["content-length"]))).get("stream")
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.end_headers()
        self.wfile.write((STREAM if streamed else json.dumps(PLAIN)).encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
client = anthropic.Anthropic(api_key="none", base_url=f"http://127.0.0.1:{server.server_port}")
asked = {"model": "claude-sonnet-5", "max_tokens": 900, "messages": [{"role": "user", "content": "What is the weather?"}]}
for name, instrumentor, keys, streamed in (
    ("opentelemetry", OpenLLMetry(), ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"), (2000, 301)),
    ("openinference", OpenInference(), ("llm.token_count.prompt", "llm.token_count.completion"), (17000, 300)),
):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor.instrument(tracer_provider=provider)
    client.messages.create(**asked)
    list(client.messages.create(**asked, stream=True))
    with client.messages.stream(**asked) as stream:
        stream.until_done()
    instrumentor.uninstrument()
    seen = [tuple(span.attributes[key] for key in keys) for span in exporter.get_finished_spans()]
    print(f"{name}-instrumentation-anthropic", version(f"{name}-instrumentation-anthropic"), seen)
    if seen != [(17000, 300), streamed, streamed]:
        sys.exit("This is not what it did.")
PYTHON
