#!/usr/bin/env bash
# The tokens of one answer of Gemini with a thought and a search, as libraries report them. The service says: 1000 of the
# prompt, 50 of the search's results, 30 of the answer, 200 of the thought, 1280 in all; thoughts are billed as output.
# - langchain-google-genai, Pydantic AI, litellm and openinference: 1050 in, 230 out;
# - agno: 1000 in, 30 out, and 1030 in all, which is no number of the service's. That is what its sessions add up; the
#   thought is in reasoning_tokens alone, where that of an answer of OpenAI is part of the output as well;
# - Haystack and OpenLLMetry: 1000 in, 30 out, beside 1280 in all.
# The same plainly and streamed. Costs from in and out are a fraction of the bill in three of seven. Nothing is raised or
# logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check google-genai==3.6.1 langchain-google-genai==4.4.3 \
    pydantic-ai-slim==2.68.0 litellm==1.110.2 agno==3.1.10 haystack-ai==3.4.1 google-genai-haystack==7.0.0 \
    openinference-instrumentation-google-genai==1.4.14 opentelemetry-instrumentation-google-generativeai==0.62.4 \
    opentelemetry-sdk==1.45.2 2>/dev/null
HAYSTACK_TELEMETRY_ENABLED=False LITELLM_LOCAL_MODEL_COST_MAP=True \
    "$folder/venv/bin/python" -W ignore - <<'PYTHON' | tee "$folder/seen"
import asyncio
import json
import os
from functools import reduce
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from operator import add
from threading import Thread

import litellm
from agno.agent import Agent as AgnoAgent
from agno.models.google import Gemini
from google import genai
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret
from haystack_integrations.components.generators.google_genai import GoogleGenAIChatGenerator
from langchain_google_genai import ChatGoogleGenerativeAI
from openinference.instrumentation.google_genai import GoogleGenAIInstrumentor
from opentelemetry.instrumentation.google_generativeai import GoogleGenerativeAiInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.providers.google import GoogleProvider

NAME = "gemini-3-pro"
USAGE = {
    "promptTokenCount": 1000, "toolUsePromptTokenCount": 50, "candidatesTokenCount": 30, "thoughtsTokenCount": 200,
    "totalTokenCount": 1280,
}


def response(text, **ended):
    candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0, **ended}
    return json.dumps({"candidates": [candidate], "usageMetadata": USAGE, "modelVersion": NAME, "responseId": "r"})


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        streamed = "streamGenerateContent" in self.path
        chunks = f"data: {response('Ra')}\n\ndata: {response('in.', finishReason='STOP')}\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.end_headers()
        self.wfile.write((chunks if streamed else response("Rain.", finishReason="STOP")).encode())


def langchain_google_genai():
    model = ChatGoogleGenerativeAI(model=NAME, google_api_key="none", base_url=url)
    for answer in (model.invoke("Rain?"), reduce(add, model.stream("Rain?"))):
        yield answer.usage_metadata["input_tokens"], answer.usage_metadata["output_tokens"]


def pydantic_ai():
    agent = PydanticAgent(GoogleModel(NAME, provider=GoogleProvider(api_key="none", base_url=url)))

    async def stream():
        async with agent.run_stream("Rain?") as result:
            await result.get_output()
            return result

    for result in (agent.run_sync("Rain?"), asyncio.run(stream())):
        yield result.usage.input_tokens, result.usage.output_tokens


def lite_llm():
    asked = {"model": f"gemini/{NAME}", "api_base": url, "api_key": "none", "messages": [{"role": "user", "content": "Rain?"}]}
    chunks = litellm.completion(**asked, stream=True, stream_options={"include_usage": True})
    for answer in (litellm.completion(**asked), litellm.stream_chunk_builder(list(chunks))):
        yield answer.usage.prompt_tokens, answer.usage.completion_tokens


def agno():
    agent = AgnoAgent(model=Gemini(id=NAME, api_key="none"), telemetry=False)
    for output in (agent.run("Rain?"), list(agent.run("Rain?", stream=True, yield_run_output=True))[-1]):
        counted = output.metrics
        yield counted.input_tokens, counted.output_tokens, f"total {counted.total_tokens}"


def haystack():
    generator = GoogleGenAIChatGenerator(model=NAME, api_key=Secret.from_token("none"))
    generator.warm_up()
    for callback in (None, lambda chunk: None):
        (reply,) = generator.run(messages=[ChatMessage.from_user("Rain?")], streaming_callback=callback)["replies"]
        counted = reply.meta["usage"]
        yield counted["prompt_tokens"], counted["completion_tokens"], f"total {counted['total_tokens']}"


def spans(instrumentor, prefix, *keys):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor.instrument(tracer_provider=provider)
    client = genai.Client(api_key="none")
    client.models.generate_content(model=NAME, contents="Rain?")
    list(client.models.generate_content_stream(model=NAME, contents="Rain?"))
    instrumentor.uninstrument()
    for span in exporter.get_finished_spans():
        yield tuple(span.attributes[prefix + key] for key in keys)


def openinference():
    return spans(GoogleGenAIInstrumentor(), "llm.token_count.", "prompt", "completion")


def openllmetry():
    return spans(GoogleGenerativeAiInstrumentor(), "gen_ai.usage.", "input_tokens", "output_tokens", "total_tokens")


litellm.suppress_debug_info = True
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
url = os.environ["GOOGLE_GEMINI_BASE_URL"] = f"http://127.0.0.1:{server.server_port}"
for counts in (langchain_google_genai, pydantic_ai, lite_llm, openinference, agno, haystack, openllmetry):
    plain, streamed = counts()
    print(f"{counts.__name__}: plainly {plain}, streamed {streamed}")
PYTHON
diff - "$folder/seen" <<'SEEN'
langchain_google_genai: plainly (1050, 230), streamed (1050, 230)
pydantic_ai: plainly (1050, 230), streamed (1050, 230)
lite_llm: plainly (1050, 230), streamed (1050, 230)
openinference: plainly (1050, 230), streamed (1050, 230)
agno: plainly (1000, 30, 'total 1030'), streamed (1000, 30, 'total 1030')
haystack: plainly (1000, 30, 'total 1280'), streamed (1000, 30, 'total 1280')
openllmetry: plainly (1000, 30, 1280), streamed (1000, 30, 1280)
SEEN
