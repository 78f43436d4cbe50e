#!/usr/bin/env bash
# What the Agents SDK (openai-agents 0.24.0) sends of a session's items, which is not what the session has, and depends on
# whether the session has a limit at all, even one that nothing exceeds:
# - an output without its call is sent where there is no limit, and left out where there is one;
# - a call without an output is left out, and so is the reasoning before it; both stay stored;
# - of two outputs of one call, one is sent;
# - an output that stands before its call is sent so;
# - the limit counts items: it keeps a call whose reasoning, one item before, it has cut off.
# Items of a session are therefore no record of what the model was told.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check openai-agents==0.24.0 2>/dev/null
"$folder/env/bin/python" - <<'PYTHON' | tee "$folder/seen"
import asyncio
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, SessionSettings, SQLiteSession, set_tracing_disabled
from openai import AsyncOpenAI

TEXT = {"type": "output_text", "text": "ok", "annotations": []}
ANSWER = {
    "id": "r", "object": "response", "created_at": 1, "status": "completed", "model": "m", "tools": [],
    "output": [{"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [TEXT]}],
    "parallel_tool_calls": True, "tool_choice": "auto",
}
ITEMS = {
    "U": {"role": "user", "content": "q"},
    "A": {"role": "assistant", "content": "a"},
    "R": {"type": "reasoning", "id": "rs_1", "summary": []},
    "C": {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"},
    "O": {"type": "function_call_output", "call_id": "c1", "output": "1"},
}
LETTERS = {"user": "U", "assistant": "A", "reasoning": "R", "function_call": "C", "function_call_output": "O"}
asked = []


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"])
        content = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def letters(items):
    return "".join(LETTERS[item.get("role") or item["type"]] for item in items)


async def main(url):
    client = AsyncOpenAI(base_url=url, api_key="x", max_retries=0)
    agent = Agent(name="a", model=OpenAIResponsesModel(model="m", openai_client=client))
    for history, limit in (
        ("UOA", None), ("UOA", 3), ("UC", None), ("URC", None), ("UCOO", None), ("UOC", None), ("URCO", 3), ("URCO", 2),
    ):
        session = SQLiteSession(f"{history}{limit}")
        await session.add_items([ITEMS[letter] for letter in history])
        config = RunConfig() if limit is None else RunConfig(session_settings=SessionSettings(limit=limit))
        await Runner.run(agent, [{"role": "user", "content": "next"}], session=session, run_config=config)
        stored = letters(await session.get_items())
        print(f"{history}, limit {limit}: {letters(asked[-1])[:-1] or 'nothing'} sent, {stored[: len(history)]} stored")


set_tracing_disabled(True)
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
asyncio.run(main(f"http://127.0.0.1:{server.server_port}"))
PYTHON
diff - "$folder/seen" <<'SEEN'
UOA, limit None: UOA sent, UOA stored
UOA, limit 3: UA sent, UOA stored
UC, limit None: U sent, UC stored
URC, limit None: U sent, URC stored
UCOO, limit None: UCO sent, UCOO stored
UOC, limit None: UOC sent, UOC stored
URCO, limit 3: RCO sent, URCO stored
URCO, limit 2: CO sent, URCO stored
SEEN
