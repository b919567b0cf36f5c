"""Ten minutes in which both sides misbehave at random. Afterwards everything that was taken is
back, every answer is in the ledger as its provider told it, and nobody was told anything that the
README does not state; writes README's table.

    SOAK_SECONDS=600 benches/soak.py [--profile release] [--seed 1] [--clients 60] [--no-write]

A wild provider and one that is dead every other period stand before a sound one. Clients ask
whole and half, read slowly, not at all or not to the end, leave by FIN and RST, send garbage.
"""
import argparse
import asyncio
import collections
import json
import os
import random
import socket
import struct
import tempfile
import time

from rig import KEY, RESENT_MAX, Gateway, get, log_has, machine, model, provider, require, scripted, stats, write

# What a caller may be told, by the README; each with its status.
STATED = {
    "invalid_json": 400, "invalid_request": 400, "invalid_api_key": 401, "model_not_found": 404, "request_too_large": 413,
    "rate_limit_exceeded": 429, "upstream_rate_limited": 429, "upstream_error": 502, "upstream_invalid_response": 502,
    "no_healthy_upstream": 503, "upstream_timeout": 504,
}
# What nobody need be told who has a sound provider left.
UPSTREAM = {"upstream_rate_limited", "upstream_error", "upstream_invalid_response", "no_healthy_upstream", "upstream_timeout"}
MAX_BODY = 64 << 10
SLOTS = 4
# Growth between the first fifth and the end.
GROWTH_KIB_MAX = 16 << 10
# Once a minute per kind, not once per failure.
LOG_BYTES_PER_SECOND = 20_000
WAYS = {
    "json": 30, "stream": 30, "slots": 8, "leave": 6, "leave_stream": 8, "slow_reader": 4, "deaf": 2, "half_body": 3, "slow_body": 4,
    "bad_json": 2, "bad_key": 2, "bad_model": 2, "too_large": 1, "silent": 1, "garbage": 2,
}


def config(wild, flap, sound):
    quick = ('timeouts = { connect = "1s", first_token = "2s", idle = "2s", reply = "3s", total = "8s" }\npool = { idle_timeout = "2s" }\n'
             'retry = { attempts = 2, backoff = "10ms", max_backoff = "100ms" }\nbreaker = { error_rate = 0.9, open_for = "1s" }\n')
    providers = "".join(provider(name, port, quick) for name, port in (("wild", wild), ("flap", flap), ("sound", sound)))
    return (providers + model("all", "wild/m", "flap/m", "sound/m") + model("wild", "wild/m") + model("flap", "flap/m", "wild/m")
            + f'[keys.slots]\nsecret = "sk-slots"\nlimits = {{ concurrent = {SLOTS} }}\n')


class Reply:
    """What a client saw of one request."""

    def __init__(self):
        self.status, self.code, self.finished, self.words, self.fault = 0, None, False, 0, None


