#!/usr/bin/env bash
# What litellm does with reasoning_details, in which OpenRouter gives signed and encrypted reasoning with a call of a tool,
# and in which it wants them back, unchanged, with the output of the call:
# - plainly, they are sent back under a key of litellm's own, provider_specific_fields, and none is where OpenRouter has it;
# - streamed and built by stream_chunk_builder, the message has none, so that a store has none either.
# agno sends both back under reasoning_details, plainly and streamed. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check litellm==1.110.2 agno==3.1.10 openai==3.57.0 2>/dev/null
LITELLM_LOCAL_MODEL_COST_MAP=True "$folder/venv/bin/python" -W ignore - <<'PYTHON' | tee "$folder/seen"
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import litellm
from agno.agent import Agent
from agno.models.openrouter import OpenRouter

MODEL = "anthropic/claude-sonnet-4.5"
KIND = {"format": "anthropic-claude-v1"}
DETAILS = [
    {"type": "reasoning.text", "text": "Hm.", "signature": "signature", **KIND, "index": 0},
    {"type": "reasoning.encrypted", "data": "encrypted", **KIND, "index": 1},
]
CALL = {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
FUNCTION = {"name": "find", "description": "Finds.", "parameters": {"type": "object", "properties": {}}}
MESSAGE = {"role": "assistant", "content": "I look.", "reasoning": "Hm.", "reasoning_details": DETAILS, "tool_calls": [CALL]}
DONE = {"role": "assistant", "content": "None."}
USAGE = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
HEAD = {"id": "gen-1", "created": 1, "model": MODEL}
asked = []


def chunk(delta, finish_reason=None, **others):
    choices = [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
    return json.dumps({**HEAD, "object": "chat.completion.chunk", "choices": choices, **others})


def chunks(done):
    if done:
        yield chunk(DONE)
    else:
        yield chunk({"role": "assistant", "content": "", "reasoning": "Hm.", "reasoning_details": DETAILS[:1]})
        yield chunk({"reasoning_details": DETAILS[1:]})
        yield chunk({"content": "I look."})
        yield chunk({"tool_calls": [{"index": 0, **CALL}]})
    yield chunk({}, "stop" if done else "tool_calls", usage=USAGE)
    yield "[DONE]"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        done = any(message["role"] == "tool" for message in asked[-1]["messages"])
        streamed = asked[-1].get("stream")
        choice = {"index": 0, "message": DONE if done else MESSAGE, "finish_reason": "stop" if done else "tool_calls"}
        body = json.dumps({**HEAD, "object": "chat.completion", "choices": [choice], "usage": USAGE})
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.end_headers()
        self.wfile.write(("".join(f"data: {one}\n\n" for one in chunks(done)) if streamed else body).encode())


def find():
    """Find it."""
    return "none"


def lite_llm(streamed):
    asking = {
        "model": f"openrouter/{MODEL}", "api_base": url, "api_key": "none",
        "tools": [{"type": "function", "function": FUNCTION}],
    }
    question = {"role": "user", "content": "Find it."}
    answer = litellm.completion(messages=[question], stream=streamed, **asking)
    message = (litellm.stream_chunk_builder(list(answer)) if streamed else answer).choices[0].message
    output = {"role": "tool", "tool_call_id": "call_1", "content": "none"}
    litellm.completion(messages=[question, message, output], **asking)


def agno(streamed):
    agent = Agent(model=OpenRouter(id=MODEL, api_key="none", base_url=url), tools=[find], telemetry=False)
    if streamed:
        list(agent.run("Find it.", stream=True))
    else:
        agent.run("Find it.")


def places(value):
    """The keys under which the signature or the encrypted data are, from the message on."""
    if isinstance(value, list):
        return {path for one in value for path in places(one)}
    if not isinstance(value, dict):
        return set()
    found = {f"{key}.{path}" for key, one in value.items() for path in places(one)}
    return found | ({"signature", "data"} & value.keys())


litellm.suppress_debug_info = True
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
for library in (lite_llm, agno):
    for name, streamed in (("plainly", False), ("streamed", True)):
        library(streamed)
        (answer,) = (message for message in asked[-1]["messages"] if message["role"] == "assistant")
        print(f"{library.__name__}, {name}, sent back:", *sorted(places(answer)))
PYTHON
diff - "$folder/seen" <<'SEEN'
lite_llm, plainly, sent back: provider_specific_fields.reasoning_details.data provider_specific_fields.reasoning_details.signature
lite_llm, streamed, sent back:
agno, plainly, sent back: reasoning_details.data reasoning_details.signature
agno, streamed, sent back: reasoning_details.data reasoning_details.signature
SEEN
