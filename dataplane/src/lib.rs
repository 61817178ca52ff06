//! Worker loop, ports, table snapshots and counters: threads and wiring. What becomes of a packet is decided in
//! `srv6d-srv6`; how it is received and sent is `srv6d-xsk`'s.
//!
//! ```text
//! control thread                       worker i (pinned core), queue i of every port
//!   Dataplane::publish ──► snapshot ─────► rx burst ─► forward ─► tx per port, one flush per port
//!   Dataplane::attach  ──► sockets ──────►     ▲            └─► held until the next hop resolves ─┐
//!   wanted_neighbors   ◄─────────────────────  └──────────────────── next snapshot ◄──────────────┘
//! ```
#![forbid(unsafe_code)]

mod beside;
pub mod capture;
mod claims;
mod counters;
mod dataplane;
mod held;
pub mod io;
pub mod memory;
pub mod publish;
pub mod reader;
mod snapshot;
mod step;
mod worker;

pub use counters::{
    Counters, DeviceCounters, NextHopCounters, PathCounters, SidCounters, Totals, VlanCounters, WorkerCounters,
};
pub use dataplane::{AttachedPort, Dataplane, DataplaneError, Generation, Polling, PortOffload, Settings, forwarding};
pub use publish::{Amended, Published, Publisher};
pub use reader::Reader;
pub use snapshot::{Snapshot, Wiring};
pub use srv6d_xsk::BusyPolling;
pub use step::{BURST, Step, look_ups};
pub use worker::{PacketMemory, Rounds, Sockets};
