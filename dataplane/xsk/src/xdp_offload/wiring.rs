//! Where the ports of tables are.

use std::collections::BTreeMap;

use srv6d_fib::DeviceRow;

/// The devices of one generation, by the index of their port in the tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wiring {
    /// Number of the device, for ports whose packets the program may forward.
    pub from: BTreeMap<u16, u16>,
    /// What the program knows of ports that packets may leave through.
    pub to: BTreeMap<u16, DeviceRow>,
}
