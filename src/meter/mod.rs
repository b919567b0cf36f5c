//! What each request used and cost: one event, in the spool before the caller sees the end.
//!
//! [`Spool`] appends lines, those that come together with one `write(2)`; [`Ledger`] applies them
//! to SQLite exactly once; [`report`] reads the ledger. The spool is the truth and the ledger
//! follows from it, so a ledger that is away, locked or broken costs no request and no event.

mod apply;
pub mod event;
mod gather;
mod histogram;
pub mod ledger;
pub mod lines;
pub mod report;
mod rows;
pub mod segment;
pub mod spool;
pub mod stats;
pub mod stop;
mod sums;

pub use apply::{Probe, Step};
pub use event::{Admitted, Attempt, Event, Outcome};
pub use gather::Pending;
pub use ledger::Ledger;
pub use spool::Spool;
pub use stats::Stats;
pub use stop::Stop;
