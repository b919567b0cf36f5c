//! The process's own log: JSON lines or a person's, no secrets, and a flood of one kind summed up.

use super::redact::redact;
use super::stderr;
use log::kv::{self, VisitSource};
use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::Mutex;
use serde::Serializer;
use serde_json::Value;
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Lines of one module and level that one second may hold; what follows is only counted.
/// Twenty lines of 300 bytes for ever are 500 MB a day, an outage's first lines all there.
const LINES_PER_SECOND_MAX: u32 = 20;
const WINDOW: Duration = Duration::from_secs(1);
/// Targets are modules of ours and of our crates, a few hundred; what is beyond is not kept.
const TARGETS_MAX: usize = 1024;
/// Our own targets. Other crates speak from WARN on, and from INFO on where `debug` or `trace` is
/// asked for: at their debug level they write whole bodies (pingora-proxy 0.9.1, proxy_h1.rs
/// "upstream event now"), and no prompt or reply may reach a log.
const OWN: &str = "weir";

/// What Pingora says as an error though any stranger can make it happen: a connection that ends or
/// dawdles in the middle of a request's head, a handshake that is none (pingora-proxy 0.9.1, lib.rs
/// `handle_new_request`; pingora-core 0.9.1, services/listening.rs and apps/mod.rs). A request has
/// its own line in the access log, its errors are not logged this way.
const STRANGERS: &[(&str, &str)] = &[
    ("pingora_proxy", "Fail to proxy: "),
    ("pingora_proxy", "failed to send error response to downstream: "),
    ("pingora_core::services::listening", "Downstream handshake "),
    ("pingora_core::apps", "H2 handshake error "),
];

/// Config's faults and warnings: all of them at once is their point, and they come by an
/// operator's hand only, so they are never summed up.
pub const CONFIG: &str = "weir::config";

/// What the log does; shared by the process, changed by reloads.
#[derive(Debug)]
pub struct Logger {
    level: AtomicUsize,
    redacts: Arc<AtomicBool>,
    flood: Mutex<Flood>,
    writer: env_logger::Logger,
}

impl Logger {
    /// A logger at this level, for a person when standard error is a terminal.
    #[must_use]
    pub fn new(level: LevelFilter, redacts: bool) -> Self {
        let human = stderr::is_terminal();
        let redacts = Arc::new(AtomicBool::new(redacts));
        let hides = redacts.clone();
        // Levels are ours, so that a reload can change them: env_logger passes everything on.
        let writer = env_logger::Builder::new()
            .filter_level(LevelFilter::Trace)
            .target(env_logger::Target::Pipe(Box::new(Pipe)))
            .format(move |out, record| {
                let now = jiff::Timestamp::now();
                let redacts = hides.load(Ordering::Relaxed);
                let form = if human { human_line } else { json_line };
                writeln!(out, "{}", form(record, redacts, now))
            })
            .build();
        Self { level: AtomicUsize::new(level as usize), redacts, flood: Mutex::default(), writer }
    }

    /// Makes it the process's logger.
    ///
    /// # Errors
    /// There is one already.
    pub fn install(self) -> Result<&'static Self, log::SetLoggerError> {
        let this: &'static Self = Box::leak(Box::new(self));
        log::set_logger(this)?;
        log::set_max_level(this.level());
        Ok(this)
    }

    /// Another level, and whether secrets are hidden, from now on.
    pub fn set(&self, level: LevelFilter, redacts: bool) {
        self.level.store(level as usize, Ordering::Relaxed);
        self.redacts.store(redacts, Ordering::Relaxed);
        log::set_max_level(level);
    }

    /// Says how much was left unsaid in seconds that are over. Called about once a second.
    pub fn tick(&self, now: Instant) {
        let sums = self.flood.lock().sums(now);
        sums.iter().for_each(|sum| self.suppressed(sum));
    }

    fn level(&self) -> LevelFilter {
        let level = self.level.load(Ordering::Relaxed);
        LevelFilter::iter().nth(level).unwrap_or(LevelFilter::Info)
    }

    fn suppressed(&self, sum: &Sum) {
        let (target, level) = (sum.target.as_str(), sum.level);
        let text = format_args!("suppressed {} more such lines", sum.lines);
        let record = Record::builder().level(level).target(target).args(text).build();
        self.writer.log(&record);
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        allowed(self.level(), metadata.target(), metadata.level())
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        if self.level() < LevelFilter::Debug && is_strangers(record) {
            return;
        }
        let now = Instant::now();
        let verdict = self.flood.lock().take(record.target(), record.level(), now);
        match verdict {
            Verdict::Drop => return,
            Verdict::Say => {}
            Verdict::SayAfter(sum) => self.suppressed(&sum),
        }
        self.writer.log(record);
    }

    fn flush(&self) {
        self.tick(Instant::now());
    }
}

