#!/usr/bin/env bash
# Two things that HttpAgent, the client of AG-UI, does with messages that it has already:
# - A call whose id was used in an earlier answer becomes no call of its own: its arguments are added to those of the
#   earlier one, {"n":1}{"n":2}, and its message is missing. Providers that count the calls of each answer (call_0)
#   make such ids. The next run sends that as history.
# - MESSAGES_SNAPSHOT gives no order: messages that the client knows stay where they are, and the others come last. An
#   answer that a snapshot has between two questions stands behind both afterwards, and is sent so with the next run.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --prefix "$folder" @ag-ui/client@1.0.0
cat > "$folder/run.mjs" <<'JAVASCRIPT'
import { HttpAgent } from "@ag-ui/client";
import { readFileSync } from "node:fs";

const run = { threadId: "t", runId: "r" };
const user = (id) => ({ id, role: "user", content: "Hi" });

function agentOf(initialMessages, ...answers) {
  const fetch = async () => {
    const events = [{ type: "RUN_STARTED", ...run }, ...answers.shift(), { type: "RUN_FINISHED", ...run }];
    const body = events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
  };
  return new HttpAgent({ url: "http://agent.test/", initialMessages, fetch });
}

const call = (message, delta) => [
  { type: "TOOL_CALL_START", toolCallId: "call_0", toolCallName: "count", parentMessageId: message },
  { type: "TOOL_CALL_ARGS", toolCallId: "call_0", delta },
  { type: "TOOL_CALL_END", toolCallId: "call_0" },
];
const { version } = JSON.parse(readFileSync(new URL("node_modules/@ag-ui/client/package.json", import.meta.url)));
console.log("@ag-ui/client", version);

const counting = agentOf([user("u1")], call("a1", '{"n":1}'), call("a2", '{"n":2}'));
await counting.runAgent();
counting.addMessages([{ id: "t1", role: "tool", toolCallId: "call_0", content: "1" }, user("u2")]);
await counting.runAgent();
const made = counting.messages.flatMap((message) => message.toolCalls ?? []).map((one) => one.function.arguments);
console.log("arguments of two calls:", made, "messages:", counting.messages.map((message) => message.id));

const messages = [user("u1"), { id: "a1", role: "assistant", content: "Hello." }, user("u2")];
const ordered = agentOf([user("u1"), user("u2")], [{ type: "MESSAGES_SNAPSHOT", messages }]);
await ordered.runAgent();
const order = ordered.messages.map((message) => message.id);
console.log("snapshot:", messages.map((message) => message.id), "client:", order);

const isAsKnown = made.join("; ") === '{"n":1}{"n":2}' && order.join() === "u1,u2,a1";
console.log(isAsKnown ? "as expected" : "the behaviour has changed");
process.exit(isAsKnown ? 0 : 1);
JAVASCRIPT
node "$folder/run.mjs"
