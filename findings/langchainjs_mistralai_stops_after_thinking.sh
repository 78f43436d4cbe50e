#!/usr/bin/env bash
# What @langchain/mistralai does with answers of Mistral's models that think, of which it makes the message itself:
# - the message has the thinking and the text, and so has a store, but it cannot be sent back: each later request of the
#   conversation is an error before anything is sent, with a call of a tool and without one, plainly and streamed. A thread
#   that is stored with it cannot be continued;
# - an answer with a text beside a call, without thinking, is sent back as the call alone: the model does not see what it
#   told the user before.
# @langchain/openai sends the text and the call of the same answer back.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --legacy-peer-deps --prefix "$folder" @langchain/mistralai@1.2.0 @langchain/openai@1.6.0 \
    @langchain/core@1.4.0
cat >"$folder/run.mjs" <<'JAVASCRIPT'
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { ChatMistralAI } from "@langchain/mistralai";
import { ChatOpenAI } from "@langchain/openai";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";

const TEXT = "I book seat 12.";
const thinking = [{ type: "thinking", thinking: [{ type: "text", text: "Hm." }] }, { type: "text", text: TEXT }];
const calls = [{ id: "abcdefghi", index: 0, type: "function", function: { name: "book", arguments: '{"seat":12}' } }];
const usage = { prompt_tokens: 9, completion_tokens: 9, total_tokens: 18 };
let given, sent;
const server = createServer(async (request, response) => {
  let body = "";
  for await (const part of request) body += part;
  const { stream, messages } = JSON.parse(body);
  sent = messages;
  const choice = { index: 0, finish_reason: given.tool_calls ? "tool_calls" : "stop", [stream ? "delta" : "message"]: { role: "assistant", ...given } };
  const answer = JSON.stringify({ id: "r", object: `chat.completion${stream ? ".chunk" : ""}`, created: 1, model: "m", choices: [choice], usage });
  response.setHeader("content-type", stream ? "text/event-stream" : "application/json");
  response.end(stream ? `data: ${answer}\n\ndata: [DONE]\n\n` : answer);
});
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const url = `http://127.0.0.1:${server.address().port}`;
const models = {
  mistralai: new ChatMistralAI({ model: "m", apiKey: "none", serverURL: url, maxRetries: 0 }),
  openai: new ChatOpenAI({ model: "m", apiKey: "none", maxRetries: 0, configuration: { baseURL: `${url}/v1` } }),
};
async function streamed(model) {
  let answer;
  for await (const chunk of await model.stream("A seat, please.")) answer = answer ? answer.concat(chunk) : chunk;
  return answer;
}
const cases = [["mistralai", { content: thinking }], ["mistralai", { content: thinking, tool_calls: calls }], ["mistralai", { content: TEXT, tool_calls: calls }],
  ["mistralai", { content: TEXT }], ["openai", { content: TEXT, tool_calls: calls }]];
for (const [name, answer] of cases) {
  const model = models[name];
  const { version } = JSON.parse(readFileSync(new URL(`node_modules/@langchain/${name}/package.json`, import.meta.url)));
  const what = [answer.content === thinking && "thinking", "text", answer.tool_calls && "call"].filter(Boolean).join(", ");
  for (const way of ["plainly", "streamed"]) {
    given = answer;
    const message = way === "plainly" ? await model.invoke("A seat, please.") : await streamed(model);
    const outputs = message.tool_calls.map(({ id, name }) => new ToolMessage({ content: "Booked.", tool_call_id: id, name }));
    given = { content: "Ok." };
    const told = await model.invoke([new HumanMessage("A seat, please."), message, ...outputs, new HumanMessage("Which?")])
      .then(() => `sent back text ${JSON.stringify(sent[1].content ?? null)}, calls ${sent[1].tool_calls?.length ?? 0}`, (error) => `error: ${error.message}`);
    console.log(`@langchain/${name} ${version}, ${what}, ${way}: has ${JSON.stringify(message.text)}; ${told}`);
  }
}
server.close();
JAVASCRIPT
node "$folder/run.mjs" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
@langchain/mistralai 1.2.0, thinking, text, plainly: has "I book seat 12."; error: Mistral only supports types "text" or "image_url" for complex message types.
@langchain/mistralai 1.2.0, thinking, text, streamed: has "I book seat 12."; error: Mistral only supports types "text" or "image_url" for complex message types.
@langchain/mistralai 1.2.0, thinking, text, call, plainly: has "I book seat 12."; error: Mistral only supports types "text" or "image_url" for complex message types.
@langchain/mistralai 1.2.0, thinking, text, call, streamed: has "I book seat 12."; error: Mistral only supports types "text" or "image_url" for complex message types.
@langchain/mistralai 1.2.0, text, call, plainly: has "I book seat 12."; sent back text null, calls 1
@langchain/mistralai 1.2.0, text, call, streamed: has "I book seat 12."; sent back text null, calls 1
@langchain/mistralai 1.2.0, text, plainly: has "I book seat 12."; sent back text "I book seat 12.", calls 0
@langchain/mistralai 1.2.0, text, streamed: has "I book seat 12."; sent back text "I book seat 12.", calls 0
@langchain/openai 1.6.0, text, call, plainly: has "I book seat 12."; sent back text "I book seat 12.", calls 1
@langchain/openai 1.6.0, text, call, streamed: has "I book seat 12."; sent back text "I book seat 12.", calls 1
SEEN
