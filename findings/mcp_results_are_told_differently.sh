#!/usr/bin/env bash
# What three clients of MCP tell a model (OpenAI's Responses API) of the same results of a tool, all of them valid:
# - a text resource, as of a file that is read, beside a text: with @langchain/mcp-adapters, the model is told the text alone;
# - a picture beside such a resource: @openai/agents sends all of it as one text, with the bytes of the picture in base64,
#   which the model cannot see and pays for. A picture beside a text alone is one to see;
# - structuredContent beside a text that does not have its values: @langchain/mcp-adapters tells both, the others the text.
# So none of them tells all that a tool gave. Nothing is raised or logged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-fund --no-audit --legacy-peer-deps --prefix "$folder" @modelcontextprotocol/sdk@1.32.2 \
    @ai-sdk/mcp@2.0.99 ai@7.0.173 @ai-sdk/openai@4.0.118 @langchain/mcp-adapters@1.1.4 @langchain/core@1.4.0 \
    @langchain/langgraph@1.7.3 @langchain/openai@1.6.0 @openai/agents@0.20.0 openai@7.59.0 zod@4.4.3
cat >"$folder/server.mjs" <<'JAVASCRIPT'
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { CallToolRequestSchema, ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const text = { type: "text", text: "Here it is." };
const picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const image = { type: "image", data: picture, mimeType: "image/png" };
const resource = { type: "resource", resource: { uri: "file:///seats.txt", mimeType: "text/plain", text: "Seat 12 is free." } };
const results = {
  picture: { content: [text, image] },
  resource: { content: [text, resource] },
  picture_and_resource: { content: [text, image, resource] },
  structured: { content: [text], structuredContent: { seats: [1234] } },
};
const inputSchema = { type: "object", properties: {} };
const tools = Object.keys(results).map((name) => ({ name, description: name, inputSchema }));
const server = new Server({ name: "s", version: "1" }, { capabilities: { tools: {} } });
server.setRequestHandler(ListToolsRequestSchema, async () => ({ tools }));
server.setRequestHandler(CallToolRequestSchema, async ({ params }) => results[params.name]);
await server.connect(new StdioServerTransport());
JAVASCRIPT
cat >"$folder/run.mjs" <<'JAVASCRIPT'
import { createMCPClient } from "@ai-sdk/mcp";
import { Experimental_StdioMCPTransport as StdioTransport } from "@ai-sdk/mcp/mcp-stdio";
import { createOpenAI } from "@ai-sdk/openai";
import { HumanMessage } from "@langchain/core/messages";
import { MultiServerMCPClient } from "@langchain/mcp-adapters";
import { ChatOpenAI } from "@langchain/openai";
import { Agent, MCPServerStdio, OpenAIResponsesModel, run, setTracingDisabled } from "@openai/agents";
import { generateText, stepCountIs } from "ai";
import { readFileSync } from "node:fs";
import OpenAI from "openai";

globalThis.AI_SDK_LOG_WARNINGS = false;
setTracingDisabled(true);
const args = [new URL("server.mjs", import.meta.url).pathname];
const usage = { input_tokens: 1, input_tokens_details: { cached_tokens: 0 }, output_tokens: 1, output_tokens_details: { reasoning_tokens: 0 }, total_tokens: 2 };
let name, sent;
const fetch = async (_, { body }) => {
  sent = JSON.parse(body).input.at(-1);
  const isAnswered = sent.type === "function_call_output";
  const message = { type: "message", id: "msg_1", role: "assistant", status: "completed", content: [{ type: "output_text", text: "Ok.", annotations: [] }] };
  const output = [isAnswered ? message : { type: "function_call", id: "fc_1", call_id: "c1", name, arguments: "{}", status: "completed" }];
  const response = { id: "resp_1", object: "response", created_at: 1, status: "completed", model: "m", output, usage };
  return new Response(JSON.stringify(response), { headers: { "content-type": "application/json" } });
};

const client = await createMCPClient({ transport: new StdioTransport({ command: "node", args }) });
const tools = await client.tools();
const servers = new MultiServerMCPClient({ mcpServers: { s: { transport: "stdio", command: "node", args } } });
const offered = await servers.getTools();
const chat = new ChatOpenAI({ model: "gpt-5.5", apiKey: "none", useResponsesApi: true, configuration: { fetch } }).bindTools(offered);
const server = new MCPServerStdio({ command: "node", args });
await server.connect();
const ask = {
  "@ai-sdk/mcp": () => generateText({ model: createOpenAI({ apiKey: "none", fetch })("gpt-5.5"), tools, prompt: "?", stopWhen: stepCountIs(2) }),
  "@langchain/mcp-adapters": async () => {
    const answer = await chat.invoke("?");
    const output = await offered.find((one) => one.name.endsWith(name)).invoke({ ...answer.tool_calls[0], type: "tool_call" });
    await chat.invoke([new HumanMessage("?"), answer, output]);
  },
  "@openai/agents": () => run(new Agent({ name: "a", instructions: "!", model: new OpenAIResponsesModel(new OpenAI({ apiKey: "none", fetch }), "gpt-5.5"), mcpServers: [server] }), "?"),
};
function told() {
  const body = JSON.stringify(sent.output);
  const parts = { text: "Here it is.", picture: "iVBORw0KGgo", resource: "Seat 12 is free.", structured: "1234" };
  const has = Object.keys(parts).filter((part) => body.includes(parts[part]));
  const pictures = Array.isArray(sent.output) && sent.output.some(({ type }) => type === "input_image");
  return has.map((part) => (part === "picture" ? `picture ${pictures ? "to see" : "as text"}` : part)).join(", ") || body;
}
for (const [library, asking] of Object.entries(ask)) {
  const { version } = JSON.parse(readFileSync(new URL(`node_modules/${library}/package.json`, import.meta.url)));
  for (name of ["picture", "resource", "picture_and_resource", "structured"]) {
    await asking();
    console.log(`${library} ${version}, text and ${name.replaceAll("_", " ")}: ${told()}`);
  }
}
await Promise.all([client.close(), servers.close(), server.close()]);
JAVASCRIPT
node --no-deprecation "$folder/run.mjs" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
@ai-sdk/mcp 2.0.99, text and picture: text, picture to see
@ai-sdk/mcp 2.0.99, text and resource: text, resource
@ai-sdk/mcp 2.0.99, text and picture and resource: text, picture to see, resource
@ai-sdk/mcp 2.0.99, text and structured: text
@langchain/mcp-adapters 1.1.4, text and picture: text, picture to see
@langchain/mcp-adapters 1.1.4, text and resource: text
@langchain/mcp-adapters 1.1.4, text and picture and resource: text, picture to see
@langchain/mcp-adapters 1.1.4, text and structured: text, structured
@openai/agents 0.20.0, text and picture: text, picture to see
@openai/agents 0.20.0, text and resource: text, resource
@openai/agents 0.20.0, text and picture and resource: text, picture as text, resource
@openai/agents 0.20.0, text and structured: text
SEEN
