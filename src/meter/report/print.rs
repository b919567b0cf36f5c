//! A report as a table, CSV or JSON. Each value is put in its form once, however many rows have it.

use super::figures::Figure;
use super::names::Value;
use super::{Query, Table};
use std::fmt::{Display, Write};

/// A row's bytes, about: room is made once.
const ROW_BYTES: usize = 320;

impl Table {
    /// Every value of the grouping columns, written so.
    fn written(&self, write: impl Fn(&Value) -> String) -> Vec<String> {
        self.names.all().iter().map(write).collect()
    }

    /// Each row's values by number, and its figures.
    fn each(&mut self, query: &Query, mut row: impl FnMut(&[u32], &[Figure])) {
        for (key, sums) in &mut self.rows {
            row(key, &sums.figures(query.currency.as_ref()));
        }
    }
}

fn at(values: &[String], n: u32) -> &str {
    values.get(n as usize).map_or("", String::as_str)
}

/// Writing to a string cannot fail.
fn put(out: &mut String, what: impl Display) {
    let _ = write!(out, "{what}");
}

/// Aligned columns: names to the left, numbers to the right; a total below.
pub(super) fn table(table: &mut Table, query: &Query) -> String {
    let values = table.written(plain);
    let mut widths: Vec<usize> =
        table.by.iter().chain(&table.figures).map(|name| name.chars().count()).collect();
    let by = table.by.len();
    let mut total: Vec<String> = vec![String::new(); by];
    if let Some(first) = total.first_mut() {
        *first = "total".into();
    }
    total.extend(table.total.figures(query.currency.as_ref()).iter().map(number));
    let measure = |widths: &mut [usize], cells: &mut dyn Iterator<Item = &str>| {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = cell.chars().count().max(*width);
        }
    };
    measure(&mut widths, &mut total.iter().map(String::as_str));
    let mut cells = Vec::new();
    table.each(query, |key, figures| {
        cells.clear();
        cells.extend(figures.iter().map(number));
        let names = key.iter().map(|n| at(&values, *n));
        measure(&mut widths, &mut names.chain(cells.iter().map(String::as_str)));
    });
    let mut out = String::with_capacity((table.rows.len() + 4) * ROW_BYTES);
    let head: Vec<&str> = table.by.iter().chain(&table.figures).map(String::as_str).collect();
    line(&mut out, &mut head.into_iter(), &widths, by);
    table.each(query, |key, figures| {
        cells.clear();
        cells.extend(figures.iter().map(number));
        let names = key.iter().map(|n| at(&values, *n));
        line(&mut out, &mut names.chain(cells.iter().map(String::as_str)), &widths, by);
    });
    line(&mut out, &mut total.iter().map(String::as_str), &widths, by);
    let span = |t: Option<jiff::Timestamp>, open: &str| t.map_or(open.into(), |t| t.to_string());
    let (since, until) = (span(query.since, "the beginning"), span(query.until, "now"));
    put(&mut out, format_args!("\nfrom {since} until {until}, UTC\n"));
    if table.lag > 0 {
        let lag = table.lag;
        put(&mut out, format_args!("{lag} events wait in the spool and are not in it yet\n"));
    }
    out
}

fn line(out: &mut String, cells: &mut dyn Iterator<Item = &str>, widths: &[usize], by: usize) {
    let start = out.len();
    for (i, (cell, width)) in cells.zip(widths).enumerate() {
        let gap = if i == 0 { "" } else { "  " };
        if i < by {
            put(out, format_args!("{gap}{cell:<width$}"));
        } else {
            put(out, format_args!("{gap}{cell:>width$}"));
        }
    }
    out.truncate(out.trim_end().len().max(start));
    out.push('\n');
}

/// A figure for people.
fn number(figure: &Figure) -> String {
    match figure {
        Figure::Unknown => "-".into(),
        known => known.to_string(),
    }
}

/// Text of a cell for people. Control characters could be a caller's, and meant for a terminal.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::Number(n) => n.to_string(),
        Value::Text(text) => {
            text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
        }
    }
}

/// RFC 4180 with a head and without the total: a spreadsheet makes its own.
pub(super) fn csv(table: &mut Table, query: &Query) -> String {
    let values = table.written(|value| match value {
        Value::Null => String::new(),
        Value::Number(n) => n.to_string(),
        Value::Text(text) => quoted(text),
    });
    let mut out = String::with_capacity((table.rows.len() + 1) * ROW_BYTES);
    let head: Vec<String> = table.by.iter().chain(&table.figures).map(|n| quoted(n)).collect();
    out.push_str(&head.join(","));
    out.push_str("\r\n");
    table.each(query, |key, figures| {
        let mut comma = "";
        for n in key {
            put(&mut out, format_args!("{comma}{}", at(&values, *n)));
            comma = ",";
        }
        for figure in figures {
            out.push_str(comma);
            comma = ",";
            if *figure != Figure::Unknown {
                put(&mut out, figure);
            }
        }
        out.push_str("\r\n");
    });
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
pub(super) fn json(table: &mut Table, query: &Query) -> String {
    let moment = |t: Option<jiff::Timestamp>| t.map_or("null".into(), |t| string(&t.to_string()));
    let values = table.written(|value| match value {
        Value::Null => "null".into(),
        Value::Number(n) => n.to_string(),
        Value::Text(text) => string(text),
    });
    let member = |name: &String| format!("{}:", string(name));
    let by: Vec<String> = table.by.iter().map(member).collect();
    let names: Vec<String> = table.figures.iter().map(member).collect();
    let mut out = String::with_capacity((table.rows.len() + 2) * ROW_BYTES);
    let (since, until, lag) = (moment(query.since), moment(query.until), table.lag);
    // Rows come before any other list: readers that look for the first list find them.
    let head =
        format_args!("{{\"since\":{since},\"until\":{until},\"lag_events\":{lag},\"rows\":[");
    put(&mut out, head);
    let mut next = "{";
    table.each(query, |key, figures| {
        out.push_str(std::mem::replace(&mut next, ",{"));
        let mut comma = "";
        for (name, n) in by.iter().zip(key) {
            put(&mut out, format_args!("{comma}{name}{}", at(&values, *n)));
            comma = ",";
        }
        members(&mut out, comma, &names, figures);
    });
    let columns: Vec<String> = table.by.iter().map(|name| string(name)).collect();
    put(&mut out, format_args!("],\"by\":[{}],\"total\":{{", columns.join(",")));
    members(&mut out, "", &names, &table.total.figures(query.currency.as_ref()));
    out.push_str("}\n");
    out
}

/// Figures, up to the end of their object.
fn members(out: &mut String, mut comma: &'static str, names: &[String], figures: &[Figure]) {
    for (name, figure) in names.iter().zip(figures) {
        put(out, format_args!("{comma}{name}{figure}"));
        comma = ",";
    }
    out.push('}');
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
