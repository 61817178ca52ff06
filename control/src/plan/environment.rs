//! What the kernel and the network show: the part of a plan that is not written in the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use srv6d_kernel_routes::{KernelRoute, Routes};
use srv6d_srv6::carrier::SegmentList;
use srv6d_srv6::model::{Mac, TableId};

/// Devices, addresses, neighbours and routes of the machine (or network namespace). Empty: nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Network devices, those of VLANs and the loopback included.
    pub devices: Vec<Device>,
    /// Resolved entries of the kernel's neighbour tables.
    pub neighbors: Vec<KernelNeighbor>,
    /// srv6d's own veth, once it exists.
    pub host: Option<HostVeth>,
    /// Cores this process may run on; empty: unknown.
    pub cores: Vec<usize>,
    /// Largest outer packet along these segments, where a router on the way has said one.
    pub path_mtus: BTreeMap<SegmentList, u32>,
    /// Routes and rules, srv6d's own left out; empty where nobody needs them.
    pub routes: Arc<Routes>,
    /// Tables of VRF devices, by the kernel index of the device.
    pub vrfs: BTreeMap<u32, TableId>,
    /// The same for the devices that are in a VRF, by their names.
    pub vrf_members: BTreeMap<String, TableId>,
    /// Ports that a learned route to SIDs has left by, at some time since the daemon was started.
    pub faced_routers: BTreeSet<String>,
    /// Routes that FRR announces over FPM, one for each prefix of a table.
    pub announced: Arc<Vec<KernelRoute>>,
}

/// One network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name.
    pub name: String,
    /// Kernel index.
    pub ifindex: u32,
    /// Ethernet address.
    pub mac: Mac,
    /// Largest layer-3 packet, in bytes.
    pub mtu: u32,
    /// Administratively up, with carrier.
    pub up: bool,
    /// Addresses with their prefix lengths (not masked).
    pub addresses: Vec<IpNet>,
}

/// One resolved neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelNeighbor {
    /// Name of the device.
    pub device: String,
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address.
    pub mac: Mac,
}

/// srv6d's own veth pair: one end belongs to the kernel's stack, frames on the other are srv6d's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostVeth {
    /// Name of the end that srv6d's sockets are bound to.
    pub device: String,
    /// Address of that end.
    pub packet_mac: Mac,
    /// Address of the kernel's end: where local deliveries go.
    pub kernel_mac: Mac,
    /// Largest layer-3 packet, in bytes.
    pub mtu: u32,
    /// Both ends are up.
    pub up: bool,
}

impl Environment {
    /// The device of that name.
    pub fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }
}

/// A link-local address (either family): it means nothing without a port.
pub(super) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}
