#!/usr/bin/env bash
# One answer of OpenAI's Responses API with a commentary, a search and the final answer, asked plainly and streamed through
# @langchain/openai. It numbers streamed blocks by their place in their message, and not by the message:
# - the commentary and the final answer become one text, which says that it is the final answer;
# - the place of the citation, which counts in the final answer, is now one in the commentary: another text is cited;
# - texts of two messages with two texts each are in another order: 1, 3, 2, 4;
# - the name of the model is there twice in response_metadata: "gpt-5.5gpt-5.5".
# Plainly, each text has its phase and its citation. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --prefix "$folder" @langchain/openai@1.6.0 @langchain/core@1.4.0
cat >"$folder/run.mjs" <<'JAVASCRIPT'
import { ChatOpenAI } from "@langchain/openai";
import { readFileSync } from "node:fs";

const { version } = JSON.parse(readFileSync(new URL("node_modules/@langchain/openai/package.json", import.meta.url)));
const text = (words, ...annotations) => ({ type: "output_text", text: words, annotations, logprobs: [] });
const message = (id, phase, ...content) => ({ type: "message", id, role: "assistant", status: "completed", phase, content });
const citation = { type: "url_citation", url: "https://a.example/", title: "A", start_index: 0, end_index: 7 };
const search = { type: "web_search_call", id: "ws_1", status: "completed", action: { type: "search", query: "seats" } };
const answers = {
  "a citation": [message("msg_1", "commentary", text("I look it up. ")), search, message("msg_2", "final_answer", text("Seat 12 is free.", citation))],
  "four texts": [message("msg_1", "commentary", text("1 "), text("2 ")), message("msg_2", "final_answer", text("3 "), text("4 "))],
};
const response = (output, status, usage = null) => ({ id: "resp_1", object: "response", created_at: 1, status, model: "gpt-5.5", output, usage, error: null, incomplete_details: null, metadata: {} });
const usage = { input_tokens: 9, input_tokens_details: { cached_tokens: 0 }, output_tokens: 9, output_tokens_details: { reasoning_tokens: 0 }, total_tokens: 18 };
function events(output) {
  const items = output.flatMap((item, output_index) => {
    const about = { output_index, item_id: item.id };
    const parts = (item.content ?? []).flatMap((part, content_index) => [
      { type: "response.content_part.added", ...about, content_index, part: { ...part, text: "", annotations: [] } },
      { type: "response.output_text.delta", ...about, content_index, delta: part.text, logprobs: [] },
      ...part.annotations.map((annotation, annotation_index) =>
        ({ type: "response.output_text.annotation.added", ...about, content_index, annotation_index, annotation })),
      { type: "response.output_text.done", ...about, content_index, text: part.text, logprobs: [] },
      { type: "response.content_part.done", ...about, content_index, part },
    ]);
    const started = { ...item, status: "in_progress", ...(item.content && { content: [] }) };
    return [{ type: "response.output_item.added", output_index, item: started }, ...parts, { type: "response.output_item.done", output_index, item }];
  });
  const all = [{ type: "response.created", response: response([], "in_progress") }, ...items, { type: "response.completed", response: response(output, "completed", usage) }];
  return all.map((event, sequence_number) => `event: ${event.type}\ndata: ${JSON.stringify({ ...event, sequence_number })}\n\n`).join("");
}
let output;
const fetch = async (_, { body }) => {
  const isStreamed = JSON.parse(body).stream;
  const headers = { "content-type": isStreamed ? "text/event-stream" : "application/json" };
  return new Response(isStreamed ? events(output) : JSON.stringify(response(output, "completed", usage)), { headers });
};
const model = new ChatOpenAI({ model: "gpt-5.5", apiKey: "none", useResponsesApi: true, configuration: { fetch } });
async function streamed() {
  let answer;
  for await (const chunk of await model.stream("Is 12 free?")) answer = answer ? answer.concat(chunk) : chunk;
  return answer;
}
function told({ content, response_metadata }) {
  const texts = content.filter(({ type }) => type === "text").map(({ text, phase, annotations = [] }) => {
    const cited = annotations.map(({ startIndex, endIndex }) => `, cites ${JSON.stringify(text.slice(startIndex, endIndex))}`);
    return `${JSON.stringify(text)} (${phase ?? "no phase"}${cited.join("")})`;
  });
  return `${texts.join(" ")} by ${response_metadata.model}`;
}
for (const [name, items] of Object.entries(answers)) {
  output = items;
  console.log(`@langchain/openai ${version}, ${name}, plainly: ${told(await model.invoke("Is 12 free?"))}`);
  console.log(`@langchain/openai ${version}, ${name}, streamed: ${told(await streamed())}`);
}
JAVASCRIPT
node "$folder/run.mjs" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
@langchain/openai 1.6.0, a citation, plainly: "I look it up. " (commentary) "Seat 12 is free." (final_answer, cites "Seat 12") by gpt-5.5
@langchain/openai 1.6.0, a citation, streamed: "I look it up. Seat 12 is free." (final_answer, cites "I look ") by gpt-5.5gpt-5.5
@langchain/openai 1.6.0, four texts, plainly: "1 " (commentary) "2 " (commentary) "3 " (final_answer) "4 " (final_answer) by gpt-5.5
@langchain/openai 1.6.0, four texts, streamed: "1 3 " (final_answer) "2 4 " (no phase) by gpt-5.5gpt-5.5
SEEN
