// The Node SDKs against the gateway: `node sdk.mjs URL KEY`, what to check as JSON on standard input. One line a check.
import { readFileSync } from "node:fs";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { jsonSchema, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";

const [url, apiKey] = process.argv.slice(2);
globalThis.AI_SDK_LOG_WARNINGS = false; // of models it does not know
const { wires, mark, deviations } = JSON.parse(readFileSync(0, "utf8"));
const SECONDS = 20; // a check that takes longer hangs
const ROUNDS = 4; // more than one call and one answer is a fault

const gpt = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 });
const claude = new Anthropic({ baseURL: url, apiKey, maxRetries: 0 });
const vercel = {
  "ai, openai-compatible": createOpenAICompatible({ name: "weir", baseURL: `${url}/v1`, apiKey, includeUsage: true }),
  "ai, openai chat": createOpenAI({ baseURL: `${url}/v1`, apiKey }).chat,
  "ai, openai responses": createOpenAI({ baseURL: `${url}/v1`, apiKey }).responses,
  "ai, anthropic": createAnthropic({ baseURL: `${url}/v1`, apiKey }),
};
const city = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const number = { type: "object", properties: { a: { type: "integer" } }, additionalProperties: false };

function need(sound, what) {
  if (!sound) throw new Error(typeof what === "string" ? what : JSON.stringify(what));
}

async function check(name, run) {
  let timer;
  const late = new Promise((_, refuse) => (timer = setTimeout(() => refuse(new Error(`no end within ${SECONDS} s`)), SECONDS * 1000)));
  try {
    await Promise.race([run(), late]);
    console.log(`ok ${name}`);
  } catch (fault) {
    console.log(`FAILED ${name}: ${String(fault?.message ?? fault).slice(0, 400)}`.replaceAll("\n", " "));
    process.exitCode = 1;
  } finally {
    clearTimeout(timer);
  }
}

// A tool round trip in each SDK's own words; the text at its end.
const loops = {
  async "openai chat"(model, stream) {
    const messages = [{ role: "user", content: "The weather?" }];
    const tools = [{ type: "function", function: { name: "weather", description: "The weather", parameters: city } }];
    for (let turn = 0; turn < ROUNDS; turn++) {
      const ask = { model, messages, tools };
      const reply = stream
        ? await gpt.chat.completions.stream({ ...ask, stream_options: { include_usage: true } }).finalChatCompletion()
        : await gpt.chat.completions.create(ask);
      need(reply.usage.prompt_tokens === 90 && reply.usage.completion_tokens === 12, reply.usage);
      const [{ message, finish_reason }] = reply.choices;
      if (finish_reason === "stop") return message.content;
      const calls = message.tool_calls.map(({ id, function: { name, arguments: given } }) => ({ id, type: "function", function: { name, arguments: given } }));
      messages.push({ role: "assistant", content: message.content, tool_calls: calls });
      for (const call of calls) messages.push({ role: "tool", tool_call_id: call.id, content: mark });
    }
  },
  async "openai responses"(model, stream) {
    const input = [{ role: "user", content: "The weather?" }];
    const tools = [{ type: "function", name: "weather", description: "The weather", parameters: city, strict: true }];
    for (let turn = 0; turn < ROUNDS; turn++) {
      const ask = { model, input, tools, store: false };
      const reply = stream ? await gpt.responses.stream(ask).finalResponse() : await gpt.responses.create(ask);
      need(reply.usage.input_tokens === 90 && reply.usage.output_tokens === 12, reply.usage);
      const calls = reply.output.filter((item) => item.type === "function_call");
      if (!calls.length) return reply.output_text;
      input.push(...reply.output.map(({ parsed_arguments: _, ...item }) => item));
      for (const call of calls) input.push({ type: "function_call_output", call_id: call.call_id, output: mark });
    }
  },
  async "anthropic messages"(model, stream) {
    const messages = [{ role: "user", content: "The weather?" }];
    const tools = [{ name: "weather", description: "The weather", input_schema: city }];
    for (let turn = 0; turn < ROUNDS; turn++) {
      const ask = { model, max_tokens: 4096, messages, tools, thinking: { type: "enabled", budget_tokens: 2048 } };
      const reply = stream ? await claude.messages.stream(ask).finalMessage() : await claude.messages.create(ask);
      need(reply.usage.output_tokens === 12 && reply.usage.cache_read_input_tokens === 64, reply.usage);
      if (reply.stop_reason === "end_turn") return reply.content.map((block) => block.text ?? "").join("");
      messages.push({ role: "assistant", content: reply.content });
      const calls = reply.content.filter((block) => block.type === "tool_use");
      messages.push({ role: "user", content: calls.map(({ id }) => ({ type: "tool_result", tool_use_id: id, content: mark })) });
    }
  },
};

