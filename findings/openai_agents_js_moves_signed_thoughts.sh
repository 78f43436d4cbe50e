#!/usr/bin/env bash
# What the Agents SDK for JavaScript makes of the thoughts of an agent whose model is one of the AI SDK (by its adapter in
# agents-extensions) and streams. The AI SDK counts the parts of each answer, the adapter makes ids of items of that, and
# the Agents SDK takes an id for one item of reasoning in the whole run: the first thought of every answer of Anthropic is "0".
# - In a run of two calls, the third request has the thought and the signature of the second answer in the first answer,
#   and none in the second, whose call Anthropic had signed it for. The thought of the first is nowhere.
# - The session keeps one thought of each run, the last, in the first answer, and later runs send it so.
# Asked plainly, the items have no ids, and all is sent as it came. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --legacy-peer-deps --prefix "$folder" @openai/agents@0.20.0 \
    @openai/agents-extensions@0.18.0 @ai-sdk/anthropic@4.0.105 ai@7.0.173 zod@4.4.3
cat >"$folder/run.mjs" <<'JAVASCRIPT'
import { createAnthropic } from "@ai-sdk/anthropic";
import { Agent, MemorySession, run, setTracingDisabled, tool } from "@openai/agents";
import { aisdk } from "@openai/agents-extensions/ai-sdk";
import { readFileSync } from "node:fs";
import { z } from "zod";

setTracingDisabled(true);
const book = tool({ name: "book", description: "Book a seat.", parameters: z.object({ seat: z.number() }), execute: ({ seat }) => `Booked ${seat}.` });
const versions = ["agents", "agents-extensions"].map((name) => {
  const { version } = JSON.parse(readFileSync(new URL(`node_modules/@openai/${name}/package.json`, import.meta.url)));
  return `${name} ${version}`;
});
console.log(versions.join(", "));
const answered = (body, isStreamed) => new Response(isStreamed ? body : JSON.stringify(body),
  { headers: { "content-type": isStreamed ? "text/event-stream" : "application/json" } });

const thought = (number) => ({ type: "thinking", thinking: `Thought ${number}.`, signature: `signature-${number}` });
const use = (seat) => ({ type: "tool_use", id: `toolu_${seat}`, name: "book", input: { seat } });
const turns = [[thought(1), use(12)], [thought(2), use(13)], [thought(3), { type: "text", text: "Done." }], [{ type: "text", text: "Yes." }]];
const usage = { input_tokens: 9, output_tokens: 9 };
function events(message) {
  const { content, stop_reason } = message;
  const deltas = {
    thinking: ({ thinking, signature }) => [{ type: "thinking_delta", thinking }, { type: "signature_delta", signature }],
    tool_use: ({ input }) => [{ type: "input_json_delta", partial_json: JSON.stringify(input) }],
    text: ({ text }) => [{ type: "text_delta", text }],
  };
  const empty = { thinking: { thinking: "", signature: "" }, tool_use: { input: {} }, text: { text: "" } };
  return [
    { type: "message_start", message: { ...message, content: [], stop_reason: null } },
    ...content.flatMap((block, index) => [
      { type: "content_block_start", index, content_block: { ...block, ...empty[block.type] } },
      ...deltas[block.type](block).map((delta) => ({ type: "content_block_delta", index, delta })),
      { type: "content_block_stop", index },
    ]),
    { type: "message_delta", delta: { stop_reason, stop_sequence: null }, usage },
    { type: "message_stop" },
  ].map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join("");
}
let place, sent;
const anthropic = async (_, { body }) => {
  sent = JSON.parse(body);
  const content = turns[place++];
  const stop_reason = content.some(({ type }) => type === "tool_use") ? "tool_use" : "end_turn";
  const message = { id: `msg_${place}`, type: "message", role: "assistant", model: "m", content, stop_reason, stop_sequence: null, usage };
  return answered(sent.stream ? events(message) : message, sent.stream);
};
const blocks = () => sent.messages.filter(({ role }) => role === "assistant").map(({ content }) =>
  content.map(({ type, thinking, signature, input }) => (thinking ? `${thinking} (${signature})` : input ? `call ${input.seat}` : type)).join(" + ")).join("; ");
for (const stream of [false, true]) {
  place = 0;
  const model = aisdk(createAnthropic({ apiKey: "none", fetch: anthropic })("claude-sonnet-5"));
  const agent = new Agent({ name: "a", instructions: "Book.", model, tools: [book] });
  const session = new MemorySession();
  for (const question of ["Book 12 and 13.", "Are they booked?"]) {
    const result = await run(agent, question, { session, stream });
    if (stream) await result.completed;
    console.log(`Anthropic ${stream ? "streamed" : "plainly"}: ${blocks()}`);
  }
}
JAVASCRIPT
node "$folder/run.mjs" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
agents 0.20.0, agents-extensions 0.18.0
Anthropic plainly: Thought 1. (signature-1) + call 12; Thought 2. (signature-2) + call 13
Anthropic plainly: Thought 1. (signature-1) + call 12; Thought 2. (signature-2) + call 13; Thought 3. (signature-3) + text
Anthropic streamed: Thought 2. (signature-2) + call 12; call 13
Anthropic streamed: Thought 3. (signature-3) + call 12; call 13; text
SEEN
