//! What routes and packets name: tables, Ethernet addresses, carriers and segment lists, and maps of prefixes.
//!
//! Nothing here knows how packets are forwarded, so that whoever only reads routes or configurations needs no more.
#![forbid(unsafe_code)]

pub mod carrier;
mod mac;
pub mod prefix_map;

pub use mac::{Mac, MacParseError};

/// Kernel routing table id. It names a VRF (`seg6local ... table N`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

impl TableId {
    /// The default VRF: `main`, 254 in `/etc/iproute2/rt_tables`.
    pub const MAIN: Self = Self(254);
    /// A table without routes: all packets of its ports go to the kernel.
    pub const NOBODY: Self = Self(u32::MAX);
}
