//! Choosing among the members of a group (next hops or paths) by state: which member a flow had last, and how busy the
//! members are.
//!
//! ```text
//! port ──► Sampler ──► score ──► band 0..7 ─┐
//! flow ──► FlowTable: had a member, and no longer idle than the gap? ── yes ──► the same member
//!                       └── no ──► draw (flowlet), or the best band (adaptive; global: of both links)
//! neighbour's heartbeats ──► FarPorts: the links behind it ──► far band
//! ```
//!
//! A group that looks at no state has weights instead, which may follow from what its links can carry ([`weights`]).
//!
//! It has no clock and does no I/O: time, random numbers and members are handed in, so a worker and a simulator choose alike.
#![forbid(unsafe_code)]

mod bands;
mod capacity;
mod chooser;
mod far;
mod flows;
mod policy;

pub use bands::{Band, BandScale, Sample, Sampler, combined, settled};
pub use capacity::{BitRate, Link, LinkId, Links, Metric, Origin, Publishers, believed, path_capacity, weights};
pub use chooser::{Choice, Chooser, Members, Why};
pub use far::{FarPorts, PortState, Profile, mean};
pub use flows::{FlowTable, Flows};
pub use policy::{Adaptive, Policy, PolicyMode, Reactive};
