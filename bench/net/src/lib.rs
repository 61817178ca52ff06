//! Measures forwarding on one machine: namespaces generator -> device under test (DUT) -> sink, connected by veth
//! pairs.
//!
//! ```text
//!  gen                      dut                            sink
//!  generate (BPF) ─ veth ─► in ─ DUT: kernel, srv6d ... ─► out ─ veth ─► count (BPF)
//!  core 0                   ingress NAPI, worker           NAPI: on the sending core or on its own
//! ```
//!
//! Parts without side effects, tested without a network: [`statistics`], [`verdict`], [`search`], [`bars`], [`plan`],
//! [`progress`]. Parts that need root: [`testbed`], [`generator`], [`sink`], [`dut`], [`trial`].

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counters become rates to be shown"
)]

pub mod affinity;
pub mod bars;
pub mod campaign;
pub mod compare;
pub mod cpu;
pub mod dut;
pub mod error;
pub mod floor;
pub mod frames;
pub mod generator;
pub mod host;
pub mod jumbo;
pub mod latency;
pub mod layout;
pub mod machine;
pub mod neighbors;
pub mod netns;
pub mod objects;
pub mod pictures;
pub mod plan;
pub mod progress;
pub mod report;
pub mod results;
pub mod search;
pub mod sink;
pub mod statistics;
pub mod testbed;
pub mod trial;
pub mod turns;
pub mod verdict;

pub use error::BenchError;
