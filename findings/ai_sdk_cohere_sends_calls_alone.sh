#!/usr/bin/env bash
# What the AI SDK's provider for Cohere keeps of an answer that thinks, says what it does and calls a tool:
# - each later request has the calls alone: no text, no thinking and no tool plan, though Cohere's assistant messages have a
#   place for each of them, and its own guide sends tool_plan back. An answer without a call is sent with its text;
# - the tool plan is in no result either, neither plainly nor streamed;
# - citations are sources of a plain answer; of a streamed one there are none, and nothing says so.
# The same history goes to Mistral (@ai-sdk/mistral) with thinking, text and call.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --prefix "$folder" ai@7.0.173 @ai-sdk/cohere@4.0.52 @ai-sdk/mistral@4.0.87 zod@4.4.3
cat >"$folder/run.mjs" <<'JAVASCRIPT'
import { createCohere } from "@ai-sdk/cohere";
import { createMistral } from "@ai-sdk/mistral";
import { generateText, jsonSchema, streamText, tool } from "ai";
import { readFileSync } from "node:fs";

const THINKING = "Twelve is at the window.", TEXT = "I book seat 12.", PLAN = "I will book a seat.";
const call = { id: "abcdefghi", type: "function", function: { name: "book", arguments: '{"seat":12}' } };
const content = [{ type: "thinking", thinking: THINKING }, { type: "text", text: TEXT }];
const citation = { start: 7, end: 14, text: "seat 12", sources: [{ type: "document", id: "d", document: { text: "12 is free", title: "Seats" } }] };
const usage = { tokens: { input_tokens: 100, output_tokens: 20 } };
const message = { role: "assistant", tool_plan: PLAN, content, tool_calls: [call], citations: [citation] };
const plain = { id: "g", generation_id: "g", message, finish_reason: "TOOL_CALL", usage };
const delta = (message) => ({ delta: { message } });
const events = [
  { type: "message-start", id: "g", ...delta({ role: "assistant", content: [], tool_plan: "", tool_calls: [], citations: [] }) },
  ...content.flatMap(({ type, ...rest }, index) => [
    { type: "content-start", index, ...delta({ content: { type, [type]: "" } }) },
    { type: "content-delta", index, ...delta({ content: rest }) },
    ...(type === "text" ? [{ type: "citation-start", index: 0, ...delta({ citations: citation }) }, { type: "citation-end", index: 0 }] : []),
    { type: "content-end", index },
  ]),
  { type: "tool-plan-delta", ...delta({ tool_plan: PLAN }) },
  { type: "tool-call-start", index: 0, ...delta({ tool_calls: { ...call, function: { name: "book", arguments: "" } } }) },
  { type: "tool-call-delta", index: 0, ...delta({ tool_calls: { function: { arguments: call.function.arguments } } }) },
  { type: "tool-call-end", index: 0 },
  { type: "message-end", id: "g", delta: { finish_reason: "TOOL_CALL", usage } },
];
const answers = {
  plainly: new Response(JSON.stringify(plain), { headers: { "content-type": "application/json" } }),
  streamed: new Response(events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join(""),
    { headers: { "content-type": "text/event-stream" } }),
};
let answer, sent;
const fetch = async (_, { body }) => {
  sent = JSON.parse(body).messages;
  if (!answer) throw new Error("no provider is asked");
  return answer;
};
const tools = { book: tool({ inputSchema: jsonSchema({ type: "object", properties: { seat: { type: "number" } } }) }) };
const question = { role: "user", content: "A seat, please." };
const models = { cohere: createCohere({ apiKey: "none", fetch })("m"), mistral: createMistral({ apiKey: "none", fetch })("m") };
const told = () => {
  const now = JSON.stringify(sent[1]);
  return Object.entries({ THINKING, PLAN, TEXT, call: call.id }).filter(([, words]) => now.includes(words)).map(([name]) => name).join(" ");
};
async function ask(name, messages) {
  answer = undefined;
  await generateText({ model: models[name], tools, messages, maxRetries: 0 }).catch(() => {});
  const { version } = JSON.parse(readFileSync(new URL(`node_modules/@ai-sdk/${name}/package.json`, import.meta.url)));
  console.log(`@ai-sdk/${name} ${version} sends: ${told()}`);
}

for (const way of ["plainly", "streamed"]) {
  answer = answers[way];
  const options = { model: models.cohere, tools, messages: [question] };
  const result = way === "plainly" ? await generateText(options) : streamText(options);
  const parts = await result.content, { messages } = await result.response;
  const types = parts.map(({ type }) => type).join(" ");
  console.log(`${way}, the answer: ${types}; tool plan: ${JSON.stringify([parts, messages]).includes(PLAN)}`);
  const output = { type: "tool-result", toolCallId: call.id, toolName: "book", output: { type: "text", value: "Booked." } };
  const history = [question, ...messages, { role: "tool", content: [output] }];
  for (const name of Object.keys(models)) await ask(name, history);
}
await ask("cohere", [question, { role: "assistant", content: [{ type: "text", text: TEXT }] }, question]);
JAVASCRIPT
node "$folder/run.mjs" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
plainly, the answer: reasoning text source tool-call; tool plan: false
@ai-sdk/cohere 4.0.52 sends: call
@ai-sdk/mistral 4.0.87 sends: THINKING TEXT call
streamed, the answer: reasoning text tool-call; tool plan: false
@ai-sdk/cohere 4.0.52 sends: call
@ai-sdk/mistral 4.0.87 sends: THINKING TEXT call
@ai-sdk/cohere 4.0.52 sends: TEXT
SEEN
