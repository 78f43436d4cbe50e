#!/usr/bin/env bash
# The tokens of one streamed Chat Completion whose chunks each have the usage so far, as Perplexity, Gemini's endpoint for
# clients of OpenAI, and vLLM and SGLang with continuous_usage_stats stream it. The answer has three chunks, 1000 tokens
# in and 3 out, and the same answer asked plainly says so in all libraries. Streamed:
# - langchain-openai, Pydantic AI, agno and smolagents add up what each chunk says: 3000 in, 6 out, and cached tokens three
#   times. Of an answer with 500 chunks, the input counts 500 times;
# - the Agents SDK, Haystack and litellm have 1000 and 3, as the last chunk says.
# Pydantic AI and agno have a setting for this (openai_continuous_usage_stats, collect_metrics_on_completion), which is off.
# So the same wire has another bill in each of them. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check langchain-openai==1.7.4 pydantic-ai-slim==2.68.0 \
    agno==3.1.10 smolagents==1.26.0 openai-agents==0.24.0 haystack-ai==3.4.1 litellm==1.110.2 openai==3.57.0 2>/dev/null
HAYSTACK_TELEMETRY_ENABLED=False LITELLM_LOCAL_MODEL_COST_MAP=True \
    "$folder/venv/bin/python" -W ignore - <<'PYTHON' | tee "$folder/seen"
import asyncio
import json
from functools import reduce
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from operator import add
from threading import Thread

import litellm
from agents import Agent as OpenAIAgent
from agents import OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agno.agent import Agent as AgnoAgent
from agno.models.openai import OpenAIChat
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from smolagents import OpenAIModel
from smolagents.models import ChatMessage as SmolMessage
from smolagents.models import agglomerate_stream_deltas

WORDS = ("One, ", "two, ", "three.")
HEAD = {"id": "chatcmpl-1", "created": 1, "model": "m"}
MESSAGES = [{"role": "user", "content": "Count."}]


def usage(output):
    return {
        "prompt_tokens": 1000, "completion_tokens": output, "total_tokens": 1000 + output,
        "prompt_tokens_details": {"cached_tokens": 600}, "completion_tokens_details": {"reasoning_tokens": 0},
    }


def completion(streamed, content, finish_reason, output):
    choice = {"index": 0, "delta" if streamed else "message": {"role": "assistant", "content": content}}
    kind = "chat.completion.chunk" if streamed else "chat.completion"
    choices = [{**choice, "finish_reason": finish_reason}]
    return json.dumps({**HEAD, "object": kind, "choices": choices, "usage": usage(output)})


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        streamed = json.loads(self.rfile.read(int(self.headers["content-length"]))).get("stream")
        body = completion(False, "".join(WORDS), "stop", 3)
        if streamed:
            reasons = (None, None, "stop")
            chunks = (completion(True, *one) for one in zip(WORDS, reasons, (1, 2, 3)))
            body = "".join(f"data: {chunk}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.end_headers()
        self.wfile.write(body.encode())


def langchain():
    model = ChatOpenAI(model="m", api_key="none", base_url=url, stream_usage=True)
    for answer in (model.invoke("Count."), reduce(add, model.stream("Count."))):
        yield answer.usage_metadata["input_tokens"], answer.usage_metadata["output_tokens"]


def pydantic_ai():
    agent = PydanticAgent(OpenAIChatModel("m", provider=OpenAIProvider(base_url=url, api_key="none")))

    async def stream():
        async with agent.run_stream("Count.") as result:
            await result.get_output()
            return result

    for result in (agent.run_sync("Count."), asyncio.run(stream())):
        yield result.usage.input_tokens, result.usage.output_tokens


def agno():
    agent = AgnoAgent(model=OpenAIChat(id="m", api_key="none", base_url=url), telemetry=False)
    for output in (agent.run("Count."), list(agent.run("Count.", stream=True, yield_run_output=True))[-1]):
        yield output.metrics.input_tokens, output.metrics.output_tokens


def smolagents():
    model = OpenAIModel(model_id="m", api_base=url, api_key="none")
    question = [SmolMessage(role="user", content=[{"type": "text", "text": "Count."}])]
    for answer in (model.generate(question), agglomerate_stream_deltas(list(model.generate_stream(question)))):
        yield answer.token_usage.input_tokens, answer.token_usage.output_tokens


def agents_sdk():
    async def run(streamed):
        model = OpenAIChatCompletionsModel("m", AsyncOpenAI(base_url=url, api_key="none"))
        agent = OpenAIAgent(name="a", model=model)
        if not streamed:
            return await Runner.run(agent, "Count.")
        result = Runner.run_streamed(agent, "Count.")
        async for _ in result.stream_events():
            pass
        return result

    for streamed in (False, True):
        counted = asyncio.run(run(streamed)).context_wrapper.usage
        yield counted.input_tokens, counted.output_tokens


def haystack():
    generator = OpenAIChatGenerator(model="m", api_key=Secret.from_token("none"), api_base_url=url)
    generator.warm_up()
    for callback in (None, lambda chunk: None):
        (reply,) = generator.run([ChatMessage.from_user("Count.")], streaming_callback=callback)["replies"]
        yield reply.meta["usage"]["prompt_tokens"], reply.meta["usage"]["completion_tokens"]


def lite_llm():
    asked = {"model": "openai/gpt-5.4", "api_base": url, "api_key": "none", "messages": MESSAGES}
    chunks = litellm.completion(**asked, stream=True, stream_options={"include_usage": True})
    for answer in (litellm.completion(**asked), litellm.stream_chunk_builder(list(chunks))):
        yield answer.usage.prompt_tokens, answer.usage.completion_tokens


set_tracing_disabled(True)
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
for counts in (langchain, pydantic_ai, agno, smolagents, agents_sdk, haystack, lite_llm):
    plain, streamed = counts()
    print(f"{counts.__name__}: plainly {plain}, streamed {streamed}")
PYTHON
diff - "$folder/seen" <<'SEEN'
langchain: plainly (1000, 3), streamed (3000, 6)
pydantic_ai: plainly (1000, 3), streamed (3000, 6)
agno: plainly (1000, 3), streamed (3000, 6)
smolagents: plainly (1000, 3), streamed (3000, 6)
agents_sdk: plainly (1000, 3), streamed (1000, 3)
haystack: plainly (1000, 3), streamed (1000, 3)
lite_llm: plainly (1000, 3), streamed (1000, 3)
SEEN
