#!/usr/bin/env bash
# What TanStack AI makes of an answer of Anthropic that searches the web, with the tool that it has for that, which the
# service runs within the answer, and then calls a tool of the server:
# - the tool runs, and there the run ends, with an interrupt: "Client tool web_search is ready to run". The model is not
#   asked any more, and the search, whose results are in the answer, waits for a page to give them;
# - the texts before and after the search are one text before it, in each later request, also where the answer has a search
#   alone; redacted thinking and citations are in no message.
# And of an answer of OpenAI's Responses API which thinks, writes a commentary, and thinks again before its call: in each later
# request the commentary comes after the call, and both thoughts before it, without ids and phase of the message.
# Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --legacy-peer-deps --prefix "$folder" @tanstack/ai@0.58.0 \
    @tanstack/ai-anthropic@0.18.11 @tanstack/ai-openai@0.23.1 zod@4.4.3
cat >"$folder/run.mjs" <<'JAVASCRIPT'
import { chat, maxIterations, StreamProcessor, toolDefinition } from "@tanstack/ai";
import { createAnthropicChat } from "@tanstack/ai-anthropic";
import { webSearchTool } from "@tanstack/ai-anthropic/tools";
import { createOpenaiChat } from "@tanstack/ai-openai";
import { readFileSync } from "node:fs";
import { z } from "zod";

let requests, streams;
globalThis.fetch = async (url, options) => {
  requests.push(JSON.parse(options?.body ?? (await url.text())));
  const events = streams.shift().map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
  return new Response(events.join(""), { headers: { "content-type": "text/event-stream" } });
};

const usage = { input_tokens: 9, output_tokens: 9 };
const deltas = {
  thinking: ({ thinking, signature }) => [{ type: "thinking_delta", thinking }, { type: "signature_delta", signature }],
  text: ({ text, citation }) => [{ type: "text_delta", text }, ...(citation ? [{ type: "citations_delta", citation }] : [])],
};
deltas.tool_use = deltas.server_tool_use = ({ input }) => [{ type: "input_json_delta", partial_json: JSON.stringify(input) }];
const empty = { thinking: { thinking: "", signature: "" }, text: { text: "", citation: undefined } };
empty.tool_use = empty.server_tool_use = { input: {} };
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
const page = { url: "https://example.com/", title: "Seats" };
const citation = { type: "web_search_result_location", ...page, encrypted_index: "i", cited_text: "12 is free." };
const searched = [
  { type: "thinking", thinking: "Seats.", signature: "signature" }, { type: "redacted_thinking", data: "redacted" },
  { type: "text", text: "I look." }, { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: { query: "seats" } },
  { type: "web_search_tool_result", tool_use_id: "srvtoolu_1", content: [{ type: "web_search_result", ...page, encrypted_content: "e" }] },
  { type: "text", text: "12 is free.", citation },
];
const use = { type: "tool_use", id: "toolu_1", name: "book", input: { seat: 12 } };

function response(...output) {
  const head = { id: "resp_1", object: "response", created_at: 1, model: "m", tools: [], parallel_tool_calls: true, tool_choice: "auto" };
  const tokens = { ...usage, total_tokens: 18, input_tokens_details: { cached_tokens: 0 }, output_tokens_details: { reasoning_tokens: 0 } };
  const pieces = {
    message: ({ id: item_id, content: [part] }, output_index) => [
      { type: "response.content_part.added", item_id, output_index, content_index: 0, part: { ...part, text: "" } },
      { type: "response.output_text.delta", item_id, output_index, content_index: 0, delta: part.text },
      { type: "response.output_text.done", item_id, output_index, content_index: 0, text: part.text },
      { type: "response.content_part.done", item_id, output_index, content_index: 0, part },
    ],
    function_call: ({ id: item_id, arguments: delta }, output_index) => [
      { type: "response.function_call_arguments.delta", item_id, output_index, delta },
      { type: "response.function_call_arguments.done", item_id, output_index, arguments: delta },
    ],
    reasoning: ({ id: item_id, summary: [part] }, output_index) => [
      { type: "response.reasoning_summary_part.added", item_id, output_index, summary_index: 0, part: { ...part, text: "" } },
      { type: "response.reasoning_summary_text.delta", item_id, output_index, summary_index: 0, delta: part.text },
      { type: "response.reasoning_summary_text.done", item_id, output_index, summary_index: 0, text: part.text },
      { type: "response.reasoning_summary_part.done", item_id, output_index, summary_index: 0, part },
    ],
  };
  const blank = { message: { content: [] }, function_call: { arguments: "" }, reasoning: { summary: [] } };
  return [
    { type: "response.created", response: { ...head, status: "in_progress", output: [] } },
    ...output.flatMap((item, output_index) => [
      { type: "response.output_item.added", output_index, item: { ...item, ...blank[item.type] } },
      ...pieces[item.type](item, output_index),
      { type: "response.output_item.done", output_index, item },
    ]),
    { type: "response.completed", response: { ...head, status: "completed", output, usage: tokens } },
  ];
}
const thought = (number) =>
  ({ type: "reasoning", id: `rs_${number}`, summary: [{ type: "summary_text", text: "Seats." }], encrypted_content: `encrypted-${number}` });
