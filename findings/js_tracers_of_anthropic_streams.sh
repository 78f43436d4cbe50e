#!/usr/bin/env bash
# What four tracers for JavaScript record of one answer of Anthropic, with a thought, a search and a call of a tool, asked
# plainly and streamed. The counts in message_delta are totals, and greater than those in message_start, since the results of
# the search are read within the answer: 7500 tokens, 9000 from the cache, 500 written to it, 300 out.
# - PostHog (@posthog/ai): streamed, 2000 tokens in and none of the cache, as message_start says. It counts the blocks that it
#   keeps, Anthropic counts all: behind a thought or a search, which it does not keep, calls have no arguments;
# - OpenLLMetry (@traceloop/instrumentation-anthropic): streamed, each call has the arguments {} and each thought no text, also
#   where nothing else is in the answer; and there is no finish reason;
# - Braintrust: all tokens and arguments; streamed, the thought has the signature "";
# - OpenInference: all tokens and arguments. Plainly, the search is none of its tool calls; streamed, it is number -1 of them.
# So what is restored or replayed from such records is another conversation than was had. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --legacy-peer-deps --ignore-scripts --prefix "$folder" @anthropic-ai/sdk@0.109.1 \
    @posthog/ai@8.13.1 posthog-node@5.70.0 @traceloop/instrumentation-anthropic@0.27.0 braintrust@3.35.0 \
    @arizeai/openinference-instrumentation-anthropic@0.2.8 @opentelemetry/api@1.9.0 @opentelemetry/sdk-trace-node@2.12.1
cat >"$folder/run.cjs" <<'JAVASCRIPT'
const { Anthropic } = require("@anthropic-ai/sdk");
const anthropicModule = require("@anthropic-ai/sdk");
const { AnthropicInstrumentation: OpenInference } = require("@arizeai/openinference-instrumentation-anthropic");
const { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } = require("@opentelemetry/sdk-trace-node");
const { Anthropic: PostHogAnthropic } = require("@posthog/ai/anthropic");
const { AnthropicInstrumentation: Traceloop } = require("@traceloop/instrumentation-anthropic");
const braintrust = require("braintrust");
const { readFileSync } = require("node:fs");

const usage = { input_tokens: 7500, cache_creation_input_tokens: 500, cache_read_input_tokens: 9000, output_tokens: 300 };
const first = { input_tokens: 2000, cache_creation_input_tokens: 0, cache_read_input_tokens: 0, output_tokens: 1 };
const page = { type: "web_search_result", url: "https://example.com/", title: "Seats", encrypted_content: "e" };
const use = { type: "tool_use", id: "toolu_1", name: "book", input: { seat: 12 } };
const answers = {
  "thought, search and call": [
    { type: "thinking", thinking: "Seats.", signature: "signature" },
    { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: { query: "seats" } },
    { type: "web_search_tool_result", tool_use_id: "srvtoolu_1", content: [page] }, use],
  "call": [use],
};
const deltas = {
  thinking: ({ thinking, signature }) => [{ type: "thinking_delta", thinking }, { type: "signature_delta", signature }],
  tool_use: ({ input }) => [{ type: "input_json_delta", partial_json: "" }, { type: "input_json_delta", partial_json: JSON.stringify(input) }],
};
deltas.server_tool_use = deltas.tool_use;
const empty = { thinking: { thinking: "", signature: "" }, tool_use: { input: {} }, server_tool_use: { input: {} } };
const head = { id: "msg_1", type: "message", role: "assistant", model: "claude-sonnet-5", stop_sequence: null };
const events = (content) => [
  { type: "message_start", message: { ...head, content: [], stop_reason: null, usage: first } },
  ...content.flatMap((block, index) => [
    { type: "content_block_start", index, content_block: { ...block, ...empty[block.type] } },
    ...(deltas[block.type]?.(block) ?? []).map((delta) => ({ type: "content_block_delta", index, delta })),
    { type: "content_block_stop", index },
  ]),
  { type: "message_delta", delta: { stop_reason: "tool_use", stop_sequence: null }, usage },
  { type: "message_stop" },
];
const fetch = (content) => async (_, { body }) => {
  const isStreamed = JSON.parse(body).stream;
  const text = isStreamed ? events(content).map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join("")
    : JSON.stringify({ ...head, content, stop_reason: "tool_use", usage });
  return new Response(text, { headers: { "content-type": isStreamed ? "text/event-stream" : "application/json" } });
};

const line = (input, cached, output, thoughts, calls) =>
  `${input} in, ${cached ?? 0} of a cache, ${output} out; ${[...thoughts.map((one) => `thought ${one}`), ...calls.map((one) => `call ${one}`)].join(", ")}`;
