//! Arguments; one subcommand, one function.

mod demo;
mod explain;
mod keys;
mod report;
mod vault;

use crate::config::{self, Watch};
use crate::server::{self, Options, Source};
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Bad usage, and what this version does not do (sysexits.h EX_USAGE).
const EXIT_USAGE: u8 = 64;
/// Bad config (sysexits.h EX_CONFIG).
const EXIT_CONFIG: u8 = 78;
/// Where config is looked for without `--config` and `WEIR_CONFIG`, in this order.
const USUAL_PLACES: &[&str] = &["weir.toml", "/etc/weir/weir.toml"];

/// An LLM gateway: one endpoint in front of every model provider, every token metered.
#[derive(Debug, Parser)]
#[command(name = "weir", version, subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    /// Config file; else ./weir.toml, then /etc/weir/weir.toml
    #[arg(long, global = true, env = "WEIR_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway
    Run {
        /// Take the sockets over from the running one (not in this version)
        #[arg(long)]
        upgrade: bool,
    },
    /// Load the config and print every fault
    Check {
        /// Also ask each target (not in this version)
        #[arg(long)]
        online: bool,
        /// Say which keys and models gain or lose what against this older config
        #[arg(long, value_name = "OLD")]
        diff: Option<PathBuf>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a small config to start from
    Init {
        /// Folder to write weir.toml into
        #[arg(default_value = ".")]
        dir: PathBuf,
    },
    /// Run the gateway with a simulated provider: no account needed
    Demo,
    /// Usage and cost from the ledger
    Report(report::Report),
    /// Virtual keys in the store
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Provider credentials, sealed at rest
    #[command(subcommand)]
    Vault(vault::Vault),
    /// A dry run of one request, or a past one: rules, targets, price and the upstream request
    Explain(explain::Explain),
    /// Another gateway's config as ours (not in this version)
    Import(Rest),
    /// Completions for a shell, to be sourced
    Completions {
        /// Which one
        shell: clap_complete::Shell,
    },
}

/// Whatever follows.
#[derive(Debug, Args)]
struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    rest: Vec<String>,
}

/// Runs the command line.
#[must_use]
pub fn main() -> ExitCode {
    let code = match Cli::try_parse() {
        Ok(cli) => dispatch(cli),
        Err(error) => {
            let _ = error.print(); // help to standard output, faults to standard error
            if error.use_stderr() { EXIT_USAGE } else { server::EXIT_OK }
        }
    };
    ExitCode::from(code)
}

fn dispatch(cli: Cli) -> u8 {
    let path = cli.config.or_else(usual);
    match cli.command {
        Command::Run { upgrade: true } => later("run --upgrade"),
        Command::Run { upgrade: false } => run(path),
        Command::Check { online: true, .. } => later("check --online"),
        Command::Check { diff, json, .. } => check(path.as_deref(), diff.as_deref(), json),
        Command::Init { dir } => init(&dir),
        Command::Demo => demo::demo(),
        Command::Report(args) => report::report(path.as_deref(), &args),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "weir", &mut text);
            say(String::from_utf8_lossy(&text).trim_end());
            server::EXIT_OK
        }
        Command::Keys(what) => keys::keys(path.as_deref(), what),
        Command::Vault(what) => vault::vault(path.as_deref(), &what),
        Command::Explain(args) => explain::explain(path.as_deref(), &args),
        Command::Import(_) => later("import"),
    }
}

fn usual() -> Option<PathBuf> {
    USUAL_PLACES.iter().map(PathBuf::from).find(|path| path.exists())
}

fn run(path: Option<PathBuf>) -> u8 {
    let Some(path) = path else { return run_without_config() };
    let reading = config::read(&path);
    let watch = Watch::new(&reading);
    match reading.result {
        Ok(loaded) => {
            server::run(loaded, Options { source: Source::File(path, watch), banner: None })
        }
        Err(faults) => refuse(&faults),
    }
}

fn run_without_config() -> u8 {
    let zero = match config::zero(&|name| std::env::var(name).ok()) {
        Ok(zero) => zero,
        Err(what_to_set) => {
            complain(&what_to_set);
            return EXIT_CONFIG;
        }
    };
    let mut banner = format!("providers: {}\n", zero.providers.join(", "));
    match &zero.generated {
        Some(key) => {
            let _ = writeln!(banner, "key (until the process ends): {}", key.expose());
        }
        None => banner.push_str("key: WEIR_KEY\n"),
    }
    let banner: server::Banner = Box::new(|_| banner);
    server::run(zero.loaded, Options { source: Source::Fixed, banner: Some(banner) })
}

fn check(path: Option<&Path>, old: Option<&Path>, json: bool) -> u8 {
    let Some(path) = path else {
        complain("no config: give --config FILE, or write one with `weir init`");
        return EXIT_CONFIG;
    };
    let report = config::check(path, old);
    let code = if report.is_sound() { server::EXIT_OK } else { EXIT_CONFIG };
    match (json, report.is_sound()) {
        (true, _) => say(&format!("{:#}", report.json())),
        (false, true) => say(&report.to_string()),
        (false, false) => complain(&report.to_string()),
    }
    code
}

fn init(dir: &Path) -> u8 {
    match config::init(dir) {
        Ok(text) => {
            say(&text);
            server::EXIT_OK
        }
        Err(why) => {
            complain(&format!("weir init: {why}"));
            server::EXIT_UNAVAILABLE
        }
    }
}

/// The config, or what the environment gives without one.
///
/// # Errors
/// The exit code, after the faults were told.
fn snapshot(path: Option<&Path>) -> Result<config::Snapshot, u8> {
    let Some(path) = path else {
        let zero = config::zero(&|name| std::env::var(name).ok());
        return zero.map(|zero| zero.loaded.snapshot).map_err(|what_to_set| {
            complain(&what_to_set);
            EXIT_CONFIG
        });
    };
    config::load(path).map(|loaded| loaded.snapshot).map_err(|faults| refuse(&faults))
}

/// Columns under their names, as wide as their widest entry.
fn table(names: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let head: Vec<String> = names.iter().map(|name| name.to_uppercase()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let wide = |i: usize| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..names.len()).map(wide).collect();
    let cell = |(text, width): (&String, &usize)| format!("{text:<width$}");
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().zip(&widths).map(cell).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn later(what: &str) -> u8 {
    complain(&format!("weir {what}: not in this version"));
    EXIT_USAGE
}

fn refuse(faults: &[config::Fault]) -> u8 {
    for fault in faults {
        complain(&fault.to_string());
    }
    EXIT_CONFIG
}

/// A line for the one who asked. A reader that has left is no fault.
fn say(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// A line about what went wrong.
fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_sound_and_config_may_stand_anywhere() {
        Cli::command().debug_assert();
        for line in ["weir --config a.toml check", "weir check --config a.toml"] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(cli.config.as_deref(), Some(Path::new("a.toml")));
        }
        assert!(Cli::try_parse_from(["weir", "frobnicate"]).is_err());
        let create = ["weir", "keys", "create", "--name", "x"];
        assert!(Cli::try_parse_from(create).is_ok());
    }
}
