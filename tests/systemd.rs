//! What systemd hears of the process, and what the process gets of it: readiness, reloads, the way
//! out, the watchdog, credentials, the unit and what an install lays out.

use crate::harness::binary::{Tables, Weir};
use crate::harness::{
    Action, Answer, Client, answering, chat, closed_port, fixed, found, provider,
};
use crate::harness::{skip, soon, streamed, toml};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The end of systemd: every message that came, in order.
struct Manager {
    name: String,
    socket: tokio::net::UnixDatagram,
}

impl Manager {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-manager-{}-{n}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap());
        let socket = socket.unwrap();
        socket.set_nonblocking(true).unwrap();
        let socket = tokio::net::UnixDatagram::from_std(socket).unwrap();
        Self { name: format!("@{name}"), socket }
    }
    /// What a process needs to find it.
    fn env(&self) -> (&str, &str) {
        ("NOTIFY_SOCKET", &self.name)
    }
    async fn next(&self) -> String {
        let mut text = [0; 512];
        let n = soon("a word to systemd", self.socket.recv(&mut text)).await.unwrap();
        String::from_utf8(text[..n].to_vec()).unwrap()
    }
    /// The next message that begins so.
    async fn hear(&self, start: &str) -> String {
        loop {
            let text = self.next().await;
            if text.starts_with(start) {
                return text;
            }
        }
    }
    /// What came and was not read yet.
    fn rest(&self) -> Vec<String> {
        let mut all = vec![];
        let mut text = [0; 512];
        while let Ok(n) = self.socket.try_recv(&mut text) {
            all.push(String::from_utf8(text[..n].to_vec()).unwrap());
        }
        all
    }
}

/// A config that needs no provider to be up.
fn alone() -> String {
    let nowhere = format!("http://127.0.0.1:{}", closed_port());
    toml::custom("a", "openai", &nowhere, "") + &toml::model("m", &["a/up-model"]) + &toml::key()
}

fn monotonic_usec() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

#[tokio::test]
async fn ready_is_the_first_word_and_comes_when_every_listener_answers() {
    let manager = Manager::new();
    let scrape = closed_port();
    let admin = format!("metrics_listen = \"127.0.0.1:{scrape}\"");
    let tables = Tables { admin, ..Tables::default() };
    let mut weir = Weir::prepare(&alone(), tables, &[manager.env()]).await;
    weir.run();
    let first = manager.next().await;
    assert!(first.starts_with("READY=1\nSTATUS=config "), "{first}");
    // At the first try, each.
    for (port, path) in
        [(weir.port, "/health/ready"), (weir.admin, "/health/ready"), (scrape, "/metrics")]
    {
        let mut client = Client::connect(port).await;
        let reply = client.ask(&crate::harness::Ask::get(path)).await;
        assert_eq!(reply.status(), 200, "{path}: {}", reply.text());
    }
}

#[tokio::test]
async fn who_cannot_listen_is_never_ready() {
    let manager = Manager::new();
    let mut weir = Weir::prepare(&alone(), Tables::default(), &[manager.env()]).await;
    let _other = std::net::TcpListener::bind(("127.0.0.1", weir.admin)).unwrap();
    weir.run();
    assert_eq!(weir.ended().await.0.code(), Some(69));
    assert_eq!(manager.rest(), Vec::<String>::new());
}

#[tokio::test]
async fn a_reload_is_told_from_its_beginning_to_its_end_whether_it_is_taken_or_not() {
    let manager = Manager::new();
    let mut weir = Weir::prepare(&alone(), Tables::default(), &[manager.env()]).await;
    weir.run();
    manager.hear("READY=1").await;
    for (config, status) in [
        (alone() + &toml::model("n", &["a/up-model"]), "STATUS=config "),
        (alone() + "[models.\"broken\n", "STATUS=the new config is refused"),
    ] {
        let before = monotonic_usec();
        weir.write(&config);
        weir.signal(Signal::HUP);
        let at = loop {
            let begun = manager.hear("RELOADING=1\nMONOTONIC_USEC=").await;
            let at: i64 = begun.rsplit('=').next().unwrap().parse().unwrap();
            // The file's change may have been seen before the signal: then it is told twice.
            if at >= before {
                break at;
            }
        };
        assert!(at <= monotonic_usec());
        let done = manager.next().await;
        assert!(done.starts_with("READY=1\n") && done.contains(status), "{done}");
    }
}

#[tokio::test]
async fn a_drain_is_told_at_its_first_step_and_asks_for_the_time_it_takes() {
    let manager = Manager::new();
    let answer = Answer {
        words: (0..30).map(|i| format!("w{i} ")).collect(),
        delay: Duration::from_millis(50),
        ..Answer::default()
    };
    let far = answering(answer).await;
    let mut weir = Weir::prepare(&toml::simple(&far), Tables::default(), &[manager.env()]).await;
    weir.run();
    manager.hear("READY=1").await;
    let mut client = Client::connect(weir.port).await;
    client.begin(&streamed()).await;
    client.events_until("w1").await;
    weir.signal(Signal::TERM);
    assert_eq!(manager.next().await, "STOPPING=1");
    let more = manager.next().await;
    assert_eq!(more, "STATUS=leaving, 1 requests are open\nEXTEND_TIMEOUT_USEC=30000000");
    let (text, _) = client.rest().await;
    assert!(text.contains("[DONE]"), "{text}");
    assert_eq!(weir.ended().await.0.code(), Some(0));
}