function spans(instrumentation) {
  const exporter = new InMemorySpanExporter();
  const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
  instrumentation.setTracerProvider(provider);
  instrumentation.manuallyInstrument(anthropicModule);
  return { make: (options) => new Anthropic(options), seen: () => exporter.getFinishedSpans().map(({ attributes }) => attributes), reset: () => exporter.reset() };
}
const captured = [];
const posthog = { capture: (event) => captured.push(event), options: {}, privacy_mode: false };
let background;
const tracers = {
  "@posthog/ai": () => ({
    make: (options) => new PostHogAnthropic({ ...options, posthog }), seen: () => captured.map(({ properties }) => properties), reset: () => captured.splice(0),
    told: (its) => line(its.$ai_input_tokens, its.$ai_cache_read_input_tokens, its.$ai_output_tokens, [], its.$ai_output_choices[0].content
      .filter(({ type }) => type === "function").map((one) => JSON.stringify(one.function.arguments))) }),
  "braintrust": () => ({
    make: (options) => braintrust.wrapAnthropic(new Anthropic(options)), seen: () => background.drain(), reset: () => {},
    told: ({ metrics, output: { content } }) => line(metrics.prompt_tokens, metrics.prompt_cached_tokens, metrics.completion_tokens,
      content.filter(({ thinking }) => thinking).map(({ thinking, signature }) => `"${thinking}" signed "${signature}"`),
      content.filter(({ type }) => type.endsWith("tool_use")).map(({ input }) => JSON.stringify(input))) }),
  "@traceloop/instrumentation-anthropic": () => ({ ...spans(new Traceloop()),
    told(its) {
      const [{ parts, finish_reason }] = JSON.parse(its["gen_ai.output.messages"]);
      return `${line(its["gen_ai.usage.input_tokens"], its["gen_ai.usage.cache_read.input_tokens"], its["gen_ai.usage.output_tokens"],
        parts.filter(({ type }) => type === "reasoning").map(({ content }) => `"${content}"`),
        parts.filter(({ type }) => type.endsWith("tool_call")).map((one) => JSON.stringify(one.arguments ?? one.server_tool_call)))}; ended by "${finish_reason}"`;
    } }),
  "@arizeai/openinference-instrumentation-anthropic": () => ({ ...spans(new OpenInference()),
    told(its) {
      const calls = Object.entries(its).map(([key, value]) => [/tool_calls\.(-?\d+)\.tool_call\.function\.arguments/.exec(key), value]);
      const thoughts = Object.entries(its).filter(([key]) => key.endsWith("message_content.signature"));
      return line(its["llm.token_count.prompt"], its["llm.token_count.prompt_details.cache_read"], its["llm.token_count.completion"],
        thoughts.map(([, value]) => `signed "${value}"`), calls.filter(([found]) => found).map(([[, number], value]) => `number ${number} ${value}`));
    } }),
};

async function main() {
  await braintrust._exportsForTestingOnly.simulateLoginForTests();
  braintrust.initLogger({ projectName: "p", projectId: "00000000-0000-0000-0000-000000000000" });
  background = braintrust._exportsForTestingOnly.useTestBackgroundLogger();
  const asked = { model: "claude-sonnet-5", max_tokens: 100, messages: [{ role: "user", content: "Book 12." }] };
  for (const [name, tracer] of Object.entries(tracers)) {
    const { make, seen, reset, told } = tracer();
    const { version } = JSON.parse(readFileSync(`${__dirname}/node_modules/${name}/package.json`));
    console.log(`${name} ${version}`);
    for (const [what, content] of Object.entries(answers)) for (const stream of [false, true]) {
      const client = make({ apiKey: "none", baseURL: "http://model.test", maxRetries: 0, fetch: fetch(content) });
      const answer = await client.messages.create({ ...asked, stream });
      if (stream) for await (const _ of answer);
      await new Promise((resolve) => setTimeout(resolve, 300));
      for (const record of await seen()) console.log(`  ${what}, ${stream ? "streamed" : "plainly"}: ${told(record)}`);
      reset();
    }
  }
  process.exit(0);
}
main();
JAVASCRIPT
node "$folder/run.cjs" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
@posthog/ai 8.13.1
  thought, search and call, plainly: 7500 in, 9000 of a cache, 300 out; call {"seat":12}
  thought, search and call, streamed: 2000 in, 0 of a cache, 300 out; call {}
  call, plainly: 7500 in, 9000 of a cache, 300 out; call {"seat":12}
  call, streamed: 2000 in, 0 of a cache, 300 out; call {"seat":12}
braintrust 3.35.0
  thought, search and call, plainly: 17000 in, 9000 of a cache, 300 out; thought "Seats." signed "signature", call {"query":"seats"}, call {"seat":12}
  thought, search and call, streamed: 17000 in, 9000 of a cache, 300 out; thought "Seats." signed "", call {"query":"seats"}, call {"seat":12}
  call, plainly: 17000 in, 9000 of a cache, 300 out; call {"seat":12}
  call, streamed: 17000 in, 9000 of a cache, 300 out; call {"seat":12}
@traceloop/instrumentation-anthropic 0.27.0
  thought, search and call, plainly: 7500 in, 9000 of a cache, 300 out; thought "Seats.", call {"type":"web_search","query":"seats"}, call {"seat":12}; ended by "tool_call"
  thought, search and call, streamed: 7500 in, 9000 of a cache, 300 out; thought "", call {"type":"web_search"}, call {}; ended by ""
  call, plainly: 7500 in, 9000 of a cache, 300 out; call {"seat":12}; ended by "tool_call"
  call, streamed: 7500 in, 9000 of a cache, 300 out; call {}; ended by ""
@arizeai/openinference-instrumentation-anthropic 0.2.8
  thought, search and call, plainly: 17000 in, 9000 of a cache, 300 out; thought signed "signature", call number 0 {"seat":12}
  thought, search and call, streamed: 17000 in, 9000 of a cache, 300 out; thought signed "signature", call number -1 {"query":"seats"}, call number 0 {"seat":12}
  call, plainly: 17000 in, 9000 of a cache, 300 out; call number 0 {"seat":12}
  call, streamed: 17000 in, 9000 of a cache, 300 out; call number 0 {"seat":12}
SEEN
