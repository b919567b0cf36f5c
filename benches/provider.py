"""A provider that misbehaves on purpose, and remembers what it did with each request.

    benches/provider.py PORT SEED [--fail SHARE] [--wild] [--flap SECONDS]

It speaks OpenAI's chat completions. The words of an answer are numbered (`w0 w1 …`), so that a
client sees a gap or a repetition. `--fail` refuses a share of all requests, `--wild` does
everything that providers do at random, `--flap` is dead every other period. `GET /stats` tells,
per `x-request-id`, each request that was read: what was done, and the usage of answers that were
sent to their end.
"""
import argparse
import asyncio
import json
import random
import socket
import struct
import time

# What a wild one does, and how often.
WILD = {
    "ok": 40, "slow": 8, "dribble": 8, "close_after": 6, "429": 4, "500": 4, "503": 4, "400": 2, "reset": 4, "close": 3,
    "hang": 2, "half": 3, "html": 2, "empty": 2, "garbage": 2, "cut": 4, "fin": 3, "stall": 2, "error_event": 3, "comments": 2,
}
FAILURES = ["500", "503", "reset", "half"]
PROMPT_TOKENS = 11


def chunk(delta, finish=None):
    said = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return b"data: " + json.dumps(said, separators=(",", ":")).encode() + b"\n\n"


def usage(words):
    return {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": words, "total_tokens": PROMPT_TOKENS + words}


def head(status, kind, more="", length=None):
    size = "transfer-encoding: chunked\r\n" if length is None else f"content-length: {length}\r\n"
    return f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{size}{more}\r\n".encode()


def framed(data):
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def json_reply(status, said, more=""):
    body = json.dumps(said).encode()
    return head(status, "application/json", more, len(body)) + body


class Provider:
    def __init__(self, asked):
        self.dice, self.asked, self.began = random.Random(asked.seed), asked, time.monotonic()
        self.requests, self.by_id = 0, {}

    def dead(self):
        period = self.asked.flap
        return period and int((time.monotonic() - self.began) / period) % 2 == 1

    def choose(self):
        if self.dead():
            return self.dice.choice(["reset", "503", "close"])
        if self.asked.wild:
            return self.dice.choices(list(WILD), list(WILD.values()))[0]
        if self.dice.random() < self.asked.fail:
            return self.dice.choice(FAILURES)
        return "ok"


class Connection(asyncio.Protocol):
    def __init__(self, provider):
        self.provider, self.buffer, self.task = provider, b"", None

    def connection_made(self, transport):
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.provider.dead():
            self.reset()

    def connection_lost(self, _):
        if self.task:
            self.task.cancel()

    def data_received(self, data):
        self.buffer += data
        at = self.buffer.find(b"\r\n\r\n")
        if at < 0:
            return
        lines = self.buffer[:at].decode("latin-1").split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
        length = int(headers.get("content-length", 0))
        if len(self.buffer) < at + 4 + length:
            return
        body, self.buffer = self.buffer[at + 4:at + 4 + length], self.buffer[at + 4 + length:]
        if lines[0].startswith("GET"):
            stats = {"requests": self.provider.requests, "by_id": self.provider.by_id}
            self.transport.write(json_reply(200, stats if "/stats" in lines[0] else {"data": []}))
            return
        self.answer(headers.get("x-request-id", "?"), json.loads(body))

    def answer(self, request_id, asked):
        provider = self.provider
        provider.requests += 1
        what, words = provider.choose(), provider.dice.randint(1, 30)
        record = {"what": what, "usage": None, "words": words}
        provider.by_id.setdefault(request_id, []).append(record)
        stream = asked.get("stream", False)
        if what in ("ok", "close_after"):
            self.transport.write(self.whole(stream, words))
            record["usage"] = [PROMPT_TOKENS, words]
            if what == "close_after":  # without a word: whoever pools the connection finds out
                self.transport.close()
        else:
            self.task = asyncio.ensure_future(self.play(what, stream, words, record))

    def whole(self, stream, words):
        if not stream:
            text = "".join(f"w{i} " for i in range(words))
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            return json_reply(200, {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage(words)})
        return head(200, "text/event-stream") + b"".join(framed(e) for e in self.events(words)) + b"0\r\n\r\n"

    def events(self, words):
        yield chunk({"role": "assistant", "content": ""})
        for i in range(words):
            yield chunk({"content": f"w{i} "})
        yield chunk({}, "stop")
        yield b"data: " + json.dumps({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": usage(words)}).encode() + b"\n\n"
        yield b"data: [DONE]\n\n"

    def reset(self):
        """RST instead of FIN."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    async def play(self, what, stream, words, record):
        write, dice = self.transport.write, self.provider.dice
        if what.isdigit():
            more = "retry-after: 1\r\n" if what in ("429", "503") else ""
            write(json_reply(int(what), {"error": {"message": f"scripted {what}", "type": "x", "code": None}}, more))
        elif what == "reset":
            self.reset()
        elif what == "close":
            self.transport.close()
        elif what == "hang":
            await asyncio.sleep(3600)
        elif what == "half":
            write(self.whole(stream, words)[:120])
            self.transport.close()
        elif what == "html":
            write(head(200, "text/html", "", 17) + b"<html>busy</html>")
        elif what == "empty":
            write(head(200, "application/json", "", 0))
        elif what == "garbage":
            write(head(200, "application/json", "", 9) + b'{"a":1}}}')
        elif what == "comments" and stream:
            write(head(200, "text/event-stream") + framed(b": still thinking\n\n") + b"0\r\n\r\n")
        elif stream and what in ("cut", "fin", "stall", "error_event"):
            await self.broken(what, words)
        elif what in ("slow", "dribble"):
            data = self.whole(stream, words)
            size = dice.randint(1, 7) if what == "dribble" else dice.randint(100, 400)
            for i in range(0, len(data), size):
                write(data[i:i + size])
                if i + size >= len(data):  # before any wait: who has all of it may leave
                    record["usage"] = [PROMPT_TOKENS, words]
                if what == "slow" or i % 50 == 0:
                    await asyncio.sleep(0.02 if what == "slow" else 0)
        else:  # what only streams can do
            write(self.whole(stream, words))
            record["usage"] = [PROMPT_TOKENS, words]

    async def broken(self, what, words):
        """A stream that begins well."""
        write, n = self.transport.write, max(1, words // 2)
        write(head(200, "text/event-stream") + framed(chunk({"role": "assistant", "content": ""})))
        for i in range(n):
            write(framed(chunk({"content": f"w{i} "})))
            await asyncio.sleep(0.002)
        if what == "error_event":
            write(framed(b'data: {"error":{"message":"scripted","type":"server_error"}}\n\n') + b"0\r\n\r\n")
        elif what == "cut":
            self.reset()
        elif what == "fin":
            write(b"0\r\n\r\n")
        else:
            await asyncio.sleep(3600)


async def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("port", type=int)
    options.add_argument("seed", type=int)
    options.add_argument("--fail", type=float, default=0.0)
    options.add_argument("--wild", action="store_true")
    options.add_argument("--flap", type=float, default=0.0)
    provider = Provider(options.parse_args())
    server = await asyncio.get_running_loop().create_server(lambda: Connection(provider), "127.0.0.1", provider.asked.port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
