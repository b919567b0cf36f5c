//! What operators see: metrics, the access log, and a log that holds no secret.

/// Every metric of CONTRACT section 7 that this version fills.
#[derive(Debug)]
pub struct Metrics {}

/// One line a request.
#[derive(Debug)]
pub struct AccessLog {}
