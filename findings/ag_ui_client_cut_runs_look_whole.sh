#!/usr/bin/env bash
# HttpAgent, the client of AG-UI, takes a run whose stream ends too early for one that has ended: the promise of
# runAgent resolves with the messages as far as they have come, a text cut in the middle and arguments that are no JSON
# among them, and neither onRunFailed nor onRunErrorEvent is called. The same goes for an answer without any event.
# Only the absence of onRunFinishedEvent tells. So a server that is restarted leaves half an answer, which the client
# sends back as history with the next run, and a proxy that closes idle streams goes unnoticed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --prefix "$folder" @ag-ui/client@1.0.0
cat > "$folder/run.mjs" <<'JAVASCRIPT'
import { HttpAgent } from "@ag-ui/client";
import { readFileSync } from "node:fs";

const started = { type: "RUN_STARTED", threadId: "t", runId: "r" };
const text = [
  { type: "TEXT_MESSAGE_START", messageId: "a1", role: "assistant" },
  { type: "TEXT_MESSAGE_CONTENT", messageId: "a1", delta: "Do not" },
];
const call = [
  { type: "TOOL_CALL_START", toolCallId: "c1", toolCallName: "pay", parentMessageId: "a1" },
  { type: "TOOL_CALL_ARGS", toolCallId: "c1", delta: '{"euros": 1' },
];

async function run(events) {
  const body = events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");
  const headers = { "content-type": "text/event-stream" };
  const agent = new HttpAgent({ url: "http://agent.test/", fetch: async () => new Response(body, { headers }) });
  const called = [];
  const watch = Object.fromEntries(
    ["onRunFinishedEvent", "onRunErrorEvent", "onRunFailed"].map((name) => [name, () => void called.push(name)]),
  );
  const outcome = await agent.runAgent({}, watch).then(() => "resolved", (error) => `rejected: ${error.message}`);
  return `${outcome}; called: ${called.join(", ") || "nothing"}; messages: ${JSON.stringify(agent.messages)}`;
}

const { version } = JSON.parse(readFileSync(new URL("node_modules/@ag-ui/client/package.json", import.meta.url)));
console.log("@ag-ui/client", version);
const known = [
  [[started, ...text], '"content":"Do not"'],
  [[started, ...call], '"arguments":"{\\"euros\\": 1"'],
  [[], "messages: []"],
];
let isAsKnown = true;
for (const [events, seen] of known) {
  const found = await run(events);
  console.log(`after ${events.length} events: ${found}`);
  isAsKnown &&= found.startsWith("resolved; called: nothing;") && found.includes(seen);
}
console.log(isAsKnown ? "as expected" : "the behaviour has changed");
process.exit(isAsKnown ? 0 : 1);
JAVASCRIPT
node "$folder/run.mjs"
