//! srv6d as a SONiC switch: its two files become a configuration, and the kernel is made to match.
//!
//! ```text
//! config_db.json ─┐                     ┌─► to_toml ─► added to srv6d.toml's own entries ─► plan
//!                 ├─► srv6d_sonic::read ┤
//! frr.conf ───────┘        Switch       └─► Wanted ─► kernel: names, MTU, addresses, neighbours, routes
//! ```

mod files;
mod kernel;
mod places;
pub mod run;
mod wanted;

pub(crate) use files::report;
pub use files::{
    SwitchFiles, configuration, count_ports, interfaces, interfaces_of_a_switch, laid_over, wanted, with_interfaces,
};
pub use kernel::{SwitchKernel, Synced};
pub use places::{Places, lock};
pub use wanted::{
    Wanted, WantedAction, WantedEncap, WantedHop, WantedLoopback, WantedNeighbor, WantedPort, WantedRoute, WantedSid,
};