/// One worker thread, a watchdog of 0.4 s.
async fn watched(manager: &Manager, config: &str, more: &[(&str, &str)]) -> Weir {
    let tables = Tables { server: "threads = 1".into(), ..Tables::default() };
    let env = [&[manager.env(), ("WATCHDOG_USEC", "400000")], more].concat();
    let mut weir = Weir::prepare(config, tables, &env).await;
    weir.run();
    manager.hear("READY=1").await;
    weir
}

#[tokio::test]
async fn the_watchdog_hears_twice_per_allowed_silence_until_the_way_out_is_over() {
    let manager = Manager::new();
    let far = provider(fixed(vec![Action::Hang])).await;
    let mut weir = watched(&manager, &toml::simple(&far), &[]).await;
    let start = Instant::now();
    for _ in 0..5 {
        manager.hear("WATCHDOG=1").await;
    }
    let took = start.elapsed();
    assert!(took > Duration::from_millis(700), "{took:?}: not more often than asked");
    // A request that waits is no dead runtime, and neither is a drain.
    let mut client = Client::connect(weir.port).await;
    client.send(&chat().bytes()).await;
    soon("the request", far.until(|seen| seen.len() == 1)).await;
    manager.hear("WATCHDOG=1").await;
    weir.signal(Signal::TERM);
    manager.hear("STOPPING=1").await;
    for _ in 0..3 {
        manager.hear("WATCHDOG=1").await;
    }
    weir.signal(Signal::INT);
    weir.ended().await;
    assert!(!weir.stderr().contains("does not answer"), "{}", weir.stderr());
}

#[tokio::test]
async fn a_runtime_that_is_stuck_is_not_called_alive() {
    let manager = Manager::new();
    let far = answering(Answer::default()).await;
    let fail = [("WEIR_FAIL", "hold-in-filter")];
    let weir = watched(&manager, &toml::simple(&far), &fail).await;
    manager.hear("WATCHDOG=1").await;
    let mut client = Client::connect(weir.port).await;
    client.send(&streamed().bytes()).await;
    let silent = |n| move |text: String| text.matches("does not answer").count() >= n;
    let said = |n| {
        let enough = silent(n);
        let weir = &weir;
        async move { found("silence", || enough(weir.stderr()).then_some(())).await }
    };
    said(1).await;
    manager.rest();
    said(4).await;
    assert_eq!(manager.rest(), Vec::<String>::new(), "nobody says that it lives");
    // What is stuck is the clients' side: the admin side still tells.
    assert_eq!(weir.admin("GET", "/health/live").await.status(), 200);
}

#[tokio::test]
async fn a_credential_of_the_unit_reaches_the_provider() {
    let far = answering(Answer::default()).await;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("key_a"), "sk-from-systemd\n").unwrap();
    let config = toml::simple(&far).replace("\"sk-upstream-a\"", "\"cred:key_a\"");
    let env = [("CREDENTIALS_DIRECTORY", folder.path().to_str().unwrap())];
    let weir = Weir::with(&config, Tables::default(), &env).await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    assert_eq!(far.requests()[0].request.header("authorization"), Some("Bearer sk-from-systemd"));
    let warned = weir.stderr().contains("providers.a.api_keys");
    assert!(!warned, "a reference is no secret in the clear: {}", weir.stderr());
}

/// What `make install` calls, with the test's binary.
fn install(root: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/install");
    let arguments = [env!("CARGO_BIN_EXE_weir"), "/usr", root.to_str().unwrap()];
    let out = Command::new(script).args(arguments).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn an_install_lays_out_all_that_a_start_needs_and_keeps_what_an_operator_changed() {
    let root = tempfile::tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    let mode = |path: &str| fs::metadata(at(path)).unwrap().permissions().mode() & 0o777;
    install(root.path());
    assert_eq!((mode("usr/bin/weir"), mode("etc/weir/weir.toml")), (0o755, 0o644));
    assert_eq!((mode("etc/weir/credentials"), mode("var/lib/weir")), (0o700, 0o700));
    let unit = fs::read_to_string(at("usr/lib/systemd/system/weir.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/weir run --config /etc/weir/weir.toml"), "{unit}");
    fs::write(at("etc/weir/weir.toml"), "# mine\n").unwrap();
    install(root.path());
    assert_eq!(fs::read_to_string(at("etc/weir/weir.toml")).unwrap(), "# mine\n");
}

#[test]
fn the_unit_is_sound_and_systemd_calls_its_sandbox_ok() {
    let analyze = || Command::new("systemd-analyze");
    if !analyze().arg("--version").output().is_ok_and(|out| out.status.success()) {
        return skip("there is no systemd-analyze");
    }
    let folder = tempfile::tempdir().unwrap();
    let text = include_str!("../conf/weir.service");
    let unit = folder.path().join("weir.service");
    fs::write(&unit, text.replace("/usr/local/bin/weir", env!("CARGO_BIN_EXE_weir"))).unwrap();
    let out = analyze().arg("verify").arg(&unit).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    // It looks at the machine's own units, too: only what it says of ours counts.
    let ours: Vec<_> = said.lines().filter(|l| l.contains("weir.service")).collect();
    assert!(ours.is_empty(), "{ours:?}");
    let mut security = analyze();
    security.args(["security", "--offline=true", "--no-pager"]).arg(&unit);
    let out = security.output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let overall = said.lines().find(|l| l.contains("Overall exposure level")).expect(&said);
    let exposure: f64 =
        overall.rsplit(": ").next().unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(exposure < 2.0 && overall.contains("OK"), "{overall}");
}
