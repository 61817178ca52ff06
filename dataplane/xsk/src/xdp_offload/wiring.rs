//! The devices of the ports in the tables.

use std::collections::{BTreeMap, BTreeSet};

use srv6d_fib::DeviceRow;

use crate::XskError;

/// The devices of one generation, by the index of their port in the tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramWiring {
    /// Number of the device, for ports whose packets the program may forward.
    pub from: BTreeMap<u16, u16>,
    /// What the program knows of ports that packets may leave through.
    pub to: BTreeMap<u16, DeviceRow>,
    /// Where packets for this node are delivered, if the program may.
    pub kernel: Option<KernelEnd>,
}

/// The kernel's end of srv6d's own veth, and the ports whose packets are delivered there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelEnd {
    /// Index of its interface.
    pub ifindex: u32,
    /// Number of the device that is the packet end of the veth.
    pub number: u16,
    /// Ports that [`put_on_ingress`](super::XdpOffload::put_on_ingress) has been called for, by their index in the tables.
    pub from: BTreeSet<u16>,
}

impl KernelEnd {
    /// Returns the end with this name. The other end is the device with this number. Nothing is delivered there yet.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn of(ifname: &str, number: u16) -> Result<Self, XskError> {
        Ok(Self { ifindex: crate::ifindex(ifname)?, number, from: BTreeSet::new() })
    }
}
