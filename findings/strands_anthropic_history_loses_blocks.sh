#!/usr/bin/env bash
# What an agent of strands-agents keeps of a streamed answer of Anthropic, and sends back with its next request, also
# after a resume through FileSessionManager:
# - redacted thinking, the search of the server's own tool and its results are in no message: neither stored nor sent, and
#   nothing is raised or logged. Anthropic says to send redacted thinking back unchanged, and strands has a place for it
#   (redactedContent), which its model of Bedrock uses;
# - a citation is stored, and left out of the next request;
# - the usage that the agent adds up begins at 0 after the resume, though the stored messages have theirs.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check strands-agents==1.62.0 anthropic==2.14.0 2>/dev/null
"$folder/venv/bin/python" -W ignore - "$folder/sessions" <<'PYTHON'
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from threading import Thread

from strands import Agent
from strands.models.anthropic import AnthropicModel
from strands.session.file_session_manager import FileSessionManager

CITATION = {"type": "char_location", "cited_text": "Mon", "document_index": 0, "document_title": "Notice",
            "start_char_index": 0, "end_char_index": 3, "file_id": None}
FOUND = {"type": "web_search_result", "url": "https://example.org", "title": "Ferry", "encrypted_content": "RQ==", "page_age": None}
BLOCKS = [
    ({"type": "thinking", "thinking": "", "signature": ""},
     [{"type": "thinking_delta", "thinking": "Hm."}, {"type": "signature_delta", "signature": "U0lH"}]),
    ({"type": "redacted_thinking", "data": "UkVE"}, []),
    ({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
     [{"type": "input_json_delta", "partial_json": '{"query": "ferry"}'}]),
    ({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [FOUND]}, []),
    ({"type": "text", "text": "", "citations": []},
     [{"type": "text_delta", "text": "Closed."}, {"type": "citations_delta", "citation": CITATION}]),
]
USAGE = {"input_tokens": 9, "output_tokens": 5}
HEAD = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None, "usage": USAGE}
EVENTS = [{"type": "message_start", "message": HEAD}]
for index, (block, deltas) in enumerate(BLOCKS):
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


def agent():
    client = {"api_key": "none", "base_url": f"http://127.0.0.1:{server.server_port}"}
    model = AnthropicModel(client_args=client, model_id="m", max_tokens=900)
    sessions = FileSessionManager(session_id="one", storage_dir=sys.argv[1])
    return Agent(model=model, session_manager=sessions, agent_id="a", callback_handler=None)


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
agent()("Is the bridge open?")
resumed = agent()
kept = [next(iter(block)) for block in resumed.messages[1]["content"]]
used = resumed.event_loop_metrics.accumulated_usage["totalTokens"], resumed.messages[1]["metadata"]["usage"]["totalTokens"]
resumed("Thanks.")
sent = asked[-1][1]["content"]
print("strands-agents", version("strands-agents"))
print(f"answered: {[block['type'] for block, _ in BLOCKS]}\nstored: {kept}\nsent back: {json.dumps(sent)}\nused: {used}")
as_known = kept == ["reasoningContent", "citationsContent"] and [block["type"] for block in sent] == ["thinking", "text"]
if not as_known or "citations" in sent[1] or used != (0, 14):
    sys.exit("This is not what strands-agents did.")
PYTHON
