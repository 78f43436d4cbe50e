import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, isToolUIPart, lastAssistantMessageIsCompleteWithToolCalls } from "ai";
import { StrictMode, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

const id = location.hash.slice(1) || (location.hash = crypto.randomUUID()); // of the chat; reloading keeps it
const tools = [
  {
    type: "function",
    name: "look",
    description: "Look at the weather in a city. The user is asked first.",
    inputSchema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
];
const transport = new DefaultChatTransport({ api: "/api/chat", body: { tools } });

async function load() {
  const response = await fetch(`/api/chat/${encodeURIComponent(id)}`);
  if (response.status === 404) return { messages: [] }; // nothing was said yet
  if (!response.ok) throw new Error((await response.json()).error.message);
  return response.json();
}

const call = (path, method, body) =>
  fetch(`/api${path}`, { method, headers: { "content-type": "application/json" }, body: JSON.stringify(body ?? {}) });

function Chat({ loaded, reload }) {
  const chat = useChat({
    id,
    messages: loaded.messages,
    resume: Boolean(loaded.response_id),
    transport,
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
  });
  const [draft, setDraft] = useState({ number: 0, of: null }); // the form is made anew for each
  const next = (of) => setDraft(({ number }) => ({ number: number + 1, of }));
  const isBusy = chat.status === "submitted" || chat.status === "streaming";

  async function send(event) {
    event.preventDefault();
    const { text, files } = event.target.elements;
    next(null);
    await chat.sendMessage({ text: text.value, files: files.files, messageId: draft.of?.id });
  }

  return (
    <>
      {chat.messages.map((message) => (
        <article key={message.id} className={message.role} data-id={message.id}>
          {message.parts.map((part, index) => (
            <Part key={index} part={part} answer={chat.addToolOutput} />
          ))}
          <footer>
            <Variants of={loaded.variants?.[message.id]} reload={reload} />
            {!isBusy && message.role === "user" && <button onClick={() => next(message)}>Edit</button>}
            {!isBusy && message.role === "assistant" && (
              <button onClick={() => chat.regenerate({ messageId: message.id })}>Again</button>
            )}
          </footer>
        </article>
      ))}
      {chat.error && (
        <p role="alert">
          {reasonOf(chat.error)} <button onClick={reload}>Load again</button>
        </p>
      )}
      <form onSubmit={send} key={draft.number}>
        <input name="text" aria-label="Message" defaultValue={draft.of ? textOf(draft.of) : ""} autoFocus />
        <input name="files" type="file" accept="image/*" multiple aria-label="Pictures" />
        {isBusy ? (
          <button type="button" onClick={() => call(`/chat/${encodeURIComponent(id)}/stop`, "POST")}>Stop</button>
        ) : (
          <button>{draft.of ? "Send instead" : "Send"}</button>
        )}
        <output>{chat.status}</output>
      </form>
    </>
  );
}

function Part({ part, answer }) {
  if (part.type === "text") return <p>{part.text}</p>;
  if (part.type === "reasoning") return <p><em>{part.text}</em></p>;
  if (part.type === "file") return <img src={part.url} alt={part.filename ?? "picture"} />;
  if (!isToolUIPart(part)) return null;
  const tool = part.type.slice("tool-".length);
  const decide = (output) => answer({ tool, toolCallId: part.toolCallId, ...output });
  return (
    <pre>
      {tool} {JSON.stringify(part.input)} {part.errorText ?? JSON.stringify(part.output)}
      {part.state === "input-available" && (
        <>
          <button onClick={() => decide({ output: { degrees: 4 } })}>Allow</button>
          <button onClick={() => decide({ state: "output-error", errorText: "The user said no." })}>Deny</button>
        </>
      )}
    </pre>
  );
}

function Variants({ of, reload }) {
  if (!of) return null;
  const show = async (index) => {
    await call(`/conversations/${encodeURIComponent(id)}/active_branch`, "PUT", { branch: of.branches[index] });
    reload();
  };
  return (
    <>
      <button aria-label="Previous" disabled={of.index === 0} onClick={() => show(of.index - 1)}>‹</button>
      {of.index + 1} of {of.branches.length}
      <button aria-label="Next" disabled={of.index + 1 === of.branches.length} onClick={() => show(of.index + 1)}>
        ›
      </button>
    </>
  );
}

function reasonOf(error) {
  try {
    return JSON.parse(error.message).error.message; // the body of a refusal
  } catch {
    return error.message;
  }
}

const textOf = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("");

function Page() {
  const [loaded, setLoaded] = useState(null);
  const [error, setError] = useState(null);
  const [version, setVersion] = useState(0);
  useEffect(() => {
    load().then((found) => setLoaded({ ...found, version }), setError);
  }, [version]);
  if (error) return <p role="alert">{error.message}</p>;
  return loaded && <Chat key={loaded.version} loaded={loaded} reload={() => setVersion(version + 1)} />;
}

createRoot(document.getElementById("chat")).render(<StrictMode><Page /></StrictMode>);
