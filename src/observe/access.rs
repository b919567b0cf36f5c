//! The access log: one JSON object a request, and never a word of a prompt or a reply.

use super::redact::redact;
use super::stderr;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weir_filters::line::Line as Json;
use weir_filters::name;
use weir_filters::usage::{NanoUsd, Usage};

/// Longer client-made texts are cut: a whole line must fit [`stderr::LINE_BYTES_MAX`].
const TEXT_BYTES_MAX: usize = 200;
/// More bytes than this wait for nobody.
const GATHER_BYTES_MAX: usize = 32 << 10;

/// Where lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Standard error: JSON, or a short line for a person when it is a terminal.
    Stderr,
    /// Nowhere.
    Off,
    /// A file, appended to.
    File(PathBuf),
}

/// What one line says. Names are as in the usage event; absent things are `None`.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)] // each is a member of the line by its name
pub struct Line<'a> {
    pub ts: jiff::Timestamp,
    pub request_id: &'a str,
    /// Absent where no event was made.
    pub event_id: Option<&'a str>,
    pub method: &'a str,
    /// Without the query.
    pub path: &'a str,
    pub status: u16,
    pub code: Option<&'a str>,
    pub outcome: &'a str,
    pub streamed: bool,
    /// The key's name, never the key.
    pub key: Option<&'a str>,
    pub team: Option<&'a str>,
    pub requested_model: Option<&'a str>,
    pub model: Option<&'a str>,
    pub provider: Option<&'a str>,
    pub attempts: u32,
    pub usage: Usage,
    pub cost: Option<NanoUsd>,
    pub ttft_ms: Option<u64>,
    pub duration_ms: u64,
    pub overhead_us: u64,
    /// Address, with or without a port.
    pub client: Option<&'a str>,
    pub user_agent: Option<&'a str>,
}

/// One line a request.
#[derive(Debug)]
pub struct AccessLog {
    sink: ArcSwap<Sink>,
    redacts: AtomicBool,
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Sink {
    Json,
    Human,
    Off,
    File(PathBuf, File),
    Regular(Arc<Regular>),
}

/// A regular file, whose lines may share a write.
#[derive(Debug)]
struct Regular {
    path: PathBuf,
    file: File,
    /// Whole lines that wait.
    lines: Mutex<Vec<u8>>,
    /// Held over a write: who flushes next finds the file with all that was taken before.
    writing: Mutex<()>,
    lost: Arc<AtomicU64>,
}

/// Lines of a file that wait for others. They are written when this is dropped.
#[derive(Debug)]
#[must_use = "lines wait as long as this is there"]
pub struct Waiting(Arc<Regular>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.flush();
    }
}

impl Regular {
    /// Puts a line to those that wait, and says so for the first of them.
    fn gather(self: &Arc<Self>, line: &[u8]) -> Option<Waiting> {
        let mut lines = self.lines.lock();
        let first = lines.is_empty();
        lines.extend_from_slice(line);
        let full = lines.len() >= GATHER_BYTES_MAX;
        drop(lines);
        if full {
            self.flush();
        }
        (first && !full).then(|| Waiting(self.clone()))
    }

    /// Writes the lines that wait.
    fn flush(&self) {
        let _writing = self.writing.lock();
        let mut lines = std::mem::take(&mut *self.lines.lock());
        if lines.is_empty() {
            return;
        }
        self.lost.fetch_add(lost(&self.file, &lines), Ordering::Relaxed);
        lines.clear();
        let mut waiting = self.lines.lock();
        if waiting.capacity() == 0 {
            *waiting = lines;
        }
    }
}

impl AccessLog {
    /// Opens the output; a file and its folder are made when absent.
    ///
    /// # Errors
    /// The file cannot be opened for appending.
    pub fn open(output: &Output, redacts: bool) -> io::Result<Self> {
        let lost = Arc::default();
        let sink = ArcSwap::from_pointee(Sink::open(output, &lost)?);
        Ok(Self { sink, redacts: AtomicBool::new(redacts), lost })
    }

    /// Writes to another output from now on.
    ///
    /// # Errors
    /// The file cannot be opened; the old output stays.
    pub fn set(&self, output: &Output, redacts: bool) -> io::Result<()> {
        self.redacts.store(redacts, Ordering::Relaxed);
        let sink = Sink::open(output, &self.lost)?;
        self.sink.swap(Arc::new(sink)).flush();
        Ok(())
    }

