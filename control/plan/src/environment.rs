//! The state of kernel and network: the inputs of a plan that are not in the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use srv6d_addresses::{Mac, TableId};
use srv6d_balance::Links;
use srv6d_kernel_routes::{KernelRoute, Routes};
use srv6d_srv6::carrier::SegmentList;

/// Devices, addresses, neighbours and routes of the machine (or network namespace). If it is empty, nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Host name when it was first read. A later one would move flows.
    pub host_name: String,
    /// Network devices, including those of VLANs and the loopback.
    pub devices: Vec<Device>,
    /// Resolved entries of the kernel's neighbour tables.
    pub neighbors: Vec<KernelNeighbor>,
    /// The veth of srv6d, once it exists.
    pub host: Option<HostVeth>,
    /// Cores that this process may run on. If it is empty, they are unknown.
    pub cores: Vec<usize>,
    /// Largest outer packet along these segments, if a router on the way has reported one.
    pub path_mtus: BTreeMap<SegmentList, u32>,
    /// Routes and rules without those of srv6d. It is empty if they are not needed.
    pub routes: Arc<Routes>,
    /// Tables of VRF devices, by the kernel index of the device.
    pub vrfs: BTreeMap<u32, TableId>,
    /// Tables of the devices that are in a VRF, by their names.
    pub vrf_members: BTreeMap<String, TableId>,
    /// Ports that a learned route to SIDs has left by, at any time since the daemon was started.
    pub faced_routers: BTreeSet<String>,
    /// Routes that FRR announces over FPM, one for each prefix of a table.
    pub announced: Arc<Vec<KernelRoute>>,
    /// Measurements of the loads of ports, and reports about the links behind neighbours.
    pub links: Arc<Links>,
    /// Names of paths that probes have found dead. They are left out.
    pub unused_paths: Arc<BTreeSet<String>>,
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
    /// Whether the device is administratively up and has carrier.
    pub up: bool,
    /// Addresses with their prefix lengths (not masked).
    pub addresses: Vec<IpNet>,
}

/// One resolved neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelNeighbor {
    /// Name of the device.
    pub device: String,
    /// IP address.
    pub address: IpAddr,
    /// Ethernet address.
    pub mac: Mac,
}

/// The veth pair of srv6d. One end belongs to the kernel's stack, and frames on the other end are srv6d's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostVeth {
    /// Name of the end that srv6d's sockets are bound to.
    pub device: String,
    /// MAC address of the packet end.
    pub packet_mac: Mac,
    /// MAC address of the kernel's end, to which local deliveries go.
    pub kernel_mac: Mac,
    /// Largest layer-3 packet, in bytes.
    pub mtu: u32,
    /// Whether both ends are up.
    pub up: bool,
}

impl Environment {
    /// Returns the device of that name.
    pub fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }
}

/// Returns true for a link-local address of either family, which is valid only together with a port.
pub(super) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}
