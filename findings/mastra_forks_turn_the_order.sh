#!/usr/bin/env bash
# What Mastra's memory makes of a history whose times are whole seconds, as many databases and exports keep them, so that a
# question and its answer have the same. It orders by the time alone:
# - in LibSQL, a thread is read in order, but a fork of its last messages (cloneThread with messageLimit) has each answer
#   before its question, and is stored and sent to the model so;
# - in memory, the same goes for the thread itself.
# With times that differ, both are right. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --legacy-peer-deps --prefix "$folder" @mastra/core@1.71.0 @mastra/memory@1.31.0 \
    @mastra/libsql@1.23.1 @ai-sdk/openai-compatible@3.0.61 zod@4.4.3
cat >"$folder/run.mjs" <<'JAVASCRIPT'
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Agent } from "@mastra/core/agent";
import { InMemoryStore } from "@mastra/core/storage";
import { LibSQLStore } from "@mastra/libsql";
import { Memory } from "@mastra/memory";
import { readFileSync } from "node:fs";

let sent;
async function fetch(_, { body }) {
  sent = JSON.parse(body).messages.filter(({ role }) => role !== "system").map(({ content }) => content);
  const choices = [{ index: 0, message: { role: "assistant", content: "Yes." }, finish_reason: "stop" }];
  return new Response(JSON.stringify({ id: "c", object: "chat.completion", created: 1, model: "m", choices }), { headers: { "content-type": "application/json" } });
}
const model = createOpenAICompatible({ name: "scripted", baseURL: "http://model.test/v1", fetch })("m");
const { version } = JSON.parse(readFileSync(new URL("node_modules/@mastra/memory/package.json", import.meta.url)));
const url = `file:${new URL("mastra.db", import.meta.url).pathname}`;
for (const [name, storage] of [["LibSQL", new LibSQLStore({ id: "s", url })], ["in memory", new InMemoryStore()]]) {
  for (const alike of [1, 2]) {
    const memory = new Memory({ storage, options: { lastMessages: 4 } });
    const agent = new Agent({ id: "a", name: "a", instructions: "Answer.", model, memory });
    const thread = `thread ${alike}`, resourceId = "r";
    await memory.createThread({ threadId: thread, resourceId, title: thread });
    await memory.saveMessages({ messages: ["q1", "a1", "q2", "a2", "q3", "a3"].map((text, place) => ({
      id: `${thread} ${text}`, threadId: thread, resourceId, role: text[0] === "q" ? "user" : "assistant",
      createdAt: new Date(1767225600000 + 1000 * Math.floor(place / alike)), content: { format: 2, parts: [{ type: "text", text }] },
    })) });
    const fork = `fork ${alike}`;
    await memory.cloneThread({ sourceThreadId: thread, newThreadId: fork, options: { messageLimit: 4 } });
    for (const [what, id] of [["thread", thread], ["fork", fork]]) {
      await agent.generate("And?", { memory: { thread: id, resource: resourceId } });
      console.log(`@mastra/memory ${version}, ${name}, ${alike === 1 ? "different" : "equal"} times, ${what}: sent ${sent.join(" ")}`);
    }
  }
}
JAVASCRIPT
node "$folder/run.mjs" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
@mastra/memory 1.31.0, LibSQL, different times, thread: sent q2 a2 q3 a3 And?
@mastra/memory 1.31.0, LibSQL, different times, fork: sent q2 a2 q3 a3 And?
@mastra/memory 1.31.0, LibSQL, equal times, thread: sent q2 a2 q3 a3 And?
@mastra/memory 1.31.0, LibSQL, equal times, fork: sent . a2 q2 a3 q3 And?
@mastra/memory 1.31.0, in memory, different times, thread: sent q2 a2 q3 a3 And?
@mastra/memory 1.31.0, in memory, different times, fork: sent q2 a2 q3 a3 And?
@mastra/memory 1.31.0, in memory, equal times, thread: sent . a2 q2 a3 q3 And?
@mastra/memory 1.31.0, in memory, equal times, fork: sent . a2 q2 a3 q3 And?
SEEN
