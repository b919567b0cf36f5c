//! Gateways on one real Redis: one limit for all, and no request that fails when it is away.

mod nodes;

use crate::harness::binary::Tables;
use crate::harness::{Weir, closed_port, found, knobs, provider, skip, toml};
use crate::limits::by;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};
use weir::access::hash;

/// What weir logs in with: conf/redis.acl has a place for its hash.
const PASSWORD: &str = "of-the-tests";

/// One test of these at a time: each runs two gateways, and the harness has room for two. Two tests
/// with one each would wait for ever.
static ALONE: Mutex<()> = Mutex::const_new(());

/// A real server on a port of its own, with the rights that we ship; killed when dropped.
struct Redis {
    dir: TempDir,
    port: u16,
    child: Child,
    _alone: MutexGuard<'static, ()>,
}

/// `None`, after a notice, where there is no server to start.
async fn redis() -> Option<Redis> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found_at = std::env::split_paths(&path).map(|p| p.join("redis-server"));
    if !found_at.into_iter().any(|p| p.is_file()) {
        skip("there is no redis-server; Debian's package has it");
        return None;
    }
    let alone = ALONE.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/redis.acl");
    let shipped = std::fs::read_to_string(shipped).unwrap();
    let digits: String = hash(PASSWORD).iter().map(|b| format!("{b:02x}")).collect();
    assert!(shipped.contains(&"0".repeat(64)), "a place for the password's hash");
    let acl = shipped.replace(&"0".repeat(64), &digits) + "user tests on nopass ~* &* +@all\n";
    std::fs::write(dir.path().join("users.acl"), acl).unwrap();
    let port = closed_port();
    let child = start(dir.path(), port);
    let redis = Redis { dir, port, child, _alone: alone };
    redis.answers().await;
    Some(redis)
}

