#!/usr/bin/env bash
# What DSPy tells a model of a dspy.History, whose messages may be any dicts, and what it says of costs:
# - messages with role and content are accepted, and become two answers "None": neither what the user nor what the assistant
#   said is in the request;
# - a question without an answer, as one whose answer failed, gets the answer "None";
# - calls of native function calling and their outputs (dspy.ToolCalls) are sent as such, but not any more once the history
#   was stored as JSON (model_dump_json, model_validate_json): then neither calls nor outputs are in a request, and two
#   questions follow each other. The JSON has no ids of the calls. What the model wrote beside them is never kept;
# - an answer that comes from the cache has no usage, but the cost of the answer before, so that the sum of the costs in
#   lm.history counts it twice.
# Nothing is raised or logged about any of it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check dspy==3.4.1 litellm==1.110.2 openai==3.57.0 2>/dev/null
DSPY_CACHEDIR="$folder/cache" LITELLM_LOCAL_MODEL_COST_MAP=True "$folder/venv/bin/python" -W ignore - <<'PYTHON' 2>"$folder/log" | tee "$folder/seen"
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import dspy
from dspy.adapters.types.tool import ToolCallResults

USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"city":"Lyon"}'}}
CALLING = {"role": "assistant", "content": "Let me look.", "tool_calls": [CALL]}
SAYING = {"role": "assistant", "content": "[[ ## answer ## ]]\nYes.\n\n[[ ## completed ## ]]"}
asked, answers = [], []


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        asked.append(json.loads(self.rfile.read(int(self.headers["content-length"])))["messages"])
        message = answers.pop(0)
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if message is CALLING else "stop"}
        answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt-4o", "choices": [choice]}
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer | {"usage": USAGE}).encode())


class Ask(dspy.Signature):
    history: dspy.History = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.OutputField()


class AskWithTools(dspy.Signature):
    history: dspy.History = dspy.InputField()
    question: str = dspy.InputField()
    tools: list[dspy.Tool] = dspy.InputField()
    calls: dspy.ToolCalls = dspy.OutputField()
    answer: str = dspy.OutputField()


def look(city: str) -> str:
    """Say what the weather is."""
    return "Rain."


def told():
    """The last request without the system message, and without how to answer."""
    return [
        (message["role"], (message["content"] or "calls").partition("\n\n")[0].replace("\n", " "))
        for message in asked[-1][1:]
    ]


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Thread(target=server.serve_forever, daemon=True).start()
lm = dspy.LM("openai/gpt-4o", api_key="none", api_base=f"http://127.0.0.1:{server.server_port}")
dspy.configure(lm=lm, track_usage=True, adapter=dspy.ChatAdapter(use_native_function_calling=True))
for name, messages in {
    "roles": [{"role": "user", "content": "I am Ada."}, {"role": "assistant", "content": "Hello, Ada."}],
    "unanswered": [{"question": "Who am I?"}],
}.items():
    answers.append(SAYING)
    found = dspy.Predict(Ask)(history=dspy.History(messages=messages), question="Yes?")
    print(f"{name}:", *told(), sep="\n  ")
again = dspy.Predict(Ask)(history=dspy.History(messages=messages), question="Yes?")
costs = [entry["cost"] for entry in lm.history[-2:]]
print("requests:", len(asked), "usage:", bool(found.get_lm_usage()), bool(again.get_lm_usage()))
print("costs in lm.history:", len(lm.history), "of the last two, equal and above 0:", costs[0] == costs[1] > 0)
tools = [dspy.Tool(look)]
answers.append(CALLING)
predicted = dspy.Predict(AskWithTools)(history=dspy.History(messages=[]), question="Weather?", tools=tools)
print("prediction:", predicted.answer, [call.name for call in predicted.calls.tool_calls])
results = ToolCallResults.from_tool_calls_and_values(predicted.calls, ["Rain."])
calls = predicted.calls.model_copy(update={"tool_call_results": results})
history = dspy.History(messages=[{"question": "Weather?", "calls": calls}])
for name, one in (
    ("calls", history),
    ("calls, stored as JSON", dspy.History.model_validate_json(history.model_dump_json())),
):
    answers.append(SAYING)
    dspy.Predict(AskWithTools)(history=one, question="And then?", tools=tools)
    print(f"{name}:", *told(), sep="\n  ")
print("ids of calls in the JSON:", history.model_dump_json().count('"id"'))
PYTHON
diff - "$folder/seen" <<'SEEN'
roles:
  ('assistant', '[[ ## answer ## ]] None')
  ('assistant', '[[ ## answer ## ]] None')
  ('user', '[[ ## question ## ]] Yes?')
unanswered:
  ('user', '[[ ## question ## ]] Who am I?')
  ('assistant', '[[ ## answer ## ]] None')
  ('user', '[[ ## question ## ]] Yes?')
requests: 2 usage: True False
costs in lm.history: 3 of the last two, equal and above 0: True
prediction: None ['look']
calls:
  ('user', '[[ ## question ## ]] Weather?')
  ('assistant', 'calls')
  ('tool', 'Rain.')
  ('user', '[[ ## question ## ]] And then?')
calls, stored as JSON:
  ('user', '[[ ## question ## ]] Weather?')
  ('user', '[[ ## question ## ]] And then?')
ids of calls in the JSON: 0
SEEN
