"""Three strict providers that play a tool round trip: OpenAI's chat, Anthropic's Messages, Google's generateContent.

Each refuses, as the real one does, what is not in its own protocol: unknown members, tool results without their call, thinking
that came back changed or not at all. A request with tools and no result yet is answered by thinking and a call of one of them;
one with results by a text that repeats the last result.
"""
import json
import re
import threading

SIGNATURE = "c2VhbGVk+/b3Zlcg=="  # of the thinking, and of Gemini's thought
MODELS = {"openai": "gpt-5", "anthropic": "claude-sonnet-4-5", "gemini": "gemini-3-pro-preview"}
MARK = "weir-42"  # what the called tool must bring back
COMMAND = "echo weir-$((40+2))"
# By the tool's name: what it is called with. The first that is offered is called.
CALLS = {
    "weather": {"city": "Berlin"},
    "Bash": {"command": COMMAND, "description": "Says a word"},
    "shell_command": {"command": COMMAND},
    "exec_command": {"cmd": COMMAND},
    "shell": {"command": ["bash", "-lc", COMMAND]},
}
OPENAI = {
    "model", "messages", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls", "max_completion_tokens", "temperature", "top_p",
    "stop", "n", "user", "reasoning_effort", "response_format", "seed", "logprobs", "top_logprobs", "presence_penalty", "frequency_penalty",
    "logit_bias", "metadata", "store", "prompt_cache_key", "safety_identifier", "service_tier", "verbosity", "prompt_cache_retention", "web_search_options",
    "modalities", "audio", "prediction"}
ANTHROPIC = {
    "model", "messages", "system", "max_tokens", "stream", "tools", "tool_choice", "temperature", "top_p", "top_k", "stop_sequences", "metadata", "thinking",
    "output_config", "service_tier", "context_management", "container", "mcp_servers", "cache_control", "speed", "diagnostics"}
GEMINI = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings", "cachedContent", "labels", "serviceTier"}


class Refused(Exception):
    """What the provider answers with status 400."""


def need(sound, what):
    if not sound:
        raise Refused(what)


def known(body, names):
    unknown = sorted(set(body) - names)
    need(not unknown, f"unknown members: {', '.join(unknown)}")


def text_of(content):
    """The text of a content that is a string, or parts or blocks."""
    if isinstance(content, str):
        return content
    return " ".join(text_of(part.get("text") or part.get("content") or "") for part in content or [])


class Asked:
    """What the three have in common: the offered tools and the results so far."""

    def __init__(self, tools, results, stream):
        self.tools, self.results, self.stream = tools, results, stream

    def call(self):
        """Name and arguments of the tool to call; None for a text."""
        if self.results:
            return None
        return next(((name, CALLS[name]) for name in CALLS if name in self.tools), None)

    def text(self):
        """The answer in words."""
        return f"The tool said: {self.results[-1]}" if self.results else "Nothing to call."


