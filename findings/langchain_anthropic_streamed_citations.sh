#!/usr/bin/env bash
# One answer of Anthropic with a citation, asked plainly and streamed through langchain-anthropic, and then sent back by it
# with the next question:
# - plainly, the message has three texts, of which the second has the citation, and all of it is sent back;
# - streamed (also by invoke within a graph, which then streams), the cited text is part of the text before it, the block
#   with the citation has no text, and neither of them says what was cited;
# - of that message, the next request has no citation at all. Nothing is raised or logged.
# A history that was streamed and stored cannot show its sources any more, and the model no longer sees them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check langchain-anthropic==1.7.10 langchain-core==1.8.3 \
    anthropic==2.14.0 2>/dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from threading import Thread

from langchain_anthropic import ChatAnthropic

CITATION = {"type": "char_location", "cited_text": "closed until Monday", "document_index": 0, "document_title": "Notice",
            "start_char_index": 0, "end_char_index": 19, "file_id": None}
BLOCKS = [{"type": "text", "text": "It is "}, {"type": "text", "text": "closed", "citations": [CITATION]},
          {"type": "text", "text": ", so take the ferry."}]
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5", "stop_reason": "end_turn",
           "stop_sequence": None, "usage": {"input_tokens": 9, "output_tokens": 9}}
asked = []


def events():
    yield {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}}
    for index, block in enumerate(BLOCKS):
        cited = block.get("citations", [])
        start = {"type": "text", "text": "", **({"citations": []} if cited else {})}
        yield {"type": "content_block_start", "index": index, "content_block": start}
        deltas = [{"type": "citations_delta", "citation": one} for one in cited]
        for delta in [{"type": "text_delta", "text": block["text"]}, *deltas]:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 9}}
    yield {"type": "message_stop"}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        streamed = asked[-1].get("stream")
        text = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events())
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.end_headers()
        self.wfile.write((text if streamed else json.dumps({**MESSAGE, "content": BLOCKS})).encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
model = ChatAnthropic(model="claude-sonnet-5", api_key="none", base_url=f"http://127.0.0.1:{server.server_port}")
print("langchain-anthropic", version("langchain-anthropic"))
streamed = None
for chunk in model.stream("Is the bridge open?"):
    streamed = chunk if streamed is None else streamed + chunk
for name, answer in (("plain", model.invoke("Is the bridge open?")), ("streamed", streamed)):
    model.invoke([("human", "Is the bridge open?"), answer, ("human", "Who says so?")])
    sent = asked[-1]["messages"][1]["content"]
    print(f"{name}: {json.dumps(answer.content)}\n  sent back: {json.dumps(sent)}")
    quoted = [block["text"] for block in sent if isinstance(block, dict) and block.get("citations")]
    texts = [block if isinstance(block, str) else block.get("text") for block in answer.content]
    as_known = (["closed"], ["It is ", "closed", ", so take the ferry."]) if name == "plain" else (
        [], ["It is closed", None, ", so take the ferry."])
    if (quoted, texts) != as_known:
        sys.exit("This is not what langchain-anthropic did.")
PYTHON
