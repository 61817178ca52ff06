//! What containerlab does to its nodes, done with namespaces: there is no container engine here.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

pub mod engine;
pub mod topology;
