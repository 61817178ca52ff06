//! What containerlab does to its nodes, done with namespaces: there is no container engine here.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

pub mod engine;
pub mod topology;
