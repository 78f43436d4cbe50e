#!/usr/bin/env bash
# What an agent of VoltAgent, with its memory, tells a model of an earlier run of its own, in which a tool was called:
# - the output of a tool is the JSON of an object of the AI SDK, {"type":"text","value":"Booked 12."}, and no more what
#   the tool gave, which the model was told in the run itself. So the beginning of a thread is another one with the next
#   question, and what a provider has cached of it does not count;
# - thinking of Anthropic is gone, with its signature;
# - where a provider counts its call ids anew in each answer (call_0), of two calls in a run the first one has the arguments
#   and the output of the second, which stands nowhere else, and the texts of the later answers are one: "Second.Done.".
#   Streamed, the call of the second run is gone.
# Nothing is raised; of the thinking, the AI SDK warns ("unsupported reasoning metadata").
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --legacy-peer-deps --ignore-scripts --prefix "$folder" @voltagent/core@2.10.0 \
    ai@6.0.326 @ai-sdk/anthropic@3.0.140 @ai-sdk/openai-compatible@2.0.92 zod@4.4.3
cat >"$folder/run.mjs" <<'JAVASCRIPT'
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Agent, createTool, InMemoryStorageAdapter, Memory } from "@voltagent/core";
import { readFileSync } from "node:fs";
import { z } from "zod";

globalThis.AI_SDK_LOG_WARNINGS = false;
let requests, answers;
const fetch = async (_, { body }) => {
  const request = JSON.parse(body);
  requests.push(request);
  await new Promise((resolve) => setTimeout(resolve, 100));
  const [whole, events] = answers.shift();
  const text = request.stream ? events.map((event) => `${event.type ? `event: ${event.type}\n` : ""}data: ${JSON.stringify(event)}\n\n`).join("") : JSON.stringify(whole);
  return new Response(text, { headers: { "content-type": request.stream ? "text/event-stream" : "application/json" } });
};

const usage = { input_tokens: 9, output_tokens: 9 };
const deltas = {
  thinking: ({ thinking, signature }) => [{ type: "thinking_delta", thinking }, { type: "signature_delta", signature }],
  text: ({ text }) => [{ type: "text_delta", text }],
  tool_use: ({ input }) => [{ type: "input_json_delta", partial_json: JSON.stringify(input) }],
};
const empty = { thinking: { thinking: "", signature: "" }, text: { text: "" }, tool_use: { input: {} } };
function message(...content) {
  const stop_reason = content.some(({ type }) => type === "tool_use") ? "tool_use" : "end_turn";
  const head = { id: "msg_1", type: "message", role: "assistant", model: "m", stop_sequence: null, usage };
  return [{ ...head, content, stop_reason }, [
    { type: "message_start", message: { ...head, content: [], stop_reason: null } },
    ...content.flatMap((block, index) => [
      { type: "content_block_start", index, content_block: { ...block, ...empty[block.type] } },
      ...deltas[block.type](block).map((delta) => ({ type: "content_block_delta", index, delta })),
      { type: "content_block_stop", index },
    ]),
    { type: "message_delta", delta: { stop_reason, stop_sequence: null }, usage },
    { type: "message_stop" },
  ]];
}
function completion(content, seat) {
  const head = { id: "r", created: 1, model: "m", usage: { prompt_tokens: 9, completion_tokens: 9, total_tokens: 18 } };
  const call = { id: "call_0", type: "function", function: { name: "book", arguments: JSON.stringify({ seat }) } };
  const finish_reason = seat ? "tool_calls" : "stop";
  const said = { role: "assistant", content };
  return [
    { ...head, object: "chat.completion", choices: [{ index: 0, message: { ...said, ...(seat && { tool_calls: [call] }) }, finish_reason }] },
    [{ ...head, object: "chat.completion.chunk", choices: [{ index: 0, delta: { ...said, ...(seat && { tool_calls: [{ index: 0, ...call }] }) }, finish_reason }] }],
  ];
}
const thinking = { type: "thinking", thinking: "Seats.", signature: "signature" };
const use = { type: "tool_use", id: "toolu_1", name: "book", input: { seat: 12 } };
const scripted = createOpenAICompatible({ name: "scripted", baseURL: "http://model.test", fetch })("m");
const cases = [
  ["Anthropic", createAnthropic({ apiKey: "none", fetch })("claude-sonnet-4-5"), () => [
    message(thinking, { type: "text", text: "First." }, use), message({ type: "text", text: "Done." }), message({ type: "text", text: "Yes." })],
    ["Book 12.", "Sure?"]],
  ["Chat Completions", scripted, () => [
    completion("First.", 12), completion("Second.", 13), completion("Done."), completion("Third.", 14), completion("Yes."), completion("Bye.")],
    ["Book 12 and 13.", "Book 14.", "Sure?"]],
];
const shown = ({ type, text, signature, input, content }) =>
  [type, text && `"${text}"`, signature, input && JSON.stringify(input), content].filter(Boolean).join(" ");
