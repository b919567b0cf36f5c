"""weir under load: plain answers, streams, nothing but refusals, a primary that fails at 30 %.
Afterwards all that was taken is back, and the ledger says what the provider counted; writes
README's table.

    benches/load.py [--profile release] [--seconds 20] [--no-write]
"""
import argparse
import json
import tempfile
import threading
import time
import urllib.error
import urllib.request

from rig import KEY, RESENT_MAX, Gateway, machine, mock, model, provider, require, scripted, stats, wrk, write
from run import body

# Requests that the key of the refused may have open, and make a minute.
SLOTS = 8
FAIL = 0.3
CONNECTIONS = 64
# More than this is a leak and no allocator's habit: each scenario runs once before it is measured.
GROWTH_KIB_MAX = 8 << 10
# What a caller may be told while providers fail at random and limits are met (README, "errors").
REFUSALS = {
    "plain": set(), "stream": set(), "refused": {"429 rate_limit_exceeded"},
    # Two tries at each of two targets: a primary that always fails would still be answered for.
    "failing": set(),
}


def config(good, bad):
    quick = 'pool = { idle_timeout = "2s" }\nretry = { attempts = 2, backoff = "5ms", max_backoff = "20ms" }\nbreaker = { error_rate = 0.9, open_for = "1s" }\n'
    return (provider("good", good, quick) + provider("bad", bad, quick) + model("plain", "good/mock") + model("stream", "good/mock?chunks=20")
            + model("refused", "good/mock") + model("failing", "bad/m", "good/mock") + model("slots", "good/mock?ttft_us=300000")
            + '[keys.refused]\nsecret = "sk-refused"\nlimits = { rpm = 1 }\n' + f'[keys.slots]\nsecret = "sk-slots"\nlimits = {{ concurrent = {SLOTS} }}\n')


def scenario(weir, name, folder, seconds, good, bad):
    """One run, and what it left behind."""
    key = "sk-refused" if name == "refused" else KEY
    weir.quiet()
    counted, last = (stats(good)["requests"], stats(bad)), weir.last_row()
    descriptors, memory = weir.descriptors(), weir.rss_kib()[0]
    got = wrk(weir, folder, body(name, name in ("stream", "failing")), key, seconds, CONNECTIONS)
    weir.settled(descriptors)
    rows = weir.rows(last)
    odd = set(got["seen"]) - {"200"} - REFUSALS[name]
    require(not odd and not got["socket_errors"], f"{name}: refusals that nobody stated: {got}")
    require(name != "refused" or got["seen"].get("200", 0) <= 1 + seconds / 60, f"refused: {got}")
    answered = sum(got["seen"].values())
    # What wrk has not counted when its time is over: one answer and one open request a connection.
    require(answered <= len(rows) <= answered + 2 * CONNECTIONS, f"{name}: {answered} answers, {len(rows)} rows")
    # What a run leaves open at its end is cut: its row says so.
    ends = {row["outcome"] for row in rows} - {"success", "client_abort"} - ({"refused"} if name == "refused" else set())
    require(not ends, f"{name}: {ends}")
    # Of a client that left, the provider may not have read what was sent to it.
    tries = lambda rows: sum(a["provider"] == "good" for row in rows for a in row["attempts"])
    least, most, read = tries(r for r in rows if r["outcome"] != "client_abort"), tries(rows), stats(good)["requests"] - counted[0]
    require(least <= read <= most, f"{name}: provider counted {read}, ledger {least} and {most - least} of clients that left")
    retold(name, rows, stats(bad)["by_id"])
    growth = weir.rss_kib()[0] - memory
    return {"got": got, "rows": len(rows), "provider": stats(good)["requests"] - counted[0] + stats(bad)["requests"] - counted[1]["requests"],
            "growth": growth, "rss": memory + growth, "answered": answered}


def retold(name, rows, by_id):
    """Each try that the failing provider read is in its request's row, and what it served is billed as it said."""
    known = {row["request_id"]: row for row in rows}
    for request_id, tries in by_id.items():
        row = known.get(request_id)
        if row is None:
            continue
        told = [a for a in row["attempts"] if a["provider"] == "bad"]
        read = len(told) <= len(tries) <= len(told) + RESENT_MAX
        require(read or row["outcome"] == "client_abort", f"{name}: {request_id}: provider {tries}, ledger {told}")
        if row["outcome"] == "success" and row["provider"] == "bad":
            billed = [row["input_tokens"], row["output_tokens"]]
            require(tries[-1]["usage"] == billed and row["cost_nano_usd"] == 1000 * billed[0] + 2000 * billed[1], f"{name}: {request_id}: {tries}, {billed}")


def slots(weir):
    """All of a key's places are free: so many at once are served, and one more is not."""
    seen = []

    def ask():
        request = urllib.request.Request(f"http://127.0.0.1:{weir.port}/v1/chat/completions", body("slots").encode(),
                                         {"authorization": "Bearer sk-slots", "content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                seen.append(reply.status)
        except urllib.error.HTTPError as error:
            seen.append(error.code)
    threads = [threading.Thread(target=ask) for _ in range(SLOTS + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    require(sorted(seen) == [200] * SLOTS + [429], f"slots: {sorted(seen)}")


def table(results, seconds):
    titles = {"plain": "plain answers", "stream": "streams of 20 chunks", "refused": "all refused", "failing": f"streams, primary fails at {FAIL:.0%}"}
    out = [f"{machine()}; one worker thread, {CONNECTIONS} connections, {seconds} s each; client and providers on the same machine (the failing primary is a script, and the slowest part).", "",
           "| | answers/s | p50 | p99 | what clients saw | tries that providers counted, as the ledger | rows | RSS growth |", "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for name, title in titles.items():
        r = results[name]
        got = r["got"]
        saw = ", ".join(f"{n:,} × {what}" for what, n in sorted(got["seen"].items()))
        out.append(f"| {title} | {r['answered'] / got['wall_s']:,.0f} | {got['p50_us'] / 1000:.1f} ms | {got['p99_us'] / 1000:.1f} ms | {saw} | {r['provider']:,} | "
                   f"{r['rows']:,} | {r['growth'] / 1024:+.1f} MiB |")
    out += ["", "After each: nothing in flight, no descriptor more than before, all places of a key free, no event lost."]
    return "\n".join(out)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--profile", default="release")
    options.add_argument("--seconds", type=int, default=20)
    options.add_argument("--no-write", action="store_true")
    asked = options.parse_args()
    results, peers = {}, []
    with tempfile.TemporaryDirectory(prefix="weir-load-") as folder:
        try:
            good, bad = mock(folder), scripted(folder, "bad", "1", "--fail", str(FAIL))
            peers += [good, bad]
            weir = Gateway(asked.profile, folder, config(good.port, bad.port), 'idle = "2s"')
            peers.append(weir)
            for name in REFUSALS:
                scenario(weir, name, folder, max(2, asked.seconds // 4), good, bad)  # warm
                results[name] = scenario(weir, name, folder, asked.seconds, good, bad)
                slots(weir)
                print(name, json.dumps(results[name]), flush=True)
        finally:
            for peer in reversed(peers):
                peer.stop()
    text = table(results, asked.seconds)
    print(f"\n{text}")
    if not asked.no_write and asked.profile == "release":
        write("load", text)
    grown = {name: r["growth"] for name, r in results.items() if r["growth"] > GROWTH_KIB_MAX}
    require(not grown, f"memory is not back: {grown} KiB")


if __name__ == "__main__":
    main()
