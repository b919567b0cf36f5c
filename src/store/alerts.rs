//! Alerts that were given, so that none is given twice, and whether their webhook has heard.

use rusqlite::{Connection, Result, params};

/// One alert that waits for its webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertRow {
    /// Whose, in which period, at which threshold.
    pub id: String,
    /// What is posted.
    pub body: String,
}

/// Remembers an alert; false where it was given before. `created` is in microseconds since 1970.
///
/// # Errors
/// SQLite's.
pub fn insert(db: &Connection, row: &AlertRow, created: i64) -> Result<bool> {
    let sql = "INSERT INTO alerts (id, body, created) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
    Ok(db.prepare_cached(sql)?.execute(params![row.id, row.body, created])? == 1)
}

/// The alerts whose webhook has not heard, oldest first, at most `most`.
///
/// # Errors
/// SQLite's.
pub fn waiting(db: &Connection, most: usize) -> Result<Vec<AlertRow>> {
    let sql = "SELECT id, body FROM alerts WHERE heard IS NULL ORDER BY created LIMIT ?1";
    let mut select = db.prepare_cached(sql)?;
    let rows = select.query_map([i64::try_from(most).unwrap_or(i64::MAX)], |row| {
        Ok(AlertRow { id: row.get(0)?, body: row.get(1)? })
    })?;
    rows.collect()
}

/// The webhook has heard, or is not to hear any more.
///
/// # Errors
/// SQLite's.
pub fn heard(db: &Connection, id: &str, now: i64) -> Result<()> {
    let sql = "UPDATE alerts SET heard = ?2, body = '' WHERE id = ?1";
    db.prepare_cached(sql)?.execute(params![id, now]).map(drop)
}

/// Forgets what was given before `before`: the longest period is over by then.
///
/// # Errors
/// SQLite's.
pub fn forget(db: &Connection, before: i64) -> Result<()> {
    let sql = "DELETE FROM alerts WHERE created < ?1 AND heard IS NOT NULL AND id NOT LIKE ?2";
    // What never begins anew is never forgotten.
    db.prepare_cached(sql)?.execute(params![before, "budget|%|ever|%"]).map(drop)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_is_given_once_and_waits_until_it_is_heard() {
        let dir = tempfile::tempdir().unwrap();
        let db = crate::store::open(&dir.path().join("weir.db")).unwrap();
        let row = |id: &str| AlertRow { id: id.into(), body: "{}".into() };
        assert!(insert(&db, &row("a"), 2).unwrap() && insert(&db, &row("b"), 1).unwrap());
        assert!(!insert(&db, &row("a"), 3).unwrap());
        assert_eq!(waiting(&db, 9).unwrap(), [row("b"), row("a")]);
        heard(&db, "a", 4).unwrap();
        assert_eq!(waiting(&db, 9).unwrap(), [row("b")]);
        assert!(!insert(&db, &row("a"), 5).unwrap(), "heard is given, too");
        forget(&db, 3).unwrap();
        assert!(insert(&db, &row("a"), 6).unwrap(), "its period is long over");
        assert!(!insert(&db, &row("b"), 6).unwrap(), "what nobody has heard is not forgotten");
    }
}
