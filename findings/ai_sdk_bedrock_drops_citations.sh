#!/usr/bin/env bash
# What the AI SDK's provider for Amazon Bedrock makes of citations, which it can be told to ask for (`citations: { enabled:
# true }` of a document): one answer of Converse, plainly and streamed, and one of Anthropic's own API with the same citation:
# - of the answer of Bedrock, the cited words are texts like others: there is no source, no citation and nothing in the
#   providerMetadata, so nothing can be shown, and the next request has none;
# - @ai-sdk/anthropic has the citation, and sends it back.
# Nothing is raised, and there is no warning.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --prefix "$folder" ai@7.0.173 @ai-sdk/amazon-bedrock@5.0.101 @ai-sdk/anthropic@4.0.105 \
    @smithy/eventstream-codec@4.3.3 @smithy/util-utf8@4.2.2 zod@4.4.3
cat >"$folder/run.mjs" <<'JAVASCRIPT'
import { createAmazonBedrock } from "@ai-sdk/amazon-bedrock";
import { createAnthropic } from "@ai-sdk/anthropic";
import { EventStreamCodec } from "@smithy/eventstream-codec";
import { fromUtf8, toUtf8 } from "@smithy/util-utf8";
import { generateText, streamText } from "ai";
import { readFileSync } from "node:fs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const codec = new EventStreamCodec(toUtf8, fromUtf8);
const event = (type, body) => codec.encode({
  headers: { ":message-type": { type: "string", value: "event" }, ":event-type": { type: "string", value: type } },
  body: fromUtf8(JSON.stringify(body)),
});
const TEXT = "Seat 12 is free.", SOURCE = "The seat 12 is free on Monday.";
const citation = { title: "Seats", sourceContent: [{ text: SOURCE }], location: { documentChar: { documentIndex: 0, start: 0, end: 30 } } };
const usage = { inputTokens: 9, outputTokens: 9, totalTokens: 18 };
const content = [{ text: "Look: " }, { citationsContent: { content: [{ text: TEXT }], citations: [citation] } }];
const json = { "content-type": "application/json" };
const plain = () => new Response(JSON.stringify({ output: { message: { role: "assistant", content } }, stopReason: "end_turn", usage }), { headers: json });
const delta = (contentBlockIndex, delta) => event("contentBlockDelta", { contentBlockIndex, delta });
const stop = (contentBlockIndex) => event("contentBlockStop", { contentBlockIndex });
const streamed = () => new Response(Buffer.concat([
  event("messageStart", { role: "assistant" }),
  delta(0, { text: "Look: " }), stop(0),
  delta(1, { text: TEXT }), delta(1, { citation }), stop(1),
  event("messageStop", { stopReason: "end_turn" }), event("metadata", { usage }),
]), { headers: { "content-type": "application/vnd.amazon.eventstream" } });
const cited = { type: "char_location", cited_text: SOURCE, document_index: 0, document_title: "Seats", start_char_index: 0, end_char_index: 30 };
const message = {
  id: "m", type: "message", role: "assistant", model: "m", stop_reason: "end_turn", stop_sequence: null, usage: { input_tokens: 9, output_tokens: 9 },
  content: [{ type: "text", text: "Look: " }, { type: "text", text: TEXT, citations: [cited] }],
};

let sent;
const fetch = async (url, { body }) => {
  sent = JSON.parse(body).messages;
  return String(url).includes("anthropic.com") ? new Response(JSON.stringify(message), { headers: json })
    : String(url).endsWith("-stream") ? streamed() : plain();
};
const file = (name) => {
  const providerOptions = { [name]: { citations: { enabled: true } } };
  return { type: "file", mediaType: "text/plain", filename: "seats", data: Buffer.from(SOURCE), providerOptions };
};
async function show(name, model, way, ask) {
  const question = { role: "user", content: [file(name === "amazon-bedrock" ? "bedrock" : name), { type: "text", text: "Is 12 free?" }] };
  const result = await ask({ model, messages: [question] });
  const parts = await result.content, { messages } = await result.response, warnings = await result.warnings;
  const isAsked = /"citations":\{"enabled":true\}/.test(JSON.stringify(sent));
  await generateText({ model, messages: [question, ...messages, { role: "user", content: "Sure?" }] });
  const { version } = JSON.parse(readFileSync(new URL(`node_modules/@ai-sdk/${name}/package.json`, import.meta.url)));
  const has = (value) => JSON.stringify(value).includes(SOURCE);
  console.log(`@ai-sdk/${name} ${version}, ${way}: asked for ${isAsked}; ${parts.map(({ type }) => type).join(" ")},`,
    `${warnings?.length ?? 0} warnings; cited words in the result ${has(parts)}, in its messages ${has(messages)}, sent back ${has(sent[1])}`);
}
const streaming = async (options) => {
  const result = streamText(options);
  await result.consumeStream();
  return result;
};
const bedrock = createAmazonBedrock({ apiKey: "none", region: "us-east-1", fetch })("us.anthropic.claude-sonnet-5-v1:0");
await show("amazon-bedrock", bedrock, "plainly", generateText);
await show("amazon-bedrock", bedrock, "streamed", streaming);
await show("anthropic", createAnthropic({ apiKey: "none", fetch })("claude-sonnet-5"), "plainly", generateText);
JAVASCRIPT
node "$folder/run.mjs" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
@ai-sdk/amazon-bedrock 5.0.101, plainly: asked for true; text text, 0 warnings; cited words in the result false, in its messages false, sent back false
@ai-sdk/amazon-bedrock 5.0.101, streamed: asked for true; text text, 0 warnings; cited words in the result false, in its messages false, sent back false
@ai-sdk/anthropic 4.0.105, plainly: asked for true; text text source, 0 warnings; cited words in the result true, in its messages true, sent back true
SEEN
