#!/usr/bin/env bash
# What the AI SDK's provider for OpenAI makes of a streamed response that completes without usage, which the API's types
# allow (`usage` is optional in them), by its version:
# - @ai-sdk/openai 2.0.131 does not count the event response.completed: the stream ends without an error and with its
#   whole text, but with the finish reason "unknown", which agents take for a step after which the model goes on;
# - 3.0.141 and 4.0.118 have the finish reason "stop".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for version in 2.0.131 3.0.141 4.0.118; do
    npm install --silent --no-fund --no-audit --prefix "$folder/$version" "@ai-sdk/openai@$version"
done
cat >"$folder/run.mjs" <<'JAVASCRIPT'
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { createOpenAI } from "@ai-sdk/openai";
const { version } = JSON.parse(readFileSync(new URL("node_modules/@ai-sdk/openai/package.json", import.meta.url)));
const without = version.startsWith("2.") ? "unknown" : "stop";
console.log(`@ai-sdk/openai ${version}`);
const part = { type: "output_text", text: "Done.", annotations: [] };
const item = { type: "message", id: "msg_1", role: "assistant", status: "completed", content: [part] };
const head = { id: "resp_1", object: "response", created_at: 1, model: "m", error: null, incomplete_details: null };
const place = { item_id: "msg_1", output_index: 0, content_index: 0 };
const usage = { input_tokens: 5, input_tokens_details: { cached_tokens: 0 }, output_tokens: 1, total_tokens: 6,
  output_tokens_details: { reasoning_tokens: 0 } };
const endings = { "with usage": { usage }, "without usage": {}, "usage null": { usage: null } };
const expected = { "with usage": "stop", "without usage": without, "usage null": without };
for (const [name, more] of Object.entries(endings)) {
  const events = [
    { type: "response.created", response: { ...head, status: "in_progress", output: [] } },
    { type: "response.output_item.added", output_index: 0, item: { ...item, status: "in_progress", content: [] } },
    { type: "response.output_text.delta", ...place, delta: "Done." },
    { type: "response.output_item.done", output_index: 0, item },
    { type: "response.completed", response: { ...head, status: "completed", output: [item], ...more } },
  ].map((event, sequence_number) => ({ ...event, sequence_number }));
  const server = createServer((_, answer) => {
    answer.writeHead(200, { "content-type": "text/event-stream" });
    answer.end(events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join(""));
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  const baseURL = `http://127.0.0.1:${server.address().port}/v1`;
  const model = createOpenAI({ baseURL, apiKey: "none" }).responses("m");
  const { stream } = await model.doStream({ prompt: [{ role: "user", content: [{ type: "text", text: "Hi" }] }] });
  let text = "", finish, errors = 0;
  for await (const chunk of stream) {
    if (chunk.type === "text-delta") text += chunk.delta;
    if (chunk.type === "error") errors += 1;
    if (chunk.type === "finish") finish = chunk.finishReason.unified ?? chunk.finishReason;
  }
  server.close();
  console.log(`${name}: text ${JSON.stringify(text)}, finish reason ${finish}, ${errors} errors`);
  if (text !== "Done." || finish !== expected[name]) process.exitCode = 1;
}
JAVASCRIPT
for version in 2.0.131 3.0.141 4.0.118; do
    cp "$folder/run.mjs" "$folder/$version/"
    node "$folder/$version/run.mjs"
done
