"""What load.py, memory.py and soak.py share: a gateway on loopback, what it says of itself, what
the system says of it, its ledger, and README's tables."""
import json
import os
import re
import sqlite3
import subprocess
import sys
import time
import urllib.request

from run import KEY, ROOT, TARGET, TOOLS, Peer, free_port, require, until

# Kept connections that died: a request meets so many before the next one is a failed try of its row.
RESENT_MAX = 2

README = os.path.join(ROOT, "README.md")


def binary(profile, name="weir"):
    path = os.path.join(TARGET, profile, name)
    require(os.path.exists(path), f"{path} is not there: cargo build --profile {profile} -p {name}")
    return path


def mock(folder):
    """The harness's provider: fast, and always right."""
    path = os.path.join(TOOLS, "release/mock-upstream")
    require(os.path.exists(path), f"{path} is not there: `make bench` builds it")
    port = free_port()
    return Peer("mock", port, [path], {"LISTEN": f"127.0.0.1:{port}", "THREADS": "1"}, folder)


def scripted(folder, name, *arguments):
    """One of our own, which misbehaves and remembers."""
    port = free_port()
    return Peer(name, port, [sys.executable, os.path.join(ROOT, "benches/provider.py"), str(port), *arguments], {}, folder)


def get(port, path, key=None):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    if key:
        request.add_header("authorization", f"Bearer {key}")
    with urllib.request.urlopen(request, timeout=60) as reply:
        return reply.read().decode()


def stats(provider):
    """What it remembers; one that is dead now is asked until it is not."""
    for _ in range(60):
        try:
            return json.loads(get(provider.port, "/stats"))
        except OSError:
            time.sleep(0.5)
    require(False, f"{provider.name} does not tell what it did")


class Gateway(Peer):
    """weir with short timeouts, so that what is left behind is gone soon. `more` is config."""

    def __init__(self, profile, folder, more, server="", threads=1):
        self.binary, self.folder, port, self.admin = binary(profile), folder, free_port(), free_port()
        self.config = os.path.join(folder, "weir.toml")
        with open(self.config, "w") as out:
            out.write(f'[server]\nlisten = ["127.0.0.1:{port}"]\nthreads = {threads}\n{server}\n[admin]\nlisten = "127.0.0.1:{self.admin}"\n'
                      f'[store]\nurl = "sqlite:{folder}/weir.db"\nspool = "{folder}/spool"\n[log]\naccess = "{folder}/access.log"\n'
                      f'[keys.bench]\nsecret = "{KEY}"\nteam = "bench"\n{more}')
        super().__init__("weir", port, [self.binary, "run", "--config", self.config], {}, folder)
        # It listens before it is ready.
        until(self.ready, "weir is not ready")

    def ready(self):
        try:
            return '"ready"' in get(self.admin, "/health/ready")
        except OSError:
            return False

    def metric(self, name):
        lines = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", get(self.admin, "/metrics"), re.M)
        return sum(float(value) for value in lines)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def rss_kib(self):
        """What is in memory now, and of it what is no file (the binary's own pages)."""
        return status(self.pid, "VmRSS"), status(self.pid, "RssAnon")

    def quiet(self):
        """Waits until no request is open and the ledger has all of them."""
        until(lambda: self.metric("weir_in_flight") == 0, "requests are still open", 90)
        time.sleep(1)  # the lag is what the ledger's last look found, and it looks five times a second
        until(lambda: self.metric("weir_ledger_lag_events") == 0, "the ledger does not catch up", 90)

    def settled(self, descriptors):
        """The same, and that no descriptor is left over and no event lost."""
        self.quiet()
        until(lambda: self.descriptors() <= descriptors, f"{self.descriptors()} descriptors, {descriptors} before", 90)
        require(self.metric("weir_events_lost_total") == 0, "events were lost")

    def rows(self, since=0):
        """The ledger's rows after a row id, as dicts."""
        db = sqlite3.connect(f"file:{self.folder}/weir.db?mode=ro", uri=True)
        db.row_factory = sqlite3.Row
        rows = [dict(row) for row in db.execute("SELECT rowid AS n, * FROM events WHERE rowid > ? ORDER BY rowid", (since,))]
        db.close()
        for row in rows:
            row["attempts"] = json.loads(row["attempts"])
        return rows

    def last_row(self):
        db = sqlite3.connect(f"file:{self.folder}/weir.db?mode=ro", uri=True)
        n = db.execute("SELECT coalesce(max(rowid), 0) FROM events").fetchone()[0]
        db.close()
        return n


def status(pid, name):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name + ":"))


def provider(name, port, more=""):
    return (f'[providers.{name}]\npreset = "openai"\nbase_url = "http://127.0.0.1:{port}/v1"\napi_keys = ["sk-mock"]\n{more}'
            f'[providers.{name}.models."*"]\nprice = {{ currency = "USD", input = 1.0, cached_input = 0.1, output = 2.0 }}\n')


def model(name, *targets):
    each = ", ".join(f'{{ to = "{to}", priority = {i + 1} }}' for i, to in enumerate(targets))
    return f'[models.{name}]\ntargets = [{each}]\n'


def machine():
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    return f"{os.cpu_count()} cores, {cpu}, Linux {os.uname().release}"


def write(name, text):
    """Puts a table between README's marks of this name."""
    with open(README) as file:
        readme = file.read()
    pattern = re.compile(rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", re.S)
    require(pattern.search(readme), f"README.md has no place for the table {name}")
    with open(README, "w") as file:
        file.write(pattern.sub(lambda m: m[1] + text + "\n" + m[2], readme))


def wrk(gateway, folder, body, key, seconds, connections=64, threads=2):
    path = os.path.join(folder, "body.json")
    with open(path, "w") as out:
        out.write(body)
    command = ["wrk", f"-t{threads}", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", "-s", os.path.join(ROOT, "benches/wrk/tally.lua"),
               f"http://127.0.0.1:{gateway.port}/v1/chat/completions", "--", path, "Authorization", f"Bearer {key}"]
    out = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    lines = [line for line in out.stdout.splitlines() if line.startswith("{")]
    require(lines, f"wrk said nothing: {out.stderr or out.stdout}")
    return json.loads(lines[-1])


def log_has(gateway, *words):
    with open(gateway.log.name) as file:
        text = file.read()
    return [word for word in words if word in text]



def median_sample(read, seconds, every=0.25):
    """The middle of what `read` gives over some time."""
    end, seen = time.time() + seconds, []
    while time.time() < end:
        seen.append(read())
        time.sleep(every)
    return sorted(seen)[len(seen) // 2]
