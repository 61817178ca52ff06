//! The text of each table of `show`.

mod interfaces;
mod srv6;
mod system;

pub use interfaces::{
    Addresses, PortCounters, PortStatus, addresses, counters, descriptions, port_statuses, state_letter,
};
pub use srv6::{SidCount, locators, sid_counts, static_sids};
pub use system::{Resource, Version, counterpoll, resources, version, vrfs};

/// What is not known.
pub(crate) const NOT_AVAILABLE: &str = "N/A";
