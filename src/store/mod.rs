//! The ledger's database: connections, migrations, health.
