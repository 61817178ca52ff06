//! Experiments: a fabric of leaves and spines in virtual time, on which every way of choosing paths meets the same traffic
//! and the same faults.
//!
//! ```text
//! file ──► Experiment ──► for each case, mode and seed: Simulation ──► Run ──► JSON line, table, page
//! ```
//!
//! Ports, samplers, groups, hashes and choosers are those of the daemon. What is simulated around them is simple: packets are
//! records without bytes, a sender has a window, and it learns at once what got lost. There is no clock and no thread, so the
//! same file and seed give the same result. In the exact mode ([`Packets::Frames`]) packets are real frames, and a worker of
//! srv6d forwards them in each node.
#![forbid(unsafe_code)]

mod agenda;
mod bounds;
mod changes;
mod exact;
mod example;
mod failure;
mod faults;
mod file;
mod heat;
mod job;
mod modes;
mod outcome;
mod page;
mod queue_pair;
mod result;
mod rows;
mod schema;
mod settings;
mod shape;
mod simulation;
mod summary;
mod tally;
mod traffic;

pub use example::EXAMPLE;
pub use failure::RunError;
pub use file::parse;
pub use page::page;
pub use result::{Drops, Percentiles, Run};
pub use settings::{Case, ChoiceRule, DilationError, Direction, Experiment, Fabric, Fault, FaultKind, Mode, Traffic};
pub use simulation::{Load, Packets, RunOutcome, simulate};
pub use summary::{Summary, summaries, table};