def read_openai(body):
    known(body, OPENAI)
    tools = []
    for tool in body.get("tools") or []:
        need(tool.get("type") == "function", f"tool type {tool.get('type')!r}")
        need(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool["function"]["name"]), f"tool name {tool['function']['name']!r}")
        tools.append(tool["function"]["name"])
    open_calls, results = set(), []
    for message in body["messages"]:
        role = message["role"]
        need(role in ("system", "developer", "user", "assistant", "tool"), f"role {role!r}")
        need(not (set(message) - {"role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio", "annotations", "function_call"}),
             f"unknown members of a message: {sorted(message)}")
        if role == "tool":
            need(message["tool_call_id"] in open_calls, f"no call for the result {message['tool_call_id']!r}")
            open_calls.discard(message["tool_call_id"])
            results.append(text_of(message["content"]))
            continue
        need(not open_calls, f"calls without results: {sorted(open_calls)}")
        for part in message["content"] if isinstance(message.get("content"), list) else []:
            need(part["type"] in ("text", "image_url", "file", "input_audio", "refusal"), f"part {part['type']!r}")
            need("cache_control" not in part, "cache_control is not OpenAI's")
        for call in message.get("tool_calls") or []:
            need(len(call["id"]) <= 40, f"a call's id of {len(call['id'])} characters")
            need(isinstance(json.loads(call["function"]["arguments"]), dict), "arguments are no object")
            open_calls.add(call["id"])
        if role == "assistant":
            need(message.get("content") or message.get("tool_calls"), "an empty assistant message")
    need(not open_calls, f"calls without results: {sorted(open_calls)}")
    need("max_tokens" not in body, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
    return Asked(tools, results, bool(body.get("stream")))


def answer_openai(asked, body):
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": MODELS["openai"]}
    usage = {"prompt_tokens": 90, "completion_tokens": 12, "total_tokens": 102,
             "prompt_tokens_details": {"cached_tokens": 64}, "completion_tokens_details": {"reasoning_tokens": 5}}
    call, finish = asked.call(), "tool_calls" if asked.call() else "stop"
    calls = [{"id": "call_abc", "type": "function", "function": {"name": call[0], "arguments": json.dumps(call[1])}}] if call else None
    if not asked.stream:
        message = {"role": "assistant", "content": None if call else asked.text(), **({"tool_calls": calls} if call else {})}
        return "application/json", [json.dumps({**head, "object": "chat.completion", "choices": [
            {"index": 0, "message": message, "finish_reason": finish}], "usage": usage}).encode()]

    def chunk(delta, finish=None):
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    chunks = [chunk({"role": "assistant", "content": None if call else ""})]
    if call:
        arguments = json.dumps(call[1])
        chunks.append(chunk({"tool_calls": [{"index": 0, "id": "call_abc", "type": "function", "function": {"name": call[0], "arguments": ""}}]}))
        chunks += [chunk({"tool_calls": [{"index": 0, "function": {"arguments": part}}]}) for part in (arguments[:7], arguments[7:])]
    else:
        chunks += [chunk({"content": word}) for word in re.findall(r"\S+\s*", asked.text())]
    chunks.append(chunk({}, finish))
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({**head, "choices": [], "usage": usage})
    return "text/event-stream", [f"data: {json.dumps(c)}\n\n".encode() for c in chunks] + [b"data: [DONE]\n\n"]


def read_anthropic(body):
    known(body, ANTHROPIC)
    need(body.get("max_tokens", 0) > 0, "max_tokens: Field required")
    tools = []
    for tool in body.get("tools") or []:
        need(re.fullmatch(r"[A-Za-z0-9_-]{1,128}", tool["name"]), f"tool name {tool['name']!r}")
        need(tool.get("type", "custom") != "custom" or tool["input_schema"].get("type") == "object", "input_schema.type: Field required")
        tools.append(tool["name"])
    thinking = (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")
    must = (body.get("thinking") or {}).get("type") == "enabled"  # adaptive thinking asks for none
    need(not (body.get("thinking") or {}).get("budget_tokens", 0) >= body["max_tokens"], "max_tokens must be greater than thinking.budget_tokens")
    open_calls, results, last = set(), [], None
    for place, message in enumerate(body["messages"]):
        role, content = message["role"], message["content"]
        # A system turn inside the conversation is what Claude Code sends to newer models.
        need(role in ("user", "assistant", "system"), f"role {role!r}")
        if role == "system":
            continue
        need(last is not None or role == "user", "the first message must be a user's")
        last = role
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        need(blocks, "an empty message")
        answered = [b for b in blocks if b["type"] == "tool_result"]
        need({b["tool_use_id"] for b in answered} == open_calls, f"results {answered} for the calls {sorted(open_calls)}")
        open_calls = set()
        results += [text_of(b.get("content")) for b in answered]
        for block in blocks:
            need(block["type"] != "text" or block["text"].strip(), "text content blocks must be non-empty")
            if block["type"] == "thinking":
                need(block["signature"] == SIGNATURE and block["thinking"] == "I should look.", f"changed thinking: {block}")
            if block["type"] == "tool_use":
                need(re.fullmatch(r"[A-Za-z0-9_-]+", block["id"]), f"tool_use.id {block['id']!r} does not match the pattern")
                need(isinstance(block["input"], dict), "input is no object")
                open_calls.add(block["id"])
        if must and place == len(body["messages"]) - 2 and any(b["type"] == "tool_use" for b in blocks):
            need(blocks[0]["type"] in ("thinking", "redacted_thinking"), "Expected `thinking` or `redacted_thinking`, but found `tool_use`")
    need(not open_calls, "calls without results")
    asked = Asked(tools, results, bool(body.get("stream")))
    asked.thinking = thinking
    return asked


def answer_anthropic(asked, body):
    call = asked.call()
    blocks = [{"type": "thinking", "thinking": "I should look.", "signature": SIGNATURE}] if asked.thinking and call else []
    blocks.append({"type": "tool_use", "id": "toolu_01abc", "name": call[0], "input": call[1]} if call else {"type": "text", "text": asked.text()})
    usage = {"input_tokens": 20, "cache_creation_input_tokens": 6, "cache_read_input_tokens": 64, "output_tokens": 12}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODELS["anthropic"], "content": blocks,
               "stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None, "usage": usage}
    if not asked.stream:
        return "application/json", [json.dumps(message).encode()]
    events = [{"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}}, {"type": "ping"}]
    for index, block in enumerate(blocks):
        kind, at = block["type"], {"index": index}
        empty = {"thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}, "tool_use": {"input": {}}}[kind]
        events.append({"type": "content_block_start", **at, "content_block": {**block, **empty}})
        deltas = {"thinking": lambda b: [{"type": "thinking_delta", "thinking": b["thinking"]}, {"type": "signature_delta", "signature": b["signature"]}],
                  "text": lambda b: [{"type": "text_delta", "text": word} for word in re.findall(r"\S+\s*", b["text"])],
                  "tool_use": lambda b: [{"type": "input_json_delta", "partial_json": part} for part in ("", json.dumps(b["input"])[:6], json.dumps(b["input"])[6:])]}
        events += [{"type": "content_block_delta", **at, "delta": delta} for delta in deltas[kind](block)]
        events.append({"type": "content_block_stop", **at})
    events.append({"type": "message_delta", "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None}, "usage": {"output_tokens": 12}})
    events.append({"type": "message_stop"})
    return "text/event-stream", [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events]


def plain_schema(schema, where):
    """Google's `parameters` is a subset of OpenAPI's schema."""
    for name, value in schema.items():
        need(name not in ("$schema", "additionalProperties", "$ref", "$defs", "const", "exclusiveMinimum"), f"Unknown name \"{name}\" at {where}")
        if name == "properties":
            for key, inner in value.items():
                plain_schema(inner, f"{where}.{key}")
        elif name == "items":
            plain_schema(value, f"{where}[]")
    need(not isinstance(schema.get("type"), list), f"type is a list at {where}")


def read_gemini(body):
    known(body, GEMINI)
    tools = []
    for tool in body.get("tools") or []:
        for function in tool.get("functionDeclarations") or []:
            need(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}", function["name"]), f"function name {function['name']!r}")
            if "parameters" in function:
                plain_schema(function["parameters"], function["name"])
            tools.append(function["name"])
    waiting, results = [], []
    for content in body["contents"]:
        need(content["role"] in ("user", "model"), f"role {content['role']!r}")
        need(content["parts"], "contents.parts must not be empty")
        answers = [p["functionResponse"] for p in content["parts"] if "functionResponse" in p]
        need(len(answers) == len(waiting), "the number of function response parts must equal that of function call parts")
        need([a["name"] for a in answers] == waiting, f"responses {answers} for the calls {waiting}")
        need(all(isinstance(a["response"], dict) for a in answers), "a response that is no object")
        results += [json.dumps(a["response"]) for a in answers]
        calls = [p for p in content["parts"] if "functionCall" in p]
        waiting = [p["functionCall"]["name"] for p in calls]
        # The second is Google's own word for calls that another model made (thought signatures, FAQ).
        need(not calls or calls[0].get("thoughtSignature") in (SIGNATURE, "skip_thought_signature_validator"), f"Function call is missing a thought_signature: {calls}")
    need(not waiting, "calls without responses")
    return Asked(tools, results, False)


def answer_gemini(asked, body):
    call, head = asked.call(), {"modelVersion": MODELS["gemini"], "responseId": "r-1"}
    usage = {"promptTokenCount": 90, "cachedContentTokenCount": 64, "candidatesTokenCount": 7, "thoughtsTokenCount": 5, "totalTokenCount": 102}
    part = {"functionCall": {"name": call[0], "args": call[1]}, "thoughtSignature": SIGNATURE} if call else {"text": asked.text()}
    parts = ([{"text": "I should look.", "thought": True}] if call else []) + [part]

    def reply(parts, **more):
        return {"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0, **more}], "usageMetadata": usage, **head}
    if not asked.stream:
        return "application/json", [json.dumps(reply(parts, finishReason="STOP")).encode()]
    replies = [reply([p]) for p in parts] + [reply([{"text": ""}], finishReason="STOP")]
    return "text/event-stream", [f"data: {json.dumps(r)}\r\n\r\n".encode() for r in replies]


def error(wire, message):
    """A 400 as this provider says it."""
    return json.dumps({
        "openai": {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}},
        "anthropic": {"type": "error", "error": {"type": "invalid_request_error", "message": message}},
        "gemini": {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}}[wire]).encode()


class Providers:
    """The three behind one port: `/openai/v1`, `/anthropic/v1`, `/gemini/v1beta`. `refused` and `calls` say what happened."""

    def __init__(self):
        self.refused, self.calls, self.lock = [], 0, threading.Lock()

    def play(self, _method, path, _headers, body):
        wire = path.split("/")[1]
        read, answer = {"openai": (read_openai, answer_openai), "anthropic": (read_anthropic, answer_anthropic), "gemini": (read_gemini, answer_gemini)}[wire]
        try:
            body = json.loads(body)
            asked = read(body)
        except (Refused, KeyError, TypeError, ValueError) as fault:
            why = f"{wire}: {type(fault).__name__}: {fault}"
            with self.lock:
                self.refused.append(why)
            return 400, "application/json", [error(wire, why)]
        asked.stream = asked.stream or "streamGenerateContent" in path
        with self.lock:
            self.calls += 1
        kind, pieces = answer(asked, body)
        return 200, kind, pieces


def config(url):
    """A provider and a model `m-WIRE` for each of the three."""
    bases = {"openai": "/openai/v1", "anthropic": "/anthropic/v1", "gemini": "/gemini/v1beta"}
    auth = {"openai": "bearer", "anthropic": "x-api-key", "gemini": "x-goog-api-key"}
    return "".join(
        f'[providers.{wire}]\nwire = "{wire}"\nbase_url = "{url}{base}"\nauth = "{auth[wire]}"\napi_keys = ["sk-upstream"]\n'
        + (f'params = {{ rename = {{ max_tokens = "max_completion_tokens" }} }}\n' if wire == "openai" else "")
        + f'[providers.{wire}.models."{MODELS[wire]}"]\nmax_output = 64000\n[models."m-{wire}"]\ntargets = [{{ to = "{wire}/{MODELS[wire]}" }}]\n'
        for wire, base in bases.items())
