//! Replacement for containerlab that uses namespaces, because tests have no container engine.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

pub mod engine;
pub mod topology;
