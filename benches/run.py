"""weir with everything on beside a bare Pingora pass-through, in one run; writes README's table.

    benches/run.py [--rounds 5] [--seconds 4] [--only small,big,rules,keys] [--profile quick]
                   [--keys 100000] [--no-write] [--no-criterion]

CPU per request (user and system time of the process, from /proc) is the number to compare: unlike
requests per second it hardly moves when something else runs on the machine. Ratios are taken
within a round. The run fails when what it compares is not the same thing: other allocators, other
profiles, requests that are not in the ledger, a spool that did not grow; when weir costs more than
LIMIT times the floor; when a key with rules costs more than RULES_LIMIT times one without; and when
a request among 100,000 keys of the store, all in use, costs more than KEYS_LIMIT times one among ten.
"""
import argparse
import glob
import hashlib
import http.client
import json
import os
import platform
import random
import re
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HARNESS = os.environ.get("WEIR_HARNESS", os.path.join(ROOT, "../shared/harness"))
TARGET = os.path.join(ROOT, "target")
TOOLS = os.path.join(TARGET, "harness")
TICK = os.sysconf("SC_CLK_TCK")
KEY = "sk-bench"
# The key that is held against ten rules of a department, a team, a user and its own.
RULED = "sk-bench-ruled"
THREADS = 1
# Times the floor's CPU per request, in the request path (the ledger's threads apart).
LIMIT = 2.0
# Times the CPU per request of the same without limits, windows and budgets.
RULES_LIMIT = 1.1
# Times the CPU per request among so few keys; what is left is a cache of the processor that holds ten
# keys and their counters, and not a hundred thousand (4 to 11 of some 55 microseconds, by what the
# neighbours leave of it), and a ledger thread that sums up each of them on the other core.
KEYS_LIMIT = 1.25
FEW_KEYS = 10
# Threads that carry events to the disk and into the ledger.
LEDGER_THREADS = ("weir-ledger", "weir-spool")
# Requests sent one after another, of which each must be a row.
EXACT = 1000


