//! weir, an LLM gateway: the modules in reading order.
//!
//! [`base`] names things. [`config`] turns TOML into a snapshot. [`access`], [`limit`], [`route`],
//! [`vault`], [`meter`] and [`observe`] are siblings that never name each other; [`store`] is below
//! them. [`flow`] walks a request through them. [`proxy`] and [`admin`] speak HTTP; [`server`] puts
//! all of it together, and [`cli`] starts it. [`demo`] is the simulated provider.

pub mod access;
pub mod admin;
pub mod base;
pub mod cli;
pub mod config;
pub mod demo;
pub mod flow;
pub mod limit;
pub mod meter;
pub mod observe;
pub mod proxy;
pub mod route;
pub mod server;
pub mod store;
pub mod vault;
