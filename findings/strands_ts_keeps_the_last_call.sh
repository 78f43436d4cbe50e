#!/usr/bin/env bash
# What an agent of Strands for TypeScript keeps of an answer with a text and two calls of a tool, and sends back:
# - of a streamed Chat Completion, as it always asks for, the last call alone. Its adapter ends the blocks of an answer at
#   the finish reason, all at once, so each block that begins takes the place of the one before: the tool runs for the
#   second call only, and neither the first nor what the model said before is in the agent's messages or in a later request;
# - of Anthropic, both calls and the text. But the data of redacted thinking, which Anthropic wants back unchanged, is sent
#   as an object with a number for each byte ({"0":114,...}), and a search that the service ran, its results and the
#   citation are in no message, though the agent is given that tool (anthropicTools).
# Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --legacy-peer-deps --prefix "$folder" @strands-agents/sdk@1.19.0 openai@6.49.0 \
    @anthropic-ai/sdk@0.109.1 @modelcontextprotocol/sdk@1.32.2 @opentelemetry/api@1.9.0 zod@4.4.3
cat >"$folder/run.mjs" <<'JAVASCRIPT'
import { Agent, tool } from "@strands-agents/sdk";
import { AnthropicModel } from "@strands-agents/sdk/models/anthropic";
import { OpenAIModel } from "@strands-agents/sdk/models/openai";
import { readFileSync } from "node:fs";
import { z } from "zod";

const requests = [];
const replying = (streams) => async (_, { body }) => {
  requests.push(JSON.parse(body));
  const events = streams.shift().map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
  return new Response(events.join(""), { headers: { "content-type": "text/event-stream" } });
};

const chunk = (delta, finish_reason = null) =>
  ({ id: "r", object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, delta, finish_reason }] });
const completion = (content, seats) => [
  chunk({ role: "assistant", content: "" }), chunk({ content }),
  ...seats.flatMap((seat, index) => [
    chunk({ tool_calls: [{ index, id: `call_${seat}`, type: "function", function: { name: "book", arguments: "" } }] }),
    chunk({ tool_calls: [{ index, function: { arguments: `{"seat":${seat}}` } }] }),
  ]),
  chunk({}, seats.length ? "tool_calls" : "stop"),
];

const usage = { input_tokens: 9, output_tokens: 9 };
const deltas = {
  thinking: ({ thinking, signature }) => [{ type: "thinking_delta", thinking }, { type: "signature_delta", signature }],
  text: ({ text, citations = [] }) => [{ type: "text_delta", text }, ...citations.map((citation) => ({ type: "citations_delta", citation }))],
};
deltas.tool_use = deltas.server_tool_use = ({ input }) => [{ type: "input_json_delta", partial_json: JSON.stringify(input) }];
const empty = { thinking: { thinking: "", signature: "" }, text: { text: "" }, tool_use: { input: {} }, server_tool_use: { input: {} } };
function message(...content) {
  const stop_reason = content.some(({ type }) => type === "tool_use") ? "tool_use" : "end_turn";
  const head = { id: "msg_1", type: "message", role: "assistant", model: "m", content: [], stop_reason: null, stop_sequence: null, usage };
  return [
    { type: "message_start", message: head },
    ...content.flatMap((block, index) => [
      { type: "content_block_start", index, content_block: { ...block, ...empty[block.type] } },
      ...(deltas[block.type]?.(block) ?? []).map((delta) => ({ type: "content_block_delta", index, delta })),
      { type: "content_block_stop", index },
    ]),
    { type: "message_delta", delta: { stop_reason, stop_sequence: null }, usage },
    { type: "message_stop" },
  ];
}
const use = (seat) => ({ type: "tool_use", id: `call_${seat}`, name: "book", input: { seat } });
const page = { url: "https://example.com/", title: "Seats" };
const citation = { type: "web_search_result_location", ...page, encrypted_index: "i", cited_text: "12 is free." };
const thinking = [
  { type: "thinking", thinking: "Seats.", signature: "signature" }, { type: "redacted_thinking", data: "redacted" },
  { type: "text", text: "I look." }, { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: { query: "seats" } },
  { type: "web_search_tool_result", tool_use_id: "srvtoolu_1", content: [{ type: "web_search_result", ...page, encrypted_content: "e" }] },
  { type: "text", text: "12 is free.", citations: [citation] }, use(12), use(13),
];

const webSearch = { type: "web_search_20250305", name: "web_search" };
const models = {
  "Chat Completions": new OpenAIModel({ api: "chat", modelId: "m", apiKey: "none",
    clientConfig: { fetch: replying([completion("I book both.", [12, 13]), completion("Done.", []), completion("Yes.", [])]) } }),
  "Anthropic": new AnthropicModel({ modelId: "claude-sonnet-5", apiKey: "none", maxTokens: 2000, anthropicTools: [webSearch],
    clientConfig: { fetch: replying([message(...thinking), message({ type: "text", text: "Done." }), message({ type: "text", text: "Yes." })]) } }),
};
const shown = ({ type, text, citations, data, signature, input, tool_use_id }) =>
  [type, text && `"${text}"`, citations && "cited", data && JSON.stringify(data).slice(0, 16), signature, input?.seat, tool_use_id].filter(Boolean).join(" ");
const parts = ({ content, tool_calls = [], tool_call_id }) => [
  ...(typeof content === "string" ? [`"${content}"${tool_call_id ? ` of ${tool_call_id}` : ""}`] : content.map(shown)),
  ...tool_calls.map(({ function: { arguments: seat } }) => `call ${seat}`)].join(" + ");

const { version } = JSON.parse(readFileSync(new URL("node_modules/@strands-agents/sdk/package.json", import.meta.url)));
for (const [name, model] of Object.entries(models)) {
  const ran = [];
  const callback = ({ seat }) => (ran.push(seat), `Booked ${seat}.`);
  const book = tool({ name: "book", description: "Book a seat", inputSchema: z.object({ seat: z.number() }), callback });
  const agent = new Agent({ model, tools: [book], printer: false });
  for (const question of ["Book 12 and 13.", "Sure?"]) await agent.invoke(question);
  console.log(`strands ${version}, ${name}, the tool ran for ${ran.join(" and ")}:`);
  for (const { role, ...rest } of requests.at(-1).messages) console.log(`  ${role}: ${parts(rest)}`);
}
JAVASCRIPT
node "$folder/run.mjs" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
strands 1.19.0, Chat Completions, the tool ran for 13:
  user: text "Book 12 and 13."
  assistant: "" + call {"seat":13}
  tool: "Booked 13." of call_13
  assistant: "Done."
  user: text "Sure?"
strands 1.19.0, Anthropic, the tool ran for 12 and 13:
  user: text "Book 12 and 13."
  assistant: thinking signature + redacted_thinking {"0":114,"1":101 + text "I look." + text "12 is free." + tool_use 12 + tool_use 13
  user: tool_result call_12 + tool_result call_13
  assistant: text "Done."
  user: text "Sure?"
SEEN
