#!/usr/bin/env bash
# Which chunks of a UI message stream the AI SDK's own client takes, by its version. An unknown key is passed over, an
# unknown type of chunk ends the stream: what was to come after it is lost, and useChat has a validation error.
# - ai 5.0.277 refuses tool-approval-request, tool-output-denied, custom, reasoning-file and reset-step;
# - ai 6.0.326 refuses tool-approval-response, custom, reasoning-file and reset-step;
# - ai 7.0.173 takes all of these.
# All three ask with the same request: no header and no key of the body names a version, and the header of the answer,
# x-vercel-ai-ui-message-stream: v1, is the same. So a server that writes what today's types define breaks the chats of
# pages with an older client, and cannot know that it does.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for version in 5.0.277 6.0.326 7.0.173; do
    mkdir "$folder/${version%%.*}"
    npm install --silent --no-fund --no-audit --prefix "$folder/${version%%.*}" "ai@$version"
done
cat >"$folder/run.mjs" <<'JAVASCRIPT'
const [folder, major] = process.argv.slice(2);
const { pathToFileURL } = await import("node:url");
const { readFileSync } = await import("node:fs");
const home = `${folder}/${major}/node_modules/ai`;
const { version, exports } = JSON.parse(readFileSync(`${home}/package.json`));
const { DefaultChatTransport, readUIMessageStream } = await import(pathToFileURL(`${home}/${exports["."].import}`));
const call = { type: "tool-input-available", toolCallId: "a", toolName: "t", input: {} };
const request = { type: "tool-approval-request", approvalId: "p", toolCallId: "a" };
const cases = {
  "unknown-key": [{ type: "text-start", id: "0", later: true }, { type: "text-end", id: "0" }],
  "unknown-type": [{ type: "of-a-later-version" }],
  "tool-approval-request": [call, request],
  "tool-approval-response": [call, request, { type: "tool-approval-response", approvalId: "p", approved: true }],
  "tool-output-denied": [call, { type: "tool-output-denied", toolCallId: "a" }],
  custom: [{ type: "custom", kind: "x.y" }],
  "reasoning-file": [{ type: "reasoning-file", url: "data:image/png;base64,AA==", mediaType: "image/png" }],
  "reset-step": [{ type: "reset-step" }],
};
const requests = new Set();
const refused = [];
for (const [name, chunks] of Object.entries(cases)) {
  const all = [{ type: "start", messageId: "m" }, { type: "start-step" }, ...chunks, { type: "finish-step" }, { type: "finish" }];
  const text = all.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join("") + "data: [DONE]\n\n";
  const fetch = async (_, { headers, body }) => {
    requests.add(JSON.stringify([...new Headers(headers).keys(), ...Object.keys(JSON.parse(body))]));
    return new Response(text, { headers: { "content-type": "text/event-stream" } });
  };
  const transport = new DefaultChatTransport({ api: "http://chat.example/", fetch });
  const stream = await transport.sendMessages({ trigger: "submit-message", chatId: "c", messages: [] });
  try {
    for await (const _ of readUIMessageStream({ stream, terminateOnError: true }));
  } catch (error) {
    if (error.name !== "AI_TypeValidationError") throw error;
    refused.push(name);
  }
}
console.log(version, "refuses", refused.join(" "), "| asked with", [...requests].join(" "));
JAVASCRIPT
for major in 5 6 7; do node "$folder/run.mjs" "$folder" "$major"; done | tee "$folder/seen"
asked='| asked with ["content-type","id","messages","trigger"]'
diff - "$folder/seen" <<SEEN
5.0.277 refuses unknown-type tool-approval-request tool-approval-response tool-output-denied custom reasoning-file reset-step $asked
6.0.326 refuses unknown-type tool-approval-response custom reasoning-file reset-step $asked
7.0.173 refuses unknown-type $asked
SEEN
