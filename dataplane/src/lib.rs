//! Worker loop, ports, table snapshots and counters: threads and wiring. `srv6d-srv6` decides about each packet, and
//! `srv6d-xsk` receives and sends it.
//!
//! ```text
//! control thread                       worker i (pinned core), queue i of every port
//!   Dataplane::publish ──► snapshot ─────► rx burst ─► forward ─► tx per port, one flush per port
//!   Dataplane::attach  ──► sockets ──────►     ▲            └─► held until the next hop resolves ─┐
//!   wanted_neighbors   ◄─────────────────────  └──────────────────── next snapshot ◄──────────────┘
//! ```
#![forbid(unsafe_code)]

pub mod capture;
mod claims;
mod counters;
mod dataplane;
pub mod drops;
mod emulated;
pub mod explain;
pub mod hand_over;
mod held;
pub mod io;
pub mod left_right;
pub mod memory;
mod sampling;
mod step;
mod worker;
mod workload;

pub use counters::{
    ChoiceCounters, Counters, DeviceCounters, LATE_BUCKETS, NextHopCounters, PathCounters, QueueCounters, SidCounters,
    Totals, VlanCounters, WorkerCounters,
};
pub use dataplane::{
    AttachedPort, Dataplane, DataplaneError, Generation, Polling, PortOffload, PortTraffic, Settings, WhyWorker,
    offload_wiring,
};
pub use left_right::{Amended, EmulatedPort, Published, Publisher, Reader, Snapshot, Wiring};
pub use srv6d_xsk::BusyPolling;
pub use step::{BURST, Step, look_ups};
pub use worker::{PacketMemory, Sockets, WorkerLoop};
pub use workload::{STAGES, Workload};
