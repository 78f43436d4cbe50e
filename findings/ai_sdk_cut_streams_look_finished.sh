#!/usr/bin/env bash
# What a chat of the AI SDK (the class behind useChat) makes of an answer whose stream ends too early, without an error of
# the connection: as a proxy or a server ends it that was stopped. In ai 5.0.277, 6.0.326 and 7.0.173 alike:
# - neither the chunk finish nor [DONE] is missed: the status is "ready", there is no error, and onFinish is called with
#   isError, isDisconnect and isAbort false. Only that it has no finishReason, and that the part keeps the state
#   "streaming" (a tool: "input-streaming"), tells it from a whole answer.
# - the same for an answer of no bytes: the page is ready, and the last message is the user's.
# - a chunk error ends the reading: text-end and finish behind it are dropped, so the part stays "streaming" for good.
# So a server has to send a chunk error where an answer ends early, and send it last.
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
const { AbstractChat, DefaultChatTransport } = await import(pathToFileURL(`${home}/${exports["."].import}`));
class State {
  messages = [];
  status = "ready";
  error = undefined;
  pushMessage = (message) => { this.messages = [...this.messages, message]; };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (index, message) => { this.messages = this.messages.with(index, message); };
  snapshot = (value) => structuredClone(value);
}
class Chat extends AbstractChat {
  constructor(options) { super({ ...options, state: new State() }); }
}
const start = [{ type: "start", messageId: "m" }, { type: "start-step" }];
const half = [{ type: "text-start", id: "1" }, { type: "text-delta", id: "1", delta: "hi" }];
const whole = [...half, { type: "text-end", id: "1" }];
const finish = [{ type: "finish-step" }, { type: "finish", finishReason: "stop" }];
const cases = {
  whole: [...start, ...whole, ...finish],
  "in a text": [...start, ...half],
  "after a text": [...start, ...whole],
  "in a call": [...start, { type: "tool-input-start", toolCallId: "a", toolName: "t" }],
  "no bytes": [],
  "error before the end": [...start, ...half, { type: "error", errorText: "e" }, { type: "text-end", id: "1" }, ...finish],
};
for (const [name, chunks] of Object.entries(cases)) {
  const text = chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join("");
  const fetch = async () => new Response(text, { headers: { "content-type": "text/event-stream" } });
  let end;
  const transport = new DefaultChatTransport({ api: "http://chat.example/", fetch });
  const chat = new Chat({ id: "c", transport, onFinish: (given) => { end = given; }, onError: () => {} });
  await chat.sendMessage({ text: "question" });
  const { isAbort, isDisconnect, isError, finishReason } = end;
  const parts = chat.lastMessage.parts.filter(({ type }) => type !== "step-start").map(({ state }) => state ?? "-");
  const flags = Object.entries({ isAbort, isDisconnect, isError }).filter(([, is]) => is).map(([flag]) => flag);
  console.log(`${version} ${name}: ${chat.status}, ${chat.lastMessage.role} ${parts}, ${finishReason ?? "no reason"}, ${flags.join(" ") || "no flag"}`);
}
JAVASCRIPT
for major in 5 6 7; do node "$folder/run.mjs" "$folder" "$major"; done | tee "$folder/seen"
for version in 5.0.277 6.0.326 7.0.173; do
    cat <<SEEN
$version whole: ready, assistant done, stop, no flag
$version in a text: ready, assistant streaming, no reason, no flag
$version after a text: ready, assistant done, no reason, no flag
$version in a call: ready, assistant input-streaming, no reason, no flag
$version no bytes: ready, user -, no reason, no flag
$version error before the end: error, assistant streaming, no reason, isError
SEEN
done | diff - "$folder/seen"
