//! What each request used and cost: one event, in the spool before the caller sees the end.

pub mod event;
pub mod spool;

pub use event::{Admitted, Attempt, Event, Outcome};
pub use spool::Spool;
