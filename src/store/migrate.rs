//! The schema, as steps: a database of version n has had the first n.

/// A step is never changed once a release has it; a new one is added below it.
pub(super) const STEPS: &[&str] = &[LEDGER, KEYS_AND_VAULT, ALERTS, SUMS];

/// Usage events, what follows from them, and how far the spool is applied. Times are microseconds
/// since 1970 but for `rollups.hour`, which is seconds; lists are JSON. In `rollups` an absent name
/// is the empty string, since NULLs of a key are never equal.
const LEDGER: &str = "
CREATE TABLE events (
    event_id BLOB NOT NULL UNIQUE,
    ts INTEGER NOT NULL,
    request_id TEXT NOT NULL,
    trace_id TEXT NOT NULL,
    key_id TEXT,
    key_name TEXT,
    team TEXT,
    department TEXT,
    user TEXT,
    end_user TEXT,
    tags TEXT NOT NULL,
    task_type TEXT,
    budget_tier TEXT,
    endpoint TEXT NOT NULL,
    dialect TEXT NOT NULL,
    requested_model TEXT,
    provider TEXT,
    credential TEXT,
    model TEXT,
    limited_by TEXT,
    status INTEGER NOT NULL,
    error_code TEXT,
    outcome TEXT NOT NULL,
    streamed INTEGER NOT NULL,
    attempts TEXT NOT NULL,
    input_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    usage_source TEXT NOT NULL,
    units TEXT NOT NULL,
    cost_nano_usd INTEGER,
    wasted_cost_nano_usd INTEGER NOT NULL,
    price_source TEXT,
    reserved_tokens INTEGER NOT NULL,
    ttft_ms INTEGER,
    duration_ms INTEGER NOT NULL,
    overhead_us INTEGER NOT NULL,
    cache TEXT,
    degraded_from TEXT,
    config_version TEXT NOT NULL
) STRICT;
CREATE INDEX events_ts ON events (ts);
CREATE INDEX events_request_id ON events (request_id);

CREATE TABLE rollups (
    hour INTEGER NOT NULL,
    department TEXT NOT NULL,
    team TEXT NOT NULL,
    user TEXT NOT NULL,
    key TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    status INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    requests INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    cost_nano_usd INTEGER NOT NULL,
    unpriced INTEGER NOT NULL,
    wasted_cost_nano_usd INTEGER NOT NULL,
    PRIMARY KEY (hour, department, team, user, key, provider, model, endpoint, status, outcome)
) STRICT, WITHOUT ROWID;

CREATE TABLE segments (
    name TEXT NOT NULL PRIMARY KEY,
    applied_bytes INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    done_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE admitted (
    event_id BLOB NOT NULL PRIMARY KEY,
    process TEXT NOT NULL,
    line TEXT NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Virtual keys, sealed credentials, and a count of their changes, by which a running gateway
/// sees that it must read them again. Times are microseconds since 1970.
const KEYS_AND_VAULT: &str = "
CREATE TABLE keys (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    definition TEXT NOT NULL,
    enabled INTEGER NOT NULL,
    created INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE key_secrets (
    hash BLOB NOT NULL PRIMARY KEY,
    key_id TEXT NOT NULL,
    until INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX key_secrets_key ON key_secrets (key_id);

CREATE TABLE vault (
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    current INTEGER NOT NULL,
    sealed BLOB NOT NULL,
    created INTEGER NOT NULL,
    PRIMARY KEY (name, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE vault_versions (
    name TEXT NOT NULL PRIMARY KEY,
    last INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE changes (
    what TEXT NOT NULL PRIMARY KEY,
    n INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO changes (what, n) VALUES ('keys', 0), ('vault', 0);
";

/// Budgets' alerts by owner, period and threshold; `heard` is when their webhook took them.
const ALERTS: &str = "
CREATE TABLE alerts (
    id TEXT NOT NULL PRIMARY KEY,
    body TEXT NOT NULL,
    created INTEGER NOT NULL,
    heard INTEGER
) STRICT, WITHOUT ROWID;
";

/// Sums by hour and by day under all that a report may group by, which stands in `groups` once.
/// `start` is in seconds since 1970, `last` in microseconds, `ttft` as `meter::histogram` packs it.
/// The ledger's writer fills them from the events there are.
const SUMS: &str = "
DROP TABLE rollups;
CREATE TABLE groups (
    id INTEGER PRIMARY KEY,
    department TEXT,
    team TEXT,
    user TEXT,
    end_user TEXT,
    key_id TEXT,
    key_name TEXT,
    task_type TEXT,
    endpoint TEXT NOT NULL,
    requested_model TEXT,
    provider TEXT,
    credential TEXT,
    model TEXT,
    tags TEXT NOT NULL,
    status INTEGER NOT NULL,
    outcome TEXT NOT NULL
) STRICT;
CREATE TABLE rollups (
    start INTEGER NOT NULL,
    group_id INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    cost_nano_usd INTEGER NOT NULL,
    unpriced INTEGER NOT NULL,
    wasted_cost_nano_usd INTEGER NOT NULL,
    last INTEGER NOT NULL,
    ttft BLOB NOT NULL,
    PRIMARY KEY (start, group_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE rollups_daily (
    start INTEGER NOT NULL,
    group_id INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    cost_nano_usd INTEGER NOT NULL,
    unpriced INTEGER NOT NULL,
    wasted_cost_nano_usd INTEGER NOT NULL,
    last INTEGER NOT NULL,
    ttft BLOB NOT NULL,
    PRIMARY KEY (start, group_id)
) STRICT, WITHOUT ROWID;
";
