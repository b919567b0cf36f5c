//! The dashscope wire for callers that speak OpenAI chat: requests by rule, replies at every cut,
//! and whatever a caller may think of.

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)] // tests

#[path = "../replay/mod.rs"]
mod replay;

mod random;
mod request;
mod stream;
