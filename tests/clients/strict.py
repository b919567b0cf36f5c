"""Deviant providers behind the gateway, read by the Python SDKs' strictest helpers in every dialect: `strict.py WEIR_BINARY`."""
import json
import sys

import anthropic
import openai

import deviations
from stage import KEY, Count, Upstream, Weir

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def chat(client, model):
    tools = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}]
    with client.chat.completions.stream(model=model, messages=[{"role": "user", "content": "hi"}], tools=tools) as events:
        for _ in events:
            pass
        choice = events.get_final_completion().choices[0]
    calls = [(call.id, call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls or []]
    # OpenAI itself ends a call with `stop` where the tool was forced, so a provider's `stop` stays.
    assert choice.finish_reason in (("stop", "tool_calls") if calls else ("stop",)), choice.finish_reason
    return choice.message.content or "", calls, "tool" if calls else "text"


def messages(client, model):
    tools = [{"name": "f", "description": "d", "input_schema": SCHEMA}]
    with client.messages.stream(model=model, max_tokens=10, messages=[{"role": "user", "content": "hi"}], tools=tools) as events:
        for _ in events:
            pass
        reply = events.get_final_message()
    assert reply.usage.output_tokens is not None, reply
    calls = [(block.id, block.name, block.input) for block in reply.content if block.type == "tool_use"]
    text = "".join(block.text for block in reply.content if block.type == "text")
    return text, calls, {"end_turn": "text", "tool_use": "tool", "weird": "text"}[reply.stop_reason]


def responses(client, model):
    tools = [{"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": False}]
    with client.responses.stream(model=model, input="hi", tools=tools) as events:
        for _ in events:
            pass
        reply = events.get_final_response()
    assert reply.status == "completed", reply
    calls = [(item.call_id, item.name, json.loads(item.arguments)) for item in reply.output if item.type == "function_call"]
    return reply.output_text, calls, "tool" if calls else "text"


def holds(want, read):
    """The client sees what is wanted of the case."""
    if want == "error":
        try:
            seen = read()
        except Exception as fault:
            assert not isinstance(fault, (TypeError, AttributeError, IndexError, KeyError)), f"an error nobody understands: {fault!r}"
            return
        raise AssertionError(f"a clean end: {seen}")
    text, calls, end = read()
    expected = {"text": 0, "tool": 1, "tools": 2}[want]
    assert len(calls) == expected and len({ident for ident, _, _ in calls}) == expected, calls
    assert all(ident and (name, given) == ("f", {"a": 1}) for ident, name, given in calls), calls
    assert (text, end) == (("hello", "text") if want == "text" else ("", "tool")), (text, end)


def main(binary):
    count = Count()
    with Upstream(deviations.play) as upstream, Weir(binary, deviations.config(upstream.url)) as weir:
        gpt = openai.OpenAI(base_url=weir.url + "/v1", api_key=KEY, max_retries=0, timeout=20)
        claude = anthropic.Anthropic(base_url=weir.url, api_key=KEY, max_retries=0, timeout=20)
        for wire, name, want in deviations.table():
            for read, client in ((chat, gpt), (messages, claude), (responses, gpt)):
                count.check(f"{wire}/{name} as {read.__name__}", lambda: holds(want, lambda: read(client, f"{wire}/{name}")))
    count.end()


main(sys.argv[1])
