//! Runs srv6d as a SONiC switch: the switch's two files become a configuration, and the kernel is made to match them.
//!
//! ```text
//! config_db.json ─┐                     ┌─► to_toml ─► added to srv6d.toml's own entries ─► plan
//!                 ├─► srv6d_sonic::read ┤
//! frr.conf ───────┘        Switch       └─► Wanted ─► kernel: names, MTU, addresses, neighbours, routes
//! ```

#![forbid(unsafe_code)]

pub mod cli;
mod extension;
mod files;
mod kernel;
mod places;
pub mod run;
mod table;
mod wanted;

pub use extension::SwitchExtension;
pub use files::{SwitchConfig, SwitchFiles, configuration, count_ports, interfaces_of_a_switch};
pub use kernel::SwitchKernel;
pub use places::{Places, lock};
pub use table::{RouterMac, Sonic, SwitchUsd};
pub use wanted::{
    Wanted, WantedAction, WantedEncap, WantedHop, WantedLoopback, WantedNeighbor, WantedPort, WantedRoute, WantedSid,
};