    /// Opens the file anew under its name, after someone moved it away.
    ///
    /// # Errors
    /// It cannot be opened; lines still go to the old one.
    pub fn reopen(&self) -> io::Result<()> {
        let sink = self.sink.load();
        let path = match &**sink {
            Sink::File(path, _) => path,
            Sink::Regular(regular) => &regular.path,
            Sink::Json | Sink::Human | Sink::Off => return Ok(()),
        };
        let new = Sink::file(path, &self.lost)?;
        self.sink.swap(Arc::new(new)).flush();
        Ok(())
    }

    /// Writes one line. A failure is counted and costs nobody anything.
    ///
    /// In a regular file, lines of requests that end together share a `write(2)`: the first of them
    /// gives what holds them until then.
    pub fn line(&self, line: &Line<'_>) -> Option<Waiting> {
        let sink = self.sink.load();
        if matches!(**sink, Sink::Off) {
            return None;
        }
        let written = BUFFER.with_borrow_mut(|buffer| {
            buffer.clear();
            let clean = Clean { redacts: self.redacts.load(Ordering::Relaxed) };
            match &**sink {
                Sink::Human => human(buffer, line, clean)?,
                _ => json(buffer, line, clean),
            }
            buffer.push(b'\n');
            match &**sink {
                Sink::Off => Ok(None),
                Sink::Json | Sink::Human => stderr::write_line(buffer).map(|()| None),
                Sink::File(_, file) => {
                    self.lost.fetch_add(lost(file, buffer), Ordering::Relaxed);
                    Ok(None)
                }
                Sink::Regular(regular) => Ok(regular.gather(buffer)),
            }
        });
        written.unwrap_or_else(|_: io::Error| {
            self.lost.fetch_add(1, Ordering::Relaxed);
            None
        })
    }

    /// Writes the lines that wait, and waits for those that are being written.
    pub fn flush(&self) {
        self.sink.load().flush();
    }

