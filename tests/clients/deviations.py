"""Streams of providers that deviate from their protocol, and what a strict client must see of each through the gateway.

`text`: "hello" and a clean end; `tool`: one call f({"a": 1}); `tools`: two of them; `error`: the client raises. Behind
`/deviant/chat/…`, `/deviant/messages/…` and `/deviant/responses/…`; the case is the model's name.
"""
import json

HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
ERROR = {"error": {"message": "boom", "type": "server_error", "param": None, "code": None}}


def data(*events):
    """Server-sent events of chat."""
    return [b"data: " + (event if isinstance(event, str) else json.dumps(event)).encode() + b"\n\n" for event in events]


def chunk(delta, finish=None, **more):
    return {**HEAD, **more, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(arguments="", index=0, ident="call_1", name="f", **without):
    """A fragment of a tool call; None leaves a member out."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    every = {"index": index, "id": ident, "type": "function" if ident else None, "function": function}
    return {key: value for key, value in every.items() if value is not None and key not in without}


def tools(*fragments, finish="tool_calls"):
    """A stream whose chunks each bring these fragments."""
    first, *rest = fragments
    opening = chunk({"role": "assistant", "content": None, "tool_calls": first})
    return data(opening, *(chunk({"tool_calls": more}) for more in rest), chunk({}, finish), "[DONE]")


def more(arguments, index=0):
    return call(arguments, index, None, None)


GOOD = [chunk({"role": "assistant", "content": ""}), chunk({"content": "he"}), chunk({"content": "llo"}), chunk({}, "stop"), {**HEAD, "choices": [], "usage": USAGE}]
BAD = GOOD[:2]


def each(change):
    return data(*(change(json.loads(json.dumps(event))) for event in GOOD), "[DONE]")


def drop(*names):
    return lambda event: {key: value for key, value in event.items() if key not in names}


def with_role(event):
    for choice in event["choices"]:
        choice["delta"]["role"] = "assistant"
    return event


CHAT = {
    "sound": ("text", data(*GOOD, "[DONE]")),
    "role_missing": ("text", data(*GOOD[1:], "[DONE]")),
    "role_every": ("text", each(with_role)),
    "head_missing": ("text", each(drop("id", "object", "created", "model"))),
    "created_text": ("text", each(lambda event: {**event, "created": "1"})),
    "created_fraction": ("text", each(lambda event: {**event, "created": 1.5})),
    "prelude": ("text", data({"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": []}, *GOOD, "[DONE]")),
    "usage_choices_null": ("text", data(*GOOD[:4], {**HEAD, "choices": None, "usage": USAGE}, "[DONE]")),
    "usage_choices_missing": ("text", data(*GOOD[:4], {**HEAD, "usage": USAGE}, "[DONE]")),
    "delta_null": ("text", data(*GOOD[:3], {**HEAD, "choices": [{"index": 0, "delta": None, "finish_reason": "stop"}]}, "[DONE]")),
    "delta_missing": ("text", data(*GOOD[:3], {**HEAD, "choices": [{"index": 0, "finish_reason": "stop"}]}, "[DONE]")),
    "content_parts": ("text", data(chunk({"role": "assistant", "content": [{"type": "text", "text": "hello"}]}), chunk({}, "stop"), "[DONE]")),
    "finish_twice": ("text", data(*GOOD[:4], chunk({"content": ""}, "stop"), "[DONE]")),
    "finish_missing": ("error", data(*GOOD[:3], "[DONE]")),
    "finish_error": ("error", data(*GOOD[:3], chunk({}, "error"), "[DONE]")),
    "marker_missing": ("text", data(*GOOD)),
    "comments": ("text", [b": keep-alive\n\n", *data(*GOOD[:2]), b": keep-alive\n\n", *data(*GOOD[2:], "[DONE]")]),
    "data_empty": ("text", [*data(*GOOD[:2]), b"data: \n\n", *data(*GOOD[2:], "[DONE]")]),
    "crlf": ("text", [piece.replace(b"\n", b"\r\n") for piece in data(*GOOD, "[DONE]")]),
    "lone_cr": ("text", [piece.replace(b"\n", b"\r") for piece in data(*GOOD, "[DONE]")]),
    "byte_order_mark": ("text", [b"\xef\xbb\xbf", *data(*GOOD, "[DONE]")]),
    "no_data": ("text", [b"retry: 3000\n\n", b"id: 1\n\n", b"event: ping\n\n", *data(*GOOD, "[DONE]")]),
    "error_inside": ("error", data(*BAD, ERROR)),
    "error_then_done": ("error", data(*BAD, ERROR, "[DONE]")),
    "error_named": ("error", [*data(*BAD), b"event: error\n", *data(ERROR)]),
    "error_text": ("error", data(*BAD, {"error": "boom"})),
    "json_cut": ("error", [*data(*BAD), b'data: {"id":"x","choi']),
    "json_wrong": ("error", data(*BAD, "{oops", *GOOD[2:])),
    "cut": ("error", [*data(*BAD), None]),
    "empty": ("error", []),
    "page": ("error", [b"<html>oops</html>"]),
    "tool_sound": ("tool", tools([call()], [more('{"a":')], [more("1}")])),
    "tool_index_missing": ("tool", tools([call(index=None)], [more('{"a":', None)], [more("1}", None)])),
    "tool_index_from_1": ("tool", tools([call(index=1)], [more('{"a":1}', 1)])),
    "tool_id_missing": ("tool", tools([{"index": 0, "type": "function", "function": {"name": "f", "arguments": ""}}], [more('{"a":1}')])),
    "tool_type_missing": ("tool", tools([call('{"a":1}', type=True)])),
    "tool_name_late": ("tool", tools([{"index": 0, "id": "call_1", "type": "function", "function": {"arguments": ""}}],
                                     [{"index": 0, "function": {"name": "f", "arguments": '{"a":1}'}}])),
    "tool_arguments_null": ("tool", tools([{"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": None}}], [more('{"a":1}')])),
    "tool_arguments_object": ("tool", tools([{"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}])),
    "tool_id_again": ("tool", tools([call()], [call('{"a":')], [call("1}")])),
    "tool_names_blank": ("tool", tools([call()], [{"index": 0, "id": "", "type": "function", "function": {"name": "", "arguments": '{"a":1}'}}])),
    "tool_ends_with_stop": ("tool", tools([call('{"a":1}')], finish="stop")),
    "tools_interleaved": ("tools", tools([call(), call(index=1, ident="call_2")], [more('{"a":', 1)], [more('{"a":')], [more("1}", 1)], [more("1}")])),
    "tools_of_one_index": ("tools", tools([call('{"a":1}')], [call('{"a":1}', ident="call_2")])),
}


def event(kind, **members):
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()


MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None, "stop_sequence": None,
           "usage": {"input_tokens": 10, "output_tokens": 1}}
START = event("message_start", message=MESSAGE)
STOP = event("message_stop")


def block(index, opened, *deltas):
    at = {"index": index}
    return [event("content_block_start", **at, content_block=opened), *(event("content_block_delta", **at, delta=delta) for delta in deltas),
            event("content_block_stop", **at)]


def ended(reason="end_turn", **usage):
    return event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage={"output_tokens": 5, **usage})


HELLO = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "hello"})
USE = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
MESSAGES = {
    "sound": ("text", [START, event("ping"), *HELLO, ended(), STOP]),
    "start_missing": ("text", [*HELLO, ended(), STOP]),
    "block_start_missing": ("text", [START, *HELLO[1:], ended(), STOP]),
    "block_stop_missing": ("text", [START, *HELLO[:2], ended(), STOP]),
    "stop_missing": ("text", [START, *HELLO, ended()]),
    "delta_missing": ("error", [START, *HELLO]),
    "start_usage_missing": ("text", [event("message_start", message={key: value for key, value in MESSAGE.items() if key != "usage"}), *HELLO, ended(), STOP]),
    "delta_usage_missing": ("text", [START, *HELLO, event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}), STOP]),
    "usage_null": ("text", [START, *HELLO, ended(output_tokens=None), STOP]),
    "names_missing": ("text", [piece.split(b"\n", 1)[1] for piece in [START, *HELLO, ended(), STOP]]),
    "event_unknown": ("text", [START, event("new_thing", x=1), *HELLO, ended(), STOP]),
    "index_from_3": ("text", [START, *block(3, {"type": "text", "text": ""}, {"type": "text_delta", "text": "hello"}), ended(), STOP]),
    "stop_unknown": ("text", [START, *HELLO, ended("weird"), STOP]),
    "marker_of_chat": ("text", [START, *HELLO, ended(), STOP, b"data: [DONE]\n\n"]),
    "error_first": ("error", [event("error", error={"type": "overloaded_error", "message": "Overloaded"})]),
    "error_inside": ("error", [START, *HELLO[:2], event("error", error={"type": "overloaded_error", "message": "Overloaded"})]),
    "cut": ("error", [START, *HELLO[:2], None]),
    "tool_sound": ("tool", [START, *block(0, USE, *({"type": "input_json_delta", "partial_json": part} for part in ("", '{"a":', "1}"))), ended("tool_use"), STOP]),
    "tool_input_at_once": ("tool", [START, *block(0, {**USE, "input": {"a": 1}}), ended("tool_use"), STOP]),
}

ALL = {"chat": CHAT, "messages": MESSAGES}


def table():
    """Wire, case and what is expected, as a list."""
    return [[wire, name, want] for wire, cases in ALL.items() for name, (want, _) in cases.items()]


def play(_method, path, _headers, body):
    """The upstream's side."""
    wire, name = path.split("/")[2], json.loads(body)["model"]
    return 200, "text/html" if name == "page" else "text/event-stream", ALL[wire][name][1]


def config(url):
    """Providers `chat` and `messages`, whose models are the cases."""
    calm = 'retry = { attempts = 1 }\nbreaker = { min_requests = 1000000 }\nauth = "none"\n'
    return "".join(f'[providers.{name}]\nwire = "{wire}"\nbase_url = "{url}/deviant/{name}/v1"\n{calm}[providers.{name}.models."*"]\n'
                   for name, wire in (("chat", "openai"), ("messages", "anthropic")))
