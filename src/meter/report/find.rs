//! One past request, out of the ledger.

use crate::store::{self, Error};
use rusqlite::types::ValueRef;
use serde_json::{Value, json};
use std::path::Path;

/// The columns that hold JSON.
const JSON: &[&str] = &["tags", "attempts", "units"];

/// The newest event of this request id, or the one of this event id: its columns
/// in order, by name.
///
/// # Errors
/// The store's.
pub fn find(db: &Path, id: &str) -> Result<Option<Vec<(String, Value)>>, Error> {
    let connection = store::open_read(db)?;
    let sql = |e: rusqlite::Error| Error::of(db, &e);
    let event = uuid::Uuid::parse_str(id).map_or_else(|_| Vec::new(), |id| id.as_bytes().to_vec());
    let query = "SELECT * FROM events WHERE request_id = ?1 OR event_id = ?2 \
                 ORDER BY ts DESC LIMIT 1";
    let mut statement = connection.prepare(query).map_err(sql)?;
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut rows = statement.query(rusqlite::params![id, event]).map_err(sql)?;
    let Some(row) = rows.next().map_err(sql)? else { return Ok(None) };
    let column = |(i, name): (usize, String)| {
        let value = row.get_ref(i).map_err(sql)?;
        let value = shown(&name, value);
        Ok((name, value))
    };
    names.into_iter().enumerate().map(column).collect::<Result<_, _>>().map(Some)
}

/// As the event's own line writes it.
fn shown(name: &str, value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(n) if name == "streamed" => json!(n != 0),
        ValueRef::Integer(n) if name == "ts" => {
            let at = jiff::Timestamp::from_microsecond(n);
            at.map_or(json!(n), |at| json!(at.to_string()))
        }
        ValueRef::Integer(n) => json!(n),
        ValueRef::Real(n) => json!(n),
        ValueRef::Text(text) => {
            let text = String::from_utf8_lossy(text);
            let parsed = JSON.contains(&name).then(|| serde_json::from_str(&text).ok()).flatten();
            parsed.unwrap_or_else(|| json!(text))
        }
        ValueRef::Blob(bytes) => match uuid::Uuid::from_slice(bytes) {
            Ok(id) => json!(id.to_string()),
            Err(_) => Value::Null,
        },
    }
}
