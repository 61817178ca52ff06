//! Formats the tables of the `show` commands.

mod interfaces;
mod neighbors;
mod srv6;
mod system;

pub use interfaces::{
    Addresses, InterfaceStatus, PortCounters, addresses, counters, descriptions, port_statuses, state_letter,
};
pub use neighbors::{Neighbor, neighbors};
pub use srv6::{SidCount, locators, sid_counts, static_sids};
pub use system::{Resource, Version, counterpoll, platform, resources, version, vrfs};

/// Text for an unknown value.
pub(crate) const NOT_AVAILABLE: &str = "N/A";
