#!/usr/bin/env bash
# What Google's ADK makes of answers of Anthropic and of outputs of tools in a session, which its DatabaseSessionService
# keeps, by the model that reads it next:
# - of a tool's output that is an object with the key "content", AnthropicLlm sends the value of that key alone: the page and
#   the token of the next page are gone. LiteLlm and Gemini are told the whole object, from the same session;
# - thoughts of Gemini are sent by AnthropicLlm as thinking of Claude's with an empty signature, in all later requests.
#   Anthropic refuses a thought that it has not signed;
# - thoughts of Claude are sent to Gemini as its own, with Claude's signature as thoughtSignature, after AnthropicLlm in base64
#   once more; redacted thinking is a thought without a text;
# - with LiteLlm, redacted thinking of Claude is in no event and no request, and the thought after the text is before it.
# Only a signature that stands alone is left out with a warning. Nothing else is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "google-adk[db]==2.13.0" litellm==1.110.2 anthropic==2.14.0 \
    2>/dev/null
cd "$folder"
LITELLM_LOCAL_MODEL_COST_MAP=True "$folder/venv/bin/python" -W ignore - "$folder/seen" <<'PYTHON' >"$folder/log" 2>&1
import asyncio
import json
import os
import sys
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


def signature(name):
    return b64encode(f"signature of {name}".encode()).decode()


def thought(name):
    return {"type": "thinking", "thinking": f"thought {name}", "signature": signature(name)}


USAGE = {"input_tokens": 100, "output_tokens": 50}
CLAUDES = [
    thought("C1"),
    {"type": "redacted_thinking", "data": signature("C2")},
    {"type": "text", "text": "Let me look."},
    thought("C3"),
    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"city": "Lyon"}},
]
GEMINIS = [{"text": "thought G", "thought": True}, {"text": "Hello.", "thoughtSignature": signature("G")}]
asked, answers, seen = [], [], []


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        said = answers.pop(0)
        if "generateContent" in self.path:
            candidate = {"content": {"role": "model", "parts": said}, "finishReason": "STOP", "index": 0}
            answer = {"candidates": [candidate], "modelVersion": "gemini-3-pro", "responseId": "g"}
        else:
            reason = "tool_use" if said is CLAUDES else "end_turn"
            answer = {
                "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": said,
                "stop_reason": reason, "stop_sequence": None, "usage": USAGE,
            }
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
os.environ.update(
    ANTHROPIC_BASE_URL=url, ANTHROPIC_API_KEY="none", GOOGLE_API_KEY="none", GOOGLE_GEMINI_BASE_URL=url
)

from google.adk.agents import LlmAgent
from google.adk.models.anthropic_llm import AnthropicLlm
from google.adk.models.lite_llm import LiteLlm
from google.adk.planners import BuiltInPlanner
from google.adk.runners import Runner
from google.adk.sessions import DatabaseSessionService
from google.genai import types


def look(city: str) -> dict:
    """Say what the weather is."""
    return {"content": f"Rain in {city}.", "page": 1, "next": "page-2"}


def told():
    """The assistant's turns and the outputs of tools in the last request."""
    body = asked[-1]
    for turn in body.get("messages") or body["contents"]:
        for part in turn.get("parts") or turn["content"]:
            if "functionResponse" in part:
                yield "output", part["functionResponse"]["response"]
            elif part.get("type") == "tool_result":
                yield "output", part["content"]
            elif turn["role"] != "user" and "input" not in part and "functionCall" not in part:
                yield tuple(value for key, value in part.items() if key not in ("type", "thought"))


async def run(model, session, *said):
    answers.extend(said)
    planner = BuiltInPlanner(thinking_config=types.ThinkingConfig(thinking_budget=2000, include_thoughts=True))
    agent = LlmAgent(name="a", model=model, tools=[look], planner=planner)
    service = DatabaseSessionService("sqlite+aiosqlite:///sessions.db")
    kept = {"app_name": "x", "user_id": "u", "session_id": session}
    if await service.get_session(**kept) is None:
        await service.create_session(**kept)
    question = types.Content(role="user", parts=[types.Part(text="And now?")])
    runner = Runner(app_name="x", agent=agent, session_service=service)
    async for _ in runner.run_async(user_id="u", session_id=session, new_message=question):
        pass


async def main():
    ending = [{"type": "text", "text": "Rain."}]
    for name, model in (
        ("AnthropicLlm", AnthropicLlm(model="claude-sonnet-4-5")),
        ("LiteLlm", LiteLlm(model="anthropic/claude-sonnet-4-5", api_base=url, api_key="none")),
    ):
        await run("gemini-3-pro", name, GEMINIS)
        await run(model, name, CLAUDES, ending)
        seen.extend([f"{name}, after Gemini:", *told()])
        await run("gemini-3-pro", name, GEMINIS)
        seen.extend([f"Gemini, after {name}:", *told()])


asyncio.run(main())
with open(sys.argv[1], "w") as file:
    print(*seen, sep="\n", file=file)
PYTHON
cat "$folder/seen"
diff - "$folder/seen" <<'SEEN'
AnthropicLlm, after Gemini:
('thought G', '')
('Hello.',)
('thought C1', 'c2lnbmF0dXJlIG9mIEMx')
('c2lnbmF0dXJlIG9mIEMy',)
('Let me look.',)
('thought C3', 'c2lnbmF0dXJlIG9mIEMz')
('output', 'Rain in Lyon.')
Gemini, after AnthropicLlm:
('thought G',)
('Hello.', 'c2lnbmF0dXJlIG9mIEc=')
('thought C1', 'YzJsbmJtRjBkWEpsSUc5bUlFTXg=')
('YzJsbmJtRjBkWEpsSUc5bUlFTXk=',)
('Let me look.',)
('thought C3', 'YzJsbmJtRjBkWEpsSUc5bUlFTXo=')
('output', {'content': 'Rain in Lyon.', 'page': 1, 'next': 'page-2'})
('Rain.',)
LiteLlm, after Gemini:
('Hello.',)
('thought C1', 'c2lnbmF0dXJlIG9mIEMx')
('thought C3', 'c2lnbmF0dXJlIG9mIEMz')
('Let me look.',)
('output', '{"content": "Rain in Lyon.", "page": 1, "next": "page-2"}')
Gemini, after LiteLlm:
('thought G',)
('Hello.', 'c2lnbmF0dXJlIG9mIEc=')
('thought C1', 'c2lnbmF0dXJlIG9mIEMx')
('thought C3', 'c2lnbmF0dXJlIG9mIEMz')
('Let me look.',)
('output', {'content': 'Rain in Lyon.', 'page': 1, 'next': 'page-2'})
('Rain.',)
SEEN
