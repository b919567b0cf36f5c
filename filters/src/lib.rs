//! Provider wires and client dialects of weir, as pure functions: bytes in, bytes and facts out.
//!
//! Nothing here knows a socket, a clock or a file, so all of it can be fuzzed, replayed at every
//! byte cut and measured alone. Reading order: [`usage`] (what is counted and what it costs),
//! [`tokens`] (how it is counted when nobody says), [`sse`] (events out of bytes), [`objects`]
//! (the same for JSON in a row), [`peek`] (what a
//! gateway must know of a request body, and how it edits it without parsing it whole), [`error`]
//! (any provider's failure in the caller's words), [`wire`] (one provider protocol a file) and
//! [`dialect`] (what callers speak).

pub mod chat;
pub mod dialect;
pub mod error;
pub mod objects;
pub mod peek;
pub mod sse;
pub mod tokens;
pub mod usage;
pub mod wire;
