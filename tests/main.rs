//! Every test that needs a gateway, a provider or the binary: one program, one module per area.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

#[allow(dead_code, unused_imports)] // a kit of tools: which of them an area uses is its own matter
mod harness;

mod admin;
mod alerts;
mod budgets;
mod chat;
mod clients;
mod config;
mod crash;
mod credentials;
mod demo;
mod dialects;
mod embeddings;
mod errors;
mod explain;
mod failover;
mod hazards;
mod keys;
mod ledger;
mod lifecycle;
mod limits;
mod metering;
mod observe;
mod redis;
mod routing;
mod session;
mod stream;
mod strict;
mod systemd;
mod tidy;
mod timeouts;
mod tls;
mod upstream;
mod vault;
