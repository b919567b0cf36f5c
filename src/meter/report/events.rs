//! Single events of the ledger, whole.

use super::{Error, moment};
use crate::store;
use jiff::Timestamp;
use rusqlite::types::ValueRef;
use rusqlite::{Row, params_from_iter};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::Path;
use uuid::Uuid;

/// Events of one answer unless it is said; and at most.
const LIMIT: u32 = 100;
const LIMIT_MAX: u32 = 1_000;

/// Which events.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // each is the event's member of its name
pub struct Filter {
    pub event_id: Option<String>,
    pub request_id: Option<String>,
    /// The key's name, or its id.
    pub key: Option<String>,
    pub team: Option<String>,
    pub model: Option<String>,
    pub provider: Option<String>,
    pub outcome: Option<String>,
    pub status: Option<u16>,
    /// From this moment on: a time, a date, or how long ago.
    pub since: Option<String>,
    /// Before this moment.
    pub until: Option<String>,
    /// At most so many.
    pub limit: Option<u32>,
}

/// The events that a filter names, newest first, each as the spool has it.
///
/// # Errors
/// [`Error::Usage`] for a time that is none; [`Error::Store`].
pub fn events(db: &Path, filter: &Filter, now: Timestamp) -> Result<Vec<Value>, Error> {
    let mut conditions = vec!["1"];
    let mut values: Vec<rusqlite::types::Value> = Vec::new();
    let mut narrow = |condition: &'static str, value: Option<rusqlite::types::Value>| {
        if let Some(value) = value {
            conditions.push(condition);
            values.push(value);
        }
    };
    let text = |text: &Option<String>| text.clone().map(rusqlite::types::Value::Text);
    let at = |time: &Option<String>| -> Result<Option<rusqlite::types::Value>, Error> {
        let at = time.as_deref().map(|t| moment(t, now)).transpose()?;
        Ok(at.map(|at| at.as_microsecond().into()))
    };
    let id = match filter.event_id.as_deref().map(Uuid::try_parse) {
        None => None,
        Some(Ok(id)) => Some(id.as_bytes().to_vec().into()),
        Some(Err(_)) => return Err(Error::Usage("event_id is no UUID".into())),
    };
    narrow("event_id = ?", id);
    narrow("request_id = ?", text(&filter.request_id));
    narrow("? IN (key_name, key_id)", text(&filter.key));
    narrow("team = ?", text(&filter.team));
    narrow("model = ?", text(&filter.model));
    narrow("provider = ?", text(&filter.provider));
    narrow("outcome = ?", text(&filter.outcome));
    narrow("status = ?", filter.status.map(|s| i64::from(s).into()));
    narrow("ts >= ?", at(&filter.since)?);
    narrow("ts < ?", at(&filter.until)?);
    let limit = filter.limit.unwrap_or(LIMIT).min(LIMIT_MAX);
    let connection = match store::open_read(db) {
        Err(store::Error::Missing(_)) => return Ok(Vec::new()),
        opened => opened?,
    };
    let sql = |e: rusqlite::Error| Error::from(store::Error::of(db, &e));
    let conditions = conditions.join(" AND ");
    let select = format!("SELECT * FROM events WHERE {conditions} ORDER BY ts DESC LIMIT {limit}");
    let mut select = connection.prepare(&select).map_err(sql)?;
    let names: Vec<String> = select.column_names().map(str::to_owned).collect();
    let rows = select.query_map(params_from_iter(values), |row| event(row, &names));
    rows.map_err(sql)?.collect::<Result<_, _>>().map_err(sql)
}

fn event(row: &Row<'_>, names: &[String]) -> rusqlite::Result<Value> {
    let mut out = Map::new();
    for (i, name) in names.iter().enumerate() {
        let value = match (name.as_str(), row.get_ref(i)?) {
            ("event_id", ValueRef::Blob(id)) => {
                Uuid::from_slice(id).map_or(Value::Null, |id| id.to_string().into())
            }
            ("ts", ValueRef::Integer(at)) => {
                Timestamp::from_microsecond(at).map_or(Value::Null, |at| at.to_string().into())
            }
            ("streamed", ValueRef::Integer(n)) => (n != 0).into(),
            ("tags" | "attempts" | "units", ValueRef::Text(json)) => {
                serde_json::from_slice(json).unwrap_or_default()
            }
            (_, ValueRef::Integer(n)) => n.into(),
            (_, ValueRef::Text(text)) => String::from_utf8_lossy(text).into(),
            _ => Value::Null,
        };
        out.insert(name.clone(), value);
    }
    Ok(Value::Object(out))
}
