//! Provider wires and client dialects of weir, as pure functions: bytes in, bytes and facts out.
//!
//! Nothing here knows a socket, a clock or a file, so all of it can be fuzzed, replayed at every
//! byte cut and measured alone. Reading order: [`usage`] (what is counted and what it costs),
//! [`tokens`] (how it is counted when nobody says), [`sse`], [`objects`] and [`frames`] (events,
//! JSON objects and AWS's binary frames out of bytes), [`peek`] (what a gateway must know of a
//! request body, and how it edits it without parsing it whole), [`line`] (JSON lines, written
//! fast), [`error`] (any provider's failure in the caller's words), [`wire`] (one provider protocol
//! a file), [`dialect`] (what callers speak) and [`sign`] (AWS's signature).

pub mod chat;
pub mod dialect;
pub mod error;
pub mod frames;
pub mod line;
pub mod objects;
pub mod peek;
pub mod sign;
pub mod sse;
pub mod tokens;
pub mod usage;
pub mod wire;
