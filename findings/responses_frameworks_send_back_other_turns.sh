#!/usr/bin/env bash
# What frameworks send back of one answer of the Responses API, which thinks, writes a text, and thinks again between two
# calls of a tool: with the outputs of the calls, and with the next question after a resume from their own stores. All are
# asked for encrypted reasoning and not to store at the service, so that the history is all that the model has:
# - agno (SqliteDb): the text and the first reasoning are gone, from both requests;
# - agent-framework (FileHistoryProvider): the text comes after the calls. Resumed, the calls have ids that no service
#   gave (fc_call_1 for fc_1), so that the same turns are another history than before the resume;
# - llama-index (Memory in SQLite): the memory has both reasoning items with their encrypted contents, no request has one.
# No phase of a text is sent back by any. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/service.py" <<'PYTHON'
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

TEXT = {"type": "output_text", "text": "I look both up.", "annotations": [], "logprobs": []}
DONE = {**TEXT, "text": "None is there."}
MESSAGE = {"type": "message", "role": "assistant", "status": "completed"}
CALL = {"type": "function_call", "name": "find", "status": "completed"}
CALLS = [
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "first"},
    {**MESSAGE, "id": "msg_1", "phase": "commentary", "content": [TEXT]},
    {**CALL, "id": "fc_1", "call_id": "call_1", "arguments": '{"q": "a"}'},
    {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "second"},
    {**CALL, "id": "fc_2", "call_id": "call_2", "arguments": '{"q": "b"}'},
]
ANSWERS = [CALLS, *([{**MESSAGE, "id": f"msg_{n}", "phase": "final_answer", "content": [DONE]}] for n in (2, 3))]
USAGE = {
    "input_tokens": 9, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 4}, "total_tokens": 18,
}
asked = []


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        number = len(asked)
        asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        response = {
            "id": f"resp_{number}", "object": "response", "created_at": 1, "status": "completed", "model": "gpt-5.4",
            "output": ANSWERS[number], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": USAGE,
        }
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(response).encode())


def find(q: str) -> str:
    """Find it."""
    return "none"


def told(item):
    if item.get("type") == "reasoning":
        return f"{item['id']} {item['encrypted_content']}"
    if item.get("type") == "function_call":
        return f"{item.get('id', 'no id')} {item['call_id']}"
    if item.get("type") == "function_call_output":
        return f"output of {item['call_id']}"
    content = item["content"] if isinstance(item["content"], str) else item["content"][0]["text"]
    return " ".join(filter(None, (item["role"], item.get("phase"), repr(content))))


def report(name):
    assert not any(request["store"] for request in asked), "It was stored at the service."
    for when, request in (("the outputs", asked[1]), ("the next question, resumed", asked[2])):
        print(f"{name}, with {when}:", *map(told, request["input"]), sep="\n  ")


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
PYTHON
cat > "$folder/agno_agent.py" <<'PYTHON'
from agno.agent import Agent
from agno.db.sqlite import SqliteDb
from agno.models.openai import OpenAIResponses
from service import find, report, url

for question in ("Find a and b.", "Anything else?"):
    model = OpenAIResponses(id="gpt-5.4", api_key="none", base_url=url, store=False)
    database = SqliteDb(db_file="agno.db")
    agent = Agent(model=model, tools=[find], db=database, session_id="s", add_history_to_context=True, telemetry=False)
    agent.run(question)
report("agno")
PYTHON
cat > "$folder/framework_agent.py" <<'PYTHON'
import asyncio

from agent_framework import Agent, FileHistoryProvider
from agent_framework.openai import OpenAIChatClient
from service import find, report, url


async def main():
    for question in ("Find a and b.", "Anything else?"):
        client = OpenAIChatClient(model="gpt-5.4", api_key="none", base_url=url)
        agent = Agent(
            client=client, tools=[find], context_providers=[FileHistoryProvider("history")],
            default_options={"store": False, "include": ["reasoning.encrypted_content"]},
        )
        await agent.run(question, session=agent.create_session(session_id="s"))


asyncio.run(main())
report("agent-framework")
PYTHON
cat > "$folder/llama_agent.py" <<'PYTHON'
import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.memory import Memory
from llama_index.llms.openai import OpenAIResponses
from service import find, report, url


async def main():
    for question in ("Find a and b.", "Anything else?"):
        llm = OpenAIResponses(
            model="gpt-5.4", api_key="none", api_base=url, store=False, include=["reasoning.encrypted_content"]
        )
        memory = Memory.from_defaults(session_id="s", async_database_uri="sqlite+aiosqlite:///llama.db")
        await FunctionAgent(tools=[find], llm=llm, streaming=False).run(question, memory=memory)
    blocks = [block for message in await memory.aget() for block in message.blocks if block.block_type == "thinking"]
    print("llama-index, in its memory:", *(block.additional_information["encrypted_content"] for block in blocks))


asyncio.run(main())
report("llama-index")
PYTHON
install() {
    python3 -m venv "$folder/$1"
    "$folder/$1/bin/pip" install --quiet --disable-pip-version-check "${@:2}" 2>/dev/null
}
cd "$folder"
install agno agno==3.1.10 openai==2.54.0 sqlalchemy==2.0.51
install framework agent-framework-core==1.23.0 agent-framework-openai==1.17.0
install llama llama-index-core==0.14.25 llama-index-llms-openai==0.8.3
for name in agno framework llama; do
    "$name/bin/python" -W ignore "${name}_agent.py"
done | tee seen
diff - seen <<'SEEN'
agno, with the outputs:
  user 'Find a and b.'
  rs_2 second
  fc_1 call_1
  fc_2 call_2
  output of call_1
  output of call_2
agno, with the next question, resumed:
  user 'Find a and b.'
  rs_2 second
  fc_1 call_1
  fc_2 call_2
  output of call_1
  output of call_2
  assistant 'None is there.'
  user 'Anything else?'
agent-framework, with the outputs:
  user 'Find a and b.'
  rs_1 first
  fc_1 call_1
  rs_2 second
  fc_2 call_2
  assistant 'I look both up.'
  output of call_1
  output of call_2
agent-framework, with the next question, resumed:
  user 'Find a and b.'
  rs_1 first
  fc_call_1 call_1
  rs_2 second
  fc_call_2 call_2
  assistant 'I look both up.'
  output of call_1
  output of call_2
  assistant 'None is there.'
  user 'Anything else?'
llama-index, in its memory: first second
llama-index, with the outputs:
  user 'Find a and b.'
  assistant 'I look both up.'
  no id call_1
  no id call_2
  output of call_1
  output of call_2
llama-index, with the next question, resumed:
  user 'Find a and b.'
  assistant 'I look both up.'
  no id call_1
  no id call_2
  output of call_1
  output of call_2
  assistant 'None is there.'
  user 'Anything else?'
SEEN
