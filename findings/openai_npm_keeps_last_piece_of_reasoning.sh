#!/usr/bin/env bash
# What the clients of OpenAI make of reasoning that a compatible server streams beside a Chat Completion (reasoning_content
# of DeepSeek, Kimi, GLM, Qwen and vLLM; reasoning of OpenRouter and Ollama), whose models want it back while they call tools:
# - openai (npm) 7.59.0: the message of `chat.completions.stream()` has the last piece alone, here "so." of "I think so.".
#   Text, refusals, audio and arguments are added up, every other key of a delta replaces what came before;
# - openai (Python) 3.57.0: all of it.
# - `runTools()` of npm's, which asks again by itself, sends the call without any reasoning, streamed or not, also where its
#   own `messages` have it; and without extra_content of the call, in which Gemini's endpoint gives the thought signature.
# Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check openai==3.57.0 2>/dev/null
npm install --silent --no-fund --no-audit --prefix "$folder" openai@7.59.0
cat >"$folder/server.py" <<'PYTHON'
import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from threading import Thread

from openai import OpenAI

FUNCTION = {"name": "book", "arguments": '{"seat":12}'}
CALL = {"id": "call_a", "type": "function", "function": FUNCTION, "extra_content": {"google": {"thought_signature": "s"}}}
DELTAS = [
    *({"role": "assistant", "reasoning_content": piece} for piece in ("I ", "think ", "so.")),
    *({"reasoning": piece} for piece in ("I ", "think ", "so.")),
    *({"content": piece} for piece in ("I ", "book ", "it.")),
    {"tool_calls": [{"index": 0, **CALL}]},
]
THOUGHT = {"reasoning_content": "I think so.", "reasoning": "I think so."}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ended = asked["messages"][-1]["role"] == "tool"
        reason = "stop" if ended else "tool_calls"
        whole = {"role": "assistant", "content": "I book it.", "tool_calls": [CALL], **THOUGHT}
        done = {"role": "assistant", "content": json.dumps(asked["messages"][1:2])}
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if asked.get("stream") else "application/json")
        self.end_headers()
        about = {"id": "c", "created": 1, "model": "m"}
        if not asked.get("stream"):
            choice = {"index": 0, "message": done if ended else whole, "finish_reason": reason}
            self.wfile.write(json.dumps({**about, "object": "chat.completion", "choices": [choice]}).encode())
            return
        for delta, end in [*((delta, None) for delta in ([done] if ended else DELTAS)), ({}, reason)]:
            choice = {"index": 0, "delta": delta, "finish_reason": end}
            event = {**about, "object": "chat.completion.chunk", "choices": [choice]}
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/v1"
client = OpenAI(base_url=url, api_key="none", max_retries=0)
with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "q"}]) as stream:
    message = stream.get_final_completion().choices[0].message
print(f"openai (Python) {version('openai')}: {message.reasoning_content} | {message.reasoning} | {message.content}", flush=True)
subprocess.run(["node", sys.argv[1], url], check=True)
PYTHON
cat >"$folder/client.mjs" <<'JAVASCRIPT'
import { readFileSync } from "node:fs";
import OpenAI from "openai";
const { version } = JSON.parse(readFileSync(new URL("node_modules/openai/package.json", import.meta.url)));
const client = new OpenAI({ apiKey: "none", baseURL: process.argv[2], maxRetries: 0 });
const asked = { model: "m", messages: [{ role: "user", content: "q" }] };
const { message } = (await client.chat.completions.stream(asked).finalChatCompletion()).choices[0];
console.log(`openai (npm) ${version}: ${message.reasoning_content} | ${message.reasoning} | ${message.content}`);
const parameters = { type: "object", properties: { seat: { type: "number" } } };
const book = { type: "function", function: { name: "book", parameters, parse: JSON.parse, function: async () => "Booked." } };
for (const stream of [false, true]) {
  const runner = client.chat.completions.runTools({ ...asked, stream, tools: [book] });
  const [sent] = JSON.parse(await runner.finalContent());
  const [, kept] = runner.messages;
  console.log(`runTools, ${stream ? "streamed" : "plainly"}: keeps ${kept.reasoning_content}; sends ${Object.keys(sent)},`,
    `of the call ${Object.keys(sent.tool_calls[0])}`);
}
JAVASCRIPT
"$folder/env/bin/python" "$folder/server.py" "$folder/client.mjs" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
openai (Python) 3.57.0: I think so. | I think so. | I book it.
openai (npm) 7.59.0: so. | so. | I book it.
runTools, plainly: keeps I think so.; sends role,content,tool_calls, of the call id,type,function
runTools, streamed: keeps so.; sends role,content,tool_calls, of the call id,type,function
SEEN