const sent = ({ role, content, tool_calls = [] }) => `  ${role}: ${[
  ...(typeof content === "string" ? [`"${content}"`] : content.map(shown)), ...tool_calls.map((call) => `call ${call.function.arguments}`)].join(" + ")}`;
const { version } = JSON.parse(readFileSync(new URL("node_modules/@voltagent/core/package.json", import.meta.url)));
const execute = async ({ seat }) => `Booked ${seat}.`;
const book = createTool({ name: "book", description: "Book a seat", parameters: z.object({ seat: z.number() }), execute });
for (const [name, model, given, questions] of cases) {
  const seen = [];
  for (const stream of [false, true]) {
    [requests, answers] = [[], given()];
    const memory = new Memory({ storage: new InMemoryStorageAdapter() });
    const names = { userId: "u", conversationId: "c" };
    for (const question of questions) {
      const agent = new Agent({ name: "a", instructions: "Book.", model, tools: [book], memory });
      const options = { ...names, memory: names };
      if (stream) for await (const _ of (await agent.streamText(question, options)).fullStream);
      else await agent.generateText(question, options);
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
    const [within, last] = [requests.find(({ messages }) => messages.some(({ role, content }) => role === "tool" || content[0].type === "tool_result")), requests.at(-1)];
    seen.push(["  within the first run:", ...within.messages.map(sent), "  with the last question:", ...last.messages.map(sent)].join("\n"));
  }
  const [plainly, streamed] = seen;
  if (plainly === streamed) console.log(`@voltagent/core ${version}, ${name}, plainly and streamed:\n${plainly}`);
  else console.log(`@voltagent/core ${version}, ${name}, plainly:\n${plainly}\n and streamed:\n${streamed}`);
}
process.exit(0);
JAVASCRIPT
VOLTAGENT_TELEMETRY_DISABLED=true node "$folder/run.mjs" 2>"$folder/logged" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
@voltagent/core 2.10.0, Anthropic, plainly and streamed:
  within the first run:
  user: text "Book 12."
  assistant: thinking signature + text "First." + tool_use {"seat":12}
  user: tool_result Booked 12.
  with the last question:
  user: text "Book 12."
  assistant: text "First." + tool_use {"seat":12}
  user: tool_result {"type":"text","value":"Booked 12."}
  assistant: text "Done."
  user: text "Sure?"
@voltagent/core 2.10.0, Chat Completions, plainly:
  within the first run:
  system: "Book."
  user: "Book 12 and 13."
  assistant: "First." + call {"seat":12}
  tool: "Booked 12."
  with the last question:
  system: "Book."
  user: "Book 12 and 13."
  assistant: "First." + call {"seat":13}
  tool: "{"type":"text","value":"Booked 13."}"
  assistant: "Second.Done."
  user: "Book 14."
  assistant: "Third." + call {"seat":14}
  tool: "{"type":"text","value":"Booked 14."}"
  assistant: "Yes."
  user: "Sure?"
 and streamed:
  within the first run:
  system: "Book."
  user: "Book 12 and 13."
  assistant: "First." + call {"seat":12}
  tool: "Booked 12."
  with the last question:
  system: "Book."
  user: "Book 12 and 13."
  assistant: "First." + call {"seat":13}
  tool: "{"type":"text","value":"Booked 13."}"
  assistant: "Second.Done."
  user: "Book 14."
  assistant: "Third.Yes."
  user: "Sure?"
SEEN
