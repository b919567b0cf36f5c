//! What a report is asked for: grouping columns, a span of time, a currency, a form.

use super::Error;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

/// What rows are grouped by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    /// A column of the ledger: its name for people, and in the database.
    Plain(&'static str, &'static str),
    /// `tag:NAME`: what follows `NAME=` or `NAME:`, or `true` for a bare tag `NAME`.
    Tag(String),
    /// The first so many characters of the time as RFC 3339, UTC.
    Time(&'static str, usize),
}

/// By name. A key without a name is its id; `model` is the one that served.
const COLUMNS: [Column; 15] = [
    Column::Plain("department", "department"),
    Column::Plain("team", "team"),
    Column::Plain("user", "user"),
    Column::Plain("end_user", "end_user"),
    Column::Plain("key", "coalesce(key_name, key_id)"),
    Column::Plain("model", "model"),
    Column::Plain("requested_model", "requested_model"),
    Column::Plain("provider", "provider"),
    Column::Plain("credential", "credential"),
    Column::Plain("endpoint", "endpoint"),
    Column::Plain("task_type", "task_type"),
    Column::Plain("status", "status"),
    Column::Time("hour", 13),
    Column::Time("day", 10),
    Column::Time("month", 7),
];

impl Column {
    /// As the report's head has it.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Plain(name, _) | Self::Time(name, _) => (*name).into(),
            Self::Tag(name) => format!("tag:{name}"),
        }
    }
}

/// How a report is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// Aligned columns for people.
    #[default]
    Table,
    /// RFC 4180, with a head.
    Csv,
    /// One object.
    Json,
}

impl std::str::FromStr for Format {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "table" => Ok(Self::Table),
            "csv" => Ok(Self::Csv),
            "json" => Ok(Self::Json),
            _ => Err(Error::Usage(format!("no format `{text}`; there are table, csv and json"))),
        }
    }
}

/// A currency other than US dollars, as one more column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Currency {
    /// As in `CNY`.
    pub code: String,
    /// Nano-USD that one of it is worth; 0.14 USD is 140,000,000. Never 0.
    pub nano_usd: NonZeroU64,
}

/// What is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// Grouping columns, in order; none gives one row.
    pub by: Vec<Column>,
    /// Events from this moment on.
    pub since: Option<Timestamp>,
    /// Events before this moment.
    pub until: Option<Timestamp>,
    /// Costs in this too.
    pub currency: Option<Currency>,
    /// How it is written.
    pub format: Format,
}

impl Query {
    /// Between `--since` and `--until`, each as [`moment`] reads it.
    ///
    /// # Errors
    /// [`Error::Usage`]: no moments, or a span that ends before it begins.
    pub fn within(
        self,
        since: Option<&str>,
        until: Option<&str>,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let read = |text: Option<&str>| text.map(|t| moment(t, now)).transpose();
        let (since, until) = (read(since)?, read(until)?);
        match (since, until) {
            (Some(since), Some(until)) if since > until => {
                Err(Error::Usage(format!("since {since} is after until {until}")))
            }
            _ => Ok(Self { since, until, ..self }),
        }
    }
}

/// `--currency`, by what one unit of each is worth in nano-USD; `None` is USD alone.
///
/// # Errors
/// [`Error::Usage`]: it has no rate.
pub fn currency(
    code: Option<&str>,
    rates: &BTreeMap<String, NonZeroU64>,
) -> Result<Option<Currency>, Error> {
    let Some(code) = code.filter(|code| *code != "USD") else { return Ok(None) };
    let Some(nano_usd) = rates.get(code).copied() else {
        let known: Vec<&str> = rates.keys().map(String::as_str).collect();
        let known = known.join(", ");
        let why = format!("the currency {code} has no rate in [currency]; there are {known}");
        return Err(Error::Usage(why));
    };
    Ok(Some(Currency { code: code.to_owned(), nano_usd }))
}

/// `--by`: names with commas between them.
///
/// # Errors
/// [`Error::Usage`] with the nearest right name.
pub fn columns(by: &str) -> Result<Vec<Column>, Error> {
    let mut all: Vec<Column> = Vec::new();
    for name in by.split(',').map(str::trim).filter(|n| !n.is_empty()) {
        let one = column(name)?;
        if !all.contains(&one) {
            all.push(one);
        }
    }
    Ok(all)
}

