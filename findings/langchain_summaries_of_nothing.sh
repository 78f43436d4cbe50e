#!/usr/bin/env bash
# What SummarizationMiddleware of LangChain tells the model that is to summarize a conversation, and what takes its place.
# Of what it is about to replace, it takes the last 4000 tokens (trim_tokens_to_summarize, by default), whole messages only:
# - where the last message to replace is longer, nothing is left: no model is asked, and the whole conversation is replaced
#   by "Previous conversation was too long to summarize."; a long answer that is followed by a short question is enough;
# - a PDF counts one token for four characters of base64, so 30 KB of it are 10,000 tokens. It makes the summary begin, and
#   neither it nor anything before it is in it;
# - a picture counts 85 tokens, and is in no summary either: its message is empty, beside the text if it has one.
# The state of the thread then has the summary in place of the messages. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
  langchain==1.5.2 langchain-core==1.8.3 langchain-openai==1.7.4 langgraph==1.2.24 openai==3.57.0 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PYTHON' | tee "$folder/seen"
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

PDF = {"type": "file", "base64": "A" * 40_000, "mime_type": "application/pdf", "filename": "lease.pdf"}
PICTURE = {"type": "image", "base64": "A" * 40_000, "mime_type": "image/png"}
NAME = {"type": "text", "text": "I am Ada."}
asked = []


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        messages = json.loads(self.rfile.read(int(self.headers["content-length"])))["messages"]
        asked.append(messages)
        is_summary = "Messages to summarize:" in messages[0]["content"]
        message = {"role": "assistant", "content": "(the summary)" if is_summary else "(an answer)"}
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
        self.wfile.write(json.dumps(answer).encode())


def summarize(name, *said, trigger):
    """A conversation up to a last, short question; the question itself is kept."""
    asked.clear()
    middleware = SummarizationMiddleware(model=model, trigger=trigger, keep=("messages", 1))
    agent = create_agent(model, tools=[], middleware=[middleware], checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "1"}}
    kinds = (HumanMessage, AIMessage)
    messages = [kinds[number % 2](text) for number, text in enumerate([*said, "And now?"])]
    state = agent.invoke({"messages": messages}, thread)
    print(f"{name}: {len(asked) - 1} questions for a summary")
    for request in asked[:-1]:
        told = request[0]["content"].partition("Messages to summarize:\n")[2].partition("\n</messages>")[0]
        print("  told:", *(line[:60] for line in told.splitlines()), sep="\n    ")
    print("  kept:", *(message.content.replace("\n", " ") for message in state["messages"]), sep="\n    ")


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
model = ChatOpenAI(model="gpt-4o", api_key="none", base_url=f"http://127.0.0.1:{server.server_port}")
summarize("a long answer", "I am Ada.", "Hello, Ada.", "Write.", "long " * 4_000, trigger=("tokens", 5_000))
summarize("a PDF", [NAME, PDF], "It is a lease.", "Until when?", "May.", trigger=("tokens", 8_000))
summarize("pictures", [NAME, PICTURE], "A cat.", [PICTURE], "A dog.", trigger=("messages", 5))
PYTHON
diff - "$folder/seen" <<'SEEN'
a long answer: 0 questions for a summary
  kept:
    Here is a summary of the conversation to date:  Previous conversation was too long to summarize.
    And now?
    (an answer)
a PDF: 1 questions for a summary
  told:
    <message type="human">Until when?</message>
    <message type="ai">May.</message>
  kept:
    Here is a summary of the conversation to date:  (the summary)
    And now?
    (an answer)
pictures: 1 questions for a summary
  told:
    <message type="human">I am Ada.</message>
    <message type="ai">A cat.</message>
    <message type="human"></message>
    <message type="ai">A dog.</message>
  kept:
    Here is a summary of the conversation to date:  (the summary)
    And now?
    (an answer)
SEEN