class Client:
    def __init__(self, port, dice, seen):
        self.port, self.dice, self.seen = port, dice, seen
        self.reader = self.writer = None

    async def connect(self):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)

    def drop(self, reset=False):
        if self.writer is not None:
            if reset and not self.writer.transport.is_closing():
                raw = self.writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.writer.transport.abort() if reset else self.writer.close()
        self.reader = self.writer = None

    def request(self, way, request_id):
        stream = way in ("stream", "leave_stream", "slow_reader", "deaf") or (way == "slots" and self.dice.random() < 0.5)
        said = {"model": self.dice.choice(["all", "all", "all", "flap", "wild"]), "messages": [{"role": "user", "content": "soak " * self.dice.randint(1, 50)}]}
        if stream:
            said["stream"] = True
        if way == "bad_model":
            said["model"] = "nobody-has-this"
        if way == "too_large":
            said["messages"][0]["content"] = "x" * (MAX_BODY + 1)
        text = json.dumps(said).encode()
        if way == "bad_json":
            text = text[:-2]
        key = {"bad_key": "sk-wrong", "slots": "sk-slots"}.get(way, KEY)
        head = (f"POST /v1/chat/completions HTTP/1.1\r\nhost: soak\r\nauthorization: Bearer {key}\r\nx-request-id: {request_id}\r\n"
                f"content-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n").encode()
        return head, text, stream

    async def one(self, way, request_id):
        reply = self.seen[request_id] = Reply()
        reply.way = way
        head, text, stream = self.request(way, request_id)
        await self.connect()
        if way == "silent":
            await asyncio.sleep(self.dice.random())
            return self.drop()
        if way == "garbage":
            self.writer.write(self.dice.choice([b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"POST / HTTP/9\r\n\r\n", os.urandom(64)]))
            await asyncio.wait_for(self.reader.read(4096), 20)
            return self.drop()
        if way == "half_body":
            self.writer.write(head + text[: len(text) // 2])
            await asyncio.sleep(self.dice.random() / 2)
            return self.drop(self.dice.random() < 0.5)
        self.writer.write(head)
        if way == "slow_body":
            for i in range(0, len(text), len(text) // 3 + 1):
                await asyncio.sleep(0.05)
                self.writer.write(text[i:i + len(text) // 3 + 1])
        else:
            self.writer.write(text)
        if way == "leave":
            await asyncio.sleep(self.dice.random() / 20)
            return self.drop(self.dice.random() < 0.5)
        if way == "deaf":
            self.writer.transport.pause_reading()
            await asyncio.sleep(self.dice.random() * 4)
            return self.drop(True)
        await asyncio.wait_for(self.read(way, stream, reply), 60)

    async def read(self, way, stream, reply):
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        reply.status = int(head.split(" ", 2)[1])
        closes = "connection: close" in head
        if "transfer-encoding: chunked" in head:
            text = await self.chunked(way, reply)
            if text is None:
                return self.drop(True)
        elif "content-length: " in head:
            text = await self.reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
        else:
            text, closes = await self.reader.read(), True
        self.judge(reply, text, stream and "text/event-stream" in head)
        if closes:
            self.drop()

    async def chunked(self, way, reply):
        text = b""
        while True:
            size = int((await self.reader.readuntil(b"\r\n")).strip(), 16)
            text += (await self.reader.readexactly(size + 2))[:-2]
            if size == 0:
                return text
            if way == "leave_stream" and self.dice.random() < 0.2:
                return None
            if way == "slow_reader":
                await asyncio.sleep(0.02)

    def judge(self, reply, text, stream):
        """Whether an answer is whole, an error is one that is stated, and no word is lost or doubled."""
        if not stream:
            try:
                said = json.loads(text)
            except ValueError:
                reply.fault = f"no JSON: {reply.status} {text[:200]}"
                return
            if reply.status == 200:
                words, reply.finished = said["choices"][0]["message"]["content"].split(), True
            else:
                words, reply.code = [], said["error"]["code"]
        else:
            events = [line[6:] for line in text.decode().split("\n") if line.startswith("data: ")]
            reply.finished = events[-1:] == ["[DONE]"]
            said = [json.loads(e) for e in events if e != "[DONE]"]
            words = "".join(c["choices"][0]["delta"].get("content") or "" for c in said if c.get("choices")).split()
            errors = [e["error"] for e in said if "error" in e]
            if errors:
                reply.code = errors[0]["code"]
            if bool(errors) == reply.finished:
                reply.fault = f"neither an end nor an error, or both: {text[-300:]}"
        reply.words = len(words)
        if words != [f"w{i}" for i in range(len(words))]:
            reply.fault = f"words lost or doubled: {words}"
        if reply.code is not None and STATED.get(reply.code) not in (reply.status, STATED.get(reply.code) if reply.status == 200 and stream else None):
            reply.fault = f"a refusal that nobody stated: {reply.status} {reply.code} {text[:200]}"

    async def run(self, name, end):
        for i in range(1 << 60):
            if time.monotonic() >= end:
                return self.drop()
            way = self.dice.choices(list(WAYS), list(WAYS.values()))[0]
            try:
                await self.one(way, f"{name}-{i}")
            except (ConnectionError, asyncio.IncompleteReadError):
                reply = self.seen[f"{name}-{i}"]
                reply.cut = True
                self.drop()
            except asyncio.TimeoutError:
                self.seen[f"{name}-{i}"].fault = f"{way}: no answer within a minute"
                self.drop(True)


def held_to(seen, rows, told):
    """Every request against the ledger and against what its providers remember."""
    by_id, faults = collections.defaultdict(list), []
    for row in rows:
        by_id[row["request_id"]].append(row)
    for request_id, reply in seen.items():
        mine = by_id.get(request_id, [])
        say = lambda what: faults.append(f"{request_id} {reply.way}: {what}: client {vars(reply)}, rows {mine}, providers {told.get(request_id)}")
        if reply.fault:
            say(reply.fault)
        if len(mine) > 1:
            say("more than one row")
        if not mine:
            if reply.status and reply.way != "garbage":
                say("an answer without a row")
            continue
        row, tries = mine[0], told.get(request_id, [])
        if reply.finished and row["outcome"] != "success":
            say("finished, and no success in the ledger")
        if reply.status >= 400 and row["status"] != reply.status:
            say("another status in the ledger")
        if row["requested_model"] == "all" and reply.code in UPSTREAM and reply.status != 200:
            say("refused although its last provider is sound")
        # A try that a provider read is in the row; a row's try may have died before it was read, and
        # one on a kept connection that had died is sent again without being another try.
        if len(tries) > len(row["attempts"]) + RESENT_MAX or (row["outcome"] == "success" and not tries):
            say("tries that the ledger does not know")
        if row["outcome"] == "success":
            billed = [row["input_tokens"] + row["cached_tokens"], row["output_tokens"]]
            if billed not in [t["usage"] for t in tries]:
                say("billed otherwise than the provider said")
            if row["cost_nano_usd"] != 1000 * row["input_tokens"] + 100 * row["cached_tokens"] + 2000 * row["output_tokens"]:
                say("another price")
            if reply.finished and reply.words != row["output_tokens"]:
                say("billed otherwise than the client read")
    return faults, sum(len(t) for t in told.values())


async def clients(weir, asked, seconds, seen):
    end, marks = time.monotonic() + seconds, []
    dice = random.Random(asked.seed)
    tasks = [asyncio.ensure_future(Client(weir.port, random.Random(dice.random()), seen).run(f"c{i}", end)) for i in range(asked.clients)]

    async def watch():
        while time.monotonic() < end:
            marks.append(weir.rss_kib()[0])
            await asyncio.sleep(1)
    await asyncio.gather(watch(), *tasks)
    return marks


def table(seen, rows, tries, marks, end_kib, seconds):
    outcomes = collections.Counter(row["outcome"] for row in rows)
    codes = collections.Counter(reply.code for reply in seen.values() if reply.code)
    told = lambda counter: ", ".join(f"{n:,} {what}" for what, n in counter.most_common())
    row = lambda name, value: f"| {name} | {value} |"
    return "\n".join([
        f"{machine()}; {seconds} s, {len(seen):,} requests of clients, {tries:,} tries that providers read.", "", "| | |", "| --- | --- |",
        row("answers that clients saw whole", f"{sum(r.finished for r in seen.values()):,}, each billed as its provider said"),
        row("outcomes in the ledger", told(outcomes)), row("errors that clients were told", told(codes)),
        row("afterwards", "nothing in flight, no descriptor more than before, all places of a key free, no event lost"),
        row("memory", f"{marks[len(marks) // 5] / 1024:.1f} MiB after a fifth, {end_kib / 1024:.1f} MiB at the end"),
    ])


def free_places(weir):
    said = json.loads(get(weir.port, "/v1/usage", "sk-slots"))
    held = [limit for limit in said["limits"] if limit.get("held") or (limit.get("rule") == "concurrent" and limit.get("used"))]
    require(not held, f"places are still taken: {held}")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--profile", default="release")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--clients", type=int, default=60)
    options.add_argument("--no-write", action="store_true")
    asked, seconds = options.parse_args(), int(os.environ.get("SOAK_SECONDS", "600"))
    seen, peers = {}, []
    with tempfile.TemporaryDirectory(prefix="weir-soak-") as folder:
        try:
            wild, flap = scripted(folder, "wild", str(asked.seed), "--wild"), scripted(folder, "flap", str(asked.seed + 1), "--flap", "5")
            sound = scripted(folder, "sound", str(asked.seed + 2))
            peers += [wild, flap, sound]
            server = f'idle = "3s"\nheader = "2s"\nbody = "2s"\nclient_write = "2s"\nmax_body = "{MAX_BODY >> 10}KiB"'
            weir = Gateway(asked.profile, folder, config(wild.port, flap.port, sound.port), server, threads=2)
            peers.append(weir)
            descriptors = weir.descriptors()
            marks = asyncio.run(clients(weir, asked, seconds, seen))
            weir.settled(descriptors)
            free_places(weir)
            rows, told = weir.rows(), {}
            for name, far in (("wild", wild), ("flap", flap), ("sound", sound)):
                for request_id, tries in stats(far)["by_id"].items():
                    told.setdefault(request_id, []).extend(t | {"provider": name} for t in tries)
            faults, tries = held_to(seen, rows, told)
            end_kib, log_bytes = weir.rss_kib()[0], os.path.getsize(weir.log.name)
            panics = log_has(weir, "panicked", "some requests did not end")
        finally:
            for peer in reversed(peers):
                peer.stop()
    for fault in faults[:10]:
        print(fault)
    text = table(seen, rows, tries, marks, end_kib, seconds)
    print(f"\n{text}")
    require(not faults, f"{len(faults)} faults")
    require(not panics, f"the log tells of {panics}")
    require(log_bytes < LOG_BYTES_PER_SECOND * (seconds + 60), f"{log_bytes} bytes of log")
    require(end_kib - marks[len(marks) // 5] < GROWTH_KIB_MAX, f"memory grew: {marks[:: max(1, len(marks) // 20)]} {end_kib} KiB")
    if not asked.no_write and asked.profile == "release":
        write("soak", text)


if __name__ == "__main__":
    main()
