import { buildResumeArray, HttpAgent, runHttpRequest, transformHttpEventStream } from "@ag-ui/client";

const threadId = location.hash.slice(1) || (location.hash = crypto.randomUUID()); // reloading keeps it
const tools = [
  {
    name: "look",
    description: "Look at the weather in a city. The user is asked first.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
];

class ThreadAgent extends HttpAgent {
  // HttpAgent has none: the messages, the state, and the run that is in progress
  connect(input) {
    const url = `${this.url}/${encodeURIComponent(input.threadId)}/stream`;
    return transformHttpEventStream(runHttpRequest(() => this.fetch(url, { signal: this.abortController.signal })));
  }
}

const agent = new ThreadAgent({ url: "/api/ag-ui", threadId });
const [thread, alert, form, output] = ["#thread", "[role=alert]", "form", "output"].map((one) => document.querySelector(one));
let waiting = []; // the calls that wait for this page
let decisions = {}; // about those that wait for the application

agent.subscribe({
  onMessagesChanged: draw,
  onRunFinishedEvent: ({ outcome, pendingToolCallIds }) => {
    waiting = outcome === "success" ? (pendingToolCallIds ?? []) : [];
  },
  onRunErrorEvent: ({ event }) => fail(event.message),
});

async function run(start) {
  fail("");
  waiting = [];
  decisions = {};
  output.textContent = "running";
  await start().catch((error) => fail(error.payload?.error.message ?? error.message));
  output.textContent = "ready";
  draw();
}

const go = (parameters) => run(() => agent.runAgent({ tools, ...parameters }));

function say(message) {
  agent.addMessage({ id: crypto.randomUUID(), ...message });
  return go();
}

function answer(call, content) {
  agent.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId: call.id, content });
  waiting = waiting.filter((id) => id !== call.id);
  if (waiting.length === 0) go();
}

function decide(interrupt, approved) {
  decisions[interrupt.id] = { status: "resolved", payload: { approved } };
  if (agent.pendingInterrupts.every((one) => one.id in decisions)) {
    go({ resume: buildResumeArray(agent.pendingInterrupts, decisions) });
  }
}

// The page

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

const button = (text, onclick) => element("button", { textContent: text, onclick });

function shown(call) {
  const { name, arguments: given } = call.function;
  const result = agent.messages.find((one) => one.role === "tool" && one.toolCallId === call.id);
  const made = element("pre", {}, `${name} ${given} ${result?.content ?? ""}`);
  if (waiting.includes(call.id)) {
    made.append(button("Allow", () => answer(call, '{"degrees":4}')), button("Deny", () => answer(call, "The user said no.")));
  }
  return made;
}

function draw() {
  const messages = agent.messages.filter((one) => one.role !== "tool").map((one) =>
    element(
      "article",
      { className: one.role },
      ...(one.content ? [element("p", {}, element(one.role === "reasoning" ? "em" : "span", {}, one.content))] : []),
      ...(one.toolCalls ?? []).map(shown),
    ),
  );
  const questions = agent.pendingInterrupts.map((one) =>
    element("article", {}, element("pre", {}, one.message, button("Allow", () => decide(one, true)), button("Deny", () => decide(one, false)))),
  );
  thread.replaceChildren(...messages, ...questions);
}

function fail(text) {
  alert.hidden = !text;
  alert.textContent = text;
}

form.onsubmit = (event) => {
  event.preventDefault();
  say({ role: "user", content: form.elements.text.value });
  form.reset();
};
document.querySelector("#stop").onclick = () => fetch(`/api/ag-ui/${encodeURIComponent(threadId)}/stop`, { method: "POST" });

run(() => agent.connectAgent());
