//! `weir report`: what was used and what it cost, out of the ledger.

use super::{EXIT_USAGE, complain, say, snapshot};
use crate::meter::report::{self, Error, Format, Query};
use crate::server;
use clap::Args;
use std::path::Path;

/// What is asked.
#[derive(Debug, Args)]
pub struct Report {
    /// Columns to group by, with commas between them
    #[arg(long, value_name = "COLUMNS", default_value = "team,model")]
    by: String,
    /// From this moment on: RFC 3339, a date, or how long ago (24h, 7d)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Before this moment
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Currency of the costs; USD alone in this version
    #[arg(long, value_name = "CODE", default_value = "USD")]
    currency: String,
    /// table, csv or json
    #[arg(long, default_value = "table")]
    format: String,
    /// The same as --format json
    #[arg(long)]
    json: bool,
}

/// Prints it.
pub fn report(path: Option<&Path>, args: &Report) -> u8 {
    let query = match query(args) {
        Ok(query) => query,
        Err(error) => return fail(&error),
    };
    let store = match snapshot(path) {
        Ok(snapshot) => snapshot.store,
        Err(code) => return code,
    };
    match report::report(&store.path, &store.spool, &query) {
        Ok(text) => {
            say(text.trim_end_matches('\n'));
            server::EXIT_OK
        }
        Err(error) => fail(&error),
    }
}

fn query(args: &Report) -> Result<Query, Error> {
    let now = jiff::Timestamp::now();
    let moment = |t: &Option<String>| t.as_deref().map(|t| report::moment(t, now)).transpose();
    if args.currency != "USD" {
        let why = format!("--currency {}: only USD in this version", args.currency);
        return Err(Error::Usage(why));
    }
    Ok(Query {
        by: report::columns(&args.by)?,
        since: moment(&args.since)?,
        until: moment(&args.until)?,
        currency: None,
        format: if args.json { Format::Json } else { args.format.parse()? },
    })
}

fn fail(error: &Error) -> u8 {
    complain(&format!("weir report: {error}"));
    match error {
        Error::Usage(_) => EXIT_USAGE,
        Error::Store(_) => server::EXIT_UNAVAILABLE,
    }
}
