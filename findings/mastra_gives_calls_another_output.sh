#!/usr/bin/env bash
# What an agent of Mastra makes of call ids that a provider counts anew in each answer (call_0), where the AI SDK, whose
# models it uses, sends each call with its own output:
# - within one run, the second call takes the place of the first: the next request has one call, with the arguments of the
#   first and the output of the second, and the texts change their order: "Second.First.";
# - with a memory, a call of the second run gets the output of the first run's call, though its tool has run with its own
#   arguments: the model is told that the seat 12 is booked where it has asked for 13. All later requests of the thread,
#   which come from the store, have it so.
# Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --legacy-peer-deps --prefix "$folder" @mastra/core@1.71.0 @mastra/memory@1.31.0 \
    @mastra/libsql@1.23.1 @ai-sdk/openai-compatible@3.0.61 ai@7.0.173 zod@4.4.3
cat >"$folder/run.mjs" <<'JAVASCRIPT'
import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import { LibSQLStore } from "@mastra/libsql";
import { Memory } from "@mastra/memory";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { jsonSchema, stepCountIs, streamText, tool } from "ai";
import { readFileSync } from "node:fs";
import { z } from "zod";

const answers = [];
let sent, ran;
const usage = { prompt_tokens: 9, completion_tokens: 9, total_tokens: 18 };
async function fetch(_, { body }) {
  sent = JSON.parse(body).messages;
  const [content, seat] = answers.shift();
  const call = { index: 0, id: "call_0", type: "function", function: { name: "book", arguments: JSON.stringify({ seat }) } };
  const delta = { role: "assistant", content, ...(seat && { tool_calls: [call] }) };
  const choices = [{ index: 0, delta, finish_reason: seat ? "tool_calls" : "stop" }];
  const chunk = { id: "r", object: "chat.completion.chunk", created: 1, model: "m", choices, usage };
  return new Response(`data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n`, { headers: { "content-type": "text/event-stream" } });
}
const model = createOpenAICompatible({ name: "scripted", baseURL: "http://model.test/v1", fetch })("m");
const execute = async ({ seat }) => (ran.push(seat), { booked: seat });
const schema = jsonSchema({ type: "object", properties: { seat: { type: "number" } }, required: ["seat"] });
const book = createTool({ id: "book", description: "Book a seat", inputSchema: z.object({ seat: z.number() }), execute });
const ask = {
  "ai": async (messages) => {
    const tools = { book: tool({ inputSchema: schema, execute }) };
    await streamText({ model, messages, tools, stopWhen: stepCountIs(5) }).consumeStream();
  },
  "@mastra/core": async (messages, memory, thread) => {
    const agent = new Agent({ id: "a", name: "a", instructions: "Book.", model, tools: { book }, ...(memory && { memory }) });
    const answer = await agent.stream(messages, memory && { memory: { thread, resource: "r" } });
    await answer.consumeStream();
  },
};
const told = () => sent.filter(({ role }) => role === "assistant" || role === "tool").map(({ content, tool_calls: [call] = [] }) =>
  `${content}${call ? ` ${call.function.arguments}` : ""}`).join(" | ");
function line(name, what) {
  const { version } = JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url)));
  console.log(`${name} ${version}, ${what}, tools ran with ${ran.join()}: ${told()}`);
}

for (const [name, run] of Object.entries(ask)) {
  ran = [];
  answers.push(["First.", 12], ["Second.", 13], ["Done."]);
  await run([{ role: "user", content: "Book 12, then 13." }]);
  line(name, "one run");
}
const storage = new LibSQLStore({ id: "s", url: `file:${new URL("mastra.db", import.meta.url).pathname}` });
ran = [];
for (const [question, ...given] of [["Book 12.", ["First.", 12], ["One."]], ["Book 13.", ["Second.", 13], ["Two."]], ["And?", ["Three."]]]) {
  answers.push(...given);
  await ask["@mastra/core"](question, new Memory({ storage }), "t");
}
line("@mastra/core", "three runs");
JAVASCRIPT
node "$folder/run.mjs" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
ai 7.0.173, one run, tools ran with 12,13: First. {"seat":12} | {"booked":12} | Second. {"seat":13} | {"booked":13}
@mastra/core 1.71.0, one run, tools ran with 12,13: Second.First. {"seat":12} | {"booked":13}
@mastra/core 1.71.0, three runs, tools ran with 12,13: First. {"seat":12} | {"booked":12} | One. | Second. {"seat":13} | {"booked":12} | Two.
SEEN
