// An HttpAgent that does what the lines of its input say, and writes what it has after each as a line of JSON.
import { HttpAgent, runHttpRequest, transformHttpEventStream } from "@ag-ui/client";
import { EventSchema, MessageSchema } from "@ag-ui/core/schemas";
import { createInterface } from "node:readline";

class ThreadAgent extends HttpAgent {
  connect(input) {
    const url = `${this.url}/${encodeURIComponent(input.threadId)}/stream`;
    return transformHttpEventStream(runHttpRequest(() => this.fetch(url, { signal: this.abortController.signal })));
  }
}

const warnings = [];
console.warn = (...texts) => warnings.push(texts.join(" "));
console.error = () => {}; // failures are in the results
let agent;

async function run(command) {
  const events = [];
  let pending = null, error = null;
  const watch = {
    onEvent: ({ event }) => {
      events.push(event);
      if (event.type === command.abortAt) agent.abortRun();
    },
    onRunFinishedEvent: ({ pendingToolCallIds }) => { pending = pendingToolCallIds ?? null; },
    onRunErrorEvent: ({ event }) => { error = event.message; },
  };
  for (const message of command.add ?? []) agent.addMessage(message);
  if ("state" in command) agent.setState(command.state);
  const done = await agent[command.connect ? "connectAgent" : "runAgent"](command.with ?? {}, watch)
    .catch((failure) => { error = failure.message; });
  return { events, pending, error, result: done?.result ?? null, newMessages: done?.newMessages ?? null };
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  if (command.url) agent = new ThreadAgent({ url: command.url, threadId: command.threadId });
  const ran = command.url ? { events: [] } : await run(command);
  const invalid = [...ran.events.map((one) => EventSchema.safeParse(one)), ...agent.messages.map((one) => MessageSchema.safeParse(one))]
    .filter((one) => !one.success)
    .map((one) => one.error.message);
  const { messages, state, pendingInterrupts } = agent;
  process.stdout.write(JSON.stringify({ ...ran, messages, state, pendingInterrupts, invalid, warnings: warnings.splice(0) }) + "\n");
}