async function vercelLoop(model) {
  const weather = tool({ description: "The weather", inputSchema: jsonSchema(city), execute: async () => mark });
  const reply = streamText({ model, prompt: "The weather?", tools: { weather }, maxRetries: 0, stopWhen: stepCountIs(ROUNDS), onError() {} });
  const faults = [];
  let text = "";
  for await (const part of reply.fullStream) {
    if (part.type === "error") faults.push(String(part.error?.message ?? part.error));
    if (part.type === "text-delta") text += part.text;
  }
  need(!faults.length, faults.join("; "));
  return text;
}

// A deviant provider's stream as each SDK reads it: text, calls, and whether it ended clean.
const readers = {
  async "openai chat"(model) {
    const tools = [{ type: "function", function: { name: "f", parameters: number } }];
    const reply = await gpt.chat.completions.stream({ model, messages: [{ role: "user", content: "hi" }], tools }).finalChatCompletion();
    const calls = (reply.choices[0].message.tool_calls ?? []).map((call) => [call.id, call.function.name, JSON.parse(call.function.arguments)]);
    return [reply.choices[0].message.content ?? "", calls];
  },
  async "anthropic messages"(model) {
    const tools = [{ name: "f", input_schema: number }];
    const reply = await claude.messages.stream({ model, max_tokens: 10, messages: [{ role: "user", content: "hi" }], tools }).finalMessage();
    const calls = reply.content.filter((block) => block.type === "tool_use").map((block) => [block.id, block.name, block.input]);
    return [reply.content.map((block) => block.text ?? "").join(""), calls];
  },
  async "openai responses"(model) {
    const tools = [{ type: "function", name: "f", parameters: number, strict: false }];
    const reply = await gpt.responses.stream({ model, input: "hi", tools }).finalResponse();
    need(reply.status === "completed", `status ${reply.status}`);
    const calls = reply.output.filter((item) => item.type === "function_call").map((item) => [item.call_id, item.name, JSON.parse(item.arguments)]);
    return [reply.output_text, calls];
  },
};
for (const [name, make] of Object.entries(vercel)) {
  readers[name] = async (model) => {
    const tools = { f: tool({ description: "d", inputSchema: jsonSchema(number) }) };
    const reply = streamText({ model: make(model), prompt: "hi", tools, maxRetries: 0, onError() {} });
    const calls = [];
    let text = "", end;
    for await (const part of reply.fullStream) {
      if (part.type === "error") throw part.error;
      if (part.type === "text-delta") text += part.text;
      if (part.type === "tool-call") calls.push([part.toolCallId, part.toolName, part.input, part.invalid]);
      if (part.type === "finish") end = part.finishReason;
    }
    need(end, "no finish");
    return [text, calls.map(([id, called, input, invalid]) => (need(!invalid, `an invalid call ${input}`), [id, called, input]))];
  };
}

async function holds(want, reading) {
  const seen = await reading.then((value) => ({ value }), (fault) => ({ fault }));
  if (want === "error") {
    need(seen.fault, `a clean end: ${JSON.stringify(seen.value)}`);
    need(!(seen.fault instanceof TypeError), `an error nobody understands: ${seen.fault}`);
    return;
  }
  if (seen.fault) throw seen.fault;
  const [text, calls] = seen.value;
  const expected = { text: 0, tool: 1, tools: 2 }[want];
  need(calls.length === expected && new Set(calls.map(([id]) => id)).size === expected, calls);
  need(calls.every(([id, name, input]) => id && name === "f" && JSON.stringify(input) === '{"a":1}'), calls);
  need(text === (want === "text" ? "hello" : ""), `text ${JSON.stringify(text)}`);
}

for (const wire of wires) {
  for (const [name, loop] of Object.entries(loops)) {
    for (const stream of [false, true]) {
      await check(`${name} loop over ${wire}, ${stream ? "streamed" : "whole"}`, async () => {
        const said = await loop(`m-${wire}`, stream);
        need(said?.includes(mark), `said ${said}`);
      });
    }
  }
  for (const [name, make] of Object.entries(vercel)) {
    await check(`${name} loop over ${wire}`, async () => {
      const said = await vercelLoop(make(`m-${wire}`));
      need(said.includes(mark), `said ${said}`);
    });
  }
}
// A provider of the caller's own dialect may send what is newer than this gateway, so it passes; Anthropic asks clients to bear
// it, and this one does not.
const strangers = ["messages/event_unknown as ai, anthropic"];
for (const [wire, name, want] of deviations) {
  for (const [reader, read] of Object.entries(readers)) {
    if (strangers.includes(`${wire}/${name} as ${reader}`)) continue;
    await check(`${wire}/${name} as ${reader}`, () => holds(want, read(`${wire}/${name}`)));
  }
}
process.exit();
