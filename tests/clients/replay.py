"""Every recorded answer with status 200, replayed through the gateway into the official Python SDKs: `replay.py WEIR_BINARY FIXTURES`.

Each goes through chat, Messages and Responses. A client may fail only by an error that the gateway tells, and only where the
recording is one, or by its own refusal of an answer that was cut by length or by a content filter.
"""
import json
import pathlib
import re
import sys
import tomllib

import anthropic
import openai

from stage import KEY, Count, Upstream, Weir

# The wire of a recording, the gateway's, and the base behind the upstream.
WIRES = {"openai-chat": ("openai", "/v1"), "anthropic-messages": ("anthropic", "/v1"), "openai-responses": ("native", "/v1"),
         "gemini-generate": ("gemini", "/v1beta"), "gemini-stream": ("gemini", "/v1beta"), "bedrock-converse": ("bedrock", ""),
         "bedrock-converse-stream": ("bedrock", ""), "ollama-chat": ("ollama", ""), "qianfan-v1": ("qianfan", "")}
STREAMED = ("sse", "ndjson", "bin", "jsonarray")
# An answer that has come to its end says so in one of these ways.
ENDED = re.compile(rb'"(finish_reason|stop_reason|finishReason|stopReason|done_reason)"\s*:\s*"\w|response\.(completed|incomplete)"|"is_end"\s*:\s*true|"status"\s*:\s*"(completed|incomplete)"')
BROKEN = re.compile(rb'error|exception|"failed"|blockReason|MALFORMED|insufficient_system_resource|"type"\s*:\s*"message"|"queued"|"in_progress"', re.I)


def cases(root):
    """Folder, meta and body of each recording that a chat can be made of."""
    for path in sorted(pathlib.Path(root).glob("*/*/meta.toml")):
        meta = tomllib.loads(path.read_text())
        if meta["status"] == 200 and meta["wire"] in WIRES and not meta["provider"].startswith("inbound"):
            yield meta, (path.parent / meta["response_file"]).read_bytes()


def streams(meta):
    return meta["kind"] in STREAMED or bool(meta["stream"])


def chat(client, model, stream):
    ask = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    if stream:
        with client.chat.completions.stream(**ask) as events:
            for _ in events:
                pass
            reply = events.get_final_completion()
    else:
        reply = client.chat.completions.create(**ask)
    choice = reply.choices[0]
    assert choice.finish_reason in ("stop", "length", "tool_calls", "content_filter", "function_call"), choice.finish_reason
    for call in choice.message.tool_calls or []:
        assert call.id, call
        if call.type == "function" and choice.finish_reason != "length":
            json.loads(call.function.arguments)


def messages(client, model, stream):
    ask = {"model": model, "max_tokens": 99, "messages": [{"role": "user", "content": "hi"}]}
    if stream:
        with client.messages.stream(**ask) as events:
            for _ in events:
                pass
            reply = events.get_final_message()
    else:
        reply = client.messages.create(**ask)
    assert reply.stop_reason and reply.usage.output_tokens is not None, reply


def responses(client, model, stream):
    if stream:
        last = None
        with client.responses.create(model=model, input="hi", stream=True) as events:
            for last in events:
                pass
        assert last.type in ("response.completed", "response.incomplete", "response.failed"), last.type
        if last.type == "response.failed":
            raise openai.APIError(last.response.error.message, None, body=None)
        if last.type == "response.completed":
            with client.responses.stream(model=model, input="hi") as events:
                for _ in events:
                    pass
                assert events.get_final_response().status == "completed"
        return
    reply = client.responses.create(model=model, input="hi")
    assert reply.status in ("completed", "incomplete"), reply.status


TOLD = (openai.APIError, anthropic.APIError)
CUT = (openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError)


def holds(meta, body, read):
    """The client reads it, or fails as it may."""
    try:
        read()
    except CUT:
        return
    except TOLD as fault:
        assert str(fault).strip(), "an error without words"
        hostile = meta["provider"] == "edge" or "truncated" in meta.get("note", "")
        assert hostile or BROKEN.search(body) or not ENDED.search(body), f"a sound recording is an error: {fault}"


def main(binary, fixtures):
    count, all_cases = Count(), list(cases(fixtures))
    assert all_cases, f"no recordings at {fixtures}"

    def play(_method, path, _headers, body):
        found = re.search(r"case-(\d+)", path) or re.search(r"case-(\d+)", body.decode())
        meta, reply = all_cases[int(found[1])]
        headers = {name.lower(): value for name, value in meta.get("response_headers", {}).items()}
        usual = {"sse": "text/event-stream", "ndjson": "application/x-ndjson", "bin": "application/vnd.amazon.eventstream"}
        return 200, headers.get("content-type") or usual.get(meta["kind"], "application/json"), [reply[i:i + 1000] for i in range(0, len(reply), 1000)]
    calm = 'retry = { attempts = 1 }\nbreaker = { min_requests = 1000000 }\n'
    with Upstream(play) as upstream:
        config = ""
        for wire, base in sorted(set(WIRES.values())):
            preset = 'preset = "openai"\n' if wire == "native" else f'wire = "{wire}"\n'
            auth = {"gemini": "x-goog-api-key", "anthropic": "x-api-key"}.get(wire, "bearer")
            config += (f'[providers.{wire}]\n{preset}base_url = "{upstream.url}{base}"\nauth = "{auth}"\napi_keys = ["sk-upstream"]\n{calm}'
                       f'[providers.{wire}.models."*"]\n')
        with Weir(binary, config) as weir:
            gpt = openai.OpenAI(base_url=weir.url + "/v1", api_key=KEY, max_retries=0, timeout=20)
            claude = anthropic.Anthropic(base_url=weir.url, api_key=KEY, max_retries=0, timeout=20)
            for number, (meta, body) in enumerate(all_cases):
                model = f"{WIRES[meta['wire']][0]}/case-{number}"
                readers = [(responses, gpt)] if meta["wire"] == "openai-responses" else [(chat, gpt), (messages, claude), (responses, gpt)]
                for read, client in readers:
                    count.check(f"{meta['id']} as {read.__name__}", lambda: holds(meta, body, lambda: read(client, model, streams(meta))))
    count.end()


main(*sys.argv[1:])
