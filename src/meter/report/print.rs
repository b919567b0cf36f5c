//! A report as a table, CSV or JSON.

use super::{Cell, Query, Table};
use std::fmt::Write;

/// Aligned columns: names to the left, numbers to the right; a total below.
pub(super) fn table(table: &Table, query: &Query) -> String {
    let mut lines: Vec<Vec<String>> = vec![table.columns.clone()];
    lines.extend(table.rows.iter().map(|row| row.iter().map(plain).collect()));
    let mut total = vec![String::new(); table.by];
    if let Some(first) = total.first_mut() {
        *first = "total".into();
    }
    total.extend(table.total.iter().map(plain));
    lines.push(total);
    let width = |i: usize| {
        lines.iter().filter_map(|l| l.get(i)).map(|c| c.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let mut out = String::new();
    for line in &lines {
        let start = out.len();
        for (i, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let gap = if i == 0 { "" } else { "  " };
            // Writing to a string cannot fail.
            let _ = if i < table.by {
                write!(out, "{gap}{cell:<width$}")
            } else {
                write!(out, "{gap}{cell:>width$}")
            };
        }
        out.truncate(out.trim_end().len().max(start));
        out.push('\n');
    }
    let span = |t: Option<jiff::Timestamp>, open: &str| t.map_or(open.into(), |t| t.to_string());
    let (since, until) = (span(query.since, "the beginning"), span(query.until, "now"));
    let _ = writeln!(out, "\nfrom {since} until {until}, UTC");
    if table.lag > 0 {
        let _ = writeln!(out, "{} events wait in the spool and are not in it yet", table.lag);
    }
    out
}

/// Text of a cell for people. Control characters could be a caller's, and meant for a terminal.
fn plain(cell: &Cell) -> String {
    match cell {
        Cell::Null => "-".into(),
        Cell::Number(n) => n.clone(),
        Cell::Text(text) => {
            text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
        }
    }
}

/// RFC 4180 with a head and without the total: a spreadsheet makes its own.
pub(super) fn csv(table: &Table) -> String {
    let mut out = String::new();
    let head: Vec<Cell> = table.columns.iter().cloned().map(Cell::Text).collect();
    for row in std::iter::once(&head).chain(&table.rows) {
        for (i, cell) in row.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            match cell {
                Cell::Null => {}
                Cell::Number(n) => out.push_str(n),
                Cell::Text(text) => out.push_str(&quoted(text)),
            }
        }
        out.push_str("\r\n");
    }
    out
}

/// A caller chooses some names: one that a spreadsheet would run as a formula gets a quote before
/// it (OWASP, "CSV Injection").
fn quoted(text: &str) -> String {
    let risky = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if risky { format!("'{text}") } else { text.into() };
    if text.contains([',', '"', '\n', '\r']) || text.starts_with(' ') || text.ends_with(' ') {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

/// One object; numbers are exact.
pub(super) fn json(table: &Table, query: &Query) -> String {
    let moment = |t: Option<jiff::Timestamp>| t.map_or("null".into(), |t| string(&t.to_string()));
    let by: Vec<String> = table.columns[..table.by].iter().map(|c| string(c)).collect();
    let rows: Vec<String> = table.rows.iter().map(|row| object(&table.columns, row)).collect();
    // Rows come before any other list: readers that look for the first list find them.
    format!(
        "{{\"since\":{},\"until\":{},\"lag_events\":{},\"rows\":[{}],\"by\":[{}],\"total\":{}}}\n",
        moment(query.since),
        moment(query.until),
        table.lag,
        rows.join(","),
        by.join(","),
        object(&table.columns[table.by..], &table.total),
    )
}

fn object(names: &[String], cells: &[Cell]) -> String {
    let member = |(name, cell): (&String, &Cell)| {
        let value = match cell {
            Cell::Null => "null".into(),
            Cell::Number(n) => n.clone(),
            Cell::Text(text) => string(text),
        };
        format!("{}:{value}", string(name))
    };
    let members: Vec<String> = names.iter().zip(cells).map(member).collect();
    format!("{{{}}}", members.join(","))
}

fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_quotes_what_would_break_it_or_run() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,b"), "\"a,b\"");
        assert_eq!(quoted("say \"x\""), "\"say \"\"x\"\"\"");
        assert_eq!(quoted("two\nlines"), "\"two\nlines\"");
        assert_eq!(quoted("=1+1"), "'=1+1");
    }
}