fn allowed(level: LevelFilter, target: &str, asked: Level) -> bool {
    let own = target == OWN || target.strip_prefix(OWN).is_some_and(|t| t.starts_with(['_', ':']));
    let level = match level {
        _ if own => level,
        LevelFilter::Info => LevelFilter::Warn,
        other => other.min(LevelFilter::Info),
    };
    asked <= level
}

fn is_strangers(record: &Record<'_>) -> bool {
    if !record.target().starts_with("pingora") {
        return false;
    }
    let text = record.args().to_string();
    STRANGERS.iter().any(|(from, begins)| record.target() == *from && text.starts_with(begins))
}

/// One kind's silence.
#[derive(Debug, PartialEq, Eq)]
struct Sum {
    target: String,
    level: Level,
    lines: u64,
}

enum Verdict {
    Say,
    SayAfter(Sum),
    Drop,
}

/// How many lines of each kind this second has seen.
#[derive(Debug, Default)]
struct Flood {
    kinds: HashMap<String, [Option<Kind>; 3]>,
}

#[derive(Debug)]
struct Kind {
    since: Instant,
    said: u32,
    unsaid: u64,
}

impl Flood {
    fn take(&mut self, target: &str, level: Level, now: Instant) -> Verdict {
        // Who asks for debug wants all of it.
        if level > Level::Info || target == CONFIG {
            return Verdict::Say;
        }
        if !self.kinds.contains_key(target) {
            if self.kinds.len() >= TARGETS_MAX {
                return Verdict::Drop;
            }
            self.kinds.insert(target.to_owned(), [None, None, None]);
        }
        let Some(kinds) = self.kinds.get_mut(target) else { return Verdict::Say };
        let fresh = Kind { since: now, said: 0, unsaid: 0 };
        let kind = kinds[slot(level)].get_or_insert(fresh);
        let mut sum = None;
        if now.saturating_duration_since(kind.since) >= WINDOW {
            sum = kind.end(target, level);
            (kind.since, kind.said) = (now, 0);
        }
        if kind.said >= LINES_PER_SECOND_MAX {
            kind.unsaid += 1;
            return Verdict::Drop;
        }
        kind.said += 1;
        sum.map_or(Verdict::Say, Verdict::SayAfter)
    }

    fn sums(&mut self, now: Instant) -> Vec<Sum> {
        let mut sums = Vec::new();
        for (target, kinds) in &mut self.kinds {
            for level in [Level::Error, Level::Warn, Level::Info] {
                let Some(kind) = &mut kinds[slot(level)] else { continue };
                if now.saturating_duration_since(kind.since) >= WINDOW {
                    sums.extend(kind.end(target, level));
                }
            }
        }
        sums
    }
}

fn slot(level: Level) -> usize {
    (level as usize).saturating_sub(1).min(2)
}

impl Kind {
    fn end(&mut self, target: &str, level: Level) -> Option<Sum> {
        let lines = std::mem::take(&mut self.unsaid);
        (lines > 0).then(|| Sum { target: target.to_owned(), level, lines })
    }
}

/// A record's message and values, each without its secrets.
struct Texts {
    redacts: bool,
    pairs: Vec<(String, Value)>,
}

impl Texts {
    fn of(record: &Record<'_>, redacts: bool) -> (String, Vec<(String, Value)>) {
        let mut this = Self { redacts, pairs: Vec::new() };
        let message = this.clean(&record.args().to_string());
        let _ = record.key_values().visit(&mut this); // our own visitor never fails
        (message, this.pairs)
    }

    fn clean(&self, text: &str) -> String {
        if self.redacts { redact(text).into_owned() } else { text.to_owned() }
    }
}

impl<'kvs> VisitSource<'kvs> for Texts {
    fn visit_pair(&mut self, key: kv::Key<'kvs>, value: kv::Value<'kvs>) -> Result<(), kv::Error> {
        let value = match (value.to_u64(), value.to_bool()) {
            (Some(number), _) => number.into(),
            (None, Some(truth)) => truth.into(),
            (None, None) => self.clean(&value.to_string()).into(),
        };
        self.pairs.push((key.to_string(), value));
        Ok(())
    }
}

/// Time, level, module and message first: a person reads these lines too.
fn json_line(record: &Record<'_>, redacts: bool, now: jiff::Timestamp) -> String {
    let (message, pairs) = Texts::of(record, redacts);
    let head = [
        ("ts", format!("{now:.3}")),
        ("level", record.level().to_string()),
        ("target", record.target().to_owned()),
        ("msg", message),
    ];
    let head = head.map(|(key, value)| (key.to_owned(), Value::String(value)));
    let mut line = Vec::new();
    let mut out = serde_json::Serializer::new(&mut line);
    let _ = out.collect_map(head.into_iter().chain(pairs)); // memory takes everything
    String::from_utf8(line).unwrap_or_default()
}

