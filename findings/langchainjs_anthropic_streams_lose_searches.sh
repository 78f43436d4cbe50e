#!/usr/bin/env bash
# One answer of Anthropic with a web search, asked plainly and streamed through @langchain/anthropic, and then sent back by
# it with the next question:
# - what was searched for is gone once it was streamed: the input of server_tool_use is {} in the next request, beside the
#   results of the search. Calls of the user's own tools keep their input, whose text has the same form in the message;
# - usage_metadata counts 17000 in, 300 out plainly, and 2000 in, 308 out streamed. The counts in message_delta are totals,
#   and greater than those in message_start, since the results are read within the answer; it takes the input and what was
#   written to the cache and read from it from message_start alone, and adds up the output of both events.
# Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --prefix "$folder" @langchain/anthropic@1.5.11 @langchain/core@1.4.0
cat >"$folder/run.mjs" <<'JAVASCRIPT'
import { ChatAnthropic } from "@langchain/anthropic";
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";

const results = [{ type: "web_search_result", url: "https://a.example/", title: "A", encrypted_content: "x", page_age: null }];
const content = [
  { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: { query: "free seats" } },
  { type: "web_search_tool_result", tool_use_id: "srvtoolu_1", content: results },
  { type: "text", text: "Seat 12 is free." },
  { type: "tool_use", id: "toolu_1", name: "book", input: { seat: 12 } },
];
const first = { input_tokens: 2000, cache_creation_input_tokens: 0, cache_read_input_tokens: 0, output_tokens: 8 };
const usage = { input_tokens: 9000, cache_creation_input_tokens: 5000, cache_read_input_tokens: 3000, output_tokens: 300 };
const message = { id: "msg_1", type: "message", role: "assistant", model: "claude-sonnet-5", stop_sequence: null };
const whole = { ...message, content, stop_reason: "tool_use", usage };
const events = [
  { type: "message_start", message: { ...message, content: [], stop_reason: null, usage: first } },
  ...content.flatMap((block, index) => {
    const { text, input } = block;
    const content_block = { ...block, ...(text && { text: "" }), ...(input && { input: {} }) };
    const delta = text ? { type: "text_delta", text } : { type: "input_json_delta", partial_json: JSON.stringify(input) };
    const deltas = text || input ? [{ type: "content_block_delta", index, delta }] : [];
    return [{ type: "content_block_start", index, content_block }, ...deltas, { type: "content_block_stop", index }];
  }),
  { type: "message_delta", delta: { stop_reason: "tool_use", stop_sequence: null }, usage },
  { type: "message_stop" },
];

let sent;
const server = createServer(async (request, response) => {
  let body = "";
  for await (const part of request) body += part;
  sent = JSON.parse(body);
  response.setHeader("content-type", sent.stream ? "text/event-stream" : "application/json");
  const lines = events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
  response.end(sent.stream ? lines.join("") : JSON.stringify(whole));
});
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const anthropicApiUrl = `http://127.0.0.1:${server.address().port}`;
const tools = [
  { type: "web_search_20250305", name: "web_search" },
  { name: "book", description: "Book a seat.", input_schema: { type: "object", properties: { seat: { type: "number" } } } },
];
const model = new ChatAnthropic({ model: "claude-sonnet-5", apiKey: "none", anthropicApiUrl }).bindTools(tools);

async function streamed() {
  let answer;
  for await (const chunk of await model.stream("Book a seat.")) answer = answer ? answer.concat(chunk) : chunk;
  return answer;
}
const { version } = JSON.parse(readFileSync(new URL("node_modules/@langchain/anthropic/package.json", import.meta.url)));
for (const [way, answer] of [["plainly", await model.invoke("Book a seat.")], ["streamed", await streamed()]]) {
  const output = new ToolMessage({ content: "Booked.", tool_call_id: "toolu_1" });
  await model.invoke([new HumanMessage("Book a seat."), answer, output, new HumanMessage("Thanks.")]);
  const [search, , , call] = sent.messages[1].content;
  const { input_tokens, output_tokens } = answer.usage_metadata;
  console.log(`@langchain/anthropic ${version}, ${way}: ${input_tokens} in, ${output_tokens} out; sent back`,
    JSON.stringify(search.input), JSON.stringify(call.input));
}
server.close();
JAVASCRIPT
node "$folder/run.mjs" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
@langchain/anthropic 1.5.11, plainly: 17000 in, 300 out; sent back {"query":"free seats"} {"seat":12}
@langchain/anthropic 1.5.11, streamed: 2000 in, 308 out; sent back {} {"seat":12}
SEEN
