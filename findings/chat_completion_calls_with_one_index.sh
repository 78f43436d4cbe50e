#!/usr/bin/env bash
# What becomes of two calls of tools in a streamed Chat Completion whose chunks have the same index, 0, and ids of their
# own, as some compatible servers stream them (each call whole in its chunk):
# - openai (Python) 3.57.0: one call. Its id is both ids in a row, its name both names, its arguments both objects.
# - openai (npm) 7.59.0: one call, with the second id and name and the arguments of both; the first call is gone.
# - @ai-sdk/openai-compatible 2.0.92 and @langchain/openai 1.5.8: both calls, as they were sent.
# Where the id and name of one call stand in each of its chunks, only Python's client goes wrong: it doubles both.
# Where the only call has the index 1, both of OpenAI's raise an error about a place that does not exist.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check openai==3.57.0
npm install --silent --no-fund --no-audit --prefix "$folder" openai@7.59.0 @ai-sdk/openai-compatible@2.0.92 \
    @langchain/openai@1.5.8 @langchain/core@1.4.0
cat >"$folder/cases.json" <<'JSON'
{
  "same index": [
    [{"index": 0, "id": "call_a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}}],
    [{"index": 0, "id": "call_b", "type": "function", "function": {"name": "g", "arguments": "{\"y\":2}"}}]
  ],
  "id repeated": [
    [{"index": 0, "id": "call_a", "type": "function", "function": {"name": "f", "arguments": "{\"x\""}}],
    [{"index": 0, "id": "call_a", "type": "function", "function": {"name": "f", "arguments": ":1}"}}]
  ],
  "index 1": [[{"index": 1, "id": "call_a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}}]]
}
JSON
cat >"$folder/server.py" <<'PYTHON'
import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from openai import OpenAI

CASES = json.loads(Path(sys.argv[1]).read_text())


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        deltas = [({"role": "assistant", "tool_calls": calls}, None) for calls in CASES[asked["model"]]]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for delta, reason in [*deltas, ({}, "tool_calls")]:
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            event = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/v1"
client = OpenAI(base_url=url, api_key="x", max_retries=0)
for name in CASES:
    try:
        with client.chat.completions.stream(model=name, messages=[{"role": "user", "content": "q"}]) as stream:
            calls = stream.get_final_completion().choices[0].message.tool_calls
            seen = " ".join(f"{one.id} {one.function.name} {one.function.arguments}" for one in calls)
    except IndexError as error:
        seen = type(error).__name__
    print(f"openai (Python), {name}: {seen}", flush=True)
subprocess.run(["node", sys.argv[2], url, *CASES], check=True)
PYTHON
cat >"$folder/clients.mjs" <<'JAVASCRIPT'
import OpenAI from "openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { ChatOpenAI } from "@langchain/openai";
const [url, ...names] = process.argv.slice(2);
const clients = {
  "openai (npm)": async (model) => {
    const client = new OpenAI({ apiKey: "x", baseURL: url, maxRetries: 0 });
    const stream = client.chat.completions.stream({ model, messages: [{ role: "user", content: "q" }] });
    const { tool_calls } = (await stream.finalChatCompletion()).choices[0].message;
    return tool_calls.map((one) => [one.id, one.function.name, one.function.arguments]);
  },
  "openai-compatible": async (model) => {
    const prompt = [{ role: "user", content: [{ type: "text", text: "q" }] }];
    const { stream } = await createOpenAICompatible({ name: "p", baseURL: url })(model).doStream({ prompt });
    const calls = [];
    for await (const part of stream) {
      if (part.type === "tool-call") calls.push([part.toolCallId, part.toolName, part.input]);
    }
    return calls;
  },
  langchain: async (model) => {
    const chat = new ChatOpenAI({ model, apiKey: "x", maxRetries: 0, configuration: { baseURL: url } });
    let all;
    for await (const part of await chat.stream("q")) all = all ? all.concat(part) : part;
    return all.tool_calls.map((one) => [one.id, one.name, JSON.stringify(one.args)]);
  },
};
for (const [client, run] of Object.entries(clients)) {
  for (const name of names) {
    const seen = await run(name).then((calls) => calls.flat().join(" "), (error) => `error: ${error.message.split("\n")[0]}`);
    console.log(`${client}, ${name}: ${seen}`);
  }
}
JAVASCRIPT
"$folder/env/bin/python" "$folder/server.py" "$folder/cases.json" "$folder/clients.mjs" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
openai (Python), same index: call_acall_b fg {"x":1}{"y":2}
openai (Python), id repeated: call_acall_a ff {"x":1}
openai (Python), index 1: IndexError
openai (npm), same index: call_b g {"x":1}{"y":2}
openai (npm), id repeated: call_a f {"x":1}
openai (npm), index 1: error: Cannot read properties of undefined (reading 'id')
openai-compatible, same index: call_a f {"x":1} call_b g {"y":2}
openai-compatible, id repeated: call_a f {"x":1}
openai-compatible, index 1: call_a f {"x":1}
langchain, same index: call_a f {"x":1} call_b g {"y":2}
langchain, id repeated: call_a f {"x":1}
langchain, index 1: call_a f {"x":1}
SEEN
