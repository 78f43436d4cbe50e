#!/usr/bin/env bash
# What an agent of ADK for JavaScript keeps in its session of answers of Gemini, asked plainly and streamed (StreamingMode.SSE),
# and sends back with the next question. The model thinks, says something and makes two calls of a tool at once, and
# then answers; Gemini signs the first of the calls, and repeats its counts, which are totals, in each chunk. Streamed:
# - one answer with two calls becomes two answers with a call each, the second after the output of the first, though the
#   model has made it before it knew any, and the second call has a copy of the first one's signature;
# - the signatures of texts are gone;
# - the session has an event for each part of an answer, with the whole usage of its request: three requests of 1000 tokens
#   are 6000 where the events of a session are added up. Plainly, each request counts once.
# Plainly, all is sent back as it came. Nothing is raised or logged but that requests are sent.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --legacy-peer-deps --ignore-scripts --prefix "$folder" @google/adk@2.0.0 zod@4.4.3
cat >"$folder/run.mjs" <<'JAVASCRIPT'
import { FunctionTool, Gemini, InMemoryRunner, LlmAgent, LogLevel, setLogLevel, StreamingMode } from "@google/adk";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { z } from "zod";

setLogLevel(LogLevel.WARN);
const call = (seat, thoughtSignature) => ({ functionCall: { name: "book", args: { seat } }, ...(thoughtSignature && { thoughtSignature }) });
const answers = [
  [{ text: "Seats.", thought: true }, { text: "I book both.", thoughtSignature: "dGV4dA==" }, call(12, "Y2FsbA=="), call(13)],
  [{ text: "Do" }, { text: "ne.", thoughtSignature: "ZG9uZQ==" }], [{ text: "Yes." }],
];
const usageMetadata = { promptTokenCount: 1000, candidatesTokenCount: 20, totalTokenCount: 1020 };
const body = (parts, isLast) =>
  ({ candidates: [{ content: { role: "model", parts }, index: 0, ...(isLast && { finishReason: "STOP" }) }], usageMetadata, modelVersion: "m" });
let requests, place;
const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  requests.push(JSON.parse(Buffer.concat(chunks)));
  const parts = answers[place++];
  const isStreamed = request.url.includes("stream");
  const events = parts.map((part, number) => `data: ${JSON.stringify(body([part], number === parts.length - 1))}\n\n`);
  response.writeHead(200, { "content-type": isStreamed ? "text/event-stream" : "application/json" });
  response.end(isStreamed ? events.join("") : JSON.stringify(body(parts, true)));
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
process.env.GOOGLE_GEMINI_BASE_URL = `http://127.0.0.1:${server.address().port}`;

const shown = ({ text, thought, functionCall, functionResponse, thoughtSignature }) => [
  functionCall ? `call ${functionCall.args.seat}` : functionResponse ? `output ${functionResponse.response.booked}` : `${thought ? "thought " : ""}"${text}"`,
  thoughtSignature && `signed ${thoughtSignature}`].filter(Boolean).join(" ");
const { version } = JSON.parse(readFileSync(new URL("node_modules/@google/adk/package.json", import.meta.url)));
const execute = async ({ seat }) => ({ booked: seat });
const book = new FunctionTool({ name: "book", description: "Book a seat", parameters: z.object({ seat: z.number() }), execute });
for (const [way, streamingMode] of [["plainly", StreamingMode.NONE], ["streamed", StreamingMode.SSE]]) {
  [requests, place] = [[], 0];
  const agent = new LlmAgent({ name: "a", model: new Gemini({ model: "gemini-3-pro", apiKey: "none" }), instruction: "Book.", tools: [book] });
  const runner = new InMemoryRunner({ agent, appName: "app" });
  const names = { appName: "app", userId: "u" };
  const { id: sessionId } = await runner.sessionService.createSession(names);
  for (const text of ["Book 12 and 13.", "Sure?"]) {
    const asked = { userId: "u", sessionId, newMessage: { role: "user", parts: [{ text }] }, runConfig: { streamingMode } };
    for await (const _ of runner.runAsync(asked));
  }
  console.log(`@google/adk ${version}, ${way}, the last of ${requests.length} requests:`);
  for (const { role, parts } of requests.at(-1).contents) console.log(`  ${role}: ${parts.map(shown).join(" + ")}`);
  const { events } = await runner.sessionService.getSession({ ...names, sessionId });
  const counts = events.filter(({ author }) => author === "a").map(({ usageMetadata }) => usageMetadata?.promptTokenCount ?? 0);
  console.log(`  tokens of input in the agent's events: ${counts.join(" + ")}`);
}
process.exit(0);
JAVASCRIPT
node "$folder/run.mjs" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
@google/adk 2.0.0, plainly, the last of 3 requests:
  user: "Book 12 and 13."
  model: thought "Seats." + "I book both." signed dGV4dA== + call 12 signed Y2FsbA== + call 13
  user: output 12 + output 13
  model: "Do" + "ne." signed ZG9uZQ==
  user: "Sure?"
  tokens of input in the agent's events: 1000 + 0 + 1000 + 1000
@google/adk 2.0.0, streamed, the last of 3 requests:
  user: "Book 12 and 13."
  model: thought "Seats." + "I book both."
  model: call 12 signed Y2FsbA==
  user: output 12
  model: call 13 signed Y2FsbA==
  user: output 13
  model: "Done."
  user: "Sure?"
  tokens of input in the agent's events: 1000 + 1000 + 0 + 1000 + 0 + 1000 + 1000 + 1000
SEEN