    /// Lines that could not be written since the start.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

thread_local! {
    /// Kept between lines, so that a line allocates nothing.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Sink {
    fn flush(&self) {
        if let Self::Regular(regular) = self {
            regular.flush();
        }
    }

    fn open(output: &Output, lost: &Arc<AtomicU64>) -> io::Result<Self> {
        Ok(match output {
            Output::Stderr if stderr::is_terminal() => Self::Human,
            Output::Stderr => Self::Json,
            Output::Off => Self::Off,
            Output::File(path) => Self::file(path, lost)?,
        })
    }

    fn file(path: &Path, lost: &Arc<AtomicU64>) -> io::Result<Self> {
        let (path, file) = (path.to_path_buf(), append(path)?);
        if !file.metadata().is_ok_and(|m| m.is_file()) {
            return Ok(Self::File(path, file));
        }
        let (lines, writing, lost) = (Mutex::default(), Mutex::default(), lost.clone());
        Ok(Self::Regular(Arc::new(Regular { path, file, lines, writing, lost })))
    }
}

fn append(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

/// One write, and how many lines it lost: one that is torn by a full disk is lost, the next one
/// starts where it must.
fn lost(mut file: &File, lines: &[u8]) -> u64 {
    let count = |lines: &[u8]| memchr::memchr_iter(b'\n', lines).count() as u64;
    let n = file.write(lines).unwrap_or(0);
    if n > 0 && n < lines.len() {
        // Where this fails as well, the torn line takes the next one with it.
        file.write_all(b"\n").ok();
    }
    count(&lines[n..])
}

/// Makes a text that a client chose fit for a log.
#[derive(Clone, Copy)]
struct Clean {
    redacts: bool,
}

impl Clean {
    fn text(self, text: &str) -> Cow<'_, str> {
        let clean = if self.redacts { redact(text) } else { Cow::Borrowed(text) };
        if clean.len() <= TEXT_BYTES_MAX {
            return clean;
        }
        let cut = clean.floor_char_boundary(TEXT_BYTES_MAX);
        Cow::Owned(format!("{}…", &clean[..cut]))
    }
}

fn json(out: &mut Vec<u8>, l: &Line<'_>, clean: Clean) {
    let text = |t| clean.text(t);
    let mut line = Json::open(out);
    line.plain(name!("ts"), &l.ts).text(name!("request_id"), &text(l.request_id));
    line.maybe(name!("event_id"), l.event_id);
    line.text(name!("method"), &text(l.method)).text(name!("path"), &text(l.path));
    line.number(name!("status"), l.status.into()).maybe(name!("code"), l.code);
    line.text(name!("outcome"), l.outcome).flag(name!("streamed"), l.streamed);
    line.maybe(name!("key"), l.key).maybe(name!("team"), l.team);
    line.maybe(name!("requested_model"), l.requested_model.map(text).as_deref());
    line.maybe(name!("model"), l.model.map(text).as_deref()).maybe(name!("provider"), l.provider);
    line.number(name!("attempts"), l.attempts.into());
    line.number(name!("input_tokens"), l.usage.input)
        .number(name!("cached_tokens"), l.usage.cached);
    line.number(name!("cache_write_tokens"), l.usage.cache_write);
    line.number(name!("output_tokens"), l.usage.output)
        .number(name!("reasoning_tokens"), l.usage.reasoning);
    line.count(name!("cost_nano_usd"), l.cost.map(|cost| cost.0))
        .count(name!("ttft_ms"), l.ttft_ms);
    line.number(name!("duration_ms"), l.duration_ms).number(name!("overhead_us"), l.overhead_us);
    line.maybe(name!("client"), l.client);
    line.maybe(name!("user_agent"), l.user_agent.map(text).as_deref());
    line.close();
}

/// `12:00:01 POST /v1/chat/completions 200 success ci gpt-4o@openai 12+34 tokens $0.000123 1.2s`
fn human(out: &mut Vec<u8>, l: &Line<'_>, clean: Clean) -> io::Result<()> {
    let (method, path) = (clean.text(l.method), clean.text(l.path));
    let status = l.status;
    // Control characters in a path must not reach a person's terminal.
    let (method, path) = (method.escape_debug(), path.escape_debug());
    write!(out, "{} {method} {path} {status} {}", l.ts.strftime("%H:%M:%S"), l.outcome)?;
    for part in [l.code, l.key].into_iter().flatten() {
        write!(out, " {part}")?;
    }
    if let (Some(model), Some(provider)) = (l.model, l.provider) {
        write!(out, " {}@{provider}", clean.text(model).escape_debug())?;
    }
    let u = &l.usage;
    let prompt = u.input.saturating_add(u.cached).saturating_add(u.cache_write);
    if prompt > 0 || u.output > 0 {
        write!(out, " {prompt}+{} tokens", u.output)?;
    }
    if let Some(cost) = l.cost {
        write!(out, " ${}.{:09}", cost.0 / 1_000_000_000, cost.0 % 1_000_000_000)?;
    }
    write!(out, " {} ms", l.duration_ms)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    fn sample() -> Line<'static> {
        Line {
            ts: jiff::Timestamp::UNIX_EPOCH,
            request_id: "req-1",
            event_id: Some("0190"),
            method: "POST",
            path: "/v1/chat/completions",
            status: 200,
            code: None,
            outcome: "success",
            streamed: false,
            key: Some("ci"),
            team: Some("search"),
            requested_model: Some("gpt-4o"),
            model: Some("gpt-4o-2024"),
            provider: Some("openai"),
            attempts: 1,
            usage: Usage { input: 10, cached: 2, cache_write: 0, output: 34, reasoning: 0 },
            cost: Some(NanoUsd(1_000_123_000)),
            ttft_ms: None,
            duration_ms: 1200,
            overhead_us: 42,
            client: Some("127.0.0.1"),
            user_agent: Some("curl/8"),
        }
    }

