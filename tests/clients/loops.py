"""Tool round trips of the official Python SDKs in three dialects, whole and streamed, over three wires: `loops.py WEIR_BINARY`."""
import itertools
import json
import sys

import anthropic
import openai

from stage import KEY, Count, Upstream, Weir
from upstream import MARK, MODELS, Providers, config

SCHEMA = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": False, "required": ["city"],
          "properties": {"city": {"type": "string"}, "unit": {"type": ["string", "null"], "enum": ["C", "F", None]}}}
ROUNDS = 4  # more than one call and one answer is a fault


def chat(client, models, stream):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "The weather?"}]
    tools = [{"type": "function", "function": {"name": "weather", "description": "The weather", "parameters": SCHEMA}}]
    for turn in range(ROUNDS):
        ask = {"model": models[min(turn, len(models) - 1)], "messages": messages, "tools": tools}
        if stream:
            with client.chat.completions.stream(**ask, stream_options={"include_usage": True}) as events:
                for _event in events:
                    pass
                reply = events.get_final_completion()
        else:
            reply = client.chat.completions.create(**ask)
        assert reply.usage.prompt_tokens == 90 and reply.usage.completion_tokens == 12, reply.usage
        assert reply.usage.prompt_tokens_details.cached_tokens == 64, reply.usage
        choice = reply.choices[0]
        if choice.finish_reason == "stop":
            return choice.message.content
        assert choice.finish_reason == "tool_calls", choice
        kept = choice.message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"})
        for call in kept["tool_calls"]:
            call.pop("index", None)
            call["function"].pop("parsed_arguments", None)
        messages.append(kept)
        for call in choice.message.tool_calls:
            assert json.loads(call.function.arguments) == {"city": "Berlin"}, call
            messages.append({"role": "tool", "tool_call_id": call.id, "content": MARK})
    raise AssertionError("the tool is called again and again")


def messages(client, models, stream, **more):
    said = [{"role": "user", "content": "The weather?"}]
    tools = [{"name": "weather", "description": "The weather", "input_schema": SCHEMA}]
    for turn in range(ROUNDS):
        ask = {"model": models[min(turn, len(models) - 1)], "max_tokens": 4096, "system": "Be brief.", "messages": said, "tools": tools, **more}
        if stream:
            with client.messages.stream(**ask) as events:
                for _event in events:
                    pass
                reply = events.get_final_message()
        else:
            reply = client.messages.create(**ask)
        used = reply.usage
        assert used.input_tokens + (used.cache_creation_input_tokens or 0) + used.cache_read_input_tokens == 90, used
        assert (used.cache_read_input_tokens, used.output_tokens) == (64, 12), used
        if reply.stop_reason == "end_turn":
            return "".join(block.text for block in reply.content)
        assert reply.stop_reason == "tool_use", reply
        said.append({"role": "assistant", "content": [block.model_dump(exclude_none=True, exclude={"parsed_output"}) for block in reply.content]})
        calls = [block for block in reply.content if block.type == "tool_use"]
        assert all(call.input == {"city": "Berlin"} for call in calls), calls
        said.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": MARK} for call in calls]})
    raise AssertionError("the tool is called again and again")


def thinking(client, models, stream):
    return messages(client, models, stream, thinking={"type": "enabled", "budget_tokens": 2048})


def responses(client, models, stream, **more):
    items = [{"role": "user", "content": "The weather?"}]
    tools = [{"type": "function", "name": "weather", "description": "The weather", "parameters": SCHEMA, "strict": False}]
    for turn in range(ROUNDS):
        ask = {"model": models[min(turn, len(models) - 1)], "instructions": "Be brief.", "input": items, "tools": tools, "store": False, **more}
        if stream:
            with client.responses.stream(**ask) as events:
                for _event in events:
                    pass
                reply = events.get_final_response()
        else:
            reply = client.responses.create(**ask)
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == (90, 12), reply.usage
        assert reply.usage.input_tokens_details.cached_tokens == 64, reply.usage
        assert reply.status == "completed", reply
        calls = [item for item in reply.output if item.type == "function_call"]
        if not calls:
            return reply.output_text
        items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in reply.output]
        for call in calls:
            assert json.loads(call.arguments) == {"city": "Berlin"}, call
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": MARK})
    raise AssertionError("the tool is called again and again")


def reasoning(client, models, stream):
    return responses(client, models, stream, reasoning={"effort": "low", "summary": "auto"}, include=["reasoning.encrypted_content"])


def main(binary):
    count, providers = Count(), Providers()
    with Upstream(providers.play) as upstream, Weir(binary, config(upstream.url)) as weir:
        gpt = openai.OpenAI(base_url=weir.url + "/v1", api_key=KEY, max_retries=0, timeout=20)
        claude = anthropic.Anthropic(base_url=weir.url, api_key=KEY, max_retries=0, timeout=20)
        for loop, client in [(chat, gpt), (messages, claude), (thinking, claude), (responses, gpt), (reasoning, gpt)]:
            # Each wire alone, and every change of the wire between the call and its result, as a failover makes it.
            for first, then in itertools.product(MODELS, MODELS):
                for stream in (False, True):
                    def run():
                        said = loop(client, [f"m-{first}", f"m-{then}"], stream)
                        assert MARK in said, said
                    over = first if first == then else f"{first}, then {then}"
                    count.check(f"{loop.__name__} over {over}, {'streamed' if stream else 'whole'}", run)
    count.end()


main(sys.argv[1])
