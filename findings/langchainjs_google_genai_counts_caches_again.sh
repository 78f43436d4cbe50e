#!/usr/bin/env bash
# The tokens of one answer of Gemini, asked plainly and streamed, in usage_metadata of LangChain.js. Gemini repeats its
# counts in each chunk of a stream: they are totals. 1000 in, of which a cache had 800; 80 out, of which 30 are thoughts:
# - @langchain/google-genai, streamed: 3200 of the 1000 tokens come from the cache, the 800 once for each of four chunks;
# - the same, plainly and streamed: 50 out. The thoughts, which cost what other output costs, are in no count but the total;
# - @langchain/google has it right both times: 800, and 80 with 30 of reasoning.
# So costs that are computed of the first are too low by the thoughts, and below zero where a cache is streamed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --prefix "$folder" @langchain/google-genai@2.3.2 @langchain/google@0.2.6 \
    @langchain/core@1.4.0
cat >"$folder/run.mjs" <<'JAVASCRIPT'
import { ChatGoogle } from "@langchain/google";
import { ChatGoogleGenerativeAI } from "@langchain/google-genai";
import { readFileSync } from "node:fs";

const counts = { promptTokenCount: 1000, cachedContentTokenCount: 800, thoughtsTokenCount: 30 };
const body = (parts, candidatesTokenCount, finishReason) => {
  const usageMetadata = { ...counts, candidatesTokenCount, totalTokenCount: 1030 + candidatesTokenCount };
  return { candidates: [{ content: { role: "model", parts }, index: 0, finishReason }], usageMetadata, modelVersion: "m" };
};
const parts = ["Seat", " 12", " is", " free."].map((text) => ({ text }));
const chunks = parts.map((part, place) => body([part], [10, 20, 40, 50][place], place === 3 ? "STOP" : undefined));
const events = chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join("");
globalThis.fetch = async (request) => {
  const isStreamed = String(request.url ?? request).includes("stream");
  const headers = { "content-type": isStreamed ? "text/event-stream" : "application/json" };
  return new Response(isStreamed ? events : JSON.stringify(body(parts, 50, "STOP")), { headers });
};

for (const [name, Model] of [["@langchain/google-genai", ChatGoogleGenerativeAI], ["@langchain/google", ChatGoogle]]) {
  const model = new Model({ model: "gemini-3-pro", apiKey: "none" });
  const { version } = JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url)));
  let streamed;
  for await (const chunk of await model.stream("Is 12 free?")) streamed = streamed ? streamed.concat(chunk) : chunk;
  for (const [way, answer] of [["plainly", await model.invoke("Is 12 free?")], ["streamed", streamed]]) {
    const { input_tokens, output_tokens, total_tokens, input_token_details, output_token_details } = answer.usage_metadata;
    const reasoning = output_token_details?.reasoning ?? "not told";
    console.log(`${name} ${version}, ${way}: ${answer.text} ${input_tokens} in, ${input_token_details.cache_read} of a cache;`,
      `${output_tokens} out, reasoning ${reasoning}; total ${total_tokens}`);
  }
}
JAVASCRIPT
node "$folder/run.mjs" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
@langchain/google-genai 2.3.2, plainly: Seat 12 is free. 1000 in, 800 of a cache; 50 out, reasoning not told; total 1080
@langchain/google-genai 2.3.2, streamed: Seat 12 is free. 1000 in, 3200 of a cache; 50 out, reasoning not told; total 1080
@langchain/google 0.2.6, plainly: Seat 12 is free. 1000 in, 800 of a cache; 80 out, reasoning 30; total 1080
@langchain/google 0.2.6, streamed: Seat 12 is free. 1000 in, 800 of a cache; 80 out, reasoning 30; total 1080
SEEN