    fn written(lines: &[Line<'_>], redacts: bool) -> Vec<serde_json::Value> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/access.log");
        let log = AccessLog::open(&Output::File(path.clone()), redacts).unwrap();
        let waits: Vec<Option<Waiting>> = lines.iter().map(|l| log.line(l)).collect();
        let firsts = waits.iter().enumerate().filter(|(_, waits)| waits.is_some());
        assert_eq!(firsts.map(|(at, _)| at).collect::<Vec<_>>(), [0]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
        drop(waits);
        assert_eq!(log.lost(), 0);
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    #[test]
    fn a_request_is_one_json_object_on_one_line() {
        let odd = Line { path: "/a\nb\"", user_agent: None, event_id: None, ..sample() };
        let all = written(&[sample(), odd], true);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0]["status"], 200);
        assert_eq!(all[0]["cached_tokens"], 2);
        assert_eq!(all[0]["cost_nano_usd"], 1_000_123_000);
        assert_eq!(all[0]["ts"], "1970-01-01T00:00:00Z");
        assert_eq!(all[1]["path"], "/a\nb\"");
        assert!(all[1]["event_id"].is_null());
    }

    #[test]
    fn what_a_client_chose_is_redacted_and_cut() {
        let long = "é".repeat(300);
        let bad = Line {
            requested_model: Some("sk-leak-attempt-77aa"),
            user_agent: Some(&long),
            path: "/v1/x sk-0123456789",
            ..sample()
        };
        let all = written(&[bad], true);
        assert_eq!(all[0]["requested_model"], "sk-***");
        assert_eq!(all[0]["path"], "/v1/x sk-***");
        let agent = all[0]["user_agent"].as_str().unwrap();
        assert!(agent.len() < 210 && agent.ends_with('…'), "{agent}");
        let open = written(&[Line { path: "/sk-0123456789", ..sample() }], false);
        assert_eq!(open[0]["path"], "/sk-0123456789", "redact = false means what it says");
    }

    #[test]
    fn the_longest_line_fits_a_pipe_that_promised_room() {
        let (plain, odd) = ("m".repeat(4000), "\u{1}".repeat(4000));
        let line = Line {
            request_id: &plain,
            method: &plain,
            path: &plain,
            // Heads hold no control characters, a JSON body's model may.
            requested_model: Some(&odd),
            model: Some(&plain),
            user_agent: Some(&plain),
            ..sample()
        };
        let mut out = Vec::new();
        json(&mut out, &line, Clean { redacts: true });
        assert!(out.len() < stderr::LINE_BYTES_MAX, "{}", out.len());
    }

    #[test]
    fn a_person_gets_one_short_line_without_control_characters() {
        let mut out = Vec::new();
        human(&mut out, &sample(), Clean { redacts: true }).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "00:00:00 POST /v1/chat/completions 200 success ci gpt-4o-2024@openai \
             12+34 tokens $1.000123000 1200 ms"
        );
        let mut out = Vec::new();
        let line = Line { path: "/\u{1b}[2J", ..sample() };
        human(&mut out, &line, Clean { redacts: true }).unwrap();
        assert!(!out.contains(&0x1b));
    }

    #[test]
    fn a_moved_file_is_left_after_reopen_and_a_full_one_only_counted() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("access.log"), folder.path().join("access.1"));
        let log = AccessLog::open(&Output::File(path.clone()), true).unwrap();
        let first = log.line(&sample()).unwrap();
        std::fs::rename(&path, &old).unwrap();
        assert!(log.line(&sample()).is_none());
        log.reopen().unwrap();
        drop((log.line(&sample()).unwrap(), first));
        let lines = |p: &Path| std::fs::read_to_string(p).unwrap().lines().count();
        assert_eq!((lines(&old), lines(&path)), (2, 1));
        let full = AccessLog::open(&Output::File("/dev/full".into()), true).unwrap();
        assert!(full.line(&sample()).is_none());
        assert_eq!(full.lost(), 1);
    }

    #[test]
    fn many_lines_wait_for_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let log = AccessLog::open(&Output::File(path.clone()), true).unwrap();
        let firsts: Vec<Waiting> = (0..1000).filter_map(|_| log.line(&sample())).collect();
        let lines = || std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(firsts.len() > 5 && lines() > 900, "{} {}", firsts.len(), lines());
        log.flush();
        assert_eq!((lines(), log.lost()), (1000, 0));
    }

    #[test]
    fn a_line_goes_where_it_was_written_to_whatever_is_in_force_when_it_leaves() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let log = AccessLog::open(&Output::File(path.clone()), true).unwrap();
        let lines = || std::fs::read_to_string(&path).unwrap().lines().count();
        // Who writes has looked where to before it changes.
        let Sink::Regular(before) = &**log.sink.load() else { panic!() };
        let first = log.line(&sample());
        log.set(&Output::Off, true).unwrap();
        assert_eq!(lines(), 1);
        let late = before.gather(b"late\n");
        assert!(late.is_some());
        drop((late, first));
        assert_eq!((lines(), log.lost()), (2, 0));
    }

    #[test]
    fn a_flush_waits_for_the_one_that_is_under_way() {
        let folder = tempfile::tempdir().unwrap();
        let log = AccessLog::open(&Output::File(folder.path().join("a.log")), true).unwrap();
        let Sink::Regular(regular) = &**log.sink.load() else { panic!() };
        let (writing, done) = (regular.writing.lock(), AtomicBool::new(false));
        std::thread::scope(|s| {
            let flush = s.spawn(|| {
                log.flush();
                assert!(done.load(Ordering::Acquire));
            });
            done.store(true, Ordering::Release);
            drop(writing);
            flush.join().unwrap();
        });
    }
}
