//! What operators see: metrics, the access log, and a log that holds no secret.

pub mod access;
pub mod health;
pub mod limits;
pub mod logger;
pub mod metrics;
pub mod redact;
pub mod series;
pub mod stderr;
pub mod tables;
pub mod targets;
mod trust;

pub use access::{AccessLog, Line, Output, Waiting};
pub use health::{Gauges, Health};
pub use logger::{CONFIG, Logger};
pub use metrics::{Finished, Metrics};
pub use redact::redact;