fn start(dir: &Path, port: u16) -> Child {
    let acl: PathBuf = dir.join("users.acl");
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
    command.arg("--dir").arg(dir).arg("--aclfile").arg(acl);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

impl Redis {
    fn config(&self) -> String {
        format!(
            "[redis]\nurl = \"redis://127.0.0.1:{}\"\nusername = \"weir\"\n\
             password = \"env:REDIS_PASSWORD\"\n",
            self.port
        )
    }
    /// One command as an administrator; the raw answer, or nothing.
    fn command(&self, words: &[&str]) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        stream.write_all(b"AUTH tests x\r\n").ok()?;
        stream.write_all(format!("{}\r\n", words.join(" ")).as_bytes()).ok()?;
        let (mut text, mut piece) = (Vec::new(), [0; 4096]);
        while text.iter().filter(|b| **b == b'\n').count() < 2 {
            let n = stream.read(&mut piece).ok().filter(|n| *n > 0)?;
            text.extend_from_slice(&piece[..n]);
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        Some(text.split_once("\r\n")?.1.trim().to_owned())
    }
    async fn answers(&self) {
        let pong = || (self.command(&["PING"])? == "+PONG").then_some(());
        found("redis", pong).await;
    }
    /// Both nodes have told that they live, and each after the other had.
    async fn knows_two_nodes(&self) {
        let nodes = "weir:{nodes}";
        let two = || (self.command(&["ZCARD", nodes])? == ":2").then_some(());
        found("two nodes", two).await;
        let newest = "\"return tonumber(redis.call('ZRANGE',KEYS[1],-1,-1,'WITHSCORES')[2]) + 1\"";
        let newest = self.command(&["EVAL", newest, "1", nodes]).unwrap();
        let newest = newest.trim_start_matches(':');
        let again = || (self.command(&["ZCOUNT", nodes, newest, "+inf"])? == ":2").then_some(());
        found("both nodes again", again).await;
    }
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
    async fn again(&mut self) {
        self.child = start(self.dir.path(), self.port);
        self.answers().await;
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const KEYS: &[(&str, &str)] = &[
    ("wide", "limits = { rpm = 100000, tpm = 100_000_000 }"),
    ("hundred", "windows = [{ requests = 100, per = \"hour\" }]"),
    ("slots", "limits = { concurrent = 2 }"),
    ("purse", "budgets = [{ usd = 0.5, per = \"day\", alert = 0.8 }]"),
    ("tokens", "windows = [{ tokens = 1000, per = \"hour\" }]"),
    ("bucket", "limits = { rpm = 8 }"),
    ("dark", "windows = [{ requests = 10, per = \"hour\" }]"),
    ("cut", "limits = { tpm = 100 }"),
];

/// Two gateways with the same keys, at one provider and one Redis.
async fn pair(redis: &Redis) -> (crate::harness::Provider, [Weir; 2]) {
    pair_with(redis, "").await
}

/// The same with a line more for Redis.
async fn pair_with(redis: &Redis, line: &str) -> (crate::harness::Provider, [Weir; 2]) {
    let far = provider(knobs()).await;
    let keys: String = KEYS
        .iter()
        .map(|(name, lines)| format!("[keys.{name}]\nsecret = \"sk-{name}\"\n{lines}\n"))
        .collect();
    let dear = "[providers.a.models.\"dear\"]\n\
                price = { currency = \"USD\", input = 0.0, output = 100.0 }\n\
                [models.dear]\ntargets = [\"a/dear\"]\n";
    let patient = "retry = { attempts = 1 }\nbreaker = { min_requests = 1000000 }";
    let text = [
        toml::custom("a", "openai", &far.url(), patient),
        toml::model("m", &["a/up-model"]),
        dear.to_owned(),
        keys,
        redis.config(),
        format!("{line}\n"),
    ]
    .concat();
    let env = [("REDIS_PASSWORD", PASSWORD)];
    let a = Weir::with(&text, Tables::default(), &env).await;
    let b = Weir::with(&text, Tables::default(), &env).await;
    (far, [a, b])
}

async fn up(gateways: &[Weir; 2], want: f64) {
    let start = Instant::now();
    for weir in gateways {
        while weir.metric("weir_redis_up", &[]).await != Some(want) {
            assert!(start.elapsed() < Duration::from_secs(12), "weir_redis_up is not {want}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Statuses of `n` requests, in turn at both.
async fn turns(gateways: &[Weir; 2], key: &str, wishes: &str, n: usize) -> Vec<u16> {
    let mut out = Vec::new();
    for i in 0..n {
        out.push(gateways[i % 2].ask(&by(key, wishes, 5)).await.status());
    }
    out
}

async fn at_once(gateways: &[Weir; 2], ask: &crate::harness::Ask, n: usize) -> Vec<u16> {
    let mut all = tokio::task::JoinSet::new();
    for i in 0..n {
        let (port, ask) = (gateways[i % 2].port, ask.clone());
        all.spawn(
            async move { crate::harness::Client::connect(port).await.ask(&ask).await.status() },
        );
    }
    all.join_all().await
}

fn passed(statuses: &[u16]) -> usize {
    assert!(statuses.iter().all(|s| [200, 402, 429].contains(s)), "{statuses:?}");
    statuses.iter().filter(|s| **s == 200).count()
}

#[tokio::test]
async fn two_nodes_share_every_kind_of_rule_exactly_r01() {
    let Some(redis) = redis().await else { return };
    // Five hundred at once on a loaded machine are no test of how fast it is.
    let (_far, both) = pair_with(&redis, "timeout = \"5s\"").await;
    up(&both, 1.0).await;
    assert_eq!(passed(&at_once(&both, &by("hundred", "", 5), 500).await), 100);
    let dear = by("purse", "out=1000", 1_000).model("dear");
    assert_eq!(passed(&at_once(&both, &dear, 30).await), 5);
    // Four of five holds are settled above 80 %: one node alone may say so.
    let told = async || {
        let mut sum = 0.0;
        for weir in &both {
            sum +=
                weir.metric("weir_budget_alerts_total", &[("name", "purse")]).await.unwrap_or(0.0);
        }
        sum
    };
    let start = Instant::now();
    while told().await < 1.0 && start.elapsed() < Duration::from_secs(5) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(told().await, 1.0);
    assert_eq!(both.iter().map(|w| w.stderr().matches("budget_alert").count()).sum::<usize>(), 1);
    // Slots, taken at one node and missed at the other.
    let slow = by("slots", "wait=1", 5);
    let (running, refused) = tokio::join!(at_once(&both, &slow, 2), async {
        found("two running", || (_far.count() >= 107).then_some(())).await;
        turns(&both, "slots", "", 2).await
    });
    assert_eq!((passed(&running), refused), (2, vec![429, 429]));
    let start = Instant::now();
    while both[0].ask(&by("slots", "", 5)).await.status() != 200 {
        assert!(start.elapsed() < Duration::from_secs(5), "slots come back");
    }
    // What was used is settled at the other node too.
    for i in 0..10 {
        // Room for a hold that the other node has settled and Redis has not heard of yet.
        let reply = both[i % 2].ask(&by("tokens", "in=9 out=11", 300)).await;
        assert_eq!(reply.status(), 200, "{i}: {}", reply.text());
    }
}

#[tokio::test]
async fn a_pause_of_two_seconds_under_load_fails_no_request_and_passes() {
    let Some(redis) = redis().await else { return };
    let (_far, both) = pair(&redis).await;
    up(&both, 1.0).await;
    let ask = by("wide", "wait=0.05", 5);
    let end = Instant::now() + Duration::from_secs(3);
    let (got, ()) = tokio::join!(
        async {
            let mut all = Vec::new();
            while Instant::now() < end {
                all.extend(at_once(&both, &ask, 10).await);
            }
            all
        },
        async {
            redis.signal(Signal::STOP);
            tokio::time::sleep(Duration::from_secs(2)).await;
            redis.signal(Signal::CONT);
        }
    );
    assert_eq!(passed(&got), got.len());
    up(&both, 1.0).await;
    assert_eq!(passed(&turns(&both, "bucket", "", 20).await), 8, "they count together again");
}

#[tokio::test]
async fn a_forgotten_script_is_sent_again() {
    let Some(redis) = redis().await else { return };
    let (_far, both) = pair(&redis).await;
    up(&both, 1.0).await;
    let mut got = turns(&both, "bucket", "", 4).await;
    assert_eq!(redis.command(&["SCRIPT", "FLUSH"]).as_deref(), Some("+OK"));
    got.extend(turns(&both, "bucket", "", 6).await);
    assert_eq!(passed(&got[..8]), 8);
    assert_eq!(got[8..], [429, 429]);
    up(&both, 1.0).await;
    assert!(both.iter().all(|w| !w.stderr().contains("redis is away")));
}

#[tokio::test]
async fn a_redis_that_hangs_costs_its_timeout_and_then_nothing_r14() {
    let Some(redis) = redis().await else { return };
    let (_far, both) = pair(&redis).await;
    up(&both, 1.0).await;
    redis.signal(Signal::STOP);
    let start = Instant::now();
    let got = turns(&both, "wide", "", 40).await;
    let took = start.elapsed();
    redis.signal(Signal::CONT);
    assert_eq!(passed(&got), 40);
    assert!(took < Duration::from_secs(4), "{took:?} for forty requests");
    up(&both, 1.0).await;
    // What was released late is released: both slots are there.
    let start = Instant::now();
    while passed(&at_once(&both, &by("slots", "wait=0.2", 5), 2).await) < 2 {
        assert!(start.elapsed() < Duration::from_secs(10), "a slot leaked");
    }
}

#[tokio::test]
async fn redis_killed_under_load_fails_no_request_and_each_node_keeps_its_share_r15_r17() {
    let Some(mut redis) = redis().await else { return };
    let (_far, both) = pair(&redis).await;
    up(&both, 1.0).await;
    redis.knows_two_nodes().await;
    let ask = by("wide", "wait=0.05", 5);
    let (got, ()) = tokio::join!(
        async {
            let mut all = Vec::new();
            for _ in 0..10 {
                all.extend(at_once(&both, &ask, 10).await);
            }
            all
        },
        async {
            tokio::time::sleep(Duration::from_millis(150)).await;
            redis.kill();
        }
    );
    assert_eq!(passed(&got), 100);
    up(&both, 0.0).await;
    assert_eq!(passed(&turns(&both, "dark", "", 40).await), 10, "half a limit at each of two");
    for weir in &both {
        let text = weir.stderr();
        assert!(text.matches("redis").count() < 20, "a line each time it changes: {text}");
    }
    redis.again().await;
    up(&both, 1.0).await;
    // What was used meanwhile is told to it, and the rest is one limit again.
    let start = Instant::now();
    loop {
        let got = passed(&turns(&both, "dark", "", 2).await);
        assert!(start.elapsed() < Duration::from_secs(10), "the outage's requests are forgotten");
        if got == 0 {
            break;
        }
        assert!(got <= 2);
    }
    assert_eq!(passed(&turns(&both, "bucket", "", 20).await), 8);
}

#[tokio::test]
async fn a_slot_of_a_killed_node_comes_back_by_its_own_end_r20() {
    let Some(redis) = redis().await else { return };
    let (_far, both) = pair(&redis).await;
    up(&both, 1.0).await;
    let [mut a, b] = both;
    let port = a.port;
    let hang = by("slots", "hang=1", 5);
    let open: Vec<_> = (0..2)
        .map(|_| {
            let hang = hang.clone();
            tokio::spawn(
                async move { crate::harness::Client::connect(port).await.begin(&hang).await },
            )
        })
        .collect();
    found("two held", || (_far.count() >= 2).then_some(())).await;
    a.kill().await;
    open.into_iter().for_each(|t| t.abort());
    assert_eq!(b.ask(&by("slots", "", 5)).await.status(), 429);
    let holds = "weir:{key:slots}:key:slots/concurrent:held";
    let ends = redis.command(&["ZRANGE", holds, "0", "-1"]).unwrap();
    assert!(ends.contains('|'), "a hold has its own end: {ends}");
    // Eleven minutes later.
    let script = "\"for _,m in ipairs(redis.call('ZRANGE',KEYS[1],0,-1)) do \
                  redis.call('ZINCRBY',KEYS[1],-660001,m) end return 1\"";
    assert_eq!(redis.command(&["EVAL", script, "1", holds]).as_deref(), Some(":1"));
    assert_eq!(b.ask(&by("slots", "", 5)).await.status(), 200);
}
