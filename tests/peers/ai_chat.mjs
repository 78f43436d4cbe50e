// A chat of the AI SDK that does what the lines of its input say, and writes what it has after each as a line of JSON.
import { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses, safeValidateUIMessages } from "ai";
import { createInterface } from "node:readline";

class State {
  status = "ready";
  error = undefined;
  constructor(messages) { this.messages = messages; }
  pushMessage = (message) => { this.messages = [...this.messages, message]; };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (index, message) => { this.messages = this.messages.with(index, message); };
  snapshot = (value) => structuredClone(value);
}

class Chat extends AbstractChat {
  constructor({ messages, ...init }) { super({ ...init, state: new State(messages) }); }
}

// A stream that is resumed goes on behind the answer to the command; `end` waits for its end, as other commands do.
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
let chat;

async function begin({ url, id }) {
  const { messages } = await (await fetch(`${url}/${id}`)).json();
  chat = new Chat({
    id, messages, transport: new DefaultChatTransport({ api: url }),
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  });
}

const commands = {
  begin,
  say: (text) => chat.sendMessage({ text }),
  goOn: () => chat.sendMessage(),
  decide: (answer) => chat.addToolApprovalResponse(answer),
  resume: async () => {
    chat.resumeStream();
    while (chat.status !== "streaming") await sleep(20);
  },
  end: () => {},
};

for await (const line of createInterface({ input: process.stdin })) {
  const [[name, given]] = Object.entries(JSON.parse(line));
  await commands[name](given);
  do await sleep(20); while (name !== "resume" && ["submitted", "streaming"].includes(chat.status)); // also what is sent automatically
  const { messages, status } = chat, error = chat.error?.message ?? null;
  const isValid = messages.length === 0 || (await safeValidateUIMessages({ messages })).success;
  process.stdout.write(JSON.stringify({ messages, status, error, isValid }) + "\n");
}