def body(model, stream=False, size=0):
    text = ("lorem ipsum dolor sit amet, " * (size // 28 + 1))[:size] or "Say hello to the world."
    said = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 256}
    if stream:
        said |= {"stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(said, separators=(",", ":"))


class Scenario:
    """`model` is what the mock is asked for; weir's clients ask for `name`, which is mapped to it."""

    def __init__(self, name, title, model, tool, connections, stream=False, size=0, anthropic=False):
        self.name, self.title, self.model, self.tool = name, title, model, tool
        self.connections, self.stream, self.size, self.anthropic = connections, stream, size, anthropic

    def file(self, folder, peer):
        path = os.path.join(folder, f"{peer}-{self.name}.json")
        with open(path, "w") as out:
            out.write(body(self.model if peer == "floor" else self.name, self.stream, self.size))
        return path

    def path(self, peer):
        return "/v1/messages" if self.anthropic and peer == "floor" else "/v1/chat/completions"


SCENARIOS = [
    Scenario("small", "small JSON", "mock", "wrk", 64),
    Scenario("big", "200 KB prompt", "mock", "wrk", 64, size=200_000),
    Scenario("burst", "100 chunks in a burst", "mock?chunks=100", "wrk", 64, stream=True),
    Scenario("paced", "100 chunks, one each 5 ms", "mock?chunks=100&delay_us=5000&stamp=1", "load", 32, stream=True),
    Scenario("claude", "100 chunks, Anthropic → OpenAI", "mock?chunks=100", "wrk", 64, stream=True, anthropic=True),
]


# ------------------------------------------------------------------------------------ building
def build(profile):
    """One cargo call for both, so that they share profile, features and dependencies; where they are."""
    run(["cargo", "build", "--locked", "--profile", profile, "-p", "weir", "-p", "weir-floor"], cwd=ROOT)
    binaries = os.path.join(TARGET, "debug" if profile == "dev" else profile)
    for tool in ("mock", "load"):
        # A copy, marked as no member of this workspace: nothing is written outside of target/.
        copy = os.path.join(TOOLS, "src", tool)
        shutil.copytree(os.path.join(HARNESS, tool), copy, dirs_exist_ok=True)
        with open(os.path.join(copy, "Cargo.toml"), "a") as manifest:
            manifest.write("\n[workspace]\n")
        run(["cargo", "build", "--release"], cwd=copy, env={"CARGO_TARGET_DIR": TOOLS})
    for name in ("weir", "weir-floor"):
        with open(os.path.join(binaries, name), "rb") as binary:
            require(b"mi_malloc" in binary.read(), f"{name} is not built with mimalloc")
    return binaries


def run(command, env=None, cwd=None, quiet=False):
    out = subprocess.DEVNULL if quiet else None
    return subprocess.run(command, cwd=cwd, env=os.environ | (env or {}), check=True, stdin=subprocess.DEVNULL, stdout=out)


def require(ok, what):
    if not ok:
        sys.exit(f"bench: {what}")


# ------------------------------------------------------------------------------------ peers
def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Peer:
    def __init__(self, name, port, command, env, folder):
        self.name, self.port = name, port
        self.log = open(os.path.join(folder, f"{name}.log"), "wb")
        self.process = subprocess.Popen(command, env=os.environ | env, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        self.pid = self.process.pid
        until(lambda: self.answers(), f"{name} did not start, see {self.log.name}")

    def answers(self):
        require(self.process.poll() is None, f"{self.name} ended, see {self.log.name}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def cpu(self):
        """Seconds of user and system time: of the ledger's threads, and of all others."""
        ledger = 0
        for task in glob.glob(f"/proc/{self.pid}/task/*/stat"):
            name, ticks = stat(task)
            ledger += ticks if name in LEDGER_THREADS else 0
        return ledger / TICK, (stat(f"/proc/{self.pid}/stat")[1] - ledger) / TICK

    def peak_rss_mb(self):
        with open(f"/proc/{self.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def stat(path):
    """Name and ticks (user and system) of a process or thread; nothing of one that has just ended."""
    try:
        with open(path) as file:
            head, tail = file.read().rsplit(")", 1)
    except OSError:
        return "", 0
    fields = tail.split()
    return head.split("(", 1)[1], int(fields[11]) + int(fields[12])


def until(look, what, seconds=60):
    end = time.time() + seconds
    while not look():
        require(time.time() < end, what)
        time.sleep(0.05)


def config(folder, port, admin, mock):
    """Keys, prices, metering, the ledger and an access log: what a gateway is used with."""
    def provider(name, preset):
        return (f'[providers.{name}]\npreset = "{preset}"\nbase_url = "http://127.0.0.1:{mock}/v1"\napi_keys = ["sk-mock"]\n'
                f'[providers.{name}.models."*"]\nprice = {{ currency = "USD", input = 1.0, cached_input = 0.1, output = 2.0 }}\n')
    models = "".join(f'[models.{s.name}]\ntargets = [{{ to = "{"b" if s.anthropic else "a"}/{s.model}" }}]\n' for s in SCENARIOS)
    return (f'[server]\nlisten = ["127.0.0.1:{port}"]\nthreads = {THREADS}\n[admin]\nlisten = "127.0.0.1:{admin}"\n'
            f'[store]\nurl = "sqlite:{folder}/weir.db"\nspool = "{folder}/spool"\n[log]\naccess = "{folder}/access.log"\n'
            f'{provider("a", "openai")}{provider("b", "anthropic")}{models}[keys.bench]\nsecret = "{KEY}"\nteam = "bench"\n{rules()}')


def rules():
    """Ten, which nothing in a bench exhausts."""
    much = 1_000_000_000_000
    return (f'[departments.bench]\nbudgets = [{{ usd = 1000000.0, per = "month", alert = 0.9 }}]\n[teams.bench]\n'
            f'[teams.ruled]\ndepartment = "bench"\nlimits = {{ rpm = {much}, tpm = {much} }}\nbudgets = [{{ usd = 1000000.0, per = "month" }}]\n'
            f'[users.ruled]\nlimits = {{ concurrent = {much} }}\n[keys.ruled]\nsecret = "{RULED}"\nteam = "ruled"\nuser = "ruled"\n'
            f'limits = {{ rpm = {much}, tpm = {much}, concurrent = {much} }}\nwindows = [{{ tokens = {much}, per = "hour" }}]\n'
            f'budgets = [{{ usd = 1000000.0, per = "day", alert = 0.8 }}]\n')


# What each key of a store is held against, and nothing exhausts.
KEY_DEFAULTS = ('[key_defaults]\nlimits = { rpm = 1000000000, tpm = 1000000000000 }\n'
                'budgets = [{ usd = 1000000.0, per = "month" }]\n')


class Weir(Peer):
    """With `keys`, a gateway with so many keys in its store, whose secrets are in `secrets`, shuffled."""

    def __init__(self, binary, folder, mock, name="weir", keys=0):
        self.binary, self.folder, port = binary, folder, free_port()
        self.config, self.keys = os.path.join(folder, "weir.toml"), keys
        with open(self.config, "w") as out:
            out.write(config(folder, port, free_port(), mock) + (KEY_DEFAULTS if keys else ""))
        if keys:
            self.secrets = self.fill()
        super().__init__(name, port, [binary, "run", "--config", self.config], {}, folder)

    def fill(self):
        """Copies of one key that weir itself made, written in one step: one command each would take hours."""
        run([self.binary, "keys", "create", "--name", "model", "--config", self.config], quiet=True)
        secrets = [f"sk-bench-{i}" for i in range(self.keys)]
        with sqlite3.connect(os.path.join(self.folder, "weir.db")) as db:
            definition, created = db.execute("SELECT definition, created FROM keys WHERE name = 'model'").fetchone()
            db.executemany("INSERT INTO keys (id, name, definition, enabled, created) VALUES (?1, ?1, ?2, 1, ?3)",
                           ((f"key-{i}", definition, created) for i in range(self.keys)))
            db.executemany("INSERT INTO key_secrets (hash, key_id) VALUES (?, ?)",
                           ((hashlib.sha256(s.encode()).digest(), f"key-{i}") for i, s in enumerate(secrets)))
        db.close()
        random.shuffle(secrets)
        path = os.path.join(self.folder, "secrets")
        with open(path, "w") as out:
            out.write("\n".join(secrets) + "\n")
        return path

    def report(self):
        command = [self.binary, "report", "--by", "status", "--format", "json", "--config", self.config]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def rows(self):
        """Requests in the ledger, once it has caught up."""
        until(lambda: self.report()["lag_events"] == 0, "the ledger does not catch up", 120)
        return sum(row["requests"] for row in self.report()["rows"])

    def spool_bytes(self):
        return sum(os.path.getsize(f) for f in glob.glob(f"{self.folder}/spool/*") if os.path.isfile(f))


# ------------------------------------------------------------------------------------ measuring
def measure(peer, scenario, folder, seconds, key=KEY):
    """`key` is a secret, or `@` and a file of them, which are used in turn."""
    file, path = scenario.file(folder, peer.name), scenario.path(peer.name)
    if scenario.tool == "wrk":
        url = f"http://127.0.0.1:{peer.port}{path}"
        who = ["@keys", key[1:]] if key.startswith("@") else ["Authorization", f"Bearer {key}"]
        command = ["wrk", "-t1", f"-c{scenario.connections}", f"-d{seconds}s", "--timeout", "30s", "-s",
                   os.path.join(ROOT, "benches/wrk/post.lua"), url, "--", file, *who]
    else:
        command = [os.path.join(TOOLS, "release/load"), f"127.0.0.1:{peer.port}", path, str(scenario.connections),
                   str(seconds), file, f"Authorization: Bearer {key}"]
    ledger, others = peer.cpu()
    out = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    ledger, others = peer.cpu()[0] - ledger, peer.cpu()[1] - others
    lines = [line for line in out.stdout.splitlines() if line.startswith("{")]
    require(lines, f"{scenario.name} through {peer.name}: {out.stderr or out.stdout}")
    got = json.loads(lines[-1])
    require(got["requests"] > 0 and got["errors"] == 0, f"{scenario.name} through {peer.name}: {got} {out.stderr[:300]}")
    per = 1e6 / got["requests"]
    return {"requests": got["requests"], "path_us": others * per, "ledger_us": ledger * per, "rps": got["requests"] / got["wall_s"],
            "p50_us": got.get("p50_us") or got["total_us"]["p50"], "p99_us": got.get("p99_us") or got["total_us"]["p99"],
            "added_us": got.get("chunk_us", {}).get("p50")}


def booked(weir, scenario, folder, seconds, key=KEY):
    """Measures weir, and holds the ledger against what the client counted."""
    rows, spool = weir.rows(), weir.spool_bytes()
    got = measure(weir, scenario, folder, seconds, key)
    new = weir.rows() - rows
    # The load tool leaves with requests open: each of these is a row too, but no answer of its count.
    require(got["requests"] <= new <= got["requests"] + scenario.connections,
            f"{scenario.name}: {got['requests']} answers, {new} rows in the ledger")
    require(weir.spool_bytes() > spool, f"{scenario.name}: the spool did not grow")
    return got


def exact(weir):
    """One after another on one connection: every request is one row."""
    before, link = weir.rows(), http.client.HTTPConnection("127.0.0.1", weir.port, timeout=30)
    for _ in range(EXACT):
        link.request("POST", "/v1/chat/completions", body("small"), {"authorization": f"Bearer {KEY}", "content-type": "application/json"})
        reply = link.getresponse()
        require(reply.status == 200 and reply.read(), f"a request failed with {reply.status}")
    link.close()
    new = weir.rows() - before
    require(new == EXACT, f"{EXACT} requests are {new} rows")


def ruled(weir, folder, turn, seconds):
    """Small JSON of a key without rules and of one with ten, in turns: the CPU per request of each."""
    pair = [("without", KEY), ("with", RULED)]
    got = {}
    for name, key in pair if turn % 2 == 0 else pair[::-1]:
        got[name] = booked(weir, SCENARIOS[0], folder, seconds, key)
        print(f"{turn} {name + ' rules':15} {got[name]['path_us']:7.1f} µs  {got[name]['rps']:8.0f}/s", flush=True)
    return got


def touch(weir, folder, seconds):
    """Until every key of a store was used: its counters are there, as in a gateway that runs for long."""
    seen = 0
    while seen < weir.keys:
        seen += measure(weir, SCENARIOS[0], folder, seconds, "@" + weir.secrets)["requests"]


def crowded(few, many, folder, turn, seconds):
    """Small JSON of ten keys and of many, each used in turn, in turns: the CPU per request of each."""
    pair = [("few", few), ("many", many)]
    got = {}
    for name, weir in pair if turn % 2 == 0 else pair[::-1]:
        got[name] = booked(weir, SCENARIOS[0], folder, seconds, "@" + weir.secrets)
        print(f"{turn} {weir.keys:8} keys   {got[name]['path_us']:7.1f} µs  {got[name]['rps']:8.0f}/s", flush=True)
    return got


def criterion():
    """What criterion says of each benchmark: its middle estimate."""
    command = ["cargo", "bench", "--locked", "-p", "weir-benches", "--", "--quick", "--noplot"]
    out = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    found = re.findall(r"^(\S.*?)\s+time:\s+\[\S+ \S+ (\S+ \S+) \S+ \S+\]", out.replace("\n                        time", " time"), re.M)
    require(found, f"criterion said nothing that can be read:\n{out[-2000:]}")
    return found


# ------------------------------------------------------------------------------------ telling
def of_pairs(pairs, told):
    """A table of two that were measured in turns, and how many times the first the second costs."""
    middle = lambda name, key: statistics.median(pair[name][key] for pair in pairs)
    (first, _), (second, _) = told
    ratio = statistics.median(pair[second]["path_us"] / pair[first]["path_us"] for pair in pairs)
    row = lambda title, name, times: (f"| small JSON, {title} | {middle(name, 'path_us'):.0f} | {times} | {middle(name, 'ledger_us'):.1f} | "
                                      f"{middle(name, 'p50_us') / 1000:.2f} ms | {middle(name, 'p99_us') / 1000:.2f} ms |")
    (_, one), (_, other) = told
    return ["", "| | weir, CPU µs/request | × the first | ledger threads | p50 | p99 |", "| --- | --- | --- | --- | --- | --- |",
            row(one, first, "1"), row(other, second, f"**{ratio:.2f}**")], ratio


def table(results, micro, rss, rounds, seconds):
    middle = lambda rows, key: statistics.median(r[key] for r in rows)
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    out = [f"{os.cpu_count()} cores, {cpu}, Linux {platform.release()}; one worker thread each, client and provider on the same machine; "
           f"middle of {rounds} rounds of {seconds} s.", "",
           "| | floor, CPU µs/request | weir, request path | × floor | ledger threads | p50 floor → weir | p99 floor → weir |",
           "| --- | --- | --- | --- | --- | --- | --- |"]
    worst = 0
    for scenario in SCENARIOS:
        if scenario.name not in results:
            continue
        floor, weir = results[scenario.name]["floor"], results[scenario.name]["weir"]
        ratio = statistics.median(w["path_us"] / f["path_us"] for f, w in zip(floor, weir))
        worst = max(worst, ratio)
        ms = lambda key: f"{middle(floor, key) / 1000:.2f} → {middle(weir, key) / 1000:.2f} ms"
        out.append(f"| {scenario.title} | {middle(floor, 'path_us'):.0f} | {middle(weir, 'path_us'):.0f} | **{ratio:.2f}** | "
                   f"{middle(weir, 'ledger_us'):.1f} | {ms('p50_us')} | {ms('p99_us')} |")
    out += ["", f"Peak memory: floor {rss['floor']:.0f} MB, weir {rss['weir']:.0f} MB. weir runs with keys, prices, ledger and access log on; "
            "the run fails unless every answered request is a row in the ledger."]
    if micro:
        rows = (f"| {name} | {time} |" for name, time in micro)
        out += ["", "<details><summary>Filters, admission and reports alone (criterion)</summary>", "",
                "| what | time |", "| --- | --- |", *rows, "", "</details>"]
    return "\n".join(out), worst


def write(text):
    path = os.path.join(ROOT, "README.md")
    with open(path) as file:
        readme = file.read()
    pattern = re.compile(r"(<!-- bench:begin -->\n).*?(<!-- bench:end -->)", re.S)
    require(pattern.search(readme), "README.md has no place for the table")
    with open(path, "w") as file:
        file.write(pattern.sub(lambda m: m[1] + text + "\n" + m[2], readme))


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=int, default=4)
    options.add_argument("--profile", default="release", help="quick builds faster; only release is written to README")
    options.add_argument("--only", default=",".join([s.name for s in SCENARIOS] + ["rules", "keys"]))
    options.add_argument("--keys", type=int, default=100_000, help="how many are set against ten")
    options.add_argument("--no-write", action="store_true")
    options.add_argument("--no-criterion", action="store_true")
    asked = options.parse_args()
    require(os.path.isdir(HARNESS), f"the load tools are not at {HARNESS} (WEIR_HARNESS says where)")
    binaries = build(asked.profile)
    only = asked.only.split(",")
    scenarios = [s for s in SCENARIOS if s.name in only]
    results, pairs, crowds = {s.name: {"floor": [], "weir": []} for s in scenarios}, [], []
    peers = []
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        try:
            mock, floor = free_port(), free_port()
            peers.append(Peer("mock", mock, [os.path.join(TOOLS, "release/mock-upstream")], {"LISTEN": f"127.0.0.1:{mock}", "THREADS": "1"}, folder))
            env = {"LISTEN": f"127.0.0.1:{floor}", "UPSTREAM": f"127.0.0.1:{mock}", "THREADS": str(THREADS)}
            peers.append(Peer("floor", floor, [os.path.join(binaries, "weir-floor")], env, folder))
            peers.append(Weir(os.path.join(binaries, "weir"), folder, mock))
            _, floor, weir = peers
            for name, keys in [("few", FEW_KEYS), ("many", asked.keys)] if "keys" in only else []:
                os.mkdir(own := os.path.join(folder, name))
                peers.append(Weir(os.path.join(binaries, "weir"), own, mock, name, keys))
                touch(peers[-1], folder, asked.seconds)
            exact(weir)
            measure(floor, SCENARIOS[0], folder, 1)  # both are warm now
            for turn in range(asked.rounds):
                for scenario in scenarios:
                    order = [("floor", measure, floor), ("weir", booked, weir)]
                    for name, how, peer in order if turn % 2 == 0 else order[::-1]:
                        got = how(peer, scenario, folder, asked.seconds)
                        results[scenario.name][name].append(got)
                        print(f"{turn} {scenario.name:8} {name:6} {got['path_us']:7.1f} µs  {got['rps']:8.0f}/s", flush=True)
                if "rules" in only:
                    pairs.append(ruled(weir, folder, turn, asked.seconds))
                if "keys" in only:
                    crowds.append(crowded(*peers[-2:], folder, turn, asked.seconds))
            rss = {"floor": floor.peak_rss_mb(), "weir": weir.peak_rss_mb()}
        finally:
            for peer in reversed(peers):
                peer.stop()
    micro = [] if asked.no_criterion else criterion()
    text, worst = table(results, micro, rss, asked.rounds, asked.seconds)
    ruling = [("without", "without limits and budgets"), ("with", "held against ten rules of a key and its owners")]
    crowding = [("few", f"of {FEW_KEYS} keys in the store, in random order"), ("many", f"of {asked.keys:,} keys in the store, in random order")]
    more, times = of_pairs(pairs, ruling) if pairs else ([], 0)
    rest, crowd = of_pairs(crowds, crowding) if crowds else ([], 0)
    text = "\n".join([text, *more, *rest])
    print(f"\n{text}")
    if not asked.no_write and asked.profile == "release":
        write(text)
    require(worst <= LIMIT, f"the request path costs {worst:.2f} times the floor, more than {LIMIT}")
    require(times <= RULES_LIMIT, f"a key with rules costs {times:.2f} times one without, more than {RULES_LIMIT}")
    require(crowd <= KEYS_LIMIT, f"a request among {asked.keys} keys costs {crowd:.2f} times one among {FEW_KEYS}, more than {KEYS_LIMIT}")


if __name__ == "__main__":
    main()
