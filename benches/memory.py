"""What weir weighs: idle, per open stream beside a bare Pingora pass-through, after many requests
and after many aborted streams; writes README's table.

    benches/memory.py [--profile release] [--streams 2000] [--requests 1000000] [--aborts 10000] [--no-write]

The run fails when a limit is missed. RSS is the whole process, the binary's own pages too.
"""
import argparse
import asyncio
import os
import resource
import socket
import struct
import tempfile
import time

from rig import KEY, Gateway, Peer, binary, free_port, machine, median_sample, mock, model, provider, require, status, write, wrk
from run import body

IDLE_KIB_MAX = 40 << 10
# Above what Pingora itself takes for an open stream.
STREAM_KIB_MAX = 24
# How much more a process may weigh after the last nine tenths of its requests than after the first.
GROWTH_KIB_MAX = 6 << 10


class Streams:
    """So many open streams, each with a word a second, read as they come."""

    def __init__(self, port, path, model, n):
        said = body(model, True)
        self.request = (f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/json\r\n"
                        f"content-length: {len(said)}\r\n\r\n{said}").encode()
        self.port, self.n, self.open = port, n, []

    async def one(self, gate):
        async with gate:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=4096)
            writer.write(self.request)
            head = await reader.readuntil(b"\r\n\r\n")
            require(head.startswith(b"HTTP/1.1 200"), head)
            await reader.readuntil(b"@")
            return reader, writer

    async def all(self):
        gate = asyncio.Semaphore(100)
        self.open = await asyncio.gather(*(self.one(gate) for _ in range(self.n)))

    async def read_on(self):
        async def drain(reader):
            while await reader.read(4096):
                pass
        return [asyncio.ensure_future(drain(reader)) for reader, _ in self.open]


async def per_stream(peer, path, model, n):
    """KiB that a process which has served nobody yet grows by per open stream."""
    idle = status(peer.pid, "VmRSS")
    streams = Streams(peer.port, path, model, n)
    await streams.all()
    readers = await streams.read_on()
    await asyncio.sleep(2)
    full = median_sample(lambda: status(peer.pid, "VmRSS"), 2)
    for task in readers:
        task.cancel()
    for _, writer in streams.open:
        writer.transport.abort()
    return (full - idle) / n


async def abort(port, model, n):
    """Opens a stream, reads its first word, and is gone with a RST."""
    streams = Streams(port, "/v1/chat/completions", model, 1)
    left = iter(range(n))

    async def worker():
        for _ in left:
            _, writer = await streams.one(asyncio.Semaphore(1))
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            await asyncio.sleep(0)
    await asyncio.gather(*(worker() for _ in range(50)))


def parts(asked, folder):
    far = mock(folder)
    env = {"LISTEN": f"127.0.0.1:{(port := free_port())}", "UPSTREAM": f"127.0.0.1:{far.port}", "THREADS": "1"}
    floor = Peer("floor", port, [binary(asked.profile, "weir-floor")], env, folder)
    slow = "mock?chunks=100&delay_us=1000000&stamp=1"
    config = provider("a", far.port, 'pool = { idle_timeout = "2s" }\n') + model("slow", f"a/{slow}") + model("small", "a/mock")
    weir = Gateway(asked.profile, folder, config, 'idle = "2s"')
    return [far, floor, weir], slow


def measure(asked, folder, peers, slow):
    _, floor, weir = peers
    time.sleep(1)
    idle = weir.rss_kib()[0]
    print(f"idle: {idle} KiB", flush=True)
    descriptors = weir.descriptors()
    floor_kib = asyncio.run(per_stream(floor, "/v1/chat/completions", slow, asked.streams))
    weir_kib = asyncio.run(per_stream(weir, "/v1/chat/completions", "slow", asked.streams))
    print(f"per stream: floor {floor_kib:.1f} KiB, weir {weir_kib:.1f} KiB", flush=True)
    weir.settled(descriptors)

    asyncio.run(abort(weir.port, "slow", asked.aborts // 10))
    weir.settled(descriptors)
    before = weir.rss_kib()[0]
    asyncio.run(abort(weir.port, "slow", asked.aborts))
    weir.settled(descriptors)
    aborted = weir.rss_kib()[0]
    print(f"aborted streams: {before} KiB, {aborted} KiB after {asked.aborts}", flush=True)

    done, marks = 0, []
    while done < asked.requests:
        got = wrk(weir, folder, body("small"), KEY, 5)
        require(set(got["seen"]) == {"200"} and not got["socket_errors"], f"not only answers: {got}")
        done += got["seen"]["200"]
        marks.append((done, weir.rss_kib()[0]))
        print(f"{done} requests: {marks[-1][1]} KiB", flush=True)
    weir.settled(descriptors)
    first = next(kib for n, kib in marks if n >= asked.requests // 10)
    return {"idle": idle, "floor": floor_kib, "weir": weir_kib, "before": before, "aborted": aborted,
            "first": first, "last": marks[-1][1], "requests": done, "end": weir.rss_kib()[0]}


def table(got, asked):
    mib = lambda kib: f"{kib / 1024:.1f} MiB"
    row = lambda name, value, limit: f"| {name} | {value} | {limit} |"
    return "\n".join([
        f"{machine()}; resident memory of the whole process, one worker thread.", "",
        "| | measured | limit |", "| --- | --- | --- |",
        row("idle", mib(got["idle"]), mib(IDLE_KIB_MAX)),
        row(f"per open stream at {asked.streams:,}, above the floor's {got['floor']:.1f} KiB", f"{got['weir'] - got['floor']:.1f} KiB", f"{STREAM_KIB_MAX} KiB"),
        row(f"growth over {asked.aborts:,} opened and aborted streams", mib(got["aborted"] - got["before"]), mib(GROWTH_KIB_MAX)),
        row(f"growth over {got['requests']:,} requests, after the first tenth", mib(got["last"] - got["first"]), mib(GROWTH_KIB_MAX)),
    ])


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--profile", default="release")
    options.add_argument("--streams", type=int, default=2000)
    options.add_argument("--requests", type=int, default=1_000_000)
    options.add_argument("--aborts", type=int, default=10_000)
    options.add_argument("--no-write", action="store_true")
    asked = options.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    require(hard == resource.RLIM_INFINITY or hard > 4 * asked.streams, f"only {hard} descriptors are allowed")
    with tempfile.TemporaryDirectory(prefix="weir-memory-") as folder:
        peers = []
        try:
            peers, slow = parts(asked, folder)
            got = measure(asked, folder, peers, slow)
        finally:
            for peer in reversed(peers):
                peer.stop()
    text = table(got, asked)
    print(f"\n{text}")
    if not asked.no_write and asked.profile == "release":
        write("memory", text)
    faults = [what for what, wrong in [
        ("idle", got["idle"] > IDLE_KIB_MAX), ("per stream", got["weir"] - got["floor"] > STREAM_KIB_MAX),
        ("aborted streams", got["aborted"] - got["before"] > GROWTH_KIB_MAX), ("many requests", got["last"] - got["first"] > GROWTH_KIB_MAX)] if wrong]
    require(not faults, f"over the limit: {', '.join(faults)}")


if __name__ == "__main__":
    main()