/// One column by its name.
///
/// # Errors
/// [`Error::Usage`] with the nearest right name.
pub fn column(name: &str) -> Result<Column, Error> {
    if let Some(tag) = name.strip_prefix("tag:").filter(|t| !t.is_empty()) {
        return Ok(Column::Tag(tag.into()));
    }
    if let Some(known) = COLUMNS.iter().find(|c| c.name() == name) {
        return Ok(known.clone());
    }
    let names: Vec<String> =
        COLUMNS.iter().map(Column::name).chain(["tag:NAME".to_string()]).collect();
    let nearest = names.iter().min_by_key(|n| distance(name, n)).map_or("", String::as_str);
    let all = names.join(", ");
    Err(Error::Usage(format!("no column `{name}`; did you mean `{nearest}`? There are {all}")))
}

/// Characters to insert, delete or replace to get from one name to the other.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.chars().enumerate() {
            let replaced = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(corner + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

/// `--since` and `--until`: RFC 3339, a date (its first moment, UTC), or how long ago, as in
/// `24h`, `7d` or `2w`.
///
/// # Errors
/// [`Error::Usage`].
pub fn moment(text: &str, now: Timestamp) -> Result<Timestamp, Error> {
    let bad = || {
        Error::Usage(format!(
            "`{text}` is no time; write 2026-11-30, 2026-11-30T08:00:00Z, or 24h, 7d, 2w for so \
             long ago"
        ))
    };
    if let Ok(exact) = text.parse::<Timestamp>() {
        return Ok(exact);
    }
    if text.len() == "2026-11-30".len()
        && let Ok(midnight) = format!("{text}T00:00:00Z").parse()
    {
        return Ok(midnight);
    }
    let unit = match text.chars().next_back() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3600,
        Some('d') => 86_400,
        Some('w') => 7 * 86_400,
        _ => return Err(bad()),
    };
    let count: u64 = text[..text.len() - 1].parse().map_err(|_| bad())?;
    let ago = count.checked_mul(unit).map(Duration::from_secs).ok_or_else(bad)?;
    now.checked_sub(ago).map_err(|_| bad())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_column_that_users_are_told_of_is_known() {
        let all = "department,team,user,end_user,key,tag:cost-center,model,requested_model,\
                   provider,credential,endpoint,task_type,status,hour,day,month";
        let names: Vec<String> = columns(all).unwrap().iter().map(Column::name).collect();
        assert_eq!(names.join(","), all);
        assert_eq!(columns("team, team,").unwrap().len(), 1, "said twice is said once");
    }

    #[test]
    fn a_wrong_column_is_told_the_nearest_right_one() {
        for (wrong, right) in
            [("modl", "`model`"), ("departmnt", "`department`"), ("teams", "`team`")]
        {
            let error = columns(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("did you mean {right}")), "{error}");
            assert!(error.contains("requested_model"), "{error}");
        }
    }

    #[test]
    fn a_moment_is_exact_a_date_or_so_long_ago() {
        let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
        let check = |text: &str, want: &str| {
            assert_eq!(moment(text, now).unwrap().to_string(), want, "{text}");
        };
        check("2026-11-30T08:00:00Z", "2026-11-30T08:00:00Z");
        check("2026-11-30T08:00:00+02:00", "2026-11-30T06:00:00Z");
        check("2026-11-29", "2026-11-29T00:00:00Z");
        check("24h", "2026-11-29T12:00:00Z");
        check("7d", "2026-11-23T12:00:00Z");
        check("2w", "2026-11-16T12:00:00Z");
        check("90m", "2026-11-30T10:30:00Z");
        for bad in [
            "",
            "d",
            "yesterday",
            "-3d",
            "2026-13-01",
            "99999999999999999999d",
            "9999999999999w",
            "7日",
        ] {
            assert!(matches!(moment(bad, now), Err(Error::Usage(_))), "{bad}");
        }
    }
}
