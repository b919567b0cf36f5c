//! The ollama wire for callers that speak OpenAI chat: requests by rule, recorded replies at every
//! cut, and whatever a caller may think of.

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)] // tests

#[path = "../replay/mod.rs"]
mod replay;

mod random;
mod recorded;
mod request;
mod stream;
