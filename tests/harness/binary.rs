//! The real binary, in a folder of its own.

use super::reply::Reply;
use super::{Ask, Client, closed_port, found, spool};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Two gateways at a time: CI has two cores, and a starved process fails tests of time.
static SLOTS: Semaphore = Semaphore::const_new(2);

/// The admin token of every gateway here.
pub const TOKEN: &str = "admin-secret";

/// A running `weir run`; killed when dropped.
#[derive(Debug)]
pub struct Weir {
    dir: TempDir,
    pub port: u16,
    pub admin: u16,
    child: Option<Child>,
    tables: Tables,
    env: Vec<(String, String)>,
    under: Vec<String>,
    _slot: Option<SemaphorePermit<'static>>,
}

/// Lines for the tables that the harness itself writes.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    pub server: String,
    pub admin: String,
    pub store: String,
    pub log: String,
}

impl Weir {
    /// Starts a gateway and waits until it answers.
    pub async fn start(toml: &str) -> Self {
        Self::with(toml, Tables::default(), &[]).await
    }
    /// The same with lines for the head's tables, and environment variables.
    pub async fn with(toml: &str, tables: Tables, env: &[(&str, &str)]) -> Self {
        let mut weir = Self::prepare(toml, tables, env).await;
        weir.run();
        weir.ready().await;
        weir
    }
    /// One more with another's config, on ports of its own and without a place of its own among
    /// those that run at once; of the same store, or of one of its own.
    pub async fn beside(other: &Self, same_store: bool) -> Self {
        let mut weir = Self {
            dir: tempfile::tempdir().unwrap(),
            port: closed_port(),
            admin: closed_port(),
            child: None,
            tables: other.tables.clone(),
            env: other.env.clone(),
            under: other.under.clone(),
            _slot: None,
        };
        let (old, new) = (other.path().display(), weir.path().display());
        let mut text = std::fs::read_to_string(other.config()).unwrap();
        for file in ["spool", "access.log", if same_store { "" } else { "weir.db" }] {
            if !file.is_empty() {
                text = text.replace(&format!("{old}/{file}"), &format!("{new}/{file}"));
            }
        }
        let text = text
            .replace(&other.port.to_string(), &weir.port.to_string())
            .replace(&other.admin.to_string(), &weir.admin.to_string());
        std::fs::write(weir.config(), text).unwrap();
        weir.run();
        weir.ready().await;
        weir
    }
    /// A folder and a config; nothing runs yet.
    pub async fn prepare(toml: &str, tables: Tables, env: &[(&str, &str)]) -> Self {
        let slot = SLOTS.acquire().await.unwrap();
        let weir = Self {
            dir: tempfile::tempdir().unwrap(),
            port: closed_port(),
            admin: closed_port(),
            child: None,
            tables,
            env: env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            under: Vec::new(),
            _slot: Some(slot),
        };
        weir.write(toml);
        weir
    }
    /// Writes the config beside the old one and renames it into place, as deployments do.
    pub fn write(&self, toml: &str) {
        let (dir, Tables { server, admin, store, log }) = (self.path().display(), &self.tables);
        let text = format!(
            "[server]\nlisten = [\"127.0.0.1:{}\"]\n{server}\n[admin]\nlisten = \
             \"127.0.0.1:{}\"\ntoken = \"{TOKEN}\"\n{admin}\n[store]\nurl = \
             \"sqlite:{dir}/weir.db\"\nspool = \"{dir}/spool\"\n{store}\n[log]\naccess = \
             \"{dir}/access.log\"\n{log}\n{toml}",
            self.port, self.admin
        );
        let new = self.path().join("weir.toml.new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.config()).unwrap();
    }
    /// Starts the process without waiting for it.
    pub fn run(&mut self) {
        let log = |name| {
            let path = self.path().join(name);
            File::options().create(true).append(true).open(path).unwrap()
        };
        let mut command = self.command(&["run"]);
        command.stdin(Stdio::null()).stdout(log("stdout.log")).stderr(log("stderr.log"));
        self.child = Some(command.spawn().expect("the binary"));
    }
    /// What starts the process next time: a program and its arguments, which becomes the process.
    pub fn under(&mut self, starter: &[&str]) {
        self.under = starter.iter().map(|word| (*word).to_owned()).collect();
    }
    /// An environment variable less for the next start.
    pub fn unset(&mut self, name: &str) {
        self.env.retain(|(k, _)| k != name);
    }
    /// Waits until it answers; panics with its log when it ends instead.
    pub async fn ready(&mut self) {
        let (port, admin) = (self.port, self.admin);
        let up = |port| TcpStream::connect(("127.0.0.1", port)).is_ok();
        let child = self.child.as_mut().expect("a running gateway");
        let up = found("a listening gateway", || match child.try_wait().unwrap() {
            Some(status) => Some(Err(status)),
            None => (up(port) && up(admin)).then_some(Ok(())),
        });
        if let Err(status) = up.await {
            panic!("weir ended with {status}: {}", self.stderr());
        }
    }
    /// One of weir's commands on this gateway's config.
    pub fn cli(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().expect("the binary")
    }
    fn command(&self, arguments: &[&str]) -> Command {
        let mut words = self.under.iter().map(String::as_str).chain([env!("CARGO_BIN_EXE_weir")]);
        let mut command = Command::new(words.next().expect("a program"));
        command
            .args(words)
            .args(arguments)
            .arg("--config")
            .arg(self.config())
            .current_dir(self.path());
        // Nothing of the developer's own shell (keys, WEIR_CONFIG, proxies) may reach it.
        command.env_clear().env("HOME", self.path()).env("RUST_BACKTRACE", "1");
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
        command
    }
    /// Its folder.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
    /// Its config file.
    pub fn config(&self) -> PathBuf {
        self.path().join("weir.toml")
    }
    /// Its spool.
    pub fn spool(&self) -> PathBuf {
        self.path().join("spool")
    }
    /// What it said so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(self.path().join("stderr.log")).unwrap_or_default()
    }
    /// Its access log's lines.
    pub fn access(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path().join("access.log")).unwrap_or_default();
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }
    /// Waits until the spool holds `n` events.
    pub async fn events(&self, n: usize) -> Vec<Value> {
        let enough = || Some(spool::read(&self.spool())).filter(|events| events.len() >= n);
        found(&format!("{n} events"), enough).await
    }
    /// One exchange on a connection of its own.
    pub async fn ask(&self, ask: &Ask) -> Reply {
        Client::connect(self.port).await.ask(ask).await
    }
    /// One exchange with the admin side.
    pub async fn admin(&self, method: &str, path: &str) -> Reply {
        let ask = Ask::raw(method, path, bytes::Bytes::new());
        let ask = ask.with("authorization", &format!("Bearer {TOKEN}"));
        Client::connect(self.admin).await.ask(&ask).await
    }
    /// The sum of a metric's series that bear these labels; `None` when there is none.
    pub async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let text = self.admin("GET", "/metrics").await.text();
        metric(&text, name, labels)
    }
    /// Waits until no request is open.
    pub async fn idle(&self) {
        let start = Instant::now();
        loop {
            let open = self.metric("weir_in_flight", &[]).await;
            if open == Some(0.0) {
                return;
            }
            assert!(start.elapsed() < super::PATIENCE, "{open:?} requests are still open");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    /// Rows of `weir report --format json`.
    pub fn report(&self, by: &str) -> Value {
        let output = self.cli(&["report", "--by", by, "--format", "json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }
    /// Its process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("a running gateway"))
    }
    /// Waits for its end: how it ended, and how long that took.
    pub async fn ended(&mut self) -> (ExitStatus, Duration) {
        let start = Instant::now();
        let child = self.child.as_mut().expect("a running gateway");
        let status = found("the gateway's end", || child.try_wait().unwrap()).await;
        self.child = None;
        (status, start.elapsed())
    }
    /// SIGTERM, and the end.
    pub async fn stop(&mut self) -> (ExitStatus, Duration) {
        self.signal(Signal::TERM);
        self.ended().await
    }
    /// `kill -9`, and the end.
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.ended().await;
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        let _ = child.kill();
        let _ = child.wait();
        if std::thread::panicking() {
            eprintln!("--- the gateway's log ---\n{}", self.stderr());
        }
    }
}

/// The sum of a metric's series that bear these labels, in the Prometheus text format.
pub fn metric(text: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let series = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (bare, set) = series.split_once('{').unwrap_or((series, ""));
        let bears = |(k, v): &(&str, &str)| set.contains(&format!("{k}=\"{v}\""));
        (bare == name && labels.iter().all(bears)).then(|| value.parse::<f64>().ok())?
    });
    series.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}
