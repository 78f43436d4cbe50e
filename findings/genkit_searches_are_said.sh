#!/usr/bin/env bash
# What Genkit makes of answers of models through its own plugins, and sends back with the next question, also after the
# messages were stored as JSON:
# - Anthropic, with a web search that the service runs: the search and its results become texts of the answer. What
#   `response.text` shows to people is "I look.[Anthropic server tool web_search] input: {...}[Anthropic server tool result
#   srvtoolu_1] [{...encrypted content...}]12 is free.", and each later request has these texts as what the assistant has
#   said, with the whole encrypted content, in place of the search and its results. The citation is in no message;
# - Chat Completions (compat-oai, also the base of its plugins for OpenAI, xAI and DeepSeek): of an answer with calls, these
#   alone. What the model said before them is in no message and no request, nor is reasoning_content, which DeepSeek's
#   and other models want back while they call tools;
# - of a run with two requests, `response.usage` has the tokens of the second.
# Plainly and streamed alike. Thoughts, redacted thinking and signatures of Anthropic are sent back as they came. Nothing is
# raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --legacy-peer-deps --ignore-scripts --prefix "$folder" genkit@1.42.0 \
    @genkit-ai/anthropic@0.3.0 @genkit-ai/compat-oai@1.42.0
cat >"$folder/run.mjs" <<'JAVASCRIPT'
import { anthropic } from "@genkit-ai/anthropic";
import { openAICompatible } from "@genkit-ai/compat-oai";
import { genkit, z } from "genkit";
import { readFileSync } from "node:fs";

let requests, answers;
globalThis.fetch = async (url, options) => {
  const request = JSON.parse(options?.body ?? (await url.text()));
  requests.push(request);
  const [whole, events] = answers.shift();
  const body = request.stream ? events(whole).join("") : JSON.stringify(whole);
  return new Response(body, { headers: { "content-type": request.stream ? "text/event-stream" : "application/json" } });
};
const event = (value) => `event: ${value.type}\ndata: ${JSON.stringify(value)}\n\n`;

const deltas = {
  thinking: ({ thinking, signature }) => [{ type: "thinking_delta", thinking }, { type: "signature_delta", signature }],
  text: ({ text, citations = [] }) => [{ type: "text_delta", text }, ...citations.map((citation) => ({ type: "citations_delta", citation }))],
};
deltas.tool_use = deltas.server_tool_use = ({ input }) => [{ type: "input_json_delta", partial_json: JSON.stringify(input) }];
const empty = { thinking: { thinking: "", signature: "" }, text: { text: "", citations: undefined } };
empty.tool_use = empty.server_tool_use = { input: {} };
const message = (input_tokens, ...content) => {
  const stop_reason = content.some(({ type }) => type === "tool_use") ? "tool_use" : "end_turn";
  const head = { id: "msg_1", type: "message", role: "assistant", model: "m", stop_sequence: null, usage: { input_tokens, output_tokens: 9 } };
  return [{ ...head, content, stop_reason }, ({ usage }) => [
    { type: "message_start", message: { ...head, content: [], stop_reason: null } },
    ...content.flatMap((block, index) => [
      { type: "content_block_start", index, content_block: { ...block, ...empty[block.type] } },
      ...(deltas[block.type]?.(block) ?? []).map((delta) => ({ type: "content_block_delta", index, delta })),
      { type: "content_block_stop", index },
    ]),
    { type: "message_delta", delta: { stop_reason, stop_sequence: null }, usage },
    { type: "message_stop" },
  ].map(event)];
};
const page = { url: "https://example.com/", title: "Seats" };
const citation = { type: "web_search_result_location", ...page, encrypted_index: "i", cited_text: "12 is free." };
const searched = [
  { type: "thinking", thinking: "Seats.", signature: "signature" }, { type: "redacted_thinking", data: "redacted" },
  { type: "text", text: "I look." }, { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: { query: "seats" } },
  { type: "web_search_tool_result", tool_use_id: "srvtoolu_1", content: [{ type: "web_search_result", ...page, encrypted_content: "e" }] },
  { type: "text", text: "12 is free.", citations: [citation] },
];
const use = { type: "tool_use", id: "toolu_1", name: "book", input: { seat: 12 } };

