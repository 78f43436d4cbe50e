#!/usr/bin/env bash
# What the providers of the AI SDK send of one tool's output that has a text, a picture and a PDF (an output of the type
# "content", as a tool that reads files or takes screenshots has it), from one and the same history:
# - OpenAI (Responses), Anthropic, OpenRouter and Gemini 3 send both files;
# - xAI and DeepSeek send the picture, and Workers AI neither: its model is told of a page of which nothing is there. Only
#   DeepSeek's has a warning in the result;
# - Chat Completions of OpenAI and of all that are compatible, Mistral, Groq, Cohere and Ollama send the bytes as a text,
#   base64 in JSON. A picture of 30 kB, which is less than 2000 tokens as a picture, is 27000 tokens so, in each later
#   request, and the model cannot see it.
# The history is the same: which model reads it next decides.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --legacy-peer-deps --prefix "$folder" ai@7.0.173 gpt-tokenizer@4.0.0 \
    @ai-sdk/openai@4.0.118 @ai-sdk/anthropic@4.0.105 @openrouter/ai-sdk-provider@3.1.0 @ai-sdk/google@4.0.121 \
    @ai-sdk/xai@5.0.12 workers-ai-provider@4.0.0 @ai-sdk/mistral@4.0.87 @ai-sdk/groq@4.0.84 @ai-sdk/cohere@4.0.52 \
    @ai-sdk/deepseek@3.0.56 @ai-sdk/openai-compatible@3.0.92 ollama-ai-provider-v2@4.0.1 zod@4.4.3
cat >"$folder/run.mjs" <<'JAVASCRIPT'
import { createAnthropic } from "@ai-sdk/anthropic";
import { createCohere } from "@ai-sdk/cohere";
import { createDeepSeek } from "@ai-sdk/deepseek";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createGroq } from "@ai-sdk/groq";
import { createMistral } from "@ai-sdk/mistral";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { createXai } from "@ai-sdk/xai";
import { createOpenRouter } from "@openrouter/ai-sdk-provider";
import { jsonSchema, streamText, tool } from "ai";
import { countTokens } from "gpt-tokenizer/encoding/o200k_base";
import { createOllama } from "ollama-ai-provider-v2";
import { createWorkersAI } from "workers-ai-provider";

// noise behind the first bytes of a picture: the numbers of a generator, so that each run has the same
let state = 1;
const noise = () => (state = (state * 48271) % 2147483647) & 255;
const picture = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, ...Array.from({ length: 30000 }, noise)]).toString("base64");
const pdf = Buffer.from("%PDF-1.4\n%%EOF").toString("base64");
const value = [
  { type: "text", text: "Page 1:" },
  { type: "file", mediaType: "image/png", data: { type: "data", data: picture } },
  { type: "file", mediaType: "application/pdf", filename: "page.pdf", data: { type: "data", data: pdf } },
];
const call = { toolCallId: "abcdefghi", toolName: "read" };
const messages = [
  { role: "user", content: "Read page 1." },
  { role: "assistant", content: [{ type: "tool-call", ...call, input: {} }] },
  { role: "tool", content: [{ type: "tool-result", ...call, output: { type: "content", value } }] },
];

let sent;
const fetch = async (_, { body }) => {
  sent = body;
  throw new Error("no provider is asked");
};
const binding = { run: async (_, input) => fetch(null, { body: JSON.stringify(input) }) };
const own = { apiKey: "none", fetch };
const models = {
  "openai, Responses": createOpenAI(own)("gpt-5.5"),
  "anthropic": createAnthropic(own)("claude-sonnet-5"),
  "openrouter": createOpenRouter(own)("m"),
  "google": createGoogleGenerativeAI(own)("gemini-3-pro"),
  "xai": createXai(own)("grok-4"),
  "workers-ai": createWorkersAI({ binding })("m"),
  "openai, Chat Completions": createOpenAI(own).chat("gpt-5.5"),
  "mistral": createMistral(own)("m"),
  "groq": createGroq(own)("m"),
  "cohere": createCohere(own)("m"),
  "deepseek": createDeepSeek(own)("m"),
  "openai-compatible": createOpenAICompatible({ ...own, name: "scripted", baseURL: "http://model.test/v1" })("m"),
  "ollama": createOllama({ baseURL: "http://model.test/api", fetch })("m"),
};
const tools = { read: tool({ inputSchema: jsonSchema({ type: "object", properties: {} }) }) };

// a text that is JSON within the request's JSON has its quotation marks escaped
function wayOf(data) {
  if (!sent.includes(data)) return "not sent";
  const around = sent.slice(sent.indexOf(data) - 20, sent.indexOf(data));
  if (!around.includes('\\"')) return "a file";
  const tokens = countTokens(data);
  return tokens < 1000 ? "text" : `text of ${Math.floor(tokens / 1000)} thousand tokens`;
}
for (const [name, model] of Object.entries(models)) {
  sent = "";
  await streamText({ model, messages, tools, maxRetries: 0, onError: () => {} }).consumeStream();
  console.log(`${name}: picture ${wayOf(picture)}, PDF ${wayOf(pdf)}${sent.includes("Page 1:") ? "" : ", no text"}`);
}
JAVASCRIPT
node "$folder/run.mjs" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
openai, Responses: picture a file, PDF a file
anthropic: picture a file, PDF a file
openrouter: picture a file, PDF a file
google: picture a file, PDF a file
xai: picture a file, PDF not sent
workers-ai: picture not sent, PDF not sent
openai, Chat Completions: picture text of 27 thousand tokens, PDF text
mistral: picture text of 27 thousand tokens, PDF text
groq: picture text of 27 thousand tokens, PDF text
cohere: picture text of 27 thousand tokens, PDF text
deepseek: picture a file, PDF not sent
openai-compatible: picture text of 27 thousand tokens, PDF text
ollama: picture text of 27 thousand tokens, PDF text
SEEN