fn human_line(record: &Record<'_>, redacts: bool, now: jiff::Timestamp) -> String {
    let (message, pairs) = Texts::of(record, redacts);
    let mut line = format!("{} {:5} {message}", now.strftime("%H:%M:%S"), record.level());
    for (key, value) in &pairs {
        match value.as_str() {
            Some(text) => line.push_str(&format!(" {key}={text}")),
            None => line.push_str(&format!(" {key}={value}")),
        }
    }
    // Whatever a provider or a client wrote must not steer a person's terminal.
    line.replace(|c: char| c.is_control(), " ")
}

/// env_logger hands over whole lines.
struct Pipe;

impl Write for Pipe {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // A line nobody takes is counted in there; the log itself must never fail.
        let _ = stderr::write_line(line);
        Ok(line.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn record<T>(then: impl FnOnce(&Record<'_>) -> T) -> T {
        let pairs = [
            ("url", kv::Value::from("http://h/x?key=abc")),
            ("file", kv::Value::from("weir.toml")),
            ("n", kv::Value::from(3)),
        ];
        let args = format_args!("refused sk-0123456789\n\u{1b}[2J");
        then(
            &Record::builder()
                .level(Level::Warn)
                .target("weir::config")
                .args(args)
                .key_values(&pairs)
                .build(),
        )
    }

    #[test]
    fn a_line_is_json_with_its_values_and_without_secrets() {
        let line = record(|r| json_line(r, true, jiff::Timestamp::UNIX_EPOCH));
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["n"], 3);
        assert_eq!(line["ts"], "1970-01-01T00:00:00.000Z");
        assert_eq!((&line["level"], &line["target"]), (&"WARN".into(), &"weir::config".into()));
        assert_eq!(line["msg"], "refused sk-***\n\u{1b}[2J");
        assert_eq!(line["url"], "http://h/x?key=***");
        assert_eq!(line["file"], "weir.toml");
        let open = record(|r| json_line(r, false, jiff::Timestamp::UNIX_EPOCH));
        assert!(open.contains("sk-0123456789"), "redact = false means what it says");
    }

    #[test]
    fn a_person_reads_one_line_that_cannot_steer_the_terminal() {
        let line = record(|r| human_line(r, true, jiff::Timestamp::UNIX_EPOCH));
        assert!(line.starts_with("00:00:00 WARN  refused sk-***"), "{line}");
        assert!(!line.contains(char::is_control) && line.contains(" file=weir.toml"), "{line}");
    }

    #[test]
    fn other_crates_speak_from_warn_on_and_never_of_bodies() {
        let check = |level, target, asked, want| {
            assert_eq!(allowed(level, target, asked), want, "{level} {target} {asked}");
        };
        check(LevelFilter::Info, "weir::server", Level::Info, true);
        check(LevelFilter::Info, "pingora_core::server", Level::Info, false);
        check(LevelFilter::Info, "pingora_core::server", Level::Warn, true);
        check(LevelFilter::Debug, "pingora_core::server", Level::Info, true);
        check(LevelFilter::Trace, "pingora_proxy::proxy_h1", Level::Debug, false);
        check(LevelFilter::Trace, "weirdo", Level::Trace, false);
        check(LevelFilter::Trace, "weir_filters::sse", Level::Trace, true);
        check(LevelFilter::Error, "pingora_core::server", Level::Warn, false);
        check(LevelFilter::Off, "weir", Level::Error, false);
    }

    #[test]
    fn an_outage_of_thirty_thousand_lines_leaves_a_few_hundred_and_their_sum() {
        let start = Instant::now();
        let mut flood = Flood::default();
        let (mut said, mut summed) = (0u64, 0u64);
        for i in 0..30_000u64 {
            let now = start + Duration::from_millis(i);
            match flood.take("weir::proxy", Level::Error, now) {
                Verdict::Say => said += 1,
                Verdict::SayAfter(sum) => {
                    said += 1;
                    summed += sum.lines;
                }
                Verdict::Drop => {}
            }
        }
        let rest = flood.sums(start + Duration::from_secs(60));
        summed += rest.iter().map(|s| s.lines).sum::<u64>();
        assert_eq!(said, 30 * u64::from(LINES_PER_SECOND_MAX));
        assert_eq!(said + summed, 30_000, "every line is said or counted");
        let other = flood.take("weir::meter", Level::Error, start);
        assert!(matches!(other, Verdict::Say), "one module's flood silences no other");
        for _ in 0..1_000 {
            let fault = flood.take(CONFIG, Level::Error, start);
            assert!(matches!(fault, Verdict::Say), "faults are said all at once");
        }
    }
}
