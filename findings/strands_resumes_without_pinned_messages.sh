#!/usr/bin/env bash
# What becomes of messages that strands-agents was told to pin (pin_first=2) when a conversation that was shortened is resumed
# from its FileSessionManager, in another process or with the next request:
# - SlidingWindowConversationManager: the running agent has the two pinned messages and the newest; the resumed one has
#   neither pinned message, and in their place the last two that the window had removed;
# - SummarizingConversationManager: the same behind the summary, so that the model is told twice what it has summarized;
# - shortened once more after that, the next resume has lost the first summary: what it told is in no request any more;
# - the request for a summary is in no usage of the agent: its tokens are in no sum.
# The session counts how many messages were removed, and takes them from the beginning of all, where the pinned ones are.
# Without pins, what is resumed is what was there. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check strands-agents==1.62.0 openai==3.57.0 2>/dev/null
"$folder/venv/bin/python" -W ignore - "$folder/sessions" <<'PYTHON' 2>"$folder/log" | tee "$folder/seen"
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from strands import Agent
from strands.agent.conversation_manager import SlidingWindowConversationManager, SummarizingConversationManager
from strands.models.openai import OpenAIModel
from strands.session.file_session_manager import FileSessionManager

USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
asked, answers = [], []


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
        delta = {"role": "assistant", "content": answers.pop(0)}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for chunk in (
            {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {"choices": [], "usage": USAGE},
        ):
            self.wfile.write(f"data: {json.dumps(head | chunk)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")


def opened(name, pinned):
    manager = (
        SlidingWindowConversationManager(window_size=6, pin_first=pinned)
        if name == "window"
        else SummarizingConversationManager(summary_ratio=0.5, preserve_recent_messages=2, pin_first=pinned)
    )
    return Agent(
        model=OpenAIModel(client_args={"api_key": "none", "base_url": url}, model_id="gpt-4o"),
        conversation_manager=manager,
        session_manager=FileSessionManager(session_id=f"{name}-{pinned}", storage_dir=sys.argv[1]),
        callback_handler=None,
    )


def told(agent):
    return " ".join(content["text"] for message in agent.messages for content in message["content"])


def ask(agent, first, last):
    for number in range(first, last + 1):
        answers.append(f"a{number}")
        agent(f"q{number}")


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
for name in ("window", "summary"):
    for pinned in (0, 2):
        agent = opened(name, pinned)
        asked.clear()
        ask(agent, 1, 5)
        for first, last in ((6, 6), (7, 10)) if name == "summary" else ((6, 6),):
            if name == "summary":
                answers.append(f"(summary before q{last})")
                agent.conversation_manager.reduce_context(agent)
            ask(agent, first, last)
            print(f"{name}, {pinned} pinned, running:", told(agent))
            if first == 6 and name == "summary":
                print("  requests:", len(asked), "input:", agent.event_loop_metrics.accumulated_usage["inputTokens"])
            agent = opened(name, pinned)
            print(f"{name}, {pinned} pinned, resumed:", told(agent))
PYTHON
diff - "$folder/seen" <<'SEEN'
window, 0 pinned, running: q4 a4 q5 a5 q6 a6
window, 0 pinned, resumed: q4 a4 q5 a5 q6 a6
window, 2 pinned, running: q1 a1 q4 a4 q5 a5 q6 a6
window, 2 pinned, resumed: q3 a3 q4 a4 q5 a5 q6 a6
summary, 0 pinned, running: (summary before q6) a3 q4 a4 q5 a5 q6 a6
  requests: 7 input: 600
summary, 0 pinned, resumed: (summary before q6) a3 q4 a4 q5 a5 q6 a6
summary, 0 pinned, running: (summary before q10) q5 a5 q6 a6 q7 a7 q8 a8 q9 a9 q10 a10
summary, 0 pinned, resumed: (summary before q10) q5 a5 q6 a6 q7 a7 q8 a8 q9 a9 q10 a10
summary, 2 pinned, running: q1 a1 (summary before q6) a3 q4 a4 q5 a5 q6 a6
  requests: 7 input: 600
summary, 2 pinned, resumed: (summary before q6) a2 q3 a3 q4 a4 q5 a5 q6 a6
summary, 2 pinned, running: (summary before q6) a2 (summary before q10) a4 q5 a5 q6 a6 q7 a7 q8 a8 q9 a9 q10 a10
summary, 2 pinned, resumed: (summary before q10) a3 q4 a4 q5 a5 q6 a6 q7 a7 q8 a8 q9 a9 q10 a10
SEEN
