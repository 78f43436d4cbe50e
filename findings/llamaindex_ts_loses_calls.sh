#!/usr/bin/env bash
# What an agent of LlamaIndex.TS over Chat Completions makes of an answer with two calls:
# - where both are in one chunk of the stream, as servers send them that stream calls whole, the second is lost: its tool
#   does not run, and no later request has it;
# - its memory counts messages from the newest on when they no longer fit the model's window, and stops at the first that
#   is too much, also between two outputs of one answer: the next request begins with an output whose call is not there,
#   which providers refuse, in this and each later request;
# - it counts texts alone: arguments of calls are nothing, so files that were written are sent in full each time, here
#   40000 words to a model with 8192 tokens;
# - `tokenLimit` of the memory, here 100, counts only where the window of the model is not known.
# And `memory.get({ type: "vercel" })` has these messages without the calls. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --legacy-peer-deps --prefix "$folder" llamaindex@0.12.1 @llamaindex/openai@0.4.23 \
    @llamaindex/workflow@1.1.25 zod@4.4.3
cat >"$folder/run.mjs" <<'JAVASCRIPT'
import { OpenAI } from "@llamaindex/openai";
import { agent } from "@llamaindex/workflow";
import { createMemory, tool } from "llamaindex";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { z } from "zod";

const { version } = JSON.parse(readFileSync(new URL("node_modules/llamaindex/package.json", import.meta.url)));
const answers = [];
let sent;
const server = createServer(async (request, response) => {
  let body = "";
  for await (const part of request) body += part;
  sent = JSON.parse(body).messages;
  const deltas = answers.shift();
  response.setHeader("content-type", "text/event-stream");
  for (const [place, delta] of deltas.entries()) {
    const finish_reason = place < deltas.length - 1 ? null : delta.content ? "stop" : "tool_calls";
    const choices = [{ index: 0, delta: { role: "assistant", ...delta }, finish_reason }];
    response.write(`data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "m", choices })}\n\n`);
  }
  response.end("data: [DONE]\n\n");
});
await new Promise((done) => server.listen(0, "127.0.0.1", done));

// a window of 8192 tokens, of which the memory gives 4015 to messages
const llm = new OpenAI({ model: "gpt-4", apiKey: "none", baseURL: `http://127.0.0.1:${server.address().port}/v1`, maxRetries: 0 });
const told = ({ role, tool_calls, tool_call_id }) => tool_call_id ? `output of ${tool_call_id}` : tool_calls?.map(({ id }) => id).join(" + ") ?? role;
const words = (number) => "word ".repeat(number);
const chunks = (calls) => calls.map((call) => ({ tool_calls: [call] }));
const cases = [[1, 1, chunks], [1, 1, (calls) => [{ tool_calls: calls }]], [1, 2500, chunks], [20000, 1, chunks]];
for (const [written, read, split] of cases) {
  const file = tool({
    name: "file", description: "Write a file, and read it.", parameters: z.object({ text: z.string() }), execute: () => words(read),
  });
  const memory = createMemory([], { tokenLimit: 100 });
  const writer = agent({ tools: [file], llm, memory, systemPrompt: "Write." });
  const input = { name: "file", arguments: JSON.stringify({ text: words(written) }) };
  const calls = split(["call_1", "call_2"].map((id, index) => ({ index, id, type: "function", function: input })));
  answers.push(calls, [{ content: "Done." }], [{ content: "Yes." }]);
  await writer.run("Write two files.");
  await writer.run("Are they there?");
  console.log(`llamaindex ${version}, ${written} words written, ${read} read, ${calls.length} chunks: ${sent.map(told).join(", ")}`);
  const parts = (await memory.get({ type: "vercel" })).flatMap((message) => message.parts.map(({ type }) => type));
  console.log(`for the AI SDK: ${parts.join(", ")}`);
}
server.close();
JAVASCRIPT
node "$folder/run.mjs" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
llamaindex 0.12.1, 1 words written, 1 read, 2 chunks: system, user, call_1 + call_2, output of call_1, output of call_2, assistant, user
for the AI SDK: text, text, text, text, text, text, text
llamaindex 0.12.1, 1 words written, 1 read, 1 chunks: system, user, call_1, output of call_1, assistant, user
for the AI SDK: text, text, text, text, text, text
llamaindex 0.12.1, 1 words written, 2500 read, 2 chunks: system, output of call_2, assistant, user
for the AI SDK: text, text, text, text, text, text, text
llamaindex 0.12.1, 20000 words written, 1 read, 2 chunks: system, user, call_1 + call_2, output of call_1, output of call_2, assistant, user
for the AI SDK: text, text, text, text, text, text, text
SEEN
