#!/usr/bin/env bash
# What ag-ui-langgraph, which AG-UI and CopilotKit put before LangGraph, sends as MESSAGES_SNAPSHOT at the end of a run,
# where the content of a message is a list, as answers with reasoning, citations or several texts are:
# - of an answer and of a tool's output it keeps the first text, and nothing of what follows: images, other texts;
# - an answer of Anthropic that has citations in its second text is the empty text in the snapshot, though the whole of it
#   was streamed to the client before. The client takes the snapshot, so the answer is gone from the page;
# - a client that holds the history sends it back so: in a new thread, the model is asked without its own answer, and with
#   the first text of the tool's output. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check ag-ui-langgraph==0.0.47 ag-ui-protocol==1.0.0 fastapi==0.165.0 \
    langgraph==1.2.24 langchain==1.5.2 langchain-core==1.8.3 langchain-anthropic==1.7.10 anthropic==2.14.0 2>/dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import asyncio
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from threading import Thread

from ag_ui.core import RunAgentInput
from ag_ui_langgraph import LangGraphAgent
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

CITATION = {"type": "char_location", "cited_text": "Mon", "document_index": 0, "document_title": "Notice",
            "start_char_index": 0, "end_char_index": 3, "file_id": None}
TEXTS, USAGE = ("It is ", "closed", ", so take the ferry."), {"input_tokens": 9, "output_tokens": 9}
HEAD = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None, "usage": USAGE}
EVENTS = [{"type": "message_start", "message": HEAD}]
for index, text in enumerate(TEXTS):
    block = {"type": "text", "text": "", **({"citations": []} if index == 1 else {})}
    deltas = [{"type": "text_delta", "text": text}] + [{"type": "citations_delta", "citation": CITATION}] * (index == 1)
    EVENTS += [{"type": "content_block_start", "index": index, "content_block": block}]
    EVENTS += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    EVENTS += [{"type": "content_block_stop", "index": index}]
EVENTS += [{"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": USAGE}]
EVENTS += [{"type": "message_stop"}]
asked = []


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        asked.append(json.loads(self.rfile.read(int(self.headers["content-length"])))["messages"])
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write("".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in EVENTS).encode())


async def answer(state):
    output = [{"type": "text", "text": "Bridge: closed"}, {"type": "text", "text": "Ferry: runs"}]
    called = [AIMessage("", id="a0", tool_calls=[{"id": "c1", "name": "traffic", "args": {}}]),
              ToolMessage(output, id="t1", tool_call_id="c1")]
    new = called if len(state["messages"]) == 1 else []
    return {"messages": [*new, await model.ainvoke([*state["messages"], *new])]}


async def run(thread, messages):
    given = {"thread_id": thread, "run_id": "r", "state": {}, "tools": [], "context": [], "forwarded_props": {}}
    events = [event async for event in agent.run(RunAgentInput(messages=messages, **given))]
    streamed = "".join(event.delta for event in events if event.type.value == "TEXT_MESSAGE_CONTENT")
    return streamed, [event.messages for event in events if event.type.value == "MESSAGES_SNAPSHOT"][-1]


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
model = ChatAnthropic(model="m", api_key="none", base_url=f"http://127.0.0.1:{server.server_port}")
graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer").add_edge("answer", END)
agent = LangGraphAgent(name="a", graph=graph.compile(checkpointer=InMemorySaver()))
streamed, snapshot = asyncio.run(run("one", [{"id": "u1", "role": "user", "content": "Is the bridge open?"}]))
seen = [(message.role, message.content) for message in snapshot]
history = [message.model_dump(by_alias=True, exclude_none=True) for message in snapshot]
asyncio.run(run("two", [*history, {"id": "u2", "role": "user", "content": "Thanks."}]))
print("ag-ui-langgraph", version("ag-ui-langgraph"))
print(f"streamed: {streamed}\nsnapshot: {seen}\nasked in a new thread: {json.dumps(asked[-1])}")
as_known = streamed == "".join(TEXTS) and seen[2:] == [("tool", "Bridge: closed"), ("assistant", "")]
if not as_known or any(words in json.dumps(asked[-1]) for words in ("Ferry", "take the ferry")):
    sys.exit("This is not what ag-ui-langgraph did.")
PYTHON
