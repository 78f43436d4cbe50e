#!/usr/bin/env bash
# What Semantic Kernel sends of one ChatHistory, in which the model says something beside two calls of a tool and their
# outputs follow, also after serialize() and restore_chat_history():
# - its connector for OpenAI sends the calls alone: the text is in the history and in its JSON, but in no request, so that
#   the model does not see what it has told the user before the calls. Its connector for Anthropic sends text and calls;
# - streamed, the usage that the connector for Anthropic reports has 100 tokens of input, of 1300, of which 1000 were read
#   from the cache and 200 written to it. Plainly, it has all three counts;
# - ChatHistorySummarizationReducer by default tells its model neither of the calls and their outputs, nor what the model said
#   beside them: of the four messages that it replaces here, it sends the question alone. What the tools found is in no
#   later request. The summary takes their place as something that the assistant has said.
# Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
  semantic-kernel==1.45.0 anthropic==0.125.0 openai==3.57.0 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PYTHON' | tee "$folder/seen"
import asyncio
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from semantic_kernel.connectors.ai.anthropic import AnthropicChatCompletion, AnthropicChatPromptExecutionSettings
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.contents import (
    ChatHistory, ChatMessageContent, FunctionCallContent, FunctionResultContent, ImageContent, TextContent,
)
from semantic_kernel.contents.history_reducer.chat_history_summarization_reducer import ChatHistorySummarizationReducer

USAGE = {"input_tokens": 100, "output_tokens": 50, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 200}
COUNTS = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "stop_sequence": None,
    "content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn", "usage": USAGE,
}
CHOICE = {"index": 0, "message": {"role": "assistant", "content": "(the summary)"}, "finish_reason": "stop"}
COMPLETION = {
    "id": "c", "object": "chat.completion", "created": 1, "model": "gpt-4o", "choices": [CHOICE], "usage": COUNTS,
}
EVENTS = [
    {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ok"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 50}},
    {"type": "message_stop"},
]
asked = []


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        asked.append(body["messages"])
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if body.get("stream") else "application/json")
        self.end_headers()
        if body.get("stream"):
            for event in EVENTS:
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        else:
            self.wfile.write(json.dumps(MESSAGE if self.path.endswith("/messages") else COMPLETION).encode())


def told(message):
    content = message.get("content")
    parts = content if isinstance(content, list) else [content] if content else []
    shown = [part if isinstance(part, str) else part.get("text", part["type"]) for part in parts]
    return [message["role"], *(text.strip()[:40] for text in shown), *("call" for _ in message.get("tool_calls", []))]


async def main(url):
    openai = OpenAIChatCompletion("gpt-4o", async_client=AsyncOpenAI(api_key="none", base_url=url))
    client = AsyncAnthropic(api_key="none", base_url=url)
    anthropic = AnthropicChatCompletion("claude-sonnet-4-5", api_key="none", async_client=client)
    settings = AnthropicChatPromptExecutionSettings(max_tokens=900)
    picture = ImageContent(data_uri="data:image/png;base64,iVBORw0KGgo=")
    calls = [FunctionCallContent(id=f"c{number}", name="look", arguments='{"city":"Lyon"}') for number in (1, 2)]
    history = ChatHistory()
    history.add_message(ChatMessageContent(role="user", items=[TextContent(text="Weather here?"), picture]))
    history.add_message(ChatMessageContent(role="assistant", items=[TextContent(text="Let me look."), *calls]))
    for call in calls:
        result = FunctionResultContent(id=call.id, name="look", result=f"Rain ({call.id}).")
        history.add_message(ChatMessageContent(role="tool", items=[result]))
    history.add_assistant_message("Take a coat.")
    history.add_user_message("Why?")
    for name, one in (("as it is", history), ("restored", ChatHistory.restore_chat_history(history.serialize()))):
        await openai.get_chat_message_contents(one, OpenAIChatPromptExecutionSettings())
        print(f"OpenAI, {name}:", told(asked[-1][1]))
        [answer] = await anthropic.get_chat_message_contents(one, settings)
        print(f"Anthropic, {name}:", told(asked[-1][1]))
    usage = answer.metadata["usage"]
    print("usage, plainly:", usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens)
    counts = {}
    async for parts in anthropic.get_streaming_chat_message_contents(history, settings):
        for part in parts:
            counts |= part.metadata.get("usage") or {}
    print("usage, streamed:", counts)
    reducer = ChatHistorySummarizationReducer(service=openai, target_count=2, threshold_count=0)
    for message in history.messages:
        reducer.add_message(message)
    await reducer.reduce()
    print("to summarize:", *map(told, asked[-1]), sep="\n  ")
    print("kept:", *((message.role.value, str(message)) for message in reducer.messages), sep="\n  ")


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
asyncio.run(main(f"http://127.0.0.1:{server.server_port}"))
PYTHON
diff - "$folder/seen" <<'SEEN'
OpenAI, as it is: ['assistant', 'call', 'call']
Anthropic, as it is: ['assistant', 'Let me look.', 'tool_use', 'tool_use']
OpenAI, restored: ['assistant', 'call', 'call']
Anthropic, restored: ['assistant', 'Let me look.', 'tool_use', 'tool_use']
usage, plainly: 100 1000 200
usage, streamed: {'input_tokens': 100, 'output_tokens': 50}
to summarize:
  ['user', 'Weather here?', 'image_url']
  ['system', 'Provide a concise and complete summariza']
kept:
  ('assistant', '(the summary)')
  ('assistant', 'Take a coat.')
  ('user', 'Why?')
SEEN