const said = (text, phase) =>
  ({ type: "message", id: "msg_1", role: "assistant", status: "completed", phase, content: [{ type: "output_text", text, annotations: [] }] });
const call = { type: "function_call", id: "fc_1", call_id: "call_1", name: "book", arguments: '{"seat":12}', status: "completed" };

const version = (name) => JSON.parse(readFileSync(new URL(`node_modules/@tanstack/${name}/package.json`, import.meta.url))).version;
const anthropic = createAnthropicChat("claude-sonnet-4-5", "none", { baseURL: "http://model.test" });
const openai = createOpenaiChat("gpt-5.2", "none", { baseURL: "http://model.test/v1" });
const plain = { type: "text", text: "Done." };
const cases = [
  ["ai-anthropic", "a search and a call", anthropic, message(...searched, use), message(plain), message(plain)],
  ["ai-anthropic", "a search alone", anthropic, message(...searched), message(plain)],
  ["ai-openai", "Responses", openai, response(thought(1), said("I look.", "commentary"), thought(2), call),
    response(said("Done.", "final_answer")), response(said("Done.", "final_answer"))],
];
const shown = ({ type, text, data, signature, encrypted_content, citations, tool_use_id }) =>
  [type, text && `"${text}"`, data, signature, encrypted_content, citations && "cited", tool_use_id].filter(Boolean).join(" ");
const sent = ({ role, content, phase, ...item }) => !role ? shown(item)
  : `${role} [${typeof content === "string" ? `"${content}"` : content.map(shown).join(", ")}]${phase ? ` ${phase}` : ""}`;
const execute = async ({ seat }) => `Booked ${seat}.`;
const book = toolDefinition({ name: "book", description: "Book a seat", inputSchema: z.object({ seat: z.number() }) }).server(execute);
for (const [name, what, adapter, ...given] of cases) {
  [requests, streams] = [[], given];
  console.log(`${name} ${version(name)} (ai ${version("ai")}), ${what}:`);
  const tools = adapter === anthropic ? [book, webSearchTool({ name: "web_search", type: "web_search_20250305" })] : [book];
  const page = new StreamProcessor({});
  for (const question of ["Book 12.", "Sure?"]) {
    page.addUserMessage(question);
    const before = requests.length;
    const messages = JSON.parse(JSON.stringify(page.getMessages()));
    const interrupts = [];
    for await (const chunk of chat({ adapter, messages, tools, agentLoopStrategy: maxIterations(5) })) {
      page.processChunk(chunk);
      interrupts.push(...(chunk.outcome?.interrupts ?? []));
    }
    console.log(`  ${question} ${requests.length - before} requests ${interrupts.map(({ message }) => message).join()}`.trimEnd());
  }
  const { messages, input } = requests.at(-1);
  for (const one of messages ?? input) console.log(`  ${sent(one)}`);
}
JAVASCRIPT
node "$folder/run.mjs" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
ai-anthropic 0.18.11 (ai 0.58.0), a search and a call:
  Book 12. 1 requests Client tool web_search is ready to run
  Sure? 1 requests
  user ["Book 12."]
  assistant [thinking signature, text "I look.12 is free.", server_tool_use, web_search_tool_result srvtoolu_1, tool_use]
  user [tool_result toolu_1, text "Sure?"]
ai-anthropic 0.18.11 (ai 0.58.0), a search alone:
  Book 12. 1 requests
  Sure? 1 requests
  user ["Book 12."]
  assistant [thinking signature, text "I look.12 is free.", server_tool_use, web_search_tool_result srvtoolu_1]
  user ["Sure?"]
ai-openai 0.23.1 (ai 0.58.0), Responses:
  Book 12. 2 requests
  Sure? 1 requests
  user [input_text "Book 12."]
  reasoning encrypted-1
  reasoning encrypted-2
  function_call
  assistant ["I look."]
  function_call_output
  assistant ["Done."]
  user [input_text "Sure?"]
SEEN
