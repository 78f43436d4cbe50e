#!/usr/bin/env bash
# One answer of Gemini that runs code between two texts, asked plainly and streamed through the AI SDK's provider for Google,
# and then sent back by it with the next question:
# - plainly, it is text, code, result, text, and goes back so;
# - streamed, the second text is appended to the first: what the model says of the result stands before the code that
#   gave it, in the parts, on the page (UI message), in what is stored and in the next request.
# Nothing is raised, and there is no warning.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --prefix "$folder" ai@7.0.173 @ai-sdk/google@4.0.121 zod@4.4.3
cat >"$folder/run.mjs" <<'JAVASCRIPT'
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { generateText, readUIMessageStream, streamText, toUIMessageStream } from "ai";
import { readFileSync } from "node:fs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const parts = [
  { text: "I add them up. " },
  { executableCode: { language: "PYTHON", code: "print(19 + 23)" } },
  { codeExecutionResult: { outcome: "OUTCOME_OK", output: "42\n" } },
  { text: "It is 42." },
];
const usageMetadata = { promptTokenCount: 9, candidatesTokenCount: 9, totalTokenCount: 18 };
const body = (parts, finishReason) => ({ candidates: [{ content: { role: "model", parts }, finishReason, index: 0 }], usageMetadata });
const chunks = parts.map((part, place) => body([part], place === 3 ? "STOP" : undefined));
let sent;
const fetch = async (url, { body: asked }) => {
  sent = JSON.parse(asked).contents;
  const isStreamed = String(url).includes("streamGenerateContent");
  const text = isStreamed ? chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join("") : JSON.stringify(body(parts, "STOP"));
  return new Response(text, { headers: { "content-type": isStreamed ? "text/event-stream" : "application/json" } });
};
const google = createGoogleGenerativeAI({ apiKey: "none", fetch });
const options = { model: google("gemini-3-pro"), tools: { code_execution: google.tools.codeExecution({}) } };
const question = { role: "user", content: "What is 19 + 23?" };
const { version } = JSON.parse(readFileSync(new URL("node_modules/@ai-sdk/google/package.json", import.meta.url)));
const words = (parts) => parts.map(({ type, text }) => text || type).join(" | ");
async function show(way, result) {
  const { messages } = await result.response;
  console.log(`@ai-sdk/google ${version}, ${way}: ${words(await result.content)}`);
  await generateText({ ...options, messages: [question, ...messages, { role: "user", content: "Sure?" }] });
  console.log(`sent back: ${sent[1].parts.map((part) => part.text || Object.keys(part)[0]).join(" | ")}`);
}

await show("plainly", await generateText({ ...options, messages: [question] }));
const result = streamText({ ...options, messages: [question] });
let message;
for await (const current of readUIMessageStream({ stream: toUIMessageStream({ stream: result.stream }) })) message = current;
await show("streamed", result);
console.log(`UI message: ${words(message.parts.filter(({ type }) => type !== "step-start"))}`);
JAVASCRIPT
node "$folder/run.mjs" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
@ai-sdk/google 4.0.121, plainly: I add them up.  | tool-call | tool-result | It is 42.
sent back: I add them up.  | executableCode | codeExecutionResult | It is 42.
@ai-sdk/google 4.0.121, streamed: I add them up. It is 42. | tool-call | tool-result
sent back: I add them up. It is 42. | executableCode | codeExecutionResult
UI message: I add them up. It is 42. | tool-code_execution
SEEN
