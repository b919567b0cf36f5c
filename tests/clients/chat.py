"""The official SDK against a gateway: `chat.py BASE_URL KEY MODEL...`. One line a check; exit 1 on the first fault.

What the provider does is said by the last message, as in weir's demo.
"""
import asyncio
import json
import sys

import openai

BASE, KEY, *MODELS = sys.argv[1:]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}]


def client(**more):
    return openai.OpenAI(**{"base_url": BASE, "api_key": KEY, "max_retries": 0, "timeout": 20, **more})


def ask(model, say, **more):
    return {"model": model, "messages": [{"role": "user", "content": say}], **more}


def raises(kind, status, call):
    try:
        call()
    except kind as error:
        assert status is None or error.status_code == status, f"{error.status_code}: {error}"
        assert str(error), "an error without words"
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def json_answer(model):
    reply = client().chat.completions.create(**ask(model, "words=3 in=11 out=7 cached=2"))
    choice = reply.choices[0]
    assert (choice.message.role, choice.message.content.strip(), choice.finish_reason) == ("assistant", "w0 w1 w2", "stop"), reply
    used = reply.usage
    assert (used.prompt_tokens, used.completion_tokens, used.total_tokens) == (11, 7, 18), used
    assert used.prompt_tokens_details.cached_tokens == 2, used


def raw_headers(model):
    raw = client().chat.completions.with_raw_response.create(**ask(model, "hi"), extra_headers={"x-request-id": "from-the-sdk"})
    assert raw.headers["x-request-id"] == "from-the-sdk", raw.headers
    assert raw.headers["x-weir-attempts"] == "1", raw.headers
    assert raw.parse().choices[0].message.content


def stream(model):
    chunks = list(client().chat.completions.create(**ask(model, "words=4 in=11 out=7"), stream=True))
    assert all(c.choices for c in chunks), "a chunk without choices reached a client that did not ask for usage"
    assert not any(getattr(c, "usage", None) for c in chunks), "usage that was not asked for"
    assert "".join(c.choices[0].delta.content or "" for c in chunks).strip() == "w0 w1 w2 w3"
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["stop"]
    assert len({(c.id, c.created, c.model, c.object) for c in chunks}) == 1, "the envelope changes"
    assert chunks[0].choices[0].delta.role == "assistant"


def stream_usage(model):
    chunks = list(client().chat.completions.create(**ask(model, "words=4 in=11 out=7"), stream=True, stream_options={"include_usage": True}))
    used = [c.usage for c in chunks if c.usage]
    assert len(used) == 1 and used[0].prompt_tokens == 11 and used[0].completion_tokens == 7, used
    assert chunks[-1].usage and chunks[-1].choices == [], chunks[-1]


def stream_helper(model):
    with client().chat.completions.stream(**ask(model, "words=4")) as events:
        kinds = [event.type for event in events]
        final = events.get_final_completion()
    assert "content.delta" in kinds and "content.done" in kinds, kinds
    assert final.choices[0].message.content.strip() == "w0 w1 w2 w3"
    assert final.choices[0].finish_reason == "stop"


def tools(model):
    reply = client().chat.completions.create(**ask(model, "tool=weather words=1"), tools=TOOLS)
    [call] = reply.choices[0].message.tool_calls
    assert (call.id, call.type, call.function.name) == ("call_simulated", "function", "weather"), call
    assert json.loads(call.function.arguments) == {"city": "Berlin", "days": 3}
    assert reply.choices[0].finish_reason == "tool_calls"


def tools_stream(model):
    with client().chat.completions.stream(**ask(model, "tool=weather words=1"), tools=TOOLS) as events:
        final = events.get_final_completion()
    [call] = final.choices[0].message.tool_calls
    assert (call.id, call.function.name) == ("call_simulated", "weather"), call
    assert json.loads(call.function.arguments) == {"city": "Berlin", "days": 3}, call
    assert final.choices[0].finish_reason == "tool_calls"


def tools_result(model):
    messages = [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Berlin\"}"}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "words=2"},
    ]
    reply = client().chat.completions.create(model=model, messages=messages, tools=TOOLS)
    assert reply.choices[0].message.content.strip(), reply


def length(model):
    reply = client().chat.completions.create(**ask(model, "words=2 finish=length"), max_tokens=2)
    assert reply.choices[0].finish_reason == "length", reply


def several_at_once(model):
    async def run():
        async with openai.AsyncOpenAI(base_url=BASE, api_key=KEY, max_retries=0, timeout=20) as many:
            asks = [many.chat.completions.create(**ask(model, f"words={n}")) for n in range(1, 9)]
            return [reply.choices[0].message.content.split() for reply in await asyncio.gather(*asks)]
    assert [len(words) for words in asyncio.run(run())] == list(range(1, 9))


def provider_refuses(model):
    create = client().chat.completions.create
    raises(openai.BadRequestError, 400, lambda: create(**ask(model, "status=400")))
    limited = raises(openai.RateLimitError, 429, lambda: create(**ask(model + "-limited", "status=429 retry_after=30")))
    assert int(limited.response.headers["retry-after"]) in (29, 30), limited.response.headers
    assert limited.code == "upstream_rate_limited", limited.code
    raises(openai.InternalServerError, 502, lambda: create(**ask(model, "status=500")))
    raises(openai.InternalServerError, 502, lambda: create(**ask(model, "malformed=html")))
    raises(openai.InternalServerError, 502, lambda: create(**ask(model, "malformed=half")))
    # The same for a caller that wants a stream: an error with its status, never an empty stream.
    raises(openai.BadRequestError, 400, lambda: create(**ask(model, "status=400"), stream=True))


def stream_breaks(model):
    for say in ("words=3 cut=2", "words=3 end=2", "words=3 error=2"):
        got = []

        def read():
            for chunk in client().chat.completions.create(**ask(model, say), stream=True):
                got.extend(c.delta.content or "" for c in chunk.choices)
        raises(openai.APIError, None, read)
        assert "".join(got).split() == ["w0", "w1"], (say, got)


def no_useless_retry(model):
    """The provider refused our own credential: asking again cannot help, and the SDK must not (2 retries are its default)."""
    error = raises(openai.InternalServerError, 502, lambda: client(max_retries=2).chat.completions.create(**ask(model, "status=401 once=1")))
    assert error.code == "upstream_auth", error.code


def our_refusals(_):
    wrong = client(api_key="sk-wrong").chat.completions.create
    assert raises(openai.AuthenticationError, 401, lambda: wrong(**ask(MODELS[0], "hi"))).code == "invalid_api_key"
    create = client().chat.completions.create
    assert raises(openai.NotFoundError, 404, lambda: create(**ask("no-such-model", "hi"))).code == "model_not_found"
    assert raises(openai.BadRequestError, 400, lambda: create(**ask(MODELS[0], "hi"), max_tokens=-1)).code == "invalid_request"


def models(_):
    names = {model.id for model in client().models.list()}
    assert set(MODELS) <= names, names
    assert client().models.retrieve(MODELS[0]).id == MODELS[0]


ONCE = [our_refusals, models]
EACH = [json_answer, raw_headers, stream, stream_usage, stream_helper, tools, tools_stream, tools_result, length,
        several_at_once, provider_refuses, stream_breaks, no_useless_retry]

for model, checks in [(None, ONCE), *((model, EACH) for model in MODELS)]:
    for check in checks:
        try:
            check(model)
        except BaseException as fault:
            print(f"FAILED {check.__name__} {model}: {type(fault).__name__}: {fault}", flush=True)
            raise
        print(f"ok {check.__name__} {model or ''}", flush=True)
