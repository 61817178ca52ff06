//! The daemon: one control loop, and the rooms that it asks.
//!
//! ```text
//! confine, kernel, capture <- fpm, glb, probes, source, job, metrics <- daemon
//! ```

#![forbid(unsafe_code)]

pub mod capture;
pub mod confine;
mod daemon;
pub mod fpm;
pub mod glb;
mod job;
pub mod kernel;
pub mod kernel_release;
mod limits;
pub mod metrics;
pub mod probes;
pub mod source;

pub use daemon::{
    Configured, Extension, Overlay, Prepared, RunError, Synced, cleanup, environment, gateway, log_to_stderr, qdisc,
};