const completion = (prompt_tokens, said) => {
  const head = { id: "r", created: 1, model: "m" };
  const usage = { prompt_tokens, completion_tokens: 9, total_tokens: prompt_tokens + 9 };
  const finish_reason = said.tool_calls ? "tool_calls" : "stop";
  const choices = [{ index: 0, message: { role: "assistant", content: null, ...said }, finish_reason }];
  const pieces = ["reasoning_content", "content"].filter((key) => said[key]).map((key) => ({ [key]: said[key] }));
  if (said.tool_calls) pieces.push({ tool_calls: said.tool_calls.map((call, index) => ({ index, ...call })) });
  return [{ ...head, object: "chat.completion", choices, usage }, () => [
    ...[{ role: "assistant", content: "" }, ...pieces].map((delta) => ({ choices: [{ index: 0, delta, finish_reason: null }] })),
    { choices: [{ index: 0, delta: {}, finish_reason }] }, { choices: [], usage },
  ].map((chunk) => event({ ...head, object: "chat.completion.chunk", ...chunk }).slice("event: undefined\n".length))];
};
const call = { id: "call_1", type: "function", function: { name: "book", arguments: '{"seat":12}' } };

const cases = {
  anthropic: ["anthropic/claude-sonnet-4-5", () => [
    message(100, ...searched, use), message(200, { type: "text", text: "Done." }), message(300, { type: "text", text: "Yes." })]],
  "compat-oai": ["scripted/m", () => [
    completion(100, { content: "I book it.", reasoning_content: "Seats.", tool_calls: [call] }),
    completion(200, { content: "Done." }), completion(300, { content: "Yes." })]],
};
const shown = ({ type, text, signature, data, citations, input }) =>
  [type, text && `"${text}"`, signature, data, citations && "cited", input?.seat].filter(Boolean).join(" ");
const sent = ({ role, content, tool_calls = [], reasoning_content }) => [
  `  ${role}`, ...(Array.isArray(content) ? content.map((one) => `\n    ${shown(one)}`) : [content ? `"${content}"` : "nothing"]),
  ...tool_calls.map(({ function: { arguments: seat } }) => `call ${seat}`), ...(reasoning_content ? [reasoning_content] : [])].join(" ");
const ai = genkit({ plugins: [anthropic({ apiKey: "none" }), openAICompatible({ name: "scripted", apiKey: "none", baseURL: "http://model.test", fetch })] });
const inputSchema = z.object({ seat: z.number() });
const book = ai.defineTool({ name: "book", description: "Book a seat", inputSchema }, async ({ seat }) => `Booked ${seat}.`);
for (const [name, [model, given]] of Object.entries(cases)) {
  const { version } = JSON.parse(readFileSync(new URL(`node_modules/@genkit-ai/${name}/package.json`, import.meta.url)));
  const lines = [];
  for (const stream of [false, true]) {
    [requests, answers] = [[], given()];
    const told = [];
    let messages = [];
    for (const prompt of ["Book 12.", "Sure?"]) {
      const asked = { model, messages, prompt, tools: [book] };
      const response = stream ? await ai.generateStream(asked).response : await ai.generate(asked);
      messages = JSON.parse(JSON.stringify(response.messages));
      told.push(`  ${prompt} ${response.usage.inputTokens} tokens in`);
      if (!told[1]) told.push(...messages.filter(({ role }) => role === "model").map(({ content }) => `    ${content.map(({ text }) => text ?? "").join("")}`));
    }
    lines.push([...told, ...requests.at(-1).messages.map(sent)].join("\n"));
  }
  console.log(`${name} ${version}, ${lines[0] === lines[1] ? "plainly and streamed" : `plainly\n${lines[0]}\n and streamed`}:\n${lines[1]}`);
}
process.exit(0);
JAVASCRIPT
node "$folder/run.mjs" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
anthropic 0.3.0, plainly and streamed:
  Book 12. 200 tokens in
    I look.[Anthropic server tool web_search] input: {"query":"seats"}[Anthropic server tool result srvtoolu_1] [{"type":"web_search_result","url":"https://example.com/","title":"Seats","encrypted_content":"e"}]12 is free.
    Done.
  Sure? 300 tokens in
  user 
    text "Book 12."
  assistant 
    thinking signature 
    redacted_thinking redacted 
    text "I look." 
    text "[Anthropic server tool web_search] input: {"query":"seats"}" 
    text "[Anthropic server tool result srvtoolu_1] [{"type":"web_search_result","url":"https://example.com/","title":"Seats","encrypted_content":"e"}]" 
    text "12 is free." 
    tool_use 12
  user 
    tool_result
  assistant 
    text "Done."
  user 
    text "Sure?"
compat-oai 1.42.0, plainly and streamed:
  Book 12. 200 tokens in
    
    Done.
  Sure? 300 tokens in
  user "Book 12."
  assistant nothing call {"seat":12}
  tool "Booked 12."
  assistant "Done."
  user "Sure?"
SEEN
